#!/usr/bin/env python3
"""Matrices of bfloat16, made to run where no driver has them.

bfloat16.py FILE.spv... FOLDER

In a module with such matrices each becomes one of float32: it is loaded as integers of 16 bits, which become
the upper half of words of float32, and so the same numbers. Matrices that the device itself would round to
bfloat16 are not rounded. What is written is named as tests/devices/modules.c looks for it: FOLDER/HASH.spv, by
the hash of the words that were read. Other modules are left to tests/compile/orders.py.
SPDX-License-Identifier: MIT"""
import os
import struct
import sys

from spirv import CONSTANT, TYPE_INT, Module, fnv1a, read

CAPABILITY, EXTENSION, TYPE_FLOAT = 17, 10, 22
INT16, BFLOAT16_CAPABILITIES, BFLOAT16_EXTENSION = 22, (5116, 5117, 5118), b"SPV_KHR_bfloat16"
BFLOAT16 = [16, 0]  # width and encoding of the type
TYPE_MATRIX, LOAD_MATRIX, CONVERT_USE = 4456, 4457, 5293
WIDEN, CONVERT, BITCAST, TIMES_SCALAR = 113, 115, 124, 143


def text(words):
    """The bytes of a literal string."""
    return struct.pack(f"<{len(words)}I", *words).split(b"\0")[0]


class Replaced:
    """A module on its way."""

    def __init__(self, module):
        self.module = module
        self.single = module.declare(TYPE_FLOAT, 32)
        bfloat16 = next(one[1] for one in module.all_of(TYPE_FLOAT) if one[2:] == BFLOAT16)
        short, word = (module.declare(TYPE_INT, bits, 0) for bits in (16, 32))
        self.factor = module.declare(CONSTANT, word, 1 << 16)
        self.integers = {}  # by type of matrix: those of its bits, as 16 bits and as words
        for one in module.all_of(TYPE_MATRIX):
            if one[2] == bfloat16:
                one[2] = self.single
                self.integers[one[1]] = [module.declare(TYPE_MATRIX, kind, *one[3:])
                                         for kind in (short, word)]
        code = []
        for one in module.code:
            code += self.instruction(one)
        module.code = [one for one in code if not self.is_left_out(one)]
        module.insert(CAPABILITY, [[CAPABILITY, INT16]])

    @staticmethod
    def is_left_out(one):
        """What declares the type."""
        return (one[0] == CAPABILITY and one[1] in BFLOAT16_CAPABILITIES or
                one[0] == EXTENSION and text(one[1:]) == BFLOAT16_EXTENSION or
                one[0] == TYPE_FLOAT and one[2:] == BFLOAT16)

    def instruction(self, one):
        """What stands for an instruction."""
        if one[0] == CONVERT and one[1] in self.integers:
            return [[CONVERT_USE, *one[1:]]]
        if one[0] != LOAD_MATRIX or one[1] not in self.integers:
            return [one]
        shorts, words = self.integers[one[1]]
        bits, wide, moved = (self.module.new_id() for _ in range(3))
        return [[LOAD_MATRIX, shorts, bits, *one[3:]], [WIDEN, words, wide, bits],
                [TIMES_SCALAR, words, moved, wide, self.factor], [BITCAST, one[1], one[2], moved]]


def main():
    """Writes the modules that have such matrices; ends the program where none has."""
    *files, folder = sys.argv[1:]
    count = 0
    for path in files:
        words = read(path)
        module = Module(words)
        if not any(one[2:] == BFLOAT16 for one in module.all_of(TYPE_FLOAT)):
            continue
        Replaced(module)
        with open(os.path.join(folder, f"{fnv1a(words):016x}.spv"), "wb") as file:
            module.words().tofile(file)
        count += 1
    if not count:
        sys.exit("FAIL: no module has matrices of bfloat16")


if __name__ == "__main__":
    main()
