#!/usr/bin/env python3
"""Writes tools/vkattn/text/splits.def, the splits of byte-level BPE of python/vkattn/models/_gguf_text.py, for C;
test_command_text.py says whether it is as they are.

    VKATTN_LIBRARY=build/libvkattn.so.0 PYTHONPATH=python tools/dev/splits.py

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

from pathlib import Path

from vkattn.models._gguf_text import PRES, Pre

TABLE = Path(__file__).resolve().parents[2] / "tools" / "vkattn" / "text" / "splits.def"
HEAD = """\
/* SPLIT(fields of struct row): how a text becomes words, by tokenizer.ggml.pre. Made by tools/dev/splits.py of
 * python/vkattn/models/_gguf_text.py. */
"""


def literal(text: str) -> str:
    """A string of C in ASCII. Octal escapes end after three digits; ?? would begin a trigraph."""
    lines = [""]
    for b in text.encode():
        letter = chr(b) if 32 <= b < 127 else f"\\{b:03o}"
        lines[-1] += f"\\{letter}" if letter in '"\\?' else letter
        if len(lines[-1]) > 80:
            lines.append("")
    return "\n    ".join(f'"{line}"' for line in lines)


def table() -> str:
    """The text of splits.def."""
    names: dict[Pre, list[str]] = {}
    for name, pre in PRES.items():
        names.setdefault(pre, []).append(name)
    lines = [HEAD]
    for pre, own in names.items():
        said = {
            "normalised": pre.nfc,
            "whole_words": pre.whole_words,
            "adds_bos": pre.add_bos,
        }
        flags = "".join(f", .{name} = true" for name, is_so in said.items() if is_so)
        patterns = ",\n    ".join(map(literal, pre.splits))
        lines.append(f'SPLIT(.names = "{" ".join(own)}"{flags}, .patterns = {{\n    {patterns}}})\n')
    return "".join(lines)


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="ascii")
