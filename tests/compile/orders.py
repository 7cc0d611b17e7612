#!/usr/bin/env python3
"""Compute modules whose invocations do each other's work: the ctests `order_`.

orders.py [--subgroups] [--groups] [--size LANES] [--drop K] FILE.spv... FOLDER

A CPU driver runs the subgroups of a workgroup one after the other between barriers, in ascending order,
and workgroups nearly so: what a missing barrier or a rule about the order would break there often stays
whole. A GPU runs them in any order. Here the order stays, and the work is dealt out differently:

--subgroups  subgroup s of the n of a workgroup sees ids and indices of subgroup n - 1 - s, each lane those
             of the lane with its own number. LANES is the driver's subgroup size (8 by default). Where a
             workgroup is no multiple of it, its last subgroup is partial and has no other of its number
             of lanes: all subgroups of such a workgroup keep their own ids.
--groups     workgroup w of the n along an axis sees ids of workgroup n - 1 - w, on each axis.
--drop K     leaves the K-th OpControlBarrier out, counted from 0 (for tests of the tests).

What is written is named as the layer of tests/layer looks for it: FOLDER/HASH.spv, by the 64-bit FNV-1a
hash of the words that were read. Specialization constants stay, the size of the workgroup may be of them.

How: each variable of a BuiltIn that changes becomes a Private one of the same id, which keeps what uses
it as it is, but for types of pointers; the entry point computes its value first.
SPDX-License-Identifier: MIT"""
import argparse
import os
import sys

from spirv import (ACCESS_CHAIN, ADD, BUILTIN, COMPOSITE_CONSTRUCT, COMPOSITE_EXTRACT, CONSTANT,
                   CONTROL_BARRIER, DECORATE, DIVIDE, EQUAL, EXECUTION_MODE, EXECUTION_MODE_ID, FUNCTION, GLOBAL_ID,
                   IN_BOUNDS_ACCESS_CHAIN, INPUT, LABEL, LINE, LOAD, LOCAL_ID, LOCAL_INDEX, LOCAL_SIZE,
                   LOCAL_SIZE_ID, MODULO, MULTIPLY, NO_LINE, NUM_WORKGROUPS, PRIVATE, SELECT, STORE,
                   SUBGROUP_ID, SUBTRACT, TYPE_BOOL, TYPE_INT, TYPE_POINTER, TYPE_VECTOR, VARIABLE,
                   VERSION_1_4, WORKGROUP_ID, WORKGROUP_SIZE, Module, Unsupported, fnv1a, read)

def drop_barrier(module, k):
    """Leaves the k-th barrier out."""
    barriers = [i for i, one in enumerate(module.code) if one[0] == CONTROL_BARRIER]
    if k >= len(barriers):
        raise Unsupported(f"it has {len(barriers)} barriers")
    del module.code[barriers[k]]


