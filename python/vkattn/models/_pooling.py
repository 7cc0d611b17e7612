"""How the rows of a text become a vector, as the files of sentence-transformers and PyLate say."""

from __future__ import annotations

import os
import warnings
from typing import NamedTuple, Sequence

import numpy as np

from .._config import read_json_file, shown
from .._device import Device, Tensor
from .._errors import FileError, UnsupportedError
from ._graph import Graph, Linear
from ._keys import Keys
from ._source import FolderWeights


class Pooling(NamedTuple):
    kind: str = "mean"  # "first" or "last"; "": each row; "max": weights of the vocabulary (SPLADE)
    normalised: bool = True
    max_length: int | None = None
    dense: tuple[str, ...] = ()  # folders of products behind it


# The modules of a model by their class, in their order; their packages differ by version.
_PARTS = ("Transformer", "Pooling", "Dense", "Normalize")
_SPARSE = {"MLMTransformer": "Transformer", "SpladePooling": "Pooling"}
_MODES = {
    "mean": "mean",
    "cls": "first",
    "lasttoken": "last",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
}
_ACTIVATIONS = {"Identity": "identity", "Tanh": "tanh", "ReLU": "relu", "GELU": "gelu"}
_LONGEST = 2**24  # beyond it a length that a tokenizer states is none


class _Modules(NamedTuple):
    folders: dict[str, str]  # by class; {} where there is no modules.json
    dense: tuple[str, ...] = ()
    sparse: bool = False
    rows: bool = False  # of PyLate, whose rows are not pooled


def _modules_of(folder: str) -> _Modules:
    """The folder of each module in modules.json."""
    path = os.path.join(folder, "modules.json")
    if not os.path.isfile(path):
        return _Modules({})
    found: dict[str, str] = {}
    dense: list[str] = []
    sparse = rows = False
    for module in read_json_file(path, list):
        kind = module.get("type") if isinstance(module, dict) else None
        name = kind.rpartition(".")[2] if isinstance(kind, str) else ""
        package = kind.partition(".")[0] if isinstance(kind, str) else ""
        sparse, name = sparse or name in _SPARSE, _SPARSE.get(name, name)
        known = package == "sentence_transformers" or (package, name) == ("pylate", "Dense")
        if name not in _PARTS or not known:
            raise UnsupportedError(f"{path}: {shown(kind)} is not supported")
        rows = rows or package == "pylate"
        later = any(_PARTS.index(name) < _PARTS.index(other) for other in found)
        if later or (name in found and name != "Dense"):
            raise UnsupportedError(f"{path}: {shown(kind)} is not supported in this place")
        place = module.get("path")
        inside = isinstance(place, str) and os.path.basename(place) == place
        if not inside or place in (".", "..") or (not place and name != "Transformer"):
            raise FileError(f"{path}: expected the name of a folder beside it, got {shown(place)}")
        found[name] = os.path.join(folder, place) if place else folder
        dense += [found[name]] * (name == "Dense")
    if "Pooling" not in found and not rows:
        raise UnsupportedError(f"{path}: a model without Pooling is not supported")
    if sparse and (dense or "Normalize" in found):
        raise UnsupportedError(f"{path}: modules behind SpladePooling are not supported")
    if rows and "Pooling" in found:
        raise UnsupportedError(f"{path}: Pooling before a Dense of pylate is not supported")
    return _Modules(found, tuple(dense), sparse, rows)


def model_folder(folder: str) -> str:
    """Where a folder of sentence-transformers has the files of the model itself."""
    if os.path.isfile(os.path.join(folder, "config.json")):
        return folder
    return _modules_of(folder).folders.get("Transformer", folder)


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
    place = modules.folders.get("Transformer", folder)
    most = _stated_length(place)
    if not modules.folders:
        return Pooling(max_length=most)
    chosen = "" if modules.rows else _pooling_kind(modules.folders["Pooling"], modules.sparse)
    keys = _keys_beside(place, "sentence_bert_config.json")
    if keys:
        if keys.values.get("max_seq_length") is not None:
            most = keys.size("max_seq_length")
        keys.left.discard("max_seq_length")
        keys.only("do_lower_case", False)  # the tokenizer does what it does
        keys.only("transformer_task", "fill-mask" if modules.sparse else "feature-extraction")
        keys.only("module_output_name", "token_embeddings")
        _check_modality(keys, "logits" if modules.sparse else "last_hidden_state")
        _warn_of(keys)
    keys = _keys_beside(folder, "config_sentence_transformers.json")
    if keys:
        keys.only("default_prompt_name")
        kind = "ColBERT" if modules.rows else "SparseEncoder" if modules.sparse else ""
        keys.only("model_type", "SentenceTransformer", kind)
    normalize = modules.folders.get("Normalize")
    keys = _keys_beside(normalize, "config.json") if normalize else None
    if keys:
        for key in ("module_input_name", "module_output_name"):
            keys.only(key, "sentence_embedding")
        _warn_of(keys)
    normalised = modules.rows or normalize is not None
    return Pooling(chosen, normalised, most, modules.dense)


