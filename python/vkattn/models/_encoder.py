"""What encoders share: texts in, a vector of each out, pooled as sentence-transformers do."""

from __future__ import annotations

import os
import warnings
from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np

from .._config import read_json_file, shown
from .._device import Tensor
from .._errors import FileError, InvalidError, UnsupportedError
from .._numbers import whole, wholes
from ._graph import TIMEOUT, Graph, Recorded
from ._table import ACTIVATIONS
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

# The modules of a model by their class, in their order; their packages differ by version.
_PARTS = ("Transformer", "Pooling", "Normalize")
_MODES = {
    "mean": "mean",
    "cls": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
}
_LONGEST = 2**24  # beyond it a length that a tokenizer states is none


def _modules_of(folder: str) -> dict[str, str]:
    """The folder of each module in modules.json by its class; {} where there is no such file."""
    path = os.path.join(folder, "modules.json")
    if not os.path.isfile(path):
        return {}
    found: dict[str, str] = {}
    for module in read_json_file(path, list):
        kind = module.get("type") if isinstance(module, dict) else None
        name = kind.rpartition(".")[2] if isinstance(kind, str) else ""
        if name not in _PARTS or not kind.startswith("sentence_transformers."):
            raise UnsupportedError(f"{path}: {shown(kind)} is not supported")
        if name in found or any(_PARTS.index(name) < _PARTS.index(other) for other in found):
            raise UnsupportedError(f"{path}: {shown(kind)} is not supported in this place")
        place = module.get("path")
        inside = isinstance(place, str) and os.path.basename(place) == place
        if not inside or place in (".", "..") or (not place and name != "Transformer"):
            raise FileError(f"{path}: expected the name of a folder beside it, got {shown(place)}")
        found[name] = os.path.join(folder, place) if place else folder
    if "Pooling" not in found:
        raise UnsupportedError(f"{path}: a model without Pooling is not supported")
    return found


def model_folder(folder: str) -> str:
    """Where a folder of sentence-transformers has the files of the model itself."""
    if os.path.isfile(os.path.join(folder, "config.json")):
        return folder
    return _modules_of(folder).get("Transformer", folder)


def _keys_beside(folder: str, name: str) -> Keys | None:
    path = os.path.join(folder, name)
    return Keys(read_json_file(path), path) if os.path.isfile(path) else None


def _warn_of(keys: Keys) -> None:
    unknown = sorted(key for key in keys.left if keys.values[key] not in (None, {}, [], "", False))
    if unknown:
        warnings.warn(
            f"{keys.where}: it is not known what {', '.join(map(shown, unknown))} would change:"
            " computed without",
            stacklevel=5,
        )


def pooling_of(folder: str) -> Pooling:
    """As modules.json and the files it names say; without one, the mean, normalised."""
    modules = _modules_of(folder)
    place = modules.get("Transformer", folder)
    most = _stated_length(place)
    if not modules:
        return Pooling(max_length=most)
    chosen = _pooling_kind(modules["Pooling"])
    keys = _keys_beside(place, "sentence_bert_config.json")
    if keys:
        if keys.values.get("max_seq_length") is not None:
            most = keys.size("max_seq_length")
        keys.left.discard("max_seq_length")
        keys.only("do_lower_case", False)  # the tokenizer does what it does
        keys.only("transformer_task", "feature-extraction")
        keys.only("module_output_name", "token_embeddings")
        _check_modality(keys)
        _warn_of(keys)
    keys = _keys_beside(folder, "config_sentence_transformers.json")
    if keys:
        keys.only("default_prompt_name")
        keys.only("model_type", "SentenceTransformer")
    keys = _keys_beside(modules["Normalize"], "config.json") if "Normalize" in modules else None
    if keys:
        for key in ("module_input_name", "module_output_name"):
            keys.only(key, "sentence_embedding")
        _warn_of(keys)
    return Pooling(chosen, "Normalize" in modules, most)


def _check_modality(keys: Keys) -> None:
    """Texts go through `forward`, whose last rows are pooled."""
    given = keys.get("modality_config", dict, {})
    for modality, how in given.items():
        if modality != "text":
            continue  # other inputs than texts cannot be given here
        inner = Keys(how if isinstance(how, dict) else {"method": how}, f"{keys.where}: {modality}")
        inner.only("method", "forward")
        inner.only("method_output_name", "last_hidden_state")
        _warn_of(inner)


def _stated_length(folder: str) -> int | None:
    """The ids of a text by tokenizer_config.json; None where it has no limit."""
    keys = _keys_beside(folder, "tokenizer_config.json")
    value = keys.get("model_max_length", (int, float)) if keys else None
    if value is None or value > _LONGEST:
        return None
    assert keys
    if not value >= 1 or value != int(value):
        raise FileError(
            f"{keys.where}: model_max_length: expected a whole number from 1, got {shown(value)}"
        )
    return int(value)


def _pooling_kind(place: str) -> str:
    """By one key pooling_mode, or by a key of each mode that is true or false."""
    where = os.path.join(place, "config.json")
    keys = Keys(read_json_file(where), where)
    old = [
        key for key in keys.values if key.startswith("pooling_mode_") and keys.get(key, bool, False)
    ]
    mode = keys.get("pooling_mode", (str, list), [])
    new = mode if isinstance(mode, list) else [mode]
    kinds = [_MODES.get(x) if isinstance(x, str) else None for x in (*old, *new)]
    if None in kinds or len(set(kinds)) != 1:
        raise UnsupportedError(f"{where}: pooling by {shown([*old, *new])} is not supported")
    for key in ("word_embedding_dimension", "embedding_dimension"):
        keys.get(key, int)
    keys.get("include_prompt", bool)  # there are no prompts
    _warn_of(keys)
    return str(kinds[0])