class Reordered:
    """A module on its way: variables of BuiltIns, and what the entry point computes first."""

    def __init__(self, module, subgroups, groups, size):
        self.module, self.size, self.prologue = module, size, []
        self.uint = module.declare(TYPE_INT, 32, 0)
        self.vector = module.declare(TYPE_VECTOR, self.uint, 3)
        self.builtins = {one[3]: one[1] for one in module.all_of(DECORATE) if one[2] == BUILTIN}
        changed = {WORKGROUP_ID, GLOBAL_ID} if groups else set()
        if subgroups:
            changed |= {LOCAL_ID, LOCAL_INDEX, SUBGROUP_ID, GLOBAL_ID}
        shadows = {which: self.shadow(which) for which in sorted(changed & set(self.builtins))}
        if shadows:
            values = self.values(subgroups, groups)
            self.prologue += [[STORE, shadow, values[which]()] for which, shadow in shadows.items()]
            self.retype(set(shadows.values()))
            self.place()

    def kind(self, which):
        """The type of a BuiltIn's value."""
        return self.uint if which in (LOCAL_INDEX, SUBGROUP_ID) else self.vector

    def shadow(self, which):
        """Moves a BuiltIn's variable to a new id, and makes a Private one of the old id: the result."""
        old, new = self.builtins[which], self.module.new_id()
        for one in self.module.all_of(DECORATE):
            if one[1] == old:
                one[1] = new
        variable = next(one for one in self.module.all_of(VARIABLE) if one[2] == old)
        variable[2] = new
        at = self.entry_list(old)
        self.module.entry[at] = new
        if self.module.header[1] >= VERSION_1_4:
            self.module.entry.append(old)
        pointer = self.module.declare(TYPE_POINTER, PRIVATE, self.kind(which))
        self.module.insert(FUNCTION, [[VARIABLE, pointer, old, PRIVATE]])
        self.builtins[which] = new
        return old

    def entry_list(self, variable):
        """Where the entry point lists a variable: after its name, words that end with a byte of 0."""
        first = next(i for i, w in enumerate(self.module.entry) if i > 2 and not w >> 24) + 1
        return self.module.entry.index(variable, first)

    def constant(self, value):
        """The id of a number."""
        return self.module.declare(CONSTANT, self.uint, value)

    def emit(self, opcode, *operands, kind=None):
        """Appends to what comes first. Returns the result's id, a number's unless kind is another type."""
        result = self.module.new_id()
        self.prologue.append([opcode, kind or self.uint, result, *operands])
        return result

    def load(self, which):
        """The driver's value of a BuiltIn, whose variable is made where the module has none."""
        if which not in self.builtins:
            variable = self.builtins[which] = self.module.new_id()
            pointer = self.module.declare(TYPE_POINTER, INPUT, self.kind(which))
            self.module.insert(FUNCTION, [[VARIABLE, pointer, variable, INPUT]])
            self.module.insert(DECORATE, [[DECORATE, variable, BUILTIN, which]])
            self.module.entry.append(variable)
        return self.emit(LOAD, self.builtins[which], kind=self.kind(which))

    def parts(self, vector):
        """The three components of a vector."""
        return [self.emit(COMPOSITE_EXTRACT, vector, i) for i in range(3)]

    def workgroup_size(self):
        """Three ids: of the constant that has the last word, else of an execution mode."""
        if WORKGROUP_SIZE in self.builtins:
            return self.parts(self.builtins[WORKGROUP_SIZE])
        for one in self.module.all_of(EXECUTION_MODE, EXECUTION_MODE_ID):
            if one[2] == LOCAL_SIZE:
                return [self.constant(n) for n in one[3:6]]
            if one[2] == LOCAL_SIZE_ID:
                return one[3:6]
        raise Unsupported("no size of the workgroup")

    def mirrored(self, x, n):
        """n - 1 - x."""
        return self.emit(SUBTRACT, self.emit(SUBTRACT, n, self.constant(1)), x)

    def local(self, size):
        """Index and ids along axes of the lane whose work this one does; a function, its subgroup's id."""
        lanes, index = self.constant(self.size), self.load(LOCAL_INDEX)
        area = self.emit(MULTIPLY, size[0], size[1])
        threads = self.emit(MULTIPLY, area, size[2])
        n = self.emit(DIVIDE, threads, lanes)
        partial = self.emit(MODULO, threads, lanes)
        flag = self.module.declare(TYPE_BOOL)
        whole = self.emit(EQUAL, partial, self.constant(0), kind=flag)
        first = self.emit(MULTIPLY, self.mirrored(self.emit(DIVIDE, index, lanes), n), lanes)
        other = self.emit(ADD, first, self.emit(MODULO, index, lanes))
        index = self.emit(SELECT, whole, other, index)
        row = self.emit(DIVIDE, index, size[0])
        axes = [self.emit(MODULO, index, size[0]), self.emit(MODULO, row, size[1]),
                self.emit(DIVIDE, index, area)]

        def subgroup():
            own = self.load(SUBGROUP_ID)
            return self.emit(SELECT, whole, self.mirrored(own, n), own)

        return index, axes, subgroup

    def values(self, subgroups, groups):
        """Functions that give the new value of each BuiltIn."""
        size = self.workgroup_size()
        index = subgroup = None
        if subgroups:
            index, axes, subgroup = self.local(size)
        elif GLOBAL_ID in self.builtins:
            axes = self.parts(self.load(LOCAL_ID))
        if groups or GLOBAL_ID in self.builtins:
            workgroup = self.parts(self.load(WORKGROUP_ID))
        if groups:
            workgroup = [self.mirrored(w, n)
                         for w, n in zip(workgroup, self.parts(self.load(NUM_WORKGROUPS)))]

        def vector(parts):
            return self.emit(COMPOSITE_CONSTRUCT, *parts, kind=self.vector)

        def everywhere():
            return [self.emit(ADD, self.emit(MULTIPLY, w, s), a)
                    for w, s, a in zip(workgroup, size, axes)]

        return {LOCAL_ID: lambda: vector(axes), LOCAL_INDEX: lambda: index, SUBGROUP_ID: subgroup,
                WORKGROUP_ID: lambda: vector(workgroup), GLOBAL_ID: lambda: vector(everywhere())}

    def retype(self, private):
        """Makes pointers into the Private variables point there."""
        pointees = {one[1]: one[3] for one in self.module.all_of(TYPE_POINTER)}
        for one in self.module.all_of(ACCESS_CHAIN, IN_BOUNDS_ACCESS_CHAIN):
            if one[3] in private:
                one[1] = self.module.declare(TYPE_POINTER, PRIVATE, pointees[one[1]])
                private.add(one[2])

    def place(self):
        """Puts what comes first into the entry point, after the variables of its first block."""
        code = self.module.code
        at = next(i for i, one in enumerate(code)
                  if one[0] == FUNCTION and one[2] == self.module.entry[2])
        while code[at][0] != LABEL:
            at += 1
        at += 1
        while code[at][0] in (VARIABLE, LINE, NO_LINE):
            at += 1
        code[at:at] = self.prologue


def main():
    """Rewrites files into a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--subgroups", action="store_true")
    parser.add_argument("--groups", action="store_true")
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--drop", type=int)
    parser.add_argument("files", nargs="+")
    parser.add_argument("folder")
    options = parser.parse_args()
    for path in options.files:
        try:
            words = read(path)
            module = Module(words)
            if options.drop is not None:
                drop_barrier(module, options.drop)
            Reordered(module, options.subgroups, options.groups, options.size)
        except Unsupported as error:
            sys.exit(f"{path}: {error}")
        with open(os.path.join(options.folder, f"{fnv1a(words):016x}.spv"), "wb") as file:
            module.words().tofile(file)


if __name__ == "__main__":
    main()
