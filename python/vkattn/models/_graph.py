"""The tensors between the operations of a recorded model."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from .._device import Device, Tensor
from .._plan import Plan

# Seconds that a run may take; the first one compiles, which takes a CPU driver long.
TIMEOUT = 600.0
KEPT = 8  # recorded plans of an encoder


class Linear(NamedTuple):
    weight: Tensor  # [out][in]
    bias: Tensor | None = None
    scale: Tensor | None = None  # float32 [out], by which rows of the weight are multiplied

    @property
    def size(self) -> int:
        return int(self.weight.shape[0])


class Graph:
    """A plan over rows [batch][rows][width] of float32.

    layers: those whose attention weights `weights` receives, float32 [batch][n_head][rows][rows].
    whole_n_q: rows that the kernel of attention is chosen for; 0: these.
    """

    def __init__(
        self,
        device: Device,
        batch: int,
        rows: int,
        layers: Sequence[int] = (),
        whole_n_q: int = 0,
    ) -> None:
        self.device = device
        self.batch = batch
        self.rows = rows
        self.plan = Plan(device, whole_n_q=whole_n_q)
        self.weights: dict[int, Tensor | None] = dict.fromkeys(layers)
        self.n_attention = 0

    def make(self, width: int) -> Tensor:
        return self.device.empty((self.batch, self.rows, width))

    def split(self, tensor: Tensor, *widths: int) -> list[Tensor]:
        """Views of its columns, one after the other."""
        return [tensor.slice(2, sum(widths[:i]), n) for i, n in enumerate(widths)]

    def heads(self, tensor: Tensor, n_head: int) -> Tensor:
        """View [batch][n_head][rows][dim] of [batch][rows][n_head * dim]."""
        dim = tensor.shape[2] // n_head
        return tensor.reshape(self.batch, self.rows, n_head, dim).permute(0, 2, 1, 3)

    def attention(self, q: Tensor, k: Tensor, v: Tensor, output: Tensor, **options: Any) -> None:
        """Self-attention of the next layer of an encoder."""
        layer = self.n_attention
        self.n_attention += 1
        if layer in self.weights:
            shape = self.batch, q.shape[1], self.rows, self.rows
            options["scores_to"] = self.weights[layer] = self.device.empty(shape)
            options["scores"] = "softmax"
        self.plan.attention(q, k, v, output, **options)

    def linear(self, input: Tensor, by: Linear, output: Tensor | None = None) -> Tensor:
        if output is None:
            output = self.device.empty((*input.shape[:-1], by.size))
        self.plan.linear(input, by.weight, output, bias=by.bias, weight_scale=by.scale)
        return output

    def linears(self, input: Tensor, bys: Sequence[Linear], output: Tensor) -> None:
        """Products of one input: the columns of output, one after the other."""
        first = 0
        for by in bys:
            self.linear(input, by, output.slice(2, first, by.size))
            first += by.size

    def residual(self, input: Tensor, by: Linear, x: Tensor) -> None:
        """Adds the product to x."""
        self.plan.linear(
            input, by.weight, x, bias=by.bias, weight_scale=by.scale, accumulate=True
        )

    def gather(self, table: Tensor, ids: Tensor, **options: Any) -> Tensor:
        output = self.device.empty((*ids.shape, table.shape[1]))
        self.plan.gather(table, ids, output, **options)
        return output

    def unit(self, rows: Tensor) -> None:
        """Brings rows [n][width] to length 1: x / |x| is the RMS norm divided by sqrt(width)."""
        width = rows.shape[1]
        weight = self.device.tensor(np.full(width, width**-0.5, np.float32))
        self.plan.norm(rows, rows, weight=weight, epsilon=1e-24)


class Recorded:
    """Recordings by what they were made for, such as the size of their batch: the `most` that were
    used last. make(*key) makes one that is not there; its `plan` is closed when it is dropped."""

    def __init__(self, make: Callable[..., Any], most: int = KEPT) -> None:
        self.make = make
        self.most = most
        self.kept: dict[tuple[Any, ...], Any] = {}  # the one used last stands last

    def get(self, *key: Any) -> Any:
        made = self.kept.pop(key, None) or self.make(*key)
        self.kept[key] = made
        if len(self.kept) > self.most:
            self.kept.pop(next(iter(self.kept))).plan.close()
        return made
