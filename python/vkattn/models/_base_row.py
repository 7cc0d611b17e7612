"""What the rows of decoders begin with: docs/models.md, "Add a family", says what settings mean,
and _design.py reads them."""

from __future__ import annotations

import math
from typing import Any

from ._table import Key, Row


def root_width(row: Row) -> float:
    return math.sqrt(row["width"])


def four_widths(row: Row) -> int:
    return 4 * int(row["width"])


def adjusted_width(row: Row) -> int:
    """The width of LFM2's feed-forward network, of the one that config.json states."""
    width, multiple = int(row["ffn_whole"]), int(row["ffn_multiple"])
    if not row["ffn_adjusted"]:
        return width
    width = int(2 * width / 3)
    if row["ffn_factor"] is not None:
        width = -(-int(row["ffn_factor"] * width) // multiple) * multiple
    return max(width, 1)


def width_of_head(row: Row) -> int:
    return max(int(row["width"]) // int(row["n_head"]), 1)


def switch(key: str, default: bool, yes: Row, no: Row | None = None) -> dict[str, Any]:
    return {key: (default, {True: yes, False: no or {}})}


def kv_heads(n: int | None = None) -> Key:
    """n where config.json leaves them out; those of queries where n is None, or the key is null."""

    def of_queries(row: Row) -> int:
        return int(row["n_head"])

    return Key("num_key_value_heads", of_queries if n is None else n, of_queries)


BASE: Row = {
    # Names of tensors: those of the model begin with `prefix`, those of a layer with `layers` too.
    "prefix": "model.",
    "layers": "layers.{}.",
    "names": {},
    "unused": (
        "rotary_emb.inv_freq",
    ),  # tensors that are known to be without effect, by their ends
    # Objects of config.json whose keys are read as object.key; keys that change nothing here.
    "nested": (),
    "inert": (),
    # Sizes.
    "width": Key("hidden_size"),
    "n_layer": Key("num_hidden_layers"),
    "n_head": Key("num_attention_heads"),
    "n_kv_head": kv_heads(),
    "head_dim": Key("head_dim", width_of_head),
    "ffn_width": Key("intermediate_size"),
    "ffn_whole": None,  # of which ffn_width is a function, with the next three
    "ffn_adjusted": False,
    "ffn_factor": None,
    "ffn_multiple": 1,
    "n_token": Key("vocab_size"),
    "embed_width": lambda row: row["width"],
    "max_length": None,
    # Norms: "rms" or "layer"; weights as they are, "1 + weight" or "none".
    "norm": "rms",
    "norm_weight": "weight",
    "norm_bias": False,
    "epsilon": Key("rms_norm_eps", 1e-6),
    # Norms of queries and keys, and whether they stand behind the rotation: see _causal.py.
    "head_norm": "",
    "norm_rotated": False,
    # Products: biases; weights stored [in][out]; the order of rows of a fused matrix.
    "qkv_bias": False,
    "o_bias": False,
    "mlp_bias": False,
    "head_bias": False,
    "transposed": False,
    "qkv_order": "",
    "tied": Key("tie_word_embeddings", False),
    "parallel": False,
    "activation": Key("hidden_act", "silu"),
    # Attention: windows by layer (`kinds` of _design.py), scale of the products, cap of the scores.
    "kinds": "",
    "window": None,
    "first_window": 0,
    "full_every": 0,
    "scale": None,
    "scale_by_layer": False,
    "softcap": None,
    "attention_gate": False,  # rows of q have a gate behind each head, whose sigmoid multiplies it
    # Layers that keep a state where others attend, by their word in layer_types, see
    # _state_layers.py; width of their convolutions; heads of a delta net.
    "state": "",
    "conv_width": 0,
    "conv_bias": False,
    "delta_key_heads": 0,
    "delta_value_heads": 0,
    "delta_key_dim": 0,
    "delta_value_dim": 0,
    "n_expert": 0,
    # Positions: "rope", "learned", "sinusoidal", "alibi".
    "positions": "rope",
    "position_offset": 0,
    "theta": Key("rope_theta", 10000.0),
    "local_theta": None,  # where there is a window
    "dynamic_alpha": False,  # rope_scaling of type dynamic has an alpha that makes another base
    "rotary_share": 1.0,  # where it is no Key, another one in config.json is refused
    "rotary_dim": None,
    "interleaved": False,
    "no_rope": "",
    "alibi_scaled": False,
    # Factors.
    "query_scalar": None,
    "logit_divisor": None,
    "embed_scale": 1.0,
    "residual_scale": 1.0,
    "logit_scale": 1.0,
    "logit_softcap": None,
}
