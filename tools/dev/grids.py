#!/usr/bin/env python3
"""Writes shaders/grids: what numbers in blocks of iq1, iq2 and iq3 stand for, of the module gguf.

    tools/dev/grids.py [--check] [FOLDER]

--check compares and writes nothing. A grid is a fact of the format: nothing changes it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gguf import quants

FOLDER = Path(__file__).resolve().parents[2] / "shaders" / "grids"
GRIDS = {
    "iq1_s": quants.IQ1_S,
    "iq2_xxs": quants.IQ2_XXS,
    "iq2_xs": quants.IQ2_XS,
    "iq2_s": quants.IQ2_S,
    "iq3_xxs": quants.IQ3_XXS,
    "iq3_s": quants.IQ3_S,
}


def entries(name: str) -> list[int]:
    """The entries of a grid, 16 bits each: value i of it in as many bits from its place on."""
    kind = GRIDS[name]
    kind.init_grid()
    assert kind.grid is not None
    rows = kind.grid.reshape(kind.grid_shape).tolist()
    width = 16 // kind.grid_shape[1]
    place = {float(value): i for i, value in enumerate(kind.grid_map)}
    return [sum(place[x] << width * i for i, x in enumerate(row)) for row in rows]


def text(name: str) -> str:
    """The file of a grid: two entries a word, the first in its low half, and four words a row."""
    numbers = entries(name)
    words = [low | high << 16 for low, high in zip(numbers[::2], numbers[1::2])]
    vectors = [words[i : i + 4] for i in range(0, len(words), 4)]
    rows = ["WORDS(" + ", ".join(f"0x{word:08x}u" for word in vector) + ")" for vector in vectors]
    count, values = GRIDS[name].grid_shape
    head = f"/* {count} entries of {values} values, by tools/dev/grids.py. */\n"
    return head + ",\n".join(rows) + "\n"


def main() -> int:
    """Writes the files, or compares them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    options = parser.parse_args()
    wrong = [n for n in GRIDS if not (options.folder / f"{n}.def").is_file()] if options.check else []
    for name in GRIDS:
        path = options.folder / f"{name}.def"
        if not options.check:
            path.write_text(text(name), encoding="ascii")
        elif name not in wrong and path.read_text(encoding="ascii") != text(name):
            wrong.append(name)
    for name in wrong:
        print(f"grids: {name}.def is not gguf's: run tools/dev/grids.py", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
