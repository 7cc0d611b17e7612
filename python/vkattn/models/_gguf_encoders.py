"""Encoders of GGUF files by general.architecture: a family of config.json, whose tensors and keys
such files have under other names."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from .._errors import FileError, UnsupportedError
from .._gguf import GGUF
from ._encoder_families import FAMILIES, Family
from ._layers import Layer
from ._seq2seq_rows import SIDES, Side
from ._keys import Keys


class Row(NamedTuple):
    """keys: those of config.json by those of the architecture, two of which may say the same. only:
    keys with the values that are followed. epsilon: the key that says that of the norms."""

    kind: str
    at: str  # of a layer
    layer: dict[str, tuple[str, ...]]  # fields of Layer
    keys: dict[str, str]
    only: dict[str, tuple[Any, ...]] = {}
    final_norm: str = ""
    relative: str = ""
    epsilon: str = "attention.layer_norm_epsilon"


_BEHIND = {
    "qkv": ("attn_q", "attn_k", "attn_v"),
    "o": ("attn_output",),
    "attn_norm": ("attn_output_norm",),
    "up": ("ffn_up",),
    "down": ("ffn_down",),
    "norm": ("layer_output_norm",),
}
_BEFORE = {
    **_BEHIND,
    "o": ("attn_o",),
    "attn_norm": ("attn_norm",),
    "gated_up": ("ffn_gate", "ffn_up"),
    "norm": ("ffn_norm",),
}
_SIZES = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_epsilon": "layer_norm_eps",
}
_ONLY = {"attention.causal": (False,)}
_T5 = Row(
    "t5",
    "enc.blk.{}.",
    _BEFORE,
    {
        "context_length": "n_positions",
        "embedding_length": "d_model",
        "block_count": "num_layers",
        "decoder_block_count": "num_decoder_layers",
        "feed_forward_length": "d_ff",
        "attention.head_count": "num_heads",
        "attention.key_length": "d_kv",
        "attention.value_length": "d_kv",
        "attention.relative_buckets_count": "relative_attention_num_buckets",
        "attention.layer_norm_epsilon": "layer_norm_epsilon",
        "attention.layer_norm_rms_epsilon": "layer_norm_epsilon",
        "decoder_start_token_id": "decoder_start_token_id",
    },
    _ONLY,
    final_norm="enc.output_norm",
    relative="attn_rel_b",
    epsilon="attention.layer_norm_rms_epsilon",
)
ENCODERS = {
    "bert": Row("bert", "blk.{}.", _BEHIND, _SIZES, _ONLY),
    "nomic-bert": Row(
        "nomic_bert",
        "blk.{}.",
        {**_BEHIND, "qkv": ("attn_qkv",), "up": ("ffn_gate", "ffn_up")},
        {**_SIZES, "rope.freq_base": "rope_theta"},
        _ONLY,
    ),
    "t5encoder": _T5,
    "t5": _T5,
}
# What stands before the layers, by the name that a family has for it.
_FIRST = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.LayerNorm": "token_embd_norm",
    "emb_ln": "token_embd_norm",
    "shared": "token_embd",
    "lm_head": "output",
}


def _layer_names(
    row: dict[str, tuple[str, ...]], at: str, layer: Layer, gated: bool
) -> dict[str, str]:
    """Names in GGUF of the tensors of a layer, with {} for its number, and those of the family."""
    found = {}
    for field, names in row.items():
        if "gated_up" in row and field == ("up" if gated else "gated_up"):
            continue
        given = getattr(layer, field)
        own = (given,) if isinstance(given, str) else given
        found.update({at + name: layer.at + x for name, x in zip(names, own)})
    return found


def _side_names(side: Side, gated: bool) -> dict[str, str]:
    found = _layer_names(_BEFORE, "dec.blk.{}.", side.layer, gated)
    at, cross = f"{side.layer.at}{side.cross.at}", side.cross
    for name, product in zip("qkvo", cross.products):
        found[f"dec.blk.{{}}.cross_attn_{name}"] = at + product
    found["dec.blk.{}.cross_attn_norm"] = side.layer.at + cross.norm
    found["dec.output_norm"] = side.layer.final_norm
    return found


def _names(row: Row, family: Family, side: Side | None, gated: bool) -> dict[str, str]:
    found = _layer_names(row.layer, row.at, family.layer, gated)
    found.update({name: own for own, name in _FIRST.items() if _has(family, own)})
    if row.final_norm:
        found[row.final_norm] = family.layer.final_norm
    if side:
        found.update(_side_names(side, gated))
    for at, relative, layer in (
        (row.at, family.relative, family.layer),
        ("dec.blk.{}.", side and side.relative, side and side.layer),
    ):
        if relative and layer:
            name = relative.name.removesuffix(".weight").replace(".0.", ".{}.", 1)
            found[f"{at}{row.relative}"] = layer.at + name if relative.each else name
    return found


def _has(family: Family, name: str) -> bool:
    """Whether a family's file may have a tensor of this name."""
    stated = (*family.embedding, family.positions, family.norm, *(x.name for x in family.added))
    return name == "lm_head" or any(x in (name, f"{name}.weight") for x in stated)


def kind_of(row: Row, file: GGUF) -> str:
    """T5's family that has a bias of distances in each layer is UMT5."""
    return "umt5" if row.kind == "t5" and "enc.blk.1.attn_rel_b.weight" in file.names else row.kind


def _is_gated(file: GGUF) -> bool:
    return any(name.endswith("ffn_gate.weight") for name in file.names)


def renamed(row: Row, file: GGUF) -> dict[str, str]:
    """Names of the file's tensors by those that the family has; others stay as they are."""
    kind = kind_of(row, file)
    with_decoder = any(name.startswith("dec.") for name in file.names)
    side = SIDES[kind] if with_decoder else None
    names = _names(row, FAMILIES[kind], side, _is_gated(file))
    found = {}
    for name in file.names:
        module, dot, end = name.rpartition(".")
        number = re.search(r"blk\.(\d+)\.", module)
        own = names.get(module.replace(number[0], "blk.{}.", 1) if number else module)
        found[f"{own.format(number[1]) if number else own}{dot}{end}" if own else name] = name
    return found


def keys_of_gguf(row: Row, arch: str, file: GGUF, keys: Keys) -> Keys:
    """What config.json would say; a key that nothing here reads stays in keys.left."""
    values: dict[str, Any] = {}
    for name, allowed in row.only.items():
        keys.only(f"{arch}.{name}", *allowed)
    if f"{arch}.{row.epsilon}" not in keys.values:
        raise FileError(f"{keys.where}: there is no {arch}.{row.epsilon}")
    for name, own in row.keys.items():
        value = keys.get(f"{arch}.{name}", (int, float))
        if value is None:
            continue
        whole = isinstance(keys.values[f"{arch}.{name}"], int)
        value = int(value) if whole else value
        if own in values and values[own] != value:
            raise UnsupportedError(
                f"{keys.where}: {arch}.{name}: expected {values[own]}, got {value}"
            )
        values[own] = value
    values["vocab_size"] = file.shape("token_embd.weight")[0]
    keys.only(f"{arch}.vocab_size", values["vocab_size"])
    if "token_types.weight" in file.names:
        types = file.shape("token_types.weight")
        values["type_vocab_size"] = types[0] if len(types) == 2 else 1
    if row.kind == "t5":
        values["feed_forward_proj"] = "gated-gelu" if _is_gated(file) else "relu"
        values["tie_word_embeddings"] = "output.weight" not in file.names
    return Keys(values, keys.where)
