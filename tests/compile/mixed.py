#!/usr/bin/env python3
"""Products of float16 with float32 sums, made to run where no driver has an instruction for them.

mixed.py [--flush] FILE.spv... FOLDER

In a module of which GPUs' drivers make dot products of VK_VALVE_shader_mixed_float_dot_product, each becomes
two fma() of the values as float32, the lower half first. With --flush subnormal float16 count as 0, as on a
device that knows none. What is written is named as tests/devices/modules.c looks for it: FOLDER/HASH.spv, by
the hash of the words that were read. Modules without such products are left to tests/compile/orders.py.
SPDX-License-Identifier: MIT"""
import argparse
import os
import struct
import sys

from spirv import CONSTANT, SELECT, TYPE_BOOL, Module, fnv1a, read

DOT, CAPABILITY, DOT_CAPABILITY = 6916, 17, 6912
EXTENSION, EXTENSION_NAME = 10, b"SPV_VALVE_mixed_float_dot_product"
IMPORT, EXTENDED, FMA, ABSOLUTE = 11, 12, 50, 4
TYPE_FLOAT, EXTRACT, CONVERT, LESS = 22, 81, 115, 184
LEAST_NORMAL = 2.0 ** -14


def text(words):
    """The bytes of a literal string."""
    return struct.pack(f"<{len(words)}I", *words).split(b"\0")[0]


class Replaced:
    """A module on its way."""

    def __init__(self, module, flush):
        self.module, self.flush = module, flush
        self.half, self.single = (module.declare(TYPE_FLOAT, bits) for bits in (16, 32))
        self.std = next(one[1] for one in module.all_of(IMPORT) if text(one[2:]) == b"GLSL.std.450")
        self.bool = module.declare(TYPE_BOOL)
        self.zero, self.least = (module.declare(CONSTANT, self.single, *struct.unpack("<I", struct.pack("<f", x)))
                                 for x in (0.0, LEAST_NORMAL))
        code = []
        for one in module.code:
            code += self.product(one) if one[0] == DOT else [one]
        module.code = [one for one in code if one != [CAPABILITY, DOT_CAPABILITY] and
                       not (one[0] == EXTENSION and text(one[1:]) == EXTENSION_NAME)]

    def value(self, code, vector, which):
        """The float32 of a half."""
        module = self.module
        half, x = module.new_id(), module.new_id()
        code += [[EXTRACT, self.half, half, vector, which], [CONVERT, self.single, x, half]]
        if not self.flush:
            return x
        size, small, kept = module.new_id(), module.new_id(), module.new_id()
        code += [[EXTENDED, self.single, size, self.std, ABSOLUTE, x],
                 [LESS, self.bool, small, size, self.least],
                 [SELECT, self.single, kept, small, self.zero, x]]
        return kept

    def product(self, dot):
        """What stands for a dot product."""
        _, kind, result, a, b, total = dot
        code = []
        for which in (0, 1):
            sum_id = result if which else self.module.new_id()
            x, y = (self.value(code, vector, which) for vector in (a, b))
            code.append([EXTENDED, kind, sum_id, self.std, FMA, x, y, total])
            total = sum_id
        return code


def main():
    """Writes the modules that have such products; ends the program where none has."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--flush", action="store_true")
    parser.add_argument("files", nargs="+")
    parser.add_argument("folder")
    options = parser.parse_args()
    count = 0
    for path in options.files:
        words = read(path)
        module = Module(words)
        if not module.all_of(DOT):
            continue
        Replaced(module, options.flush)
        with open(os.path.join(options.folder, f"{fnv1a(words):016x}.spv"), "wb") as file:
            module.words().tofile(file)
        count += 1
    if not count:
        sys.exit("FAIL: no module has dot products of float16 with float32 sums")


if __name__ == "__main__":
    main()
