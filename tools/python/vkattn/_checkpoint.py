"""The arguments of a Layer, out of other programs' checkpoints."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Callable, Dict

import numpy as np

from ._arrays import HostArray
from ._errors import FileError, InvalidError, UnsupportedError
from ._options import Rope
from ._safetensors import SafetensorsFile, open_checkpoint

Arguments = Dict[str, Any]


class _Names:
    """The tensors under a prefix. What is left in the end would be left out of the layer."""

    # Buffers that say nothing new, and what stands beside attention in BERT's folder of names.
    IGNORED = ("masked_bias", "rotary_emb.inv_freq", "output.LayerNorm.")

    def __init__(self, file: SafetensorsFile, prefix: str) -> None:
        self.file = file
        self.prefix = prefix
        self.left = {
            name[len(prefix) :]
            for name in file.names
            if name.startswith(prefix) and not name[len(prefix) :].startswith(self.IGNORED)
        }

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.file.names

    def take(self, name: str) -> Any:
        if name not in self:
            raise InvalidError(f"{self.file.path}: there is no tensor {self.prefix}{name}")
        self.left.discard(name)
        return self.file.array(self.prefix + name)

    def linear(self, name: str) -> tuple[Any, Any]:
        bias = self.take(f"{name}.bias") if f"{name}.bias" in self else None
        return self.take(f"{name}.weight"), bias

    def refuse_left(self) -> None:
        """A norm of the queries, say. Without a prefix the file may hold anything else."""
        if self.prefix and self.left:
            name = self.prefix + min(self.left)
            raise UnsupportedError(f"{self.file.path}: {name} has no place in a Layer")


def _apply(array: Any, change: Callable[[np.ndarray], Any]) -> Any:
    """change(array), where an array may be bfloat16 halves."""
    if isinstance(array, HostArray):
        return HostArray(change(array.data), array.dtype)
    return change(array)


def _thirds(array: Any, what: str) -> list[Any]:
    """Query, key and value, stacked along the first axis."""
    rows = (array.data if isinstance(array, HostArray) else array).shape[0]
    if rows % 3:
        raise InvalidError(f"{what}: expected rows for query, key and value, got {rows}")
    third = rows // 3
    return [
        _apply(array, lambda a, i=i: a[i * third : (i + 1) * third])  # type: ignore[misc]
        for i in range(3)
    ]


def _read_projections(names: _Names) -> Arguments:
    output = next((name for name in ("o_proj", "out_proj") if f"{name}.weight" in names), None)
    return {
        "query": names.linear("q_proj"),
        "key": names.linear("k_proj"),
        "value": names.linear("v_proj"),
        "output": names.linear(output) if output else None,
    }


def _read_torch_names(names: _Names) -> Arguments:
    if "in_proj_weight" in names:
        weights = _thirds(names.take("in_proj_weight"), f"{names.prefix}in_proj_weight")
    else:
        weights = [names.take(f"{x}_proj_weight") for x in "qkv"]
    biases: list[Any] = [None, None, None]
    if "in_proj_bias" in names:
        biases = _thirds(names.take("in_proj_bias"), f"{names.prefix}in_proj_bias")
    query, key, value = zip(weights, biases)
    return {"query": query, "key": key, "value": value, "output": names.linear("out_proj")}


def _read_gpt2(names: _Names) -> Arguments:
    """Conv1D: weights are [in][out]."""
    names.left.discard("bias")  # the causal mask
    weight, bias = names.linear("c_attn")
    weights = _thirds(_apply(weight, np.transpose), f"{names.prefix}c_attn.weight")
    biases = _thirds(bias, f"{names.prefix}c_attn.bias") if bias is not None else [None] * 3
    query, key, value = zip(weights, biases)
    weight, bias = names.linear("c_proj")
    return {
        "query": query,
        "key": key,
        "value": value,
        "output": (_apply(weight, np.transpose), bias),
    }


def _read_bert(names: _Names) -> Arguments:
    return {
        "query": names.linear("self.query"),
        "key": names.linear("self.key"),
        "value": names.linear("self.value"),
        "output": names.linear("output.dense"),
    }


# A tensor that only this family has: how it is read.
_FAMILIES = {
    "q_proj.weight": _read_projections,
    "in_proj_weight": _read_torch_names,
    "q_proj_weight": _read_torch_names,
    "c_attn.weight": _read_gpt2,
    "self.query.weight": _read_bert,
}


# ---- What the weights do not say ----------------------------------------------------------------


def _read_json(text: str, where: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except ValueError as error:
        raise FileError(f"{where}: not JSON: {error}") from error
    if not isinstance(config, dict):
        raise FileError(f"{where}: expected an object")
    return config


def _number(config: dict[str, Any], where: str, *keys: str) -> Any:
    """The first of the keys that is there, a number; None where none is."""
    for key in keys:
        value = config.get(key)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise FileError(f"{where}: {key}: expected a number, got {value!r}")
            return value
    return None


def _rope_of(config: dict[str, Any], where: str, head_dim: int) -> Rope:
    """As config.json of a model with rotary embedding says."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(scaling, dict):
        raise FileError(f"{where}: rope_scaling: expected an object")
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind != "default":
        raise UnsupportedError(f"{where}: rotary embedding of type {kind!r} is not supported")
    merged = {**config, **scaling}
    share = _number(merged, where, "partial_rotary_factor") or 1.0
    base = _number(merged, where, "rope_theta") or 10000.0
    return Rope(dim=int(head_dim * share), base=float(base))


