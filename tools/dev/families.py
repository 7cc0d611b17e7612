#!/usr/bin/env python3
"""Writes tools/vkattn/generate/families.def, the rows of python/vkattn/models/_gguf_rows.py that
`vkattn generate` knows, for C; test_families.py says whether it is as they are.

    VKATTN_LIBRARY=build/libvkattn.so.0 PYTHONPATH=python tools/dev/families.py

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vkattn.models import _base_row, _gguf_rows
from vkattn.models._design import FULL
from vkattn.models._table import Key, Row

TABLE = Path(__file__).resolve().parents[2] / "tools" / "vkattn" / "generate" / "families.def"
HEAD = """\
/* FAMILY(name, switches): how decoders of a GGUF file compute, by general.architecture. Made by
 * tools/dev/families.py of python/vkattn/models/_gguf_rows.py. */
"""
# What a decoder of C is without it.
_PLAIN = {"head_norm": ("", "rms", "rms of all"), "norm_rotated": (False,)}
_NUMBERS = (
    *("window", "full_every", "softcap", "logit_softcap", "embed_scale", "scale"),
    *("residual_scale", "logit_scale", "logit_divisor", "local_theta"),
)
_ACTIVATIONS = {"silu": "SILU", "gelu_tanh": "GELU_TANH", "gelu": "GELU", "relu2": "RELU"}


def _number(row: Row, name: str, least: str) -> list[str]:
    """A number of the row, or a key of the file with what stands for a missing one."""
    value = row[name]
    if isinstance(value, Key):
        default = least if value.default is None else f"{value.default:g}"
        return [f'.{name} = {{"{value.name}", {default}}}']
    if value in (None, 0, 1) or callable(value):
        return []
    return [f".{name} = {{NULL, {value:g}}}"]


def _only(name: str, value: Any = None) -> list[str]:
    """A key with the one value that is followed; without one it is refused, as others that C does not
    know."""
    if value is None:
        return []
    if value is False:
        return [f'.unless = "{name}"']
    if isinstance(value, str):
        return [f'.only_text = "{name}"', f'.text = "{value}"']
    return [f'.only = {{"{name}", {value:g}}}']


def _switches(row: Row) -> list[str] | None:
    """Initialisers of struct family; None where C does not know what the row says."""
    if any(row[name] not in allowed for name, allowed in _PLAIN.items()):
        return None
    if row["positions"] not in ("rope", "alibi", "learned"):
        return None
    names = row["names"]
    said: dict[str, Any] = {
        "interleaved": row["interleaved"] is True,
        "layer_norm": row["norm"] == "layer",
        "norm_bias": row["norm_bias"] is True,
        "plain_norms": row["norm_weight"] == "none",
        "embed_norm": "embed_norm" in names,
        "norms_before": "attn_norm" in names,
        "norms_after": "attn_after" in names,
        "head_norms": row["head_norm"] != "",
        "joint_norms": row["head_norm"] == "rms of all",
        "parallel": row["parallel"] is True or isinstance(row["parallel"], Key),
        "one_norm": "attn_norm" in names and "ffn_norm" not in names,
        "full_unrotated": row["no_rope"] == FULL or callable(row["no_rope"]),
        "needs_window": row["no_rope"] == FULL,
        "head_bias": row["head_bias"] is True,
        "alibi": row["positions"] == "alibi",
        "learned": row["positions"] == "learned",
        "fused_qkv": "qkv" in names,
        "fused_gate": "gate_up" in names,
        "gated": "gate" in names or "gate_up" in names,
        "squared": row["activation"] == "relu2",
        "root_scaled": row["embed_scale"] is _base_row.root_width,
        "gemma_scale": row["scale"] is _gguf_rows._gemma_scale,
        "four_widths": isinstance(row["ffn_width"], Key)
        and row["ffn_width"].default is _base_row.four_widths,
    }
    made = [f".{name} = true" for name, is_so in said.items() if is_so]
    made.append(f".activation = VKA_{_ACTIVATIONS[row['activation']]}")
    for name in _NUMBERS:
        made += _number(row, name, "0")
    if isinstance(row["no_rope"], int):
        made.append(f".unrotated_every = {{NULL, {row['no_rope']}}}")
    if isinstance(row["parallel"], Key):
        made.append(f'.parallel_key = "{row["parallel"].name}"')
    if names.get("ffn_norm", "ffn_norm") != "ffn_norm":
        made.append(f'.ffn_norm = "{names["ffn_norm"]}"')
    for name, values in row["only"].items():
        made += _only(name, *values)
    made += [f'.needed = "{name}"' for name in row["needed"]]
    made += [f'.inert = "{name}"' for name in row["inert"] if name != "context_length"]
    return made


def table() -> str:
    """The text of families.def."""
    lines = [HEAD]
    for name, row in _gguf_rows.ARCHITECTURES.items():
        switches = _switches(row)
        if switches is not None:
            lines.append(f'FAMILY("{name}", {", ".join(switches)})\n')
    return "".join(lines)


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
