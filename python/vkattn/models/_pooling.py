"""How the rows of a text become a vector, as the files of sentence-transformers say."""

from __future__ import annotations

import os
import warnings
from typing import NamedTuple

from .._config import read_json_file, shown
from .._errors import FileError, UnsupportedError
from ._source import Keys


class Pooling(NamedTuple):
    kind: str = "mean"  # or "cls", the first row
    normalised: bool = True
    max_length: int | None = None


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
