"""What encoders share: texts in, a vector of each out, pooled as sentence-transformers do."""

from __future__ import annotations

import os
from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np

from .._config import read_json_file, shown
from .._errors import FileError, InvalidError, UnsupportedError
from .._numbers import whole, wholes
from .._tensor import Tensor
from ._graph import TIMEOUT, Graph, Recorded
from ._llama import ACTIVATIONS
from ._source import Keys, Weights
from ._text import Text, check_texts

AT_ONCE = 16
ROWS = 32  # lengths of a batch are rounded up to them
MOST_WEIGHTS = 2**28  # bytes of attention weights that a run returns


class Pooling(NamedTuple):
    kind: str = "mean"  # or "cls", the first row
    normalised: bool = True
    max_length: int | None = None


class _Recording:
    """Up to `batch` texts of up to `rows` ids: their vectors, or the attention weights of layers."""

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


class Encoder:
    """An encoder of texts. Its __init__ reads the weights, and `add` records it."""

    width: int
    n_token: int
    n_layer: int  # of attention
    n_head: int
    unused: list[str]
    padding: int | None = None  # an id that has no place in a text

    def __init__(self, weights: Weights, pooling: Pooling, text: Text, most: int) -> None:
        self.device = weights.device
        self.pooling = pooling
        self.text = text
        self.max_length = text.most = min(pooling.max_length or most, most)
        self._recorded = Recorded(self._record)

    def add(self, graph: Graph, ids: Tensor, lengths: Tensor) -> Tensor:
        """The last rows [batch][rows][width]."""
        raise NotImplementedError

    def encode(self, text: str) -> list[int]:
        """The ids of a text, cut to max_length, by the model's tokenizer (package tokenizers)."""
        return self.text.encode(text)

    def embed(
        self,
        texts: Sequence[str] | Sequence[Sequence[int]],
        *,
        at_once: int = AT_ONCE,
        timeout: float = TIMEOUT,
    ) -> np.ndarray:
        """A float32 vector of each text [n][width]: the mean of the last rows, of length 1, or what
        the folder of a sentence-transformer says.

        A text is a str, cut to max_length ids, or ids with those that begin and end a text, of
        which there may be up to max_length. at_once: texts of a run.
        """
        ids = self._all_ids(texts)
        result = np.empty((len(ids), self.width), np.float32)
        for part, recording in self._runs(ids, at_once, (), timeout):
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
        chosen = range(self.n_layer) if layers is None else wholes(layers, "layers", -(2**31), 2**31)
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
            batch = min(at_once, len(ids))
            if layers:
                size = 4 * len(layers) * self.n_head * rows * rows
                batch = max(1, min(batch, MOST_WEIGHTS // size))
            part, order = order[:batch], order[batch:]
            recording = self._recorded.get(batch, rows, layers)
            recording.run([ids[i] for i in part], timeout)
            yield part, recording

    def _record(self, batch: int, rows: int, layers: tuple[int, ...]) -> _Recording:
        return _Recording(self, batch, rows, layers)

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
        return ids


def activation_of(keys: Keys, key: str, name: str) -> str:
    """What Plan.activation calls an activation of config.json."""
    if name not in ACTIVATIONS:
        raise UnsupportedError(
            f"{keys.where}: {key} {shown(keys.values.get(key))} is not supported"
        )
    return ACTIVATIONS[name]


# ---- sentence-transformers ----------------------------------------------------------------------

_PARTS = {
    "sentence_transformers.models.Transformer",
    "sentence_transformers.models.Pooling",
    "sentence_transformers.models.Normalize",
}


def pooling_of(folder: str) -> Pooling:
    """As modules.json and the files it names say; without one, the mean, normalised."""
    path = os.path.join(folder, "modules.json")
    if not os.path.isfile(path):
        return Pooling()
    modules = read_json_file(path, list)
    kinds = [m.get("type") if isinstance(m, dict) else None for m in modules]
    for kind in kinds:
        if not isinstance(kind, str) or kind not in _PARTS:
            raise UnsupportedError(f"{path}: {shown(kind)} is not supported")
    chosen = "mean"
    for module in modules:
        if module["type"].endswith("Pooling"):
            chosen = _pooling_kind(folder, module.get("path"), path)
    most = None
    other = os.path.join(folder, "sentence_bert_config.json")
    if os.path.isfile(other):
        keys = Keys(read_json_file(other), other)
        most = keys.size("max_seq_length") if keys.values.get("max_seq_length") else None
        keys.only("do_lower_case", False)  # the tokenizer does what it does
    other = os.path.join(folder, "config_sentence_transformers.json")
    if os.path.isfile(other):
        Keys(read_json_file(other), other).only("default_prompt_name")
    return Pooling(chosen, any(str(k).endswith("Normalize") for k in kinds), most)


def _pooling_kind(folder: str, place: Any, path: str) -> str:
    if not isinstance(place, str) or os.path.basename(place) != place or place in ("", ".", ".."):
        raise FileError(f"{path}: expected the name of a folder beside it, got {shown(place)}")
    where = os.path.join(folder, place, "config.json")
    keys = Keys(read_json_file(where), where)
    on = [
        key for key in keys.values if key.startswith("pooling_mode_") and keys.get(key, bool, False)
    ]
    known = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    if len(on) != 1 or on[0] not in known:
        raise UnsupportedError(f"{where}: pooling by {shown(on)} is not supported")
    return known[on[0]]
