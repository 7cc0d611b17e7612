"""The arguments of a Layer, out of other programs' checkpoints."""

from __future__ import annotations

import os
from typing import Any, Callable

import numpy as np

from . import _config, _layer_family, _rope
from ._arrays import HostArray
from ._config import Arguments, Config, read_json, read_json_file, shown
from ._errors import InvalidError, UnsupportedError
from ._int4 import Blocks
from ._packed import Packed, Tensors
from ._packings import packed_beside
from ._numbers import whole
from ._options import Rope
from ._safetensors import SafetensorsFile, open_checkpoint, pairs_once


# Tensors that only packed weights have beside them.
_MARKS = ("weight_packed", "weight_scale", "weight_scale_inv", "weight.absmax")


class _Names:
    """The tensors under a prefix. What is left in the end would be left out of the layer."""

    # Buffers that say nothing new, and what stands beside attention in BERT's folder of names.
    IGNORED = ("masked_bias", "rotary_emb.inv_freq", "output.LayerNorm.")
    # Tensors of vkattn's case files: inputs and what is expected of them.
    OF_CASES = {
        *("query", "key", "value", "past_key", "past_value", "mask", "kv_length", "query_offset"),
        *("expect.output", "expect.scores", "expect.present_key", "expect.present_value"),
    }

    def __init__(self, file: SafetensorsFile, prefix: str) -> None:
        self.file = file
        self.prefix = prefix
        self._tensors = Tensors(file.path, frozenset(file.names), lambda name: file)
        self._packing: Packed | None = None
        self.left = {
            name[len(prefix) :]
            for name in file.names
            if name.startswith(prefix) and not name[len(prefix) :].startswith(self.IGNORED)
        }

    def __contains__(self, name: str) -> bool:
        """A weight may be one of 4 bits."""
        return self.prefix + name in self.file.names or self._quantised(name)

    def _quantised(self, name: str) -> bool:
        """Whether a tensor beside it, or its type, says so; what quantised it is read then."""
        full = self.prefix + name
        prefix = full[: -len("weight")]
        names = self._tensors.names
        if not full.endswith(".weight") or not (
            (full not in names and f"{prefix}qweight" in names)
            or any(prefix + mark in names for mark in _MARKS)
            or (full in names and self._tensors.kind(full).startswith("F8_"))
        ):
            return False
        packing = self._packed()
        return packing is not None and bool(packing.names_of(prefix, self._tensors))

    def _packed(self) -> Packed | None:
        if not self._packing:
            config = _config_beside(self.file)
            quantization = config.values.get("quantization_config") if config else None
            where = config.where if config else self.file.path
            folder = os.path.dirname(self.file.path)
            has_words = any(name.endswith("qweight") for name in self.file.names)
            self._packing = packed_beside(folder, quantization, where, has_words)
        return self._packing

    def _take(self, name: str, rank: int) -> Any:
        full = self.prefix + name
        if name not in self:
            raise InvalidError(f"{self.file.path}: there is no tensor {full}")
        self.left.discard(name)
        array = self.file.array(full)
        if len(_shape(array)) != rank:
            raise InvalidError(
                f"{self.file.path}: {full}: expected {rank} axes, got {list(_shape(array))}"
            )
        return array

    def weight(self, name: str) -> Any:
        return self._blocks(name) if self._quantised(name) else self._take(name, 2)

    def _blocks(self, name: str) -> Blocks:
        prefix = (self.prefix + name)[: -len("weight")]
        packing = self._packed()
        assert packing
        self.left -= {x[len(self.prefix) :] for x in packing.names_of(prefix, self._tensors)}
        self.left -= {x for x in self.left if packing.is_inert(x)}
        blocks = packing.read(prefix, self._tensors)
        if blocks.scale is not None:
            raise UnsupportedError(
                f"{self.file.path}: {prefix}weight: a layer takes no {blocks.dtype} with a scale of its own"
            )
        return blocks

    def bias(self, name: str) -> Any:
        """None where there is none."""
        return self._take(name, 1) if name in self else None

    def row(self, name: str) -> Any:
        """A row that PyTorch keeps as [1][1][width]."""
        return _apply(self._take(name, 3), np.ravel)

    def linear(self, name: str) -> tuple[Any, Any]:
        return self.weight(f"{name}.weight"), self.bias(f"{name}.bias")

    def refuse_left(self) -> None:
        """A norm of the queries, say, or a projection of another name."""
        if not self.prefix:
            self.left -= self.OF_CASES
            if str(self.file.metadata.get("format", "")).startswith("vkattn-"):
                self.left -= {x for x in self.left if x.startswith("classifier.")}
        if self.left:
            name = self.prefix + min(self.left)
            raise UnsupportedError(f"{self.file.path}: {name} has no place in a Layer")


def _apply(array: Any, change: Callable[[np.ndarray], Any]) -> Any:
    """change(array): of an array, of bfloat16 halves, or of blocks, of which change picks rows."""
    if isinstance(array, Blocks):
        return array._replace(data=change(array.data))
    if isinstance(array, HostArray):
        return HostArray(change(array.data), array.dtype)
    return change(array)


