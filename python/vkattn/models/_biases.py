"""Biases of scores by the distance of two ids, in buckets, as T5 has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._device import Device, Tensor
from .._errors import UnsupportedError
from ._encoder_families import Relative
from ._graph import Graph
from ._layers import Sizes, size_of
from ._keys import Keys
from ._source import Weights


def buckets(distance: np.ndarray, count: int, most: int) -> np.ndarray:
    """The bucket of a key that stands so far from the query, at most as far as `most`: each near
    distance has its own, and further ones share them by their logarithm."""
    near = count // 2
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(near))
    shared = near + (ratio / np.float32(np.log(most / near)) * (count - near)).astype(np.int64)
    return np.where(distance < near, distance, np.minimum(shared, count - 1))


class Biases:
    """Tables of biases by distance: one, or one for each layer."""

    def __init__(
        self,
        weights: Weights,
        keys: Keys,
        prefix: str,
        relative: Relative,
        at: str,
        sizes: Sizes,
        causal: bool = False,
    ) -> None:
        """at: a layer's place in the file, with {} for its number."""
        self.count = keys.size("relative_attention_num_buckets", 32)
        self.furthest = size_of(keys, relative.furthest)
        self.n_layer = sizes.n_layer
        if self.count % 4 or self.furthest <= self.count // (2 if causal else 4):
            raise UnsupportedError(
                f"{keys.where}: {self.count} relative_attention_num_buckets up to"
                f" {self.furthest} are not supported"
            )
        places = [at.format(i) for i in range(sizes.n_layer)] if relative.each else [""]
        self.tables = [
            weights.matrix(f"{prefix}{place}{relative.name}", self.count, sizes.n_head)
            .read()
            .astype(np.float32)
            for place in places
        ]

    def masks(self, device: Device, rows: int) -> list[dict[str, Any]]:
        """The argument of attention in each layer. Half of the buckets are for keys behind."""
        distance = np.arange(rows)[None, :] - np.arange(rows)[:, None]
        half = self.count // 2
        which = (distance > 0) * half + buckets(np.abs(distance), half, self.furthest)
        made = [
            {"mask": device.tensor(np.ascontiguousarray(table[which].transpose(2, 0, 1)[None]))}
            for table in self.tables
        ]
        return made if len(made) == self.n_layer else made * self.n_layer

    def causal_masks(self, graph: Graph, positions: Tensor, capacity: int) -> list[dict[str, Any]]:
        """The same over a cache, for queries at positions i32 [batch][rows], read on the device."""
        batch, rows = positions.shape
        distance = np.arange(capacity)[:, None] - np.arange(capacity)[None, :]
        which = buckets(np.maximum(distance, 0), self.count, self.furthest)
        made = []
        for table in self.tables:
            n_head = table.shape[1]
            each = np.ascontiguousarray(table[which].transpose(0, 2, 1))  # [query][head][key]
            stored = graph.device.tensor(each.reshape(capacity, n_head * capacity))
            chosen = graph.gather(stored, positions).reshape(batch, rows, n_head, capacity)
            made.append({"mask": chosen.permute(0, 2, 1, 3)})
        return made if len(made) == self.n_layer else made * self.n_layer
