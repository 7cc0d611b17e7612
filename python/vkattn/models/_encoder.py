"""Encoders of texts: texts in, a vector of each out, pooled as sentence-transformers do."""

from __future__ import annotations

from typing import Any, Iterator, Sequence

import numpy as np

from .._device import Tensor
from .._errors import FileError, InvalidError, UnsupportedError
from .._numbers import whole, wholes
from ._biases import Biases
from ._encoder_families import Family
from ._graph import TIMEOUT, Graph, Recorded
from ._layers import Layers, Sizes, is_on, norm_of
from ._pooling import Pooling
from ._source import Keys, Weights
from ._text import Text, check_texts

AT_ONCE = 16
PACKED_AT_ONCE = 64
ROWS = 32  # lengths of a batch are rounded up to them
MOST_ROWS = 8192  # of texts that are packed, if they are several
MANY = 128  # rows of a text that kernels of packed texts are chosen for
MOST_WEIGHTS = 2**28  # bytes of attention weights that a run returns


class _Recording:
    """Up to `batch` texts of up to `rows` ids: vectors, or the attention weights of layers."""

    def __init__(self, model: Encoder, batch: int, rows: int, layers: Sequence[int]) -> None:
        device = model.device
        graph = Graph(device, batch, rows, layers)
        self.plan = graph.plan
        self.ids = device.empty((batch, rows), "i32")
        self.lengths = device.empty((batch,), "i32")
        hidden = model.add(graph, self.ids, self.lengths)
        self.weights = graph.weights
        if not layers:
            self._pool(model, graph, hidden)
        self.plan.finish()

    def _pool(self, model: Encoder, graph: Graph, hidden: Tensor) -> None:
        device, batch = model.device, hidden.shape[0]
        self.output = device.empty((batch, model.width))
        if model.pooling.kind == "mean":
            self.plan.pool(hidden, self.output, lengths=self.lengths)
        else:
            first = hidden.slice(1, 0, 1).reshape(batch, model.width)
            self.plan.activation(first, self.output, "identity")
        if model.pooling.normalised:
            graph.unit(self.output)

    def run(self, texts: Sequence[Sequence[int]], timeout: float) -> None:
        ids = np.full(self.ids.shape, -1, np.int32)
        lengths = np.zeros(self.lengths.shape, np.int32)
        for b, text in enumerate(texts):
            ids[b, : len(text)] = text
            lengths[b] = len(text)
        self.ids.write(ids)
        self.lengths.write(lengths)
        self.plan.run(timeout)


class _Packed:
    """Up to `batch` texts of up to `longest` ids, one after the other in `rows` rows: vectors."""

    def __init__(self, model: Encoder, batch: int, rows: int, longest: int) -> None:
        device, width = model.device, model.width
        graph = Graph(device, 1, rows, whole_n_q=MANY)
        self.plan = graph.plan
        self.ids = device.empty((1, rows), "i32")
        self.positions = device.empty((1, rows), "i32")  # of each row in its text
        self.starts = device.empty((batch + 1,), "i32")
        hidden = model.add(graph, self.ids, packed=(self.starts, self.positions))
        # Means of rows that a text has at the same places in any batch, for the same bits.
        mean = model.pooling.kind == "mean"
        self.places = device.empty((batch, longest if mean else 1), "i32")
        self.lengths = device.empty((batch,), "i32")
        chosen = graph.gather(hidden.reshape(rows, width), self.places)
        self.output = device.empty((batch, width)) if mean else chosen.reshape(batch, width)
        if mean:
            self.plan.pool(chosen, self.output, lengths=self.lengths)
        if model.pooling.normalised:
            graph.unit(self.output)
        self.plan.finish()

    def run(self, texts: Sequence[Sequence[int]], timeout: float) -> None:
        batch, longest = self.places.shape
        lengths = np.zeros(batch, np.int32)
        lengths[: len(texts)] = [len(text) for text in texts]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        ids, positions = np.full((2, *self.ids.shape), -1, np.int32)
        count = starts[-1]
        ids[0, :count] = np.concatenate(texts)
        positions[0, :count] = np.concatenate([range(len(text)) for text in texts])
        column = np.arange(longest, dtype=np.int32)
        places = np.where(column < lengths[:, None], starts[:-1, None] + column, -1)
        for tensor, values in (
            (self.ids, ids),
            (self.positions, positions),
            (self.starts, starts),
            (self.places, places.astype(np.int32)),
            (self.lengths, lengths),
        ):
            tensor.write(values)
        self.plan.run(timeout)


