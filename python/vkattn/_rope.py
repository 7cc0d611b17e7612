"""Rotary embedding as the config.json of a model states it."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from ._abi import enum_names, ffi, lib, new_struct
from ._config import POSITIVE, SHARE, Config, Expected, first, heads, shown
from ._errors import FileError, InvalidError, UnsupportedError
from ._options import Rope

_TYPES = enum_names("VKA_ROPE_", "vka_rope_type")
_OTHER_NAMES = {"su": "longrope"}  # of Phi 3

_COMMON = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
_ORIGINAL = "original_max_position_embeddings"
# What each type needs, and what it may say besides.
_NEEDED: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": (),
    "longrope": ("short_factor", "long_factor"),
}
_OPTIONAL: dict[str, tuple[str, ...]] = {
    "default": ("mrope_section",),  # of images: text has one position for all three sections
    "linear": (),
    "llama3": (_ORIGINAL,),
    "yarn": (
        *("factor", _ORIGINAL, "attention_factor", "beta_fast", "beta_slow"),
        *("mscale", "mscale_all_dim", "truncate", "finetuned"),
    ),
    "longrope": ("factor", _ORIGINAL, "attention_factor"),
}
_BOOLEANS = ("truncate", "finetuned")
_DEFAULTED = ("beta_fast", "beta_slow", "mscale", "mscale_all_dim")


def _object(config: Config) -> dict[str, Any]:
    """What says how positions are scaled, under its old and its new name."""
    objects = []
    for key in ("rope_scaling", "rope_parameters"):
        value = config.values.get(key)
        if value is not None and not isinstance(value, dict):
            raise FileError(f"{config.where}: {key}: expected an object, got {shown(value)}")
        objects.append({name: x for name, x in (value or {}).items() if x is not None})
    if all(objects):
        _check_equal(config, *objects)
    return {**objects[0], **objects[1]}


def _check_equal(config: Config, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Both names with one meaning: transformers reads the old one alone then."""
    beside = {key: config.values.get(key) for key in ("rope_theta", "partial_rotary_factor")}
    meant = []
    for found in (old, new):
        plain = {"rope_type" if key == "type" else key: x for key, x in found.items()}
        meant.append({**{key: x for key, x in beside.items() if x is not None}, **plain})
    if meant[0] != meant[1]:
        raise FileError(
            f"{config.where}: rope_scaling and rope_parameters differ: {shown(old)} and {shown(new)}"
        )


def _refuse(config: Config, what: str) -> UnsupportedError:
    return UnsupportedError(f"{config.where}: {what} of rotary embedding is not supported")


def _kind_of(config: Config, found: dict[str, Any]) -> str:
    """One of _TYPES, with nothing in `found` that the type does not have."""
    kinds = [found[key] for key in ("rope_type", "type") if key in found]
    for kind in kinds:
        known = isinstance(kind, str) and _OTHER_NAMES.get(kind, kind) in _TYPES
        if not known or kind != kinds[0]:
            raise UnsupportedError(
                f"{config.where}: rotary embedding of type {shown(kind)} is not supported"
            )
    kind = _OTHER_NAMES.get(kinds[0], kinds[0]) if kinds else "default"
    for name in sorted(set(found) - _COMMON - {*_NEEDED[kind], *_OPTIONAL[kind]}):
        raise _refuse(config, shown(name))
    if not kinds and "mrope_section" in found:
        raise _refuse(config, "'mrope_section'")
    for name in _NEEDED[kind]:
        if name not in found:
            raise FileError(
                f"{config.where}: rotary embedding of type {kind!r}: expected {name}, there is none"
            )
    return kind


def refuse_scaled(config: Config) -> None:
    """For a Rope that states its base alone."""
    kind = _kind_of(config, _object(config))
    if kind != "default":
        raise UnsupportedError(
            f"{config.where}: rotary embedding of type {kind!r} has frequencies of its own:"
            " expected no Rope, or that of vkattn.rope_from_config"
        )
    refuse_inside(config)


def refuse_inside(config: Config) -> None:
    """Refuses what the text model of a model of images and text says."""
    text = config.values.get("text_config")
    if isinstance(text, dict):
        refuse_scaled(Config(text, f"{config.where}: text_config"))


def _factors(config: Config, found: dict[str, Any], name: str, count: int) -> Any:
    values = found[name]
    numbers = isinstance(values, list) and len(values) == count
    if not numbers or not all(POSITIVE.fits(x) for x in values):
        raise FileError(
            f"{config.where}: rotary embedding: {name}: expected {count} positive numbers, got"
            f" {shown(values)}"
        )
    return ffi.new("double[]", [float(x) for x in values])


_SIZE = Expected("a whole number from 1 on", lambda x: type(x) is int and 1 <= x < 2**32)
_BOOLEAN = Expected("a boolean", lambda x: isinstance(x, bool))


