"""What the sequences of a batch have seen: keys and values in a cache, and the states of layers
that have none."""

from __future__ import annotations

from typing import Mapping, Sequence

import numpy as np

from .._cache import Cache
from .._device import Device, Tensor

# Shapes of a layer's states by name, of one sequence; none of a layer with keys and values.
Shapes = Mapping[str, "tuple[int, ...]"]
States = Mapping[str, Tensor]  # of all sequences: [batch], and behind it the shape


class Seen:
    """Lengths, forks and what is forgotten belong to a sequence, and hold for all its layers. A state
    cannot go back: of a sequence with states all positions are kept, or none."""

    def __init__(
        self,
        device: Device,
        *,
        batch: int,
        capacity: int,
        n_layer: int,
        n_kv_head: int,
        head_dim: int,
        key_dtype: str,
        states: Sequence[Shapes] = (),
    ) -> None:
        """n_layer: those with keys and values. states: of each layer of the model, if one has any."""
        self.batch = batch
        self.cache = Cache(
            device,
            batch=batch,
            n_layer=n_layer,
            n_kv_head=n_kv_head,
            head_dim=head_dim,
            capacity=capacity,
            key_dtype=key_dtype,
        )
        self.states: list[States] = [
            {name: device.tensor(np.zeros((batch, *x), np.float32)) for name, x in shapes.items()}
            for shapes in states
        ]

    def _all(self) -> list[Tensor]:
        return [tensor for layer in self.states for tensor in layer.values()]

    def length(self, sequence: int) -> int:
        return self.cache.length(sequence)

    def keeps(self, sequence: int, length: int) -> int:
        """How many of the first `length` positions `truncate` can keep."""
        return length if not self._all() or length == self.length(sequence) else 0

    def truncate(self, sequence: int, length: int) -> None:
        """length: of a sequence with states what `keeps` gives."""
        if not length:
            for tensor in self._all():
                rows = tensor.slice(0, sequence, 1)
                rows.write(np.zeros(rows.shape, np.float32))
        self.cache.truncate(sequence, length)

    def fork(self, source: int, to: int) -> None:
        self.cache.fork(source, to)
        for tensor in self._all():
            tensor.slice(0, to, 1).write(tensor.slice(0, source, 1).read())

    def close(self) -> None:
        self.cache.close()
