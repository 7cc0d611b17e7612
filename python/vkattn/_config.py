"""What a checkpoint's weights do not say: config.json, or the config of a vkattn file."""

from __future__ import annotations

import json
import os
import re
import reprlib
import warnings
from typing import Any, Callable, Dict, NamedTuple

from ._errors import FileError, UnsupportedError
from ._options import LAYOUTS, MASKED_ROWS, Rope

Arguments = Dict[str, Any]

_INT32_MAX = 2**31 - 1
_FLOAT32_MIN, _FLOAT32_MAX = 2.0**-126, (2 - 2.0**-23) * 2.0**127


class Config(NamedTuple):
    values: dict[str, Any]
    where: str  # for messages


def read_json(text: str, where: str, kind: type = dict, **options: Any) -> Any:
    """kind: of the whole, dict or list."""
    try:
        config = json.loads(text, **options)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{where}: not JSON: {error}") from error
    if not isinstance(config, kind):
        raise FileError(f"{where}: expected an {'object' if kind is dict else 'array'}")
    return config


def read_json_file(path: str, kind: type = dict) -> Any:
    """Reads a regular file; a pipe is refused, as it would be waited for."""
    try:
        if not os.path.isfile(path):
            raise FileNotFoundError("there is no such file")
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: cannot be read: {error}") from error
    if text.startswith("version https://git-lfs"):
        raise FileError(f"{path}: a pointer of Git LFS, not the file itself: `git lfs pull` gets it")
    return read_json(text, path, kind)


def shown(value: Any) -> str:
    """A value of JSON, which may be of any length and depth, for a message."""
    return reprlib.repr(value)


# ---- Values: whether one is what a key expects --------------------------------------------------


def _is_whole(value: Any, low: int) -> bool:
    return type(value) is int and low <= value <= _INT32_MAX


def is_heads(value: Any) -> bool:
    return _is_whole(value, 1)


def _is_number(value: Any) -> bool:
    """Neither 0 nor, as a float32, 0 or infinite."""
    return type(value) in (int, float) and _FLOAT32_MIN <= abs(value) <= _FLOAT32_MAX


def _is_positive(value: Any) -> bool:
    return _is_number(value) and bool(value > 0)


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 < value <= 1


def _is_name_in(names: Any) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in names


def _is_window(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(_is_whole(n, -1) for n in value)


def _is_rope(value: Any) -> bool:
    if not isinstance(value, dict) or set(value) - {"base", "dim", "interleaved"}:
        return False
    dim: Any = value.get("dim")
    return (
        _is_whole(dim, 2)
        and dim % 2 == 0
        and _is_positive(value.get("base", 10000))
        and isinstance(value.get("interleaved", False), bool)
    )


class Expected(NamedTuple):
    what: str
    fits: Callable[[Any], bool]


_HEADS = Expected(f"a whole number from 1 to {_INT32_MAX}", is_heads)
POSITIVE = Expected("a positive number that a float32 holds", _is_positive)
SHARE = Expected("a number above 0, up to 1", _is_share)


def refuse(config: Config, key: str, expected: Expected) -> FileError:
    return FileError(
        f"{config.where}: {key}: expected {expected.what}, got {shown(config.values[key])}"
    )


def first(config: Config, expected: Expected, *keys: str) -> Any:
    """The first of the keys that is there; None where none is, or null."""
    for key in keys:
        value = config.values.get(key)
        if value is not None:
            if not expected.fits(value):
                raise refuse(config, key, expected)
            return value
    return None


def heads(config: Config) -> int | None:
    found: int | None = first(
        config, _HEADS, "num_heads", "num_attention_heads", "n_head", "n_heads"
    )
    return found


def kv_heads(config: Config) -> int | None:
    found: int | None = first(config, _HEADS, "num_kv_heads", "num_key_value_heads")
    return found


# ---- A vkattn file's own config -----------------------------------------------------------------

_OWN = {
    "layout": Expected('"bsd" or "sbd"', _is_name_in(LAYOUTS)),
    "num_heads": _HEADS,
    "num_kv_heads": _HEADS,
    "scale": Expected("a number other than 0 that a float32 holds", _is_number),
    "softcap": Expected(
        "0 or a positive number that a float32 holds",
        lambda value: _is_positive(value) or (type(value) in (int, float) and value == 0),
    ),
    "causal": Expected("a boolean", lambda value: isinstance(value, bool)),
    "window": Expected(f"[left, right], two whole numbers from -1 to {_INT32_MAX}", _is_window),
    "masked_row": Expected(" or ".join(MASKED_ROWS), _is_name_in(MASKED_ROWS)),
    "qkv_heads": Expected('"blocked" or "interleaved"', _is_name_in(("blocked", "interleaved"))),
    "rope": Expected("base, a positive number, dim, an even one, and interleaved", _is_rope),
}
_NOT_OF_LAYERS = ("scores", "softmax_precision")
_OPTIONS = ("layout", "causal", "window", "scale", "softcap", "masked_row")


def own_arguments(config: Config) -> Arguments:
    """What a vkattn file's config says beyond the heads."""
    values = config.values
    for key in values:
        if key not in _OWN and key not in _NOT_OF_LAYERS:
            raise FileError(f"{config.where}: {shown(key)} is unknown")
        if key in _OWN and not _OWN[key].fits(values[key]):
            raise refuse(config, key, _OWN[key])
    arguments = {key: values[key] for key in _OPTIONS if key in values}
    arguments["interleaved"] = values.get("qkv_heads") == "interleaved"
    if "rope" in values:
        arguments["rope"] = Rope(**values["rope"])
    return arguments


# ---- config.json --------------------------------------------------------------------------------

# What it may say of attention that is not read from it: refused, not left out.
_UNREAD = (
    "attn_logit_softcapping",
    "query_pre_attn_scalar",
    "sliding_window",
    "attention_multiplier",
    "rotary_dim",
    "clip_qkv",
    "scale_attn_by_inverse_layer_idx",
)


# Words of keys that say something of attention, and of those among them that change no result here.
_OF_ATTENTION = re.compile("attn|attention|soft_?cap|softmax|window|sink|qk_")
_HARMLESS = re.compile(
    "drop|head|bias|implementation|flash|memory_efficient|backend|fp32|upcast|output_|max_window"
    "|scale_attn_weights"
)


def refuse_unread(config: Config) -> None:
    """And names in a warning what is not known."""
    for key in _UNREAD:
        if config.values.get(key) and config.values.get("use_" + key, True):
            raise UnsupportedError(f"{config.where}: {key} is not supported")
    if config.values.get("scale_attn_weights") is False:
        raise UnsupportedError(f"{config.where}: scale_attn_weights false is not supported")
    known = {*_UNREAD, *("use_" + key for key in _UNREAD)}
    unknown = [
        key
        for key, value in config.values.items()
        if value and key not in known and _OF_ATTENTION.search(key) and not _HARMLESS.search(key)
    ]
    if unknown:
        warnings.warn(
            f"{config.where}: it is not known what {', '.join(map(shown, unknown))} would change:"
            " computed without",
            stacklevel=4,
        )