def _write_lengths(info: Any, kind: str, merged: Config, given: Config) -> None:
    """The original length, and the factor that is its ratio where it is not given."""
    if kind in ("default", "linear"):
        return
    longest = first(given, _SIZE, "max_position_embeddings")
    # Phi 3 has it beside the object, where it comes first.
    original = first(given, _SIZE, _ORIGINAL) or first(merged, _SIZE, _ORIGINAL) or longest
    if not original:
        raise FileError(f"{given.where}: rotary embedding of type {kind!r}: expected {_ORIGINAL}")
    info.original_max_position_embeddings = original
    if not info.factor:
        if not longest:
            raise FileError(
                f"{given.where}: rotary embedding of type {kind!r}: expected a factor"
                " or max_position_embeddings"
            )
        info.factor = max(longest / original, 1.0)


def _scaled(
    info: Any, kind: str, config: Config, found: dict[str, Any], length: int | None
) -> Rope:
    merged = Config({**config.values, **found}, f"{config.where}: rotary embedding")
    half = info.dim // 2
    keep = []
    for name in (*_NEEDED[kind], *_OPTIONAL[kind]):
        if name.endswith(("short_factor", "long_factor")):
            keep.append(_factors(config, found, name, half))
            setattr(info, name, keep[-1])
        elif name in _BOOLEANS:
            value = first(merged, _BOOLEAN, name)
            if name == "truncate" and value is False:
                info.no_truncate = True
        elif name in _DEFAULTED and found.get(name) == 0:
            continue  # transformers takes its default then, and C as well
        elif name != _ORIGINAL and found.get(name) is not None:
            setattr(info, name, first(merged, POSITIVE, name))
    _write_lengths(info, kind, merged, config)
    if kind == "longrope":
        if length is None:
            raise InvalidError(
                f"{config.where}: rotary embedding of type 'longrope' depends on the positions that"
                " sequences may reach: expected vkattn.rope_from_config(config, length=...)"
            )
        info.length = length
    frequencies = ffi.new("double[]", half)
    factor = ffi.new("float *")
    error = ffi.new("char[]", lib.VKA_ROPE_ERROR_SIZE)
    if lib.vka_rope_frequencies(info, frequencies, factor, error):
        why = ffi.string(error).decode().partition(": ")[2]
        raise FileError(f"{config.where}: rotary embedding of type {kind!r}: {why}")
    return Rope(
        info.dim,
        0.0,
        frequencies=tuple(frequencies),
        attention_factor=float(factor[0]),
    )


def rope_of(config: Config, head_dim: int, length: int | None = None) -> Rope:
    found = _object(config)
    kind = _kind_of(config, found)
    refuse_inside(config)
    merged = Config({**config.values, **found}, config.where)
    share = first(merged, SHARE, "partial_rotary_factor") or 1.0
    base = first(merged, POSITIVE, "rope_theta") or 10000.0
    dim = int(head_dim * share)
    if dim < 2 or dim % 2:
        raise UnsupportedError(f"{config.where}: rotary embedding of {dim} features")
    if kind == "default":
        return Rope(dim=dim, base=float(base))
    info = new_struct("vka_rope_info")
    info.type = _TYPES[kind]
    info.dim = dim
    info.base = base
    return _scaled(info, kind, config, found, length)


# ---- Families -----------------------------------------------------------------------------------

# Families that vkattn.models has no row of, whose attention is Llama's: their base.
_KIN = {
    **dict.fromkeys(("qwen2_moe", "qwen3_moe", "granitemoe", "olmoe", "deepseek"), 10000.0),
    **dict.fromkeys(("minicpm", "internlm3", "aquila"), 10000.0),
    **dict.fromkeys(("mixtral", "phimoe"), 1000000.0),
}
# Keys of rotary embedding, all that are read; any other with such a word in it is refused.
_WORDS = ("rope", "rotary", "rotate", "alibi")
_SHARES = ("partial_rotary_factor", "rotary_pct", "rotary_percent", "rope_pct")
_BASES = ("rope_theta", "rotary_emb_base")
_KNOWN_KEYS = {
    *("rope_scaling", "rope_parameters", "rope_interleaved", "rope_type", *_SHARES, *_BASES),
    *("no_rope_layers", "no_rope_layer_interval", "use_rope"),
}


def row_of(config: Config) -> dict[str, Any] | None:
    """The row of a decoder's family, by model_type; None where there is none."""
    from .models._families import FAMILIES  # the one table, which stands above this

    family = config.values.get("model_type")
    if not isinstance(family, str):
        return None
    if family in _KIN:
        return {**FAMILIES["llama"], "theta": _KIN[family]}
    return FAMILIES.get(family)


def default_of(value: Any) -> Any:
    """What a setting is where config.json has no key of it."""
    return getattr(value, "default", value)


def _is_plain(row: dict[str, Any]) -> bool:
    """Whether all its layers rotate alike, or config.json lists those that do not."""
    listed = row.get("no_rope") in (None, "", "listed")
    return row["positions"] == "rope" and row["local_theta"] is None and listed


def says_of_rotation(config: Config) -> str | None:
    """A key of config.json that speaks of rotary embedding, with a value that means something."""
    for key in sorted(config.values):
        if any(word in key.lower() for word in _WORDS) and config.values[key]:
            return key
    if config.values.get("model_type") == "roformer":  # whose config.json names no base
        return "model_type roformer"
    kind = config.values.get("position_embedding_type")
    return "position_embedding_type" if kind not in (None, "absolute") else None


