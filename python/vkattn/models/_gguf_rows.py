"""Decoders of GGUF files by general.architecture: what their metadata and tensors have that config.json
and safetensors have otherwise. llama.cpp's converter adds the 1 to weights of norms and puts rows of
fused matrices in the order [q | k | v]."""

from __future__ import annotations

from typing import Any

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
    "epsilon": Key("attention.layer_norm_rms_epsilon", 1e-5),
    "norm_weight": "weight",
    "qkv_order": "",
    "transposed": False,
    "theta": None,
    "rotary_share": None,
    "embed_width": lambda row: row["width"],
    "window": None,
    "inert": ("context_length",),
}


def _row(family: str, **changes: Any) -> Row:
    row = {**FAMILIES[family], **_COMMON}
    row["names"] = {part: _NAMES[part] for part in row["names"]}
    if row["norm"] == "layer":
        row["epsilon"] = Key("attention.layer_norm_epsilon", 1e-5)
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
    "gpt2": _row("gpt2", activation="gelu_tanh", max_length=Key("context_length"), inert=()),
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
    rows = (file.shape("token_embd.weight") or (1,))[0]
    fused = "attn_qkv" if "qkv" in row["names"] else "attn_q"
    row.update(
        n_token=Key(f"{kind}.vocab_size", rows),
        qkv_bias=f"blk.0.{fused}.bias" in weights,
        o_bias="blk.0.attn_output.bias" in weights,
        mlp_bias="blk.0.ffn_down.bias" in weights,
        tied="output.weight" not in weights,
    )
    row = table.settings(keys, table.chosen(keys, row), READERS)
    keys.only(f"{kind}.attention.value_length", row["head_dim"])
    if row["window"] is not None and row["window"] < 0:
        name = f"{kind}.attention.sliding_window"
        raise FileError(f"{keys.where}: {name}: {row['window']} is negative")
    kinds = layer_kinds(keys, {**row, "window": row["window"] or None})
    windows = [row["window"] if k == SLIDING else None for k in kinds]
    if row["positions"] != "rope":
        return Design(row, windows, [None] * row["n_layer"])
    dim = keys.size(f"{kind}.rope.dimension_count", row["head_dim"])
    rope = _rope(keys, kind, weights, dim)
    if row["local_theta"] is None:
        return Design(row, windows, [rope] * row["n_layer"])
    local = Rope(dim, row["local_theta"])
    return Design(row, windows, [rope if k == FULL else local for k in kinds])


def _rope(keys: Keys, kind: str, weights: Weights, dim: int) -> Rope:
    base = keys.positive(f"{kind}.rope.freq_base", 10000.0)
    scaling = keys.get(f"{kind}.rope.scaling.type", str, "none")
    factor = keys.positive(f"{kind}.rope.scaling.factor", 1.0)
    if scaling not in ("none", "linear") or (scaling == "none" and factor != 1):
        raise UnsupportedError(
            f"{keys.where}: {kind}.rope.scaling.type {shown(scaling)} with a factor of {factor:g}"
            " is not supported"
        )
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