def packed_rows(count: int) -> int:
    """Rows of a plan for so many: up to a sixteenth more, so that few sizes are recorded."""
    step = max(ROWS, 2 ** (count.bit_length() - 1) // 16)
    return -(-count // step) * step


class Encoder:
    """An encoder of texts of one of FAMILIES, alone or below a head of training, or a folder of
    sentence-transformers. See `vkattn.models.load`."""

    def __init__(
        self, weights: Weights, keys: Keys, family: Family, pooling: Pooling, text: Text
    ) -> None:
        self.device = weights.device
        self.pooling = pooling
        self.text = text
        for key, values in family.only.items():
            keys.only(key, *values)
        self.family = family = family.resolve(keys, family)
        sizes = self.sizes = Sizes.of(keys, family.layer, family.words)
        self.width, self.n_head = sizes.width, sizes.n_head
        self.n_token = keys.size("vocab_size")
        keys.get("tie_word_embeddings", bool)  # there is no head
        keys.left -= set(family.inert_keys)
        places = family.places(keys, sizes.n_layer)
        self._read_length(keys)
        self.max_length = text.most = min(pooling.max_length or self.most_ids, self.most_ids)
        self.masked = keys.get(family.masked[0], int) if family.masked else None
        prefix = family.prefix
        if not any(prefix + name in weights for name in family.embedding):
            prefix = ""
        self._read_embeddings(weights, keys, prefix)
        self.options = family.options(weights, keys, sizes, prefix)
        self.layers = Layers(weights, keys, prefix, family.layer, sizes, places)
        self.n_layer = len(self.layers.blocks)
        self.biases = None
        if family.relative:
            self.biases = Biases(weights, keys, prefix, family.relative, family.layer.at, sizes)
        self._read_more(weights, keys, prefix)
        weights.finish(
            lambda name: (
                name.removeprefix(prefix).startswith(family.inert)
                or any(part in name for part in family.inert_parts)
            )
        )
        self.unused = weights.unused
        self._recorded = Recorded(self._record)

    def _read_more(self, weights: Weights, keys: Keys, prefix: str) -> None:
        """What a model has besides its encoder."""

    def _read_length(self, keys: Keys) -> None:
        """An id that has no place in a text, the position of its first id, and the longest text."""
        family, positions = self.family, keys.size(*self.family.length)
        padding, self.padding = family.padding, None
        self.first_position = family.before
        if padding is not None:
            chosen = padding if isinstance(padding, int) else keys.get(padding[0], int, padding[1])
            if not 0 <= chosen <= positions - 2:
                raise FileError(
                    f"{keys.where}: pad_token_id: expected 0 to {positions - 2}, got {chosen}"
                )
            self.padding, self.first_position = chosen, chosen + 1
        counted = family.counts_padding and padding is not None
        self.most_ids = positions - self.first_position if counted else positions

    def _positions_of(self, weights: Weights, name: str, width: int) -> Tensor:
        """The rows of a table from that of a text's first id on."""
        first, family = self.first_position, self.family
        count = first + self.most_ids
        if family.sinusoids and name not in weights:
            table = self.device.tensor(family.sinusoids(count, width).astype(np.float32))
        else:
            table = weights.matrix(name, count, width)
        return table.slice(0, first, self.most_ids)

    def _read_embeddings(self, weights: Weights, keys: Keys, prefix: str) -> None:
        family, sizes = self.family, self.sizes
        width = keys.size(*family.width) if family.width else sizes.width
        names = [prefix + name for name in family.embedding]
        self.embedding = weights.embedding(names, self.n_token, width)
        self.positions = None
        if family.positions:
            self.positions = self._positions_of(weights, prefix + family.positions, width)
        self.added = []
        for added in family.added:
            table = weights.matrix(prefix + added.name, keys.size(*added.rows), width)
            self.added += [table.slice(0, 0, 1)] * added.times
        self.norm = None
        if family.norm:
            narrow = sizes._replace(width=width)
            bias = is_on(keys, family.layer.norm_bias)
            self.norm = norm_of(weights, prefix + family.norm, narrow, family.layer.rms, bias)
        self.widen = None
        if family.widen:
            self.widen = weights.linear(prefix + family.widen, sizes.width, width)

    def add(
        self,
        graph: Graph,
        ids: Tensor,
        lengths: Tensor | None = None,
        packed: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """The last rows [batch][rows][width] of texts that have an element of the batch each, up to
        their lengths; or that are packed: where they start and the last one ends, and positions."""
        plan, family = graph.plan, self.family
        x = graph.gather(self.embedding, ids, scale=family.scale)
        for row in self.added:  # texts, no pairs: type 0
            plan.add(x, row, x)
        if self.positions:
            table = self.positions
            rows = graph.gather(table, packed[1]) if packed else table.slice(0, 0, graph.rows)
            plan.add(x, rows, x)
        if self.norm:
            plan.norm(x, x, **self.norm)
        if self.widen:
            x = graph.linear(x, self.widen)
        each: Sequence[dict[str, Any]] = self.options
        if self.biases:
            each = self.biases.masks(self.device, graph.rows)
        options = {} if family.attention_scale is None else {"scale": family.attention_scale}
        if packed:
            starts, positions = packed
            return self.layers.add(graph, x, each, positions, ragged=(starts, starts), **options)
        return self.layers.add(graph, x, each, kv_length=lengths, **options)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, cut to max_length, by the model's tokenizer (package tokenizers)."""
        return self.text.encode(text)

    def embed(
        self,
        texts: Sequence[str] | Sequence[Sequence[int]],
        *,
        at_once: int | None = None,
        timeout: float = TIMEOUT,
    ) -> np.ndarray:
        """A float32 vector of each text [n][width]: the mean of the last rows, of length 1, or what
        the folder of a sentence-transformer says.

        A text is a str, cut to max_length ids, or ids with those that begin and end a text, of
        which there may be up to max_length. at_once: texts of a run, by default up to 64 that stand
        one after the other without a row between them; or 16 of a model with biases of distances,
        in as many rows as the longest has.
        """
        ids = self._all_ids(texts)
        result = np.empty((len(ids), self.width), np.float32)
        runs: Iterator[tuple[list[int], Any]]
        if self.biases:
            runs = self._runs(ids, AT_ONCE if at_once is None else at_once, (), timeout)
        else:
            runs = self._packed(ids, PACKED_AT_ONCE if at_once is None else at_once, timeout)
        for part, recording in runs:
            result[part] = recording.output.read()[: len(part)]
        return result

    def attentions(
        self,
        texts: Sequence[str] | Sequence[Sequence[int]],
        *,
        layers: Sequence[int] | None = None,
        at_once: int = AT_ONCE,
        timeout: float = TIMEOUT,
    ) -> list[np.ndarray]:
        """The attention weights of each text of n ids: float32 [layers][n_head][n][n], the weight
        of each key (last axis) for each query; a row adds up to 1.

        texts and at_once as in `embed`; fewer share a run where their weights would exceed 256 MB.
        layers: which, counted from 0 and from -1 backwards; all by default.
        """
        ids = self._all_ids(texts)
        chosen = (
            range(self.n_layer) if layers is None else wholes(layers, "layers", -(2**31), 2**31)
        )
        for i in chosen:
            if not -self.n_layer <= i < self.n_layer:
                raise InvalidError(f"layers: the model has {self.n_layer}, got {i}")
        chosen = [i % self.n_layer for i in chosen]
        kept = tuple(sorted(set(chosen)))
        result = [np.empty((len(chosen), self.n_head, len(x), len(x)), np.float32) for x in ids]
        if not kept:
            return result
        for part, recording in self._runs(ids, at_once, kept, timeout):
            for layer, tensor in recording.weights.items():
                assert tensor is not None
                weights = tensor.read()
                for b, i in enumerate(part):
                    n = len(ids[i])
                    for place in (p for p, x in enumerate(chosen) if x == layer):
                        result[i][place] = weights[b, :, :n, :n]
        return result

    def _all_ids(self, texts: Any) -> list[list[int]]:
        return [self._ids_of(text, f"texts[{i}]") for i, text in enumerate(check_texts(texts))]

    def _runs(
        self, ids: list[list[int]], at_once: int, layers: tuple[int, ...], timeout: float
    ) -> Iterator[tuple[list[int], _Recording]]:
        """Runs texts of about one length together: which they were, and what they ran on."""
        at_once = whole(at_once, "at_once", 1)
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        while order:
            rows = min(-(-len(ids[order[0]]) // ROWS) * ROWS, self.max_length)
            batch = min(at_once, len(order))
            if layers:
                size = 4 * len(layers) * self.n_head * rows * rows
                batch = max(1, min(batch, MOST_WEIGHTS // size))
            part, order = order[:batch], order[batch:]
            recording = self._recorded.get(batch, rows, layers)
            recording.run([ids[i] for i in part], timeout)
            yield part, recording

    def _packed(
        self, ids: list[list[int]], at_once: int, timeout: float
    ) -> Iterator[tuple[list[int], _Packed]]:
        """Runs texts one after the other: which they were, and what they ran on."""
        batch = min(whole(at_once, "at_once", 1), len(ids))
        start = 0
        while start < len(ids):
            end, rows = start + 1, len(ids[start])
            while end < min(start + batch, len(ids)) and rows + len(ids[end]) <= MOST_ROWS:
                rows += len(ids[end])
                end += 1
            texts = ids[start:end]
            longest = 1 << (max(len(text) for text in texts) - 1).bit_length()
            recording = self._recorded.get(batch, packed_rows(rows), max(longest, ROWS))
            recording.run(texts, timeout)
            yield list(range(start, end)), recording
            start = end

    def _record(self, batch: int, rows: int, what: int | tuple[int, ...]) -> _Recording | _Packed:
        """what: the longest of texts that are packed, or the layers whose weights are returned."""
        made = _Packed if isinstance(what, int) else _Recording
        return made(self, batch, rows, what)

    def _ids_of(self, text: Any, what: str) -> list[int]:
        if isinstance(text, str):
            ids = self.encode(text)
        else:
            ids = list(wholes(text, what, -(2**63), 2**63))
        if not 1 <= len(ids) <= self.max_length:
            raise InvalidError(f"{what}: expected 1 to {self.max_length} ids, got {len(ids)}")
        for i in ids:
            if not 0 <= i < self.n_token:
                raise InvalidError(f"{what}: the model has {self.n_token} ids, got {i}")
        if self.padding in ids:
            raise InvalidError(f"{what}: {self.padding} is the id of padding, which has no place")
        if self.masked in ids:
            assert self.family.masked
            raise UnsupportedError(
                f"{what}: {self.masked} is the id of masks, by whose count {self.family.masked[1]}"
                " scales the others: not supported"
            )
        return ids
