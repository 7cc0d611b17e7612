"""Decoders of GGUF files by general.architecture: what their metadata and tensors have that config.json
and safetensors have otherwise. llama.cpp's converter adds the 1 to weights of norms and puts rows of
fused matrices in the order [q | k | v]."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._config import shown
from .._errors import FileError, UnsupportedError
from .._gguf import GGUF
from .._options import Rope
from . import _table as table
from ._base_row import four_widths, root_width
from ._design import FULL, READERS, SLIDING, Design, layer_kinds
from ._families import FAMILIES
from ._keys import Keys
from ._source import Weights
from ._table import Key, Row, of

_NAMES = {
    "embedding": "token_embd",
    "positions": "position_embd",
    "embed_norm": "token_embd_norm",
    "norm": "output_norm",
    "head": "output",
    "attn_norm": "attn_norm",
    "attn_after": "post_attention_norm",
    "ffn_norm": "ffn_norm",
    "ffn_after": "post_ffw_norm",
    "qkv": "attn_qkv",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "gate_up": "ffn_up",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
# Keys stand behind the architecture's name.
_COMMON: Row = {
    "prefix": "",
    "layers": "blk.{}.",
    "unused": (),
    "only": {},
    "switches": {},
    "width": Key("embedding_length"),
    "n_layer": Key("block_count"),
    "n_head": Key("attention.head_count"),
    "n_kv_head": Key("attention.head_count_kv", lambda row: row["n_head"]),
    "head_dim": Key("attention.key_length", lambda row: max(row["width"] // row["n_head"], 1)),
    "ffn_width": Key("feed_forward_length"),
    "epsilon": Key("attention.layer_norm_rms_epsilon"),
    "norm_weight": "weight",
    "qkv_order": "",
    "transposed": False,
    "theta": None,
    "rotary_share": None,
    "embed_width": lambda row: row["width"],
    "window": None,
    "inert": ("context_length",),
    "needed": (),  # keys, beside epsilon, without which it is not known what is computed
    "found": {},  # settings of files that have a tensor, by its name
}


def _row(family: str, **changes: Any) -> Row:
    row = {**FAMILIES[family], **_COMMON}
    row["names"] = {role: _NAMES[role] for role in row["names"]}
    if row["norm"] == "layer":
        row["epsilon"] = Key("attention.layer_norm_epsilon")
    return of(row, **changes)


def _gemma_scale(row: Row) -> float:
    """By the width of a head; in the models of 27B, of 46 and of 62 layers, by that of a row."""
    width = row["width"] / row["n_head"] if row["n_layer"] in (46, 62) else row["head_dim"]
    scale: float = float(width) ** -0.5
    return scale


_SILU: Row = {"activation": "silu"}
_GEMMA: Row = {"activation": "gelu_tanh", "embed_scale": root_width}
_GEMMA2: Row = {
    **_GEMMA,
    "query_scalar": None,
    "scale": _gemma_scale,
    "window": Key("attention.sliding_window", 4096),
    "softcap": None,
    "logit_softcap": Key("final_logit_softcapping"),
}
_NEIGHBOURS: Row = {**_SILU, "interleaved": True}
_WINDOW: Row = {"window": Key("attention.sliding_window", 0), "full_every": 4}
_COHERE: Row = {**_SILU, "logit_scale": Key("logit_scale"), "needed": ("logit_scale",)}
_LEARNED: Row = {
    "activation": "gelu_tanh",
    "max_length": Key("context_length"),
    "inert": (),
}
ARCHITECTURES: dict[str, Row] = {
    # Rows of q and k are permuted so that pairs are neighbours.
    "llama": _row("llama", **_SILU, interleaved=True),
    "phi3": _row(
        "phi3",
        **_SILU,
        window=Key("attention.sliding_window", 0),  # 0: none
        # It belongs to the tensors rope_factors_long and _short, which are refused.
        inert=("context_length", "rope.scaling.original_context_length"),
    ),
    "qwen2": _row("qwen2", **_SILU),
    "qwen3": _row("qwen3", **_SILU),
    "gemma": _row("gemma", **_GEMMA),
    "gemma2": _row(
        "gemma2",
        **{
            **_GEMMA2,
            "softcap": Key("attn_logit_softcapping", 50.0),
            "logit_softcap": Key("final_logit_softcapping", 30.0),
        },
    ),
    "gemma3": _row(
        "gemma3_text",
        **_GEMMA2,
        full_every=Key("attention.sliding_window_pattern", 6),
        local_theta=Key("rope.freq_base_swa", 1e4),
    ),
    "starcoder2": _row("starcoder2", activation="gelu_tanh"),
    "nemotron": _row("nemotron", activation="relu2"),
    "stablelm": _row(
        "stablelm",
        **_SILU,
        only={"use_parallel_residual": (False,)},  # which the models of 12B have
    ),
    "bloom": _row("bloom", ffn_width=Key("feed_forward_length", four_widths)),
    "gpt2": _row("gpt2", **_LEARNED),
    "starcoder": _row("gpt_bigcode", **_LEARNED),
    "granite": _row(
        "granite",
        **_NEIGHBOURS,
        embed_scale=Key("embedding_scale", 1.0),
        scale=Key("attention.scale"),
        residual_scale=Key("residual_scale", 1.0),
        logit_divisor=Key("logit_scale", 1.0),
    ),
    "smollm3": _row("smollm3", **_NEIGHBOURS, no_rope=4),
    "arcee": _row("arcee", activation="relu2", interleaved=True),
    "olmo": _row(
        "olmo", **_NEIGHBOURS, norm_weight="none", only={"attention.clamp_kqv": ()}
    ),
    # And OLMo 3, whose layers with a window are those that no scaling reaches.
    "olmo2": _row("olmo2", **_SILU, **_WINDOW, local_theta=Key("rope.freq_base", 1e4)),
    "exaone4": _row("exaone4", **_SILU, **_WINDOW),
    "hunyuan-dense": _row("hunyuan_v1_dense", **_SILU),
    "seed_oss": _row("seed_oss", **_SILU, names={"ffn_norm": "post_attention_norm"}),
    "ernie4_5": _row("ernie4_5", **_NEIGHBOURS),
    "glm4": _row("glm4", **_NEIGHBOURS),
    "command-r": _row(
        "cohere",
        **_COHERE,
        found={
            "blk.0.attn_q_norm.weight": {
                "names": {"q_norm": "attn_q_norm", "k_norm": "attn_k_norm"},
                "head_norm": "layer of each",
            }
        },
    ),
    "cohere2": _row("cohere2", **_COHERE, **_WINDOW),
    "phi2": _row(
        "phi",
        activation="gelu_tanh",
        found={
            "blk.0.attn_qkv.weight": {
                "names": {"qkv": "attn_qkv", **dict.fromkeys(("q", "k", "v"))}
            }
        },
    ),
    "gptneox": _row(
        "gpt_neox", activation="gelu", parallel=Key("use_parallel_residual", True)
    ),
    "falcon": _row(
        "falcon",
        activation="gelu",
        ffn_width=Key("feed_forward_length", four_widths),
        only={"tensor_data_layout": ("jploski",)},
        # Those of 40B and 180B norm what feed-forward and attention read each by itself.
        found={
            "blk.0.attn_norm_2.weight": {
                "names": {"attn_norm": "attn_norm_2", "ffn_norm": "attn_norm"}
            }
        },
    ),
    "mpt": _row(
        "mpt",
        ffn_width=Key("feed_forward_length", four_widths),
        scale=None,
        only={"attention.clamp_kqv": (), "attention.max_alibi_bias": (8.0,)},
        needed=("attention.max_alibi_bias",),
    ),
}


def design_of_gguf(keys: Keys, kind: str, file: GGUF, weights: Weights) -> Design:
    def named(value: Any) -> Any:
        """A key with the architecture in its names."""
        if not isinstance(value, Key):
            return value
        names = tuple(f"{kind}.{name}" for name in value.names)
        return value._replace(name=names)

    row = {name: named(value) for name, value in ARCHITECTURES[kind].items()}
    row["only"] = {f"{kind}.{name}": x for name, x in row["only"].items()}
    row["inert"] = [f"{kind}.{name}" for name in row["inert"]]
    for tensor, changes in row["found"].items():
        row = of(row, **changes) if tensor in weights else row
    for name in (*(f"{kind}.{x}" for x in row["needed"]), *row["epsilon"].names):
        if name not in keys.values:
            raise FileError(f"{keys.where}: there is no {name}")
    rows = (file.shape("token_embd.weight") or (1,))[0]
    fused = "attn_qkv" if "qkv" in row["names"] else "attn_q"
    row.update(
        n_token=Key(f"{kind}.vocab_size", rows),
        qkv_bias=f"blk.0.{fused}.bias" in weights,
        o_bias="blk.0.attn_output.bias" in weights,
        mlp_bias="blk.0.ffn_down.bias" in weights,
        tied="output.weight" not in weights,
        head_bias="output.bias" in weights,
    )
    row = table.settings(keys, table.chosen(keys, row), READERS)
    keys.only(f"{kind}.attention.value_length", row["head_dim"])
    for name in ("expert_count", "expert_used_count"):
        keys.only(f"{kind}.{name}", 0)
    name = f"{kind}.attention.sliding_window"
    if row["window"] is not None and row["window"] < 0:
        raise FileError(f"{keys.where}: {name}: {row['window']} is negative")
    if row["no_rope"] == FULL and not row["window"]:
        raise FileError(f"{keys.where}: {name}: expected at least 1: layers without are not rotated")
    kinds = _kinds(keys, kind, row)
    windows = [row["window"] if k == SLIDING else None for k in kinds]
    if row["positions"] != "rope":
        return Design(row, windows, [None] * row["n_layer"])
    name, most = f"{kind}.rope.dimension_count", row["head_dim"]
    dim = keys.size(name, most)
    if dim > most:
        raise FileError(f"{keys.where}: {name}: {dim} are more than the {most} features of a head")
    rope = _rope(keys, kind, weights, dim)
    local = rope if row["local_theta"] is None else Rope(dim, row["local_theta"])
    ropes: list[Rope | None] = [rope if k == FULL else local for k in kinds]
    if row["no_rope"] == FULL:
        ropes = [None if k == FULL else x for k, x in zip(kinds, ropes)]
    elif row["no_rope"]:  # of each so many layers the last one
        ropes = [None if (i + 1) % row["no_rope"] == 0 else x for i, x in enumerate(ropes)]
    return Design(row, windows, ropes)


def _kinds(keys: Keys, kind: str, row: Row) -> list[str]:
    """FULL or SLIDING of each layer, by an array that says which have a window, or by their number."""
    name = f"{kind}.attention.sliding_window_pattern"
    listed = keys.values.get(name)
    if not isinstance(listed, np.ndarray) or listed.dtype != np.bool_:
        return layer_kinds(keys, {**row, "window": row["window"] or None})
    keys.left.discard(name)
    if len(listed) != row["n_layer"]:
        raise FileError(
            f"{keys.where}: {name}: expected {row['n_layer']} of them, got {len(listed)}"
        )
    if not row["window"] and listed.any():
        raise FileError(f"{keys.where}: {name}: expected an attention.sliding_window")
    return [SLIDING if x else FULL for x in listed]


def _rope(keys: Keys, kind: str, weights: Weights, dim: int) -> Rope:
    base = keys.positive(f"{kind}.rope.freq_base", 10000.0)
    scaling = keys.get(f"{kind}.rope.scaling.type", str, "none")
    factor = keys.positive(f"{kind}.rope.scaling.factor", 1.0)
    if scaling not in ("none", "linear") or (scaling == "none" and factor != 1):
        raise UnsupportedError(
            f"{keys.where}: {kind}.rope.scaling.type {shown(scaling)} with a factor of {factor:g}"
            " is not supported"
        )
    if factor == 1:  # the length that a factor would be of
        keys.left.discard(f"{kind}.rope.scaling.original_context_length")
    if dim % 2:
        raise FileError(f"{keys.where}: {kind}.rope.dimension_count: expected an even number")
    divisors = [factor] * (dim // 2)
    if "rope_freqs.weight" in weights:  # of Llama 3.1
        found = weights.numbers("rope_freqs.weight", dim // 2)
        divisors = [factor * x for x in found]
    if all(x == 1 for x in divisors):
        return Rope(dim, base)
    if not all(x >= 1 for x in divisors):
        raise UnsupportedError(f"{keys.where}: rope_freqs.weight below 1 is not supported")
    frequencies = tuple(base ** (-2 * i / dim) / x for i, x in enumerate(divisors))
    return Rope(dim, 0.0, frequencies=frequencies)