def _transpose(array: Any) -> Any:
    """[out][in] of [in][out]; rows of blocks are outputs already."""
    return array if isinstance(array, Blocks) else _apply(array, np.transpose)


def _shape(array: Any) -> tuple[int, ...]:
    if isinstance(array, Blocks):
        return array.shape
    return tuple((array.data if isinstance(array, HostArray) else array).shape)


def _query_key_value(array: Any, what: str, n_query: int | None = None) -> list[Any]:
    """Query, key and value, stacked along the first axis; three times None for None. n_query: rows
    of the query, by default as many as of the others."""
    if array is None:
        return [None] * 3
    rows = _shape(array)[0]
    left = rows * 2 // 3 if n_query is None else rows - n_query
    if left < 2 or left % 2 or (n_query is None and rows % 3):
        raise InvalidError(f"{what}: expected rows for query, key and value, got {rows}")
    first = rows - left
    ends = [0, first, first + left // 2, rows]
    return [
        _apply(array, lambda a, i=i: a[ends[i] : ends[i + 1]])  # type: ignore[misc]
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
        weights = _query_key_value(names.weight("in_proj_weight"), f"{names.prefix}in_proj_weight")
    else:
        weights = [names.weight(f"{x}_proj_weight") for x in "qkv"]
    biases = _query_key_value(names.bias("in_proj_bias"), f"{names.prefix}in_proj_bias")
    query, key, value = zip(weights, biases)
    made = {"query": query, "key": key, "value": value, "output": names.linear("out_proj")}
    if "bias_k" in names or "bias_v" in names:
        made["bias_kv"] = names.row("bias_k"), names.row("bias_v")
    return made


def _read_gpt2(names: _Names) -> Arguments:
    """Conv1D: weights are [in][out]."""
    names.left.discard("bias")  # the causal mask
    weight, bias = names.linear("c_attn")
    weights = _query_key_value(_transpose(weight), f"{names.prefix}c_attn.weight")
    biases = _query_key_value(bias, f"{names.prefix}c_attn.bias")
    query, key, value = zip(weights, biases)
    weight, bias = names.linear("c_proj")
    return {
        "query": query,
        "key": key,
        "value": value,
        "output": (_transpose(weight), bias),
    }


def _read_phi3(names: _Names) -> Arguments:
    """There are as many rows of queries as the output has columns."""
    output = names.linear("o_proj")
    stacked = [
        _query_key_value(array, f"{names.prefix}qkv_proj", _shape(output[0])[1])
        for array in names.linear("qkv_proj")
    ]
    query, key, value = zip(*stacked)
    return {"query": query, "key": key, "value": value, "output": output}


def _named(query: str, key: str, value: str, output: str) -> Callable[[_Names], Arguments]:
    def read(names: _Names) -> Arguments:
        return {
            "query": names.linear(query),
            "key": names.linear(key),
            "value": names.linear(value),
            "output": names.linear(output),
        }

    return read


# A tensor that only this family has: how it is read.
_FAMILIES = {
    "q_proj.weight": _read_projections,
    "in_proj_weight": _read_torch_names,
    "q_proj_weight": _read_torch_names,
    "c_attn.weight": _read_gpt2,
    "qkv_proj.weight": _read_phi3,
    "self.query.weight": _named("self.query", "self.key", "self.value", "output.dense"),
    "attention.query.weight": _named(
        "attention.query", "attention.key", "attention.value", "output.dense"
    ),
    "q_lin.weight": _named("q_lin", "k_lin", "v_lin", "out_lin"),
}


def _find_names(file: SafetensorsFile, prefix: str) -> tuple[_Names, str]:
    """The tensors under prefix, whose last dot may be left out, and the one that tells whose."""
    for full in (prefix, f"{prefix}."):
        names = _Names(file, full)
        for name in _FAMILIES:
            if name in names:
                return names, name
    known = ", ".join(f"{prefix}{name}" for name in _FAMILIES)
    raise InvalidError(f"{file.path}: expected one of the tensors {known}{_prefixes(file)}")


def _prefixes(file: SafetensorsFile) -> str:
    """Where the file has layers."""
    found = sorted(
        {name[: -len(own)] for name in file.names for own in _FAMILIES if name.endswith("." + own)}
    )
    if not found:
        return ""
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return "; the file has layers at " + ", ".join(repr(x[:-1]) for x in found[:3]) + more


# ---- What the weights do not say ----------------------------------------------------------------


def _own_config(file: SafetensorsFile) -> Config | None:
    """The config of a vkattn file's metadata."""
    text = file.metadata.get("config")
    if not isinstance(text, str):
        return None
    where = f"{file.path}: config"
    return Config(read_json(text, where, object_pairs_hook=pairs_once), where)


def _config_beside(file: SafetensorsFile) -> Config | None:
    path = os.path.join(os.path.dirname(file.path), "config.json")
    return Config(read_json_file(path), path) if os.path.lexists(path) else None


def _set_heads(
    arguments: Arguments, config: Config, n_head: int | None, n_kv_head: int | None
) -> None:
    n_head = _config.heads(config) if n_head is None else n_head
    if n_head is None:
        raise InvalidError(f"n_head: expected, as {config.where} does not give it")
    arguments["n_head"] = n_head
    arguments["n_kv_head"] = _config.kv_heads(config) if n_kv_head is None else n_kv_head


def _check_weights(arguments: Arguments, config: Config) -> None:
    """Against what config.json says of them."""
    (weight, bias), n_head = arguments["query"], arguments["n_head"]
    rows, head_dim = _shape(weight)[0], config.values.get("head_dim")
    if head_dim is not None and (type(head_dim) is not int or head_dim * n_head != rows):
        raise InvalidError(
            f"{config.where}: head_dim is {shown(head_dim)}, but the query has {rows} rows for"
            f" {n_head} heads"
        )
    for key in ("attention_bias", "qkv_bias"):
        if config.values.get(key) is True and bias is None:
            raise InvalidError(f"{config.where}: {key} is true, but the query has no bias")


def _set_rope(
    arguments: Arguments, config: Config | None, rope: Rope | bool | None, names: _Names
) -> None:
    """Names like Llama's are of families whose queries and keys turn."""
    path, turns = names.file.path, "o_proj.weight" in names
    if isinstance(rope, Rope):
        if config and rope.frequencies is None:
            _rope.refuse_scaled(config)
        arguments["rope"] = rope
    elif rope is True or (rope is None and turns):
        if not config:
            raise InvalidError(
                "rope: expected a Rope, or False for none, as there is no config.json beside"
                f" {path}"
            )
        rows = _shape(arguments["query"][0])[0]
        arguments["rope"] = _rope.layer_rope(config, rows // arguments["n_head"], names.prefix)
    elif rope is None and config:
        told = _rope.says_of_rotation(config)
        if told:
            raise UnsupportedError(
                f"{config.where}: {told}: the names of the tensors do not say whether this layer"
                " rotates: give rope=, True, a Rope or False"
            )


def _check_arguments(
    prefix: str, n_head: int | None, n_kv_head: int | None, rope: Rope | bool | None
) -> None:
    if not isinstance(prefix, str):
        raise TypeError(f"prefix: expected a str, got {type(prefix).__name__}")
    for name, count in (("n_head", n_head), ("n_kv_head", n_kv_head)):
        if count is not None:
            whole(count, name, 1)
    if rope is not None and not isinstance(rope, (Rope, bool)):
        raise TypeError(f"rope: expected a Rope or a bool, got {type(rope).__name__}")


def read_safetensors(
    path: str | os.PathLike[str],
    prefix: str,
    n_head: int | None,
    n_kv_head: int | None,
    rope: Rope | bool | None,
) -> Arguments:
    _check_arguments(prefix, n_head, n_kv_head, rope)
    file = open_checkpoint(path, prefix)
    names, told_by = _find_names(file, prefix)
    arguments = _FAMILIES[told_by](names)
    names.refuse_left()
    own = _own_config(file)
    beside = None if own else _config_beside(file)
    _set_heads(arguments, own or beside or Config({}, file.path), n_head, n_kv_head)
    if own:
        arguments.update(_config.own_arguments(own))
        if rope is True and "rope" not in arguments:
            raise InvalidError(f"rope: expected a Rope, or False for none, as {own.where} has none")
        if rope is not None and rope is not True:
            arguments["rope"] = rope or None
        return arguments
    if beside:
        _config.refuse_unread(beside)
        _layer_family.refuse_family(beside)
        _check_weights(arguments, beside)
    _set_rope(arguments, beside, rope, names)
    return arguments


# ---- PyTorch ------------------------------------------------------------------------------------


def read_torch(module: Any) -> Arguments:
    for name in ("num_heads", "in_proj_weight", "out_proj", "batch_first"):
        if not hasattr(module, name):
            raise TypeError(
                f"module: expected a torch.nn.MultiheadAttention, got {type(module).__name__}"
            )

    def host(parameter: Any) -> Any:
        return None if parameter is None else parameter.detach().cpu()

    if module.in_proj_weight is not None:
        weights = _query_key_value(host(module.in_proj_weight), "in_proj_weight")
    else:
        weights = [host(getattr(module, f"{x}_proj_weight")) for x in "qkv"]
    biases = _query_key_value(host(module.in_proj_bias), "in_proj_bias")
    query, key, value = zip(weights, biases)
    bias_k, bias_v = (host(getattr(module, name, None)) for name in ("bias_k", "bias_v"))
    return {
        "bias_kv": None if bias_k is None else (bias_k.reshape(-1), bias_v.reshape(-1)),
        "zero_attn": bool(getattr(module, "add_zero_attn", False)),
        "n_head": module.num_heads,
        "query": query,
        "key": key,
        "value": value,
        "output": (host(module.out_proj.weight), host(module.out_proj.bias)),
        "layout": "bsd" if module.batch_first else "sbd",
    }
