"""Encoders of texts: texts in, a vector of each out, pooled as sentence-transformers do."""

from __future__ import annotations

from typing import Any, Iterator, Sequence, Union

import numpy as np

from .._device import Tensor
from .._errors import FileError, InvalidError, UnsupportedError
from .._numbers import whole, wholes
from ._biases import Biases
from ._encoder_families import Family
from ._encoder_runs import (
    AT_ONCE,
    MOST_LOGITS,
    MOST_ROWS,
    PACKED_AT_ONCE,
    ROWS,
    Packed,
    Padded,
    Wanted,
    packed_rows,
)
from ._graph import TIMEOUT, Graph, Recorded
from ._heads import labels_of, read_head
from ._layers import Layers, Sizes, is_on, norm_of
from ._pooling import Dense, Pooling
from ._keys import Keys
from ._source import Weights
from ._text import Text, check_texts, read_ids

MOST_WEIGHTS = 2**28  # bytes of attention weights that a run returns

Texts = Sequence[Union[str, Sequence[str], Sequence[int], np.ndarray]]  # two str are a pair
Types = Union[Sequence[Union[Sequence[int], np.ndarray]], None]


class Encoder:
    """An encoder of texts of one of FAMILIES, alone or below a head of training, or a folder of
    sentence-transformers. See `vkattn.models.load`."""

    def __init__(
        self,
        weights: Weights,
        keys: Keys,
        family: Family,
        pooling: Pooling,
        text: Text,
        dtype: str | None = None,
    ) -> None:
        """dtype: of products that stand behind the pooling in files of their own."""
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
        self.dense = Dense(pooling.dense, self.device, dtype, self.width)
        self._read_head(weights, keys, prefix)
        weights.finish(
            lambda name: (
                name.removeprefix(prefix).startswith(family.inert)
                or any(word in name for word in family.inert_words)
            )
        )
        self.unused = weights.unused
        self._recorded = Recorded(self._record)

    def _read_more(self, weights: Weights, keys: Keys, prefix: str) -> None:
        """What a model has besides its encoder."""

    def _read_head(self, weights: Weights, keys: Keys, prefix: str) -> None:
        """What `logits` gives, where the file has it."""
        family, self.task, self.labels = self.family, "", list[str]()
        made = read_head(weights, keys, prefix, family.heads, self.sizes, self.embedding)
        self.task, self.head = made
        if self.task == "colbert" and self.head:
            self.dense.append(self.head.out)
            self.pooling = self.pooling._replace(kind="", normalised=True)
            self.head = None
        if self.task in ("sequence", "token"):
            self.labels = labels_of(keys)
        elif self.task == "question":
            self.labels = ["start", "end"]

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
        self.added: list[tuple[Tensor, bool]] = []  # tables, and whether the types of ids choose
        for added in family.added:
            table = weights.matrix(prefix + added.name, keys.size(*added.rows), width)
            self.added += [(table, added.typed)] * added.times
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
        types: Tensor | None = None,
    ) -> Tensor:
        """The last rows [batch][rows][width] of texts that have an element of the batch each, up to
        their lengths; or that are packed: where they start and the last one ends, and positions.
        types: of each id, as in pairs of texts; 0 by default."""
        plan, family = graph.plan, self.family
        x = graph.gather(self.embedding, ids, scale=family.scale)
        for table, typed in self.added:
            given = graph.gather(table, types) if typed and types else table.slice(0, 0, 1)
            plan.add(x, given, x)
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
        options: dict[str, Any] = {} if family.attention_scale is None else {"scale": family.attention_scale}
        if packed:
            starts, positions = packed
            return self.layers.add(graph, x, each, positions, ragged=(starts, starts), **options)
        return self.layers.add(graph, x, each, kv_length=lengths, **options)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, cut to max_length, by the model's tokenizer (package tokenizers)."""
        return self.text.encode(text)

    def embed(
        self, texts: Texts, *, at_once: int | None = None, timeout: float = TIMEOUT
    ) -> np.ndarray:
        """A float32 vector of each text [n][width]: the mean of the last rows, of length 1, or what
        the folder of a sentence-transformer says; of SPLADE its weights of the vocabulary.

        A text is a str, cut to max_length ids, or ids with those that begin and end a text, of
        which there may be up to max_length; or two str, a pair. at_once: texts of a run, by default
        up to 64 that stand one after the other without a row between them; or 16 of a model with
        biases of distances, in as many rows as the longest has.
        """
        if self.pooling.kind == "max":
            return self.embed_sparse(texts, at_once=at_once, timeout=timeout)
        if self.pooling.kind == "":
            raise InvalidError("embed: the model has a vector of each id, which rows(texts) gives")
        ids, types = self._read_texts(texts, None)
        result = np.empty((len(ids), self.dense.width), np.float32)
        for indices, recording in self._run_texts(ids, types, "vectors", at_once, timeout):
            result[indices] = recording.output.read()[: len(indices)]
        return result

    def rows(
        self,
        texts: Texts,
        *,
        types: Types = None,
        at_once: int | None = None,
        timeout: float = TIMEOUT,
    ) -> list[np.ndarray]:
        """The last rows of each text of n ids: float32 [n][width]; of ColBERT a vector of length 1
        of each id. texts and at_once as in `embed`; types: as in `logits`."""
        ids, kinds = self._read_texts(texts, types)
        return self._rows_of(ids, kinds, "rows", at_once, timeout)

    def logits(  # a decoder behind the encoder has others
        self,
        texts: Texts,
        *,
        types: Types = None,
        at_once: int | None = None,
        timeout: float = TIMEOUT,
    ) -> np.ndarray | list[np.ndarray]:
        """What the model's head gives, without softmax or sigmoid: by `task` float32 [n][labels]
        of n texts ("sequence", such as a reranker's of pairs), or of each text of m ids [m][labels]
        ("token"), [m][2] ("question"), [m][n_token] ("masked"). `labels` has the names.

        texts and at_once as in `embed`. types: of texts that are ids a type for each, which is that
        of the tokenizer for pairs of str; 0 otherwise.
        """
        self._check_head("logits")
        ids, kinds = self._read_texts(texts, types)
        if self.task != "sequence":
            return self._rows_of(ids, kinds, "words", at_once, timeout)
        assert self.head
        result = np.empty((len(ids), self.head.size), np.float32)
        for indices, recording in self._run_texts(ids, kinds, "logits", at_once, timeout):
            result[indices] = recording.output.read()[: len(indices)]
        return result

    def embed_sparse(
        self, texts: Texts, *, at_once: int | None = None, timeout: float = TIMEOUT
    ) -> np.ndarray:
        """A weight of each id of the vocabulary for each text, as SPLADE has them: float32
        [n][n_token], log(1 + the largest logit of a masked id among the text's rows, or 0)."""
        self._check_head("embed_sparse", "masked")
        ids, kinds = self._read_texts(texts, None)
        result = np.empty((len(ids), self.n_token), np.float32)
        for indices, recording in self._run_texts(ids, kinds, "words", at_once, timeout):
            for i, rows in zip(indices, recording.rows_of([len(ids[i]) for i in indices])):
                result[i] = np.log1p(np.maximum(rows.max(0), 0))
        return result

    def _check_head(self, what: str, task: str = "") -> None:
        if self.head is None:
            have = f"of {self.task}" if self.task else "that architectures in config.json names"
            raise InvalidError(
                f"{what}: the files have no head {have}; rows(texts) gives the last rows"
            )
        if task not in ("", self.task):
            raise InvalidError(f"{what}: the model's head is of {self.task}")

    def attentions(
        self,
        texts: Texts,
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
        ids, types = self._read_texts(texts, None)
        chosen: Sequence[int] = (
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
        for indices, recording in self._padded(ids, types, at_once, "weights", timeout, kept):
            for layer, tensor in recording.weights.items():
                assert tensor is not None
                weights = tensor.read()
                for b, i in enumerate(indices):
                    n = len(ids[i])
                    for place in (p for p, x in enumerate(chosen) if x == layer):
                        result[i][place] = weights[b, :, :n, :n]
        return result

    def _read_texts(self, texts: Any, types: Any) -> tuple[list[list[int]], list[list[int]] | None]:
        """The ids of each text, and their types if one is not 0."""
        ids: list[list[int]] = []
        kinds: list[list[int]] = []
        given = check_texts(texts)
        if types is not None and len(types) != len(given):
            raise InvalidError(f"types: expected those of {len(given)} texts, got {len(types)}")
        for i, text in enumerate(given):
            what, kind = f"texts[{i}]", None
            if isinstance(text, (list, tuple)) and text and isinstance(text[0], str):
                text, kind = self._pair(text, what)
            ids.append(self._ids_of(text, what))
            if types is not None:
                kind = self._types_of(types[i], len(ids[i]), f"types[{i}]")
            kinds.append(kind or [0] * len(ids[i]))
        return ids, kinds if any(map(any, kinds)) else None

    def _pair(self, texts: Sequence[str], what: str) -> tuple[list[int], list[int] | None]:
        """Its ids, and types where the family's tokenizers give them to a model."""
        if len(texts) != 2 or not isinstance(texts[1], str):
            raise InvalidError(f"{what}: expected a str, a pair of two or ids, got {len(texts)}")
        ids, types = self.text.encode_pair(*texts)
        table = next((table for table, typed in self.added if typed), None)
        if table is None or not self.family.types_of_pairs or table.shape[0] < 2:
            return ids, None
        return ids, types

    def _types_of(self, types: Any, size: int, what: str) -> list[int]:
        table = next((table for table, typed in self.added if typed), None)
        if table is None:
            raise InvalidError("types: the model has none")
        made = list(wholes(types, what, 0, table.shape[0] - 1))
        if len(made) != size:
            raise InvalidError(f"{what}: expected {size}, one for each id, got {len(made)}")
        return made

    def _rows_of(
        self, ids: list[list[int]], types: Any, kind: str, at_once: int | None, timeout: float
    ) -> list[np.ndarray]:
        result: list[Any] = [None] * len(ids)
        for indices, recording in self._run_texts(ids, types, kind, at_once, timeout):
            for i, rows in zip(indices, recording.rows_of([len(ids[i]) for i in indices])):
                result[i] = rows
        return result

    def _run_texts(
        self, ids: list[list[int]], types: Any, kind: str, at_once: int | None, timeout: float
    ) -> Iterator[tuple[list[int], Any]]:
        """Runs texts: which they were, and what they ran on."""
        if self.biases:
            return self._padded(ids, types, AT_ONCE if at_once is None else at_once, kind, timeout)
        at_once = PACKED_AT_ONCE if at_once is None else at_once
        return self._packed(ids, types, at_once, kind, timeout)

    def _most_rows(self, kind: str) -> int:
        """The most that a run of several texts has."""
        if kind != "words" or not self.head:
            return MOST_ROWS
        return min(MOST_ROWS, MOST_LOGITS // (4 * self.head.size))

    def _padded(
        self,
        ids: list[list[int]],
        types: Any,
        at_once: int,
        kind: str,
        timeout: float,
        layers: tuple[int, ...] = (),
    ) -> Iterator[tuple[list[int], Padded]]:
        """Texts of about one length together."""
        at_once = whole(at_once, "at_once", 1)
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        while order:
            rows = min(-(-len(ids[order[0]]) // ROWS) * ROWS, self.max_length)
            batch = min(at_once, len(order), max(1, self._most_rows(kind) // rows))
            if layers:
                size = 4 * len(layers) * self.n_head * rows * rows
                batch = max(1, min(batch, MOST_WEIGHTS // size))
            indices, order = order[:batch], order[batch:]
            recording = self._recorded.get(batch, rows, Wanted(kind, layers, types is not None))
            given = types and [types[i] for i in indices]
            recording.run([ids[i] for i in indices], given, timeout)
            yield indices, recording

    def _packed(
        self, ids: list[list[int]], types: Any, at_once: int, kind: str, timeout: float
    ) -> Iterator[tuple[list[int], Packed]]:
        """Texts one after the other."""
        batch = min(whole(at_once, "at_once", 1), len(ids))
        most, start = self._most_rows(kind), 0
        while start < len(ids):
            end, rows = start + 1, len(ids[start])
            while end < min(start + batch, len(ids)) and rows + len(ids[end]) <= most:
                rows += len(ids[end])
                end += 1
            texts, given = ids[start:end], types and types[start:end]
            longest = max(1 << (max(len(text) for text in texts) - 1).bit_length(), ROWS)
            wanted = Wanted(kind, (), types is not None)
            recording = self._recorded.get(batch, packed_rows(rows), wanted, longest)
            recording.run(texts, given, timeout)
            yield list(range(start, end)), recording
            start = end

    def _record(
        self, batch: int, rows: int, wanted: Wanted, longest: int | None = None
    ) -> Padded | Packed:
        """longest: of texts that are packed."""
        if longest is None:
            return Padded(self, batch, rows, wanted)
        return Packed(self, batch, rows, wanted, longest)

    def _ids_of(self, text: Any, what: str) -> list[int]:
        ids = read_ids(text, what, self.encode, self.n_token, self.max_length)
        if self.padding in ids:
            raise InvalidError(f"{what}: {self.padding} is the id of padding, which has no place")
        if self.masked in ids:
            assert self.family.masked
            raise UnsupportedError(
                f"{what}: {self.masked} is the id of masks, by whose count {self.family.masked[1]}"
                " scales the others: not supported"
            )
        return ids
