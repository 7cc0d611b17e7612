"""Recorded runs of an encoder: texts packed end to end, or one in each place of a batch."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Protocol, Sequence

import numpy as np

from .._device import Device, Tensor
from ._graph import Graph
from ._heads import HeadLayers
from ._pooling import Dense, Pooling

AT_ONCE = 16
PACKED_AT_ONCE = 64
ROWS = 32  # lengths of a batch are rounded up to them
MOST_ROWS = 8192  # of texts that are packed, if they are several
MOST_LOGITS = 2**28  # bytes of results that a run returns, if of several texts
MANY = 128  # rows of a text that kernels of packed texts are chosen for


class Wanted(NamedTuple):
    """What a run gives: "vectors" or "logits" of texts; "rows", "words" (logits of each row);
    "weights" of attention in layers."""

    kind: str = "vectors"
    layers: tuple[int, ...] = ()
    typed: bool = False  # whether ids have types


class Model(Protocol):
    """What is recorded."""

    device: Device
    width: int
    pooling: Pooling
    dense: Dense
    head: HeadLayers | None

    def add(
        self,
        graph: Graph,
        ids: Tensor,
        lengths: Tensor | None = None,
        packed: tuple[Tensor, Tensor] | None = None,
        types: Tensor | None = None,
    ) -> Tensor: ...


# Rows [texts][width] of hidden rows: their "mean", the "first" or the "last".
Pool = Callable[[Tensor, str], Tensor]


def _result(model: Model, graph: Graph, hidden: Tensor, pool: Pool, wanted: Wanted) -> Tensor:
    """[texts][..], or [rows of the run][..] for rows and words."""
    rows = hidden.reshape(graph.batch * graph.rows, hidden.shape[2])
    if wanted.kind in ("vectors", "rows"):
        each = wanted.kind == "rows" and model.pooling.kind != ""
        if each:
            return rows
        made = rows if wanted.kind == "rows" else pool(hidden, model.pooling.kind)
        made = model.dense.add(graph, made)
        if model.pooling.normalised:
            graph.unit(made)
        return made
    assert model.head
    if wanted.kind == "words":
        return model.head.add(graph, rows)
    if model.head.pool == "late":
        logits = model.head.add(graph, rows)
        return pool(logits.reshape(graph.batch, graph.rows, model.head.size), "mean")
    return model.head.add(graph, pool(hidden, model.head.pool))


class Padded:
    """Up to `batch` texts of up to `rows` ids."""

    def __init__(self, model: Model, batch: int, rows: int, wanted: Wanted) -> None:
        device = model.device
        graph = Graph(device, batch, rows, wanted.layers)
        self.plan = graph.plan
        self.ids = device.empty((batch, rows), "i32")
        self.types = device.empty((batch, rows), "i32") if wanted.typed else None
        self.lengths = device.empty((batch,), "i32")
        self.ends = device.empty((batch,), "i32")  # the last row of each, of all rows
        hidden = model.add(graph, self.ids, self.lengths, types=self.types)
        self.weights = graph.weights

        def pool(given: Tensor, kind: str) -> Tensor:
            width = given.shape[2]
            if kind == "last":
                return graph.gather(given.reshape(batch * rows, width), self.ends)
            output = device.empty((batch, width))
            if kind == "mean":
                self.plan.pool(given, output, lengths=self.lengths)
            else:
                first = given.slice(1, 0, 1).reshape(batch, width)
                self.plan.activation(first, output, "identity")
            return output

        if wanted.kind != "weights":
            self.output = _result(model, graph, hidden, pool, wanted)
        self.plan.finish()

    def run(self, texts: Sequence[Sequence[int]], types: Any, timeout: float) -> None:
        batch, rows = self.ids.shape
        ids = np.full((batch, rows), -1, np.int32)
        kinds, lengths = np.zeros_like(ids), np.zeros(batch, np.int32)
        for b, text in enumerate(texts):
            ids[b, : len(text)] = text
            lengths[b] = len(text)
            if types:
                kinds[b, : len(text)] = types[b]
        self.ids.write(ids)
        self.lengths.write(lengths)
        self.ends.write((np.arange(batch) * rows + np.maximum(lengths, 1) - 1).astype(np.int32))
        if self.types:
            self.types.write(kinds)
        self.plan.run(timeout)

    def rows_of(self, lengths: Sequence[int]) -> list[np.ndarray]:
        """The rows of each text of the last run."""
        made, rows = self.output.read(), self.ids.shape[1]
        return [made[b * rows : b * rows + n].copy() for b, n in enumerate(lengths)]


class Packed:
    """Up to `batch` texts of up to `longest` ids, one after the other in `rows` rows."""

    def __init__(self, model: Model, batch: int, rows: int, wanted: Wanted, longest: int) -> None:
        device = model.device
        graph = Graph(device, 1, rows, whole_n_q=MANY)
        self.plan = graph.plan
        self.longest = longest
        self.ids = device.empty((1, rows), "i32")
        self.types = device.empty((1, rows), "i32") if wanted.typed else None
        self.positions = device.empty((1, rows), "i32")  # of each row in its text
        self.starts = device.empty((batch + 1,), "i32")
        self.lengths = device.empty((batch,), "i32")
        self.places: dict[str, Tensor] = {}
        packed = self.starts, self.positions
        hidden = model.add(graph, self.ids, packed=packed, types=self.types)

        def pool(given: Tensor, kind: str) -> Tensor:
            # Means of rows that a text has at the same places in any batch, for the same bits.
            width = given.shape[2]
            places = device.empty((batch, longest if kind == "mean" else 1), "i32")
            self.places[kind] = places
            chosen = graph.gather(given.reshape(rows, width), places)
            if kind != "mean":
                return chosen.reshape(batch, width)
            output = device.empty((batch, width))
            self.plan.pool(chosen, output, lengths=self.lengths)
            return output

        self.output = _result(model, graph, hidden, pool, wanted)
        self.plan.finish()

    def run(self, texts: Sequence[Sequence[int]], types: Any, timeout: float) -> None:
        batch = self.lengths.shape[0]
        lengths = np.zeros(batch, np.int32)
        lengths[: len(texts)] = [len(text) for text in texts]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        ids, positions, kinds = np.full((3, *self.ids.shape), -1, np.int32)
        count = starts[-1]
        ids[0, :count] = np.concatenate(texts)
        positions[0, :count] = np.concatenate([range(len(text)) for text in texts])
        given = [(self.ids, ids), (self.positions, positions), (self.starts, starts)]
        given.append((self.lengths, lengths))
        if self.types:
            kinds[0, :count] = np.concatenate(types)
            given.append((self.types, kinds))
        for kind, tensor in self.places.items():
            column = np.arange(tensor.shape[1], dtype=np.int32)
            first = (starts[1:] - 1 if kind == "last" else starts[:-1])[:, None]
            places = np.where(column < lengths[:, None], first + column, -1)
            given.append((tensor, places.astype(np.int32)))
        for tensor, values in given:
            tensor.write(values)
        self.plan.run(timeout)

    def rows_of(self, lengths: Sequence[int]) -> list[np.ndarray]:
        """The rows of each text of the last run."""
        made, ends = self.output.read(), np.cumsum(lengths)
        return [made[end - n : end].copy() for end, n in zip(ends, lengths)]


def packed_rows(count: int) -> int:
    """Rows of a plan for so many: up to a sixteenth more, so that few sizes are recorded."""
    step: int = max(ROWS, 2 ** (count.bit_length() - 1) // 16)
    return -(-count // step) * step