def _own_config(file: SafetensorsFile) -> tuple[dict[str, Any], str] | None:
    """The config of a vkattn file's metadata."""
    text = file.metadata.get("config")
    if not isinstance(text, str):
        return None
    where = f"{file.path}: config"
    return _read_json(text, where), where


def _config_beside(file: SafetensorsFile) -> tuple[dict[str, Any], str] | None:
    path = Path(file.path).with_name("config.json")
    if not path.is_file():
        return None
    return _read_json(path.read_text(encoding="utf-8", errors="replace"), str(path)), str(path)


def _set_heads(
    arguments: Arguments,
    config: dict[str, Any],
    where: str,
    n_head: int | None,
    n_kv_head: int | None,
) -> None:
    n_head = n_head or _number(config, where, "num_heads", "num_attention_heads", "n_head")
    if not n_head:
        raise InvalidError(f"n_head: expected, as {where} does not say it")
    arguments["n_head"] = n_head
    arguments["n_kv_head"] = n_kv_head or _number(
        config, where, "num_kv_heads", "num_key_value_heads"
    )


def _set_own(arguments: Arguments, config: dict[str, Any], where: str) -> None:
    """What a vkattn file's config says beyond the heads."""
    arguments["interleaved"] = config.get("qkv_heads", "blocked") == "interleaved"
    arguments["layout"] = config.get("layout", "bsd")
    for key in ("causal", "window", "scale", "softcap", "masked_row"):
        if config.get(key) is not None:
            arguments[key] = config[key]
    rope = config.get("rope")
    if rope is None:
        return
    try:
        interleaved = bool(rope.get("interleaved", False))
        arguments["rope"] = Rope(int(rope["dim"]), float(rope.get("base", 10000.0)), interleaved)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FileError(f"{where}: rope: expected dim and base, got {rope!r}") from error


def _set_rope(
    arguments: Arguments, config: dict[str, Any], where: str, path: str, turns: bool
) -> None:
    """turns: names like Llama's, whose queries and keys are always turned."""
    if not turns:
        return
    if not config:
        raise InvalidError(
            f"rope: expected a Rope, or False for none, as there is no config.json beside {path}"
        )
    rows = arguments["query"][0]
    rows = (rows.data if isinstance(rows, HostArray) else rows).shape[0]
    arguments["rope"] = _rope_of(config, where, rows // arguments["n_head"])


def _find_names(file: SafetensorsFile, prefix: str) -> tuple[_Names, str]:
    """The tensors under prefix, whose last dot may be left out, and the one that tells whose."""
    for full in (prefix, f"{prefix}."):
        names = _Names(file, full)
        for name in _FAMILIES:
            if name in names:
                return names, name
    known = ", ".join(f"{prefix}{name}" for name in _FAMILIES)
    raise InvalidError(f"{file.path}: expected one of the tensors {known}")


# What a config.json may say of attention that is not read from it: refused, not left out.
_UNREAD = (
    "attn_logit_softcapping",
    "query_pre_attn_scalar",
    "sliding_window",
    "attention_multiplier",
    "rotary_dim",
    "clip_qkv",
    "scale_attn_by_inverse_layer_idx",
)


def _refuse_unread(config: dict[str, Any], where: str) -> None:
    for key in _UNREAD:
        if config.get(key) and config.get("use_" + key, True):
            raise UnsupportedError(f"{where}: {key} is not supported")


def read_safetensors(
    path: str | os.PathLike[str],
    prefix: str,
    n_head: int | None,
    n_kv_head: int | None,
    rope: Rope | bool | None,
) -> Arguments:
    file = open_checkpoint(path, prefix)
    names, told_by = _find_names(file, prefix)
    arguments = _FAMILIES[told_by](names)
    names.refuse_left()
    own = _own_config(file)
    config, where = own or _config_beside(file) or ({}, file.path)
    _set_heads(arguments, config, where, n_head, n_kv_head)
    if own:
        _set_own(arguments, config, where)
    else:
        _refuse_unread(config, where)
    if isinstance(rope, Rope):
        arguments["rope"] = rope
    elif rope is False:
        arguments["rope"] = None
    elif not own:
        _set_rope(arguments, config, where, file.path, rope is True or "o_proj.weight" in names)
    return arguments


# ---- PyTorch ------------------------------------------------------------------------------------


def read_torch(module: Any) -> Arguments:
    for name in ("num_heads", "in_proj_weight", "out_proj", "batch_first"):
        if not hasattr(module, name):
            raise TypeError(
                f"module: expected a torch.nn.MultiheadAttention, got {type(module).__name__}"
            )
    if getattr(module, "bias_k", None) is not None or getattr(module, "add_zero_attn", False):
        raise UnsupportedError("module: add_bias_kv and add_zero_attn are not supported")

    def host(parameter: Any) -> Any:
        return None if parameter is None else parameter.detach().cpu()

    if module.in_proj_weight is not None:
        weights = _thirds(host(module.in_proj_weight), "in_proj_weight")
    else:
        weights = [host(getattr(module, f"{x}_proj_weight")) for x in "qkv"]
    bias = host(module.in_proj_bias)
    biases = [None] * 3 if bias is None else _thirds(bias, "in_proj_bias")
    query, key, value = zip(weights, biases)
    return {
        "n_head": module.num_heads,
        "query": query,
        "key": key,
        "value": value,
        "output": (host(module.out_proj.weight), host(module.out_proj.bias)),
        "layout": "bsd" if module.batch_first else "sbd",
    }
