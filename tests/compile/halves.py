#!/usr/bin/env python3
"""Compute modules that store no single 16-bit element: the ctest `whole_words`.

halves.py FILE.spv... FOLDER

Two invocations may write the halves of a word, so STORE of shaders/lib/dtype.glsl writes one by two atomics.
Where an operand is aligned, whole words are to be written without. Here atomicAnd() and atomicOr() of a storage
buffer do nothing, so that what takes them has wrong results. What is written is named as
tests/devices/modules.c looks for it: FOLDER/HASH.spv, by the hash of the words that were read.
SPDX-License-Identifier: MIT"""
import os
import sys

from spirv import ACCESS_CHAIN, IN_BOUNDS_ACCESS_CHAIN, TYPE_POINTER, Module, fnv1a, read

ATOMIC_AND, ATOMIC_OR, COPY_OBJECT = 240, 241, 83
IN_BUFFERS = (2, 12)  # storage classes Uniform and StorageBuffer


def without_halves(module):
    """Leaves the atomics out, and returns how many they were."""
    pointers = {one[1] for one in module.all_of(TYPE_POINTER) if one[2] in IN_BUFFERS}
    types = {one[2]: one[1] for one in module.all_of(ACCESS_CHAIN, IN_BOUNDS_ACCESS_CHAIN)}
    count = 0
    for one in module.all_of(ATOMIC_AND, ATOMIC_OR):
        if types.get(one[3]) in pointers:
            one[:] = [COPY_OBJECT, one[1], one[2], one[6]]
            count += 1
    return count


def main():
    """Writes all modules."""
    *paths, folder = sys.argv[1:]
    count = 0
    for path in paths:
        words = read(path)
        module = Module(words)
        count += without_halves(module)
        with open(os.path.join(folder, f"{fnv1a(words):016x}.spv"), "wb") as file:
            module.words().tofile(file)
    if not count:
        sys.exit("FAIL: no module has atomics of storage buffers")


if __name__ == "__main__":
    main()