def _refuse_keys(config: Config) -> None:
    for key in sorted(config.values):
        named = any(word in key.lower() for word in _WORDS) and key not in _KNOWN_KEYS
        if named and config.values[key] not in (None, False):
            raise UnsupportedError(f"{config.where}: {key} is not supported: give rope=")
    if first(config, _BOOLEAN, "use_rope") is False:
        raise UnsupportedError(f"{config.where}: use_rope false is not supported: give rope=")
    kind = config.values.get("position_embedding_type")
    if kind not in (None, "rope", "rotary"):
        raise UnsupportedError(
            f"{config.where}: position_embedding_type {shown(kind)} is not supported: give rope="
        )


def _stated(config: Config, found: dict[str, Any], names: tuple[str, ...], kind: Any) -> Any:
    """A value that families name in several ways, which has to be one."""
    merged = Config({**config.values, **found}, config.where)
    values = [value for value in (first(merged, kind, name) for name in names) if value is not None]
    if any(value != values[0] for value in values):
        raise FileError(f"{config.where}: {' and '.join(names)} differ: {shown(values)}")
    return values[0] if values else None


def family_rope(config: Config, head_dim: int, length: int | None = None) -> Rope:
    """As the model's family rotates, which model_type names; without one, as Llama's."""
    _refuse_keys(config)
    family, row = config.values.get("model_type"), row_of(config)
    interleaved = row is not None and row["interleaved"] is True
    told = first(config, _BOOLEAN, "rope_interleaved")
    if told is not None:
        if interleaved and not told:
            raise UnsupportedError(f"{config.where}: rope_interleaved false of {shown(family)}")
        interleaved = told
    found = _object(config)
    share = _stated(config, found, _SHARES, SHARE)
    if row and share is None:
        share = default_of(row["rotary_share"])
    base = _stated(config, found, _BASES, POSITIVE)
    if row and base is None:
        base = default_of(row["theta"])
    plain = {key: value for key, value in config.values.items() if key not in (*_SHARES, *_BASES)}
    if share is not None:
        plain["partial_rotary_factor"] = share
    if base is not None:
        plain["rope_theta"] = base
    rope = rope_of(Config(plain, config.where), head_dim, length)
    return dataclasses.replace(rope, interleaved=interleaved)


def _layer_of(prefix: str) -> int | None:
    found = re.findall(r"(?:^|\.)(?:layers|layer|h|blocks|blk)\.(\d+)(?=\.|$)", prefix)
    return int(found[0]) if len(found) == 1 else None


def layer_rope(config: Config, head_dim: int, prefix: str) -> Rope | None:
    """The rotation of one layer with Llama's names; None where the config leaves it alone."""
    family = config.values.get("model_type")
    row = row_of(config)
    if family is not None and (row is None or not _is_plain(row)):
        raise UnsupportedError(
            f"{config.where}: model_type {shown(family)}: it is not known which features its layers"
            " rotate: give rope=, a Rope or False"
        )
    rope = family_rope(config, head_dim)
    flags = config.values.get("no_rope_layers")
    interval = first(config, _SIZE, "no_rope_layer_interval")
    if interval is None and row and row.get("no_rope") == "listed":
        interval = 4
    if not flags and interval is None:
        return rope
    layer = _layer_of(prefix)
    if layer is None:
        raise UnsupportedError(
            f"{config.where}: no_rope_layers: the prefix {prefix!r} does not say which layer this"
            " is: give rope="
        )
    if not flags:
        return rope if (layer + 1) % interval else None
    if not isinstance(flags, list) or not all(x in (0, 1) for x in flags) or layer >= len(flags):
        raise FileError(
            f"{config.where}: no_rope_layers: expected 0 or 1 for each layer, got {shown(flags)}"
        )
    return rope if flags[layer] else None


def rope_from_config(config: dict[str, Any], *, length: int | None = None) -> Rope:
    """The rotary embedding of a model by its config.json, read into a dictionary: types "default",
    "linear", "llama3", "yarn" and "longrope", whole or partial. Others are UnsupportedError, and so
    is a key that its type does not have, or that nobody knows. Pairs are neighbours where
    rope_interleaved or the model_type says so. Layers that rotate nothing (no_rope_layers) are the
    caller's.

    length: positions that sequences may reach, which "longrope" needs: beyond the model's original
    length it has other frequencies.
    """
    if not isinstance(config, dict):
        raise TypeError(f"config: expected a dict, got {type(config).__name__}")
    if length is not None and (type(length) is not int or not 1 <= length < 2**32):
        raise InvalidError(f"length: expected a whole number from 1 on, got {length!r}")
    given = Config(config, "config")
    head_dim = first(given, _SIZE, "head_dim")
    if head_dim is None:
        width, n_head = first(given, _SIZE, "hidden_size"), heads(given)
        if not width or not n_head:
            raise FileError("config: expected head_dim, or hidden_size and num_attention_heads")
        head_dim = width // n_head
    return family_rope(given, head_dim, length)