def decoder_pooling_of(folder: str) -> Pooling | None:
    """None where there is no modules.json: a decoder is no encoder of texts by itself."""
    modules = _modules_of(folder)
    if not modules.folders:
        return None
    if modules.dense or modules.sparse or modules.rows:
        raise UnsupportedError(
            f"{folder}: modules.json: only Pooling and Normalize of a decoder are supported"
        )
    return pooling_of(folder)


def gguf_pooling_of(keys: Keys, key: str) -> Pooling | None:
    """By llama.cpp's numbers for kinds of pooling; vectors are normalised, as it does."""
    keys.only(key, *range(4))
    number = keys.get(key, int, 0)
    return Pooling(("", "mean", "first", "last")[number]) if number else None


def pooled(pooling: Pooling, texts: Sequence[np.ndarray]) -> np.ndarray:
    """Vectors of the rows of texts, computed on the host."""
    if not texts:
        return np.empty((0, 0), np.float32)
    place = {"first": 0, "last": -1}.get(pooling.kind)
    made = np.array([x.mean(0, np.float64) if place is None else x[place] for x in texts])
    made = made.astype(np.float64)
    if pooling.normalised:
        made /= np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-12)
    return made.astype(np.float32)


class Dense:
    """The products behind the pooling, each with an activation."""

    def __init__(self, folders: Sequence[str], device: Device, dtype: str | None, width: int):
        self.products: list[tuple[Linear, str]] = []
        self.width = width
        for folder in folders:
            where = os.path.join(folder, "config.json")
            keys = Keys(read_json_file(where), where)
            if keys.size("in_features") != self.width:
                raise FileError(
                    f"{where}: in_features: expected {self.width}, got"
                    f" {keys.size('in_features')}"
                )
            name = keys.get("activation_function", str, "Tanh")
            kind = _ACTIVATIONS.get(name.rpartition(".")[2])
            if kind is None:
                raise UnsupportedError(
                    f"{where}: activation_function {shown(name)} is not supported"
                )
            keys.only("use_residual", False)
            for key in ("module_input_name", "module_output_name"):
                keys.only(key, "sentence_embedding", "token_embeddings")
            bias = keys.get("bias", bool, True)
            weights = FolderWeights(folder, device, dtype)
            size = keys.size("out_features")
            self.append(weights.linear("linear", size, self.width, bias=bias), kind)
            weights.finish(lambda name: False)
            _warn_of(keys)

    def append(self, by: Linear, kind: str = "identity") -> None:
        self.products.append((by, kind))
        self.width = by.size

    def add(self, graph: Graph, rows: Tensor) -> Tensor:
        for by, kind in self.products:
            rows = graph.linear(rows, by)
            if kind != "identity":
                graph.plan.activation(rows, rows, kind)
        return rows


def _check_modality(keys: Keys, output: str) -> None:
    """Texts go through `forward`, whose last rows or logits are pooled."""
    given = keys.get("modality_config", dict, {})
    for modality, how in given.items():
        if modality != "text":
            continue  # other inputs than texts cannot be given here
        inner = Keys(how if isinstance(how, dict) else {"method": how}, f"{keys.where}: {modality}")
        inner.only("method", "forward")
        inner.only("method_output_name", output)
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


def _pooling_kind(place: str, sparse: bool) -> str:
    """By one key pooling_mode, or by a key of each mode that is true or false."""
    where = os.path.join(place, "config.json")
    keys = Keys(read_json_file(where), where)
    if sparse:
        keys.only("pooling_strategy", "max")
        keys.only("activation_function", "relu")
        keys.left -= {"word_embedding_dimension", "embedding_dimension"}
        _warn_of(keys)
        return "max"
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
