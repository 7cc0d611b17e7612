#!/usr/bin/env python3
"""What orders.py writes gives each invocation the ids of another one: the ctest `orders`.

orders_check.py SPIRV_VAL FILE.spv...

Runs what each rewritten module computes first, number by number, for all invocations of workgroups of
several sizes, whole and partial last subgroups, and compares with the order as orders.py describes it.
Where SPIRV_VAL accepts a module, it has to accept what was made of it. SPDX-License-Identifier: MIT"""
import itertools
import os
import subprocess
import sys
import tempfile

import orders
import spirv

SIZES = [(8, 1, 1), (32, 1, 1), (16, 2, 1), (4, 3, 2), (6, 2, 1), (2, 2, 5), (1, 1, 1)]
NOTHING = spirv.VARIABLE, spirv.LINE, spirv.NO_LINE  # instructions that compute nothing
MOST_FIRST = 100  # instructions, more than any order needs
GROUPS, GROUP = (3, 1, 4), (2, 0, 1)
ARITHMETIC = {spirv.ADD: lambda a, b: a + b, spirv.SUBTRACT: lambda a, b: a - b,
              spirv.MULTIPLY: lambda a, b: a * b, spirv.DIVIDE: lambda a, b: a // b,
              spirv.MODULO: lambda a, b: a % b, spirv.EQUAL: lambda a, b: a == b}


def builtins(module):
    """Ids by BuiltIn."""
    return {one[3]: one[1] for one in module.all_of(spirv.DECORATE) if one[2] == spirv.BUILTIN}


def first_block(module):
    """What the entry point runs first, and the numbers that it uses by id."""
    at = next(i for i, one in enumerate(module.code)
              if one[0] == spirv.FUNCTION and one[2] == module.entry[2])
    rest = (one for one in itertools.islice(module.code, at + 2, None) if one[0] not in NOTHING)
    code = list(itertools.islice(rest, MOST_FIRST))
    used = set(itertools.chain.from_iterable(code))
    return code, {one[2]: one[3] for one in module.all_of(spirv.CONSTANT) if one[2] in used}


def stored(code, values):
    """What is stored before the first instruction of another kind or of other values, by variable."""
    out = {}
    try:
        for op, *w in code:
            if op == spirv.STORE:
                out[w[0]] = values[w[1]]
            elif op == spirv.LOAD:
                values[w[1]] = values[w[2]]
            elif op in ARITHMETIC:
                values[w[1]] = ARITHMETIC[op](values[w[2]], values[w[3]]) % 2**32
            elif op == spirv.SELECT:
                values[w[1]] = values[w[3] if values[w[2]] else w[4]]
            elif op == spirv.COMPOSITE_EXTRACT:
                values[w[1]] = values[w[2]][w[3]]
            elif op == spirv.COMPOSITE_CONSTRUCT:
                values[w[1]] = tuple(values[i] for i in w[2:])
            else:
                break
    except KeyError:
        pass
    return out


def ids(index, size, group, lanes):
    """The BuiltIns of an invocation."""
    local = (index % size[0], index // size[0] % size[1], index // (size[0] * size[1]))
    return {spirv.LOCAL_INDEX: index, spirv.LOCAL_ID: local, spirv.SUBGROUP_ID: index // lanes,
            spirv.WORKGROUP_ID: group, spirv.NUM_WORKGROUPS: GROUPS, spirv.WORKGROUP_SIZE: size,
            spirv.GLOBAL_ID: tuple(g * s + i for g, s, i in zip(group, size, local))}


def changed(subgroups, groups):
    """The BuiltIns that an order changes."""
    local = [spirv.LOCAL_INDEX, spirv.LOCAL_ID, spirv.SUBGROUP_ID] if subgroups else []
    return local + [spirv.GLOBAL_ID] + ([spirv.WORKGROUP_ID] if groups else [])


def check(path, old, new, size, by_id, order):
    """Every invocation of one workgroup. Returns how many ids were compared."""
    subgroups, groups, lanes = order
    n, named, before = size[0] * size[1] * size[2], builtins(new), builtins(old)
    code, numbers = first_block(new)
    numbers |= by_id
    group = tuple(c - 1 - g for c, g in zip(GROUPS, GROUP)) if groups else GROUP
    wanted = [which for which in changed(subgroups, groups) if which in before]
    others = []
    for index in range(n):
        own = ids(index, size, GROUP, lanes)
        got = stored(code, numbers | {named[which]: own[which] for which in own if which in named})
        other = index
        if subgroups and n % lanes == 0:
            other = (n // lanes - 1 - index // lanes) * lanes + index % lanes
        others.append(other)
        value = ids(other, size, group, lanes)
        for which in wanted:
            assert got.get(before[which]) == value[which], (path, order, size, index, which, got)
    assert sorted(others) == list(range(n))
    return n * len(wanted)


def size_mode(module):
    """The execution mode that says what the size of a workgroup is, unless a constant does."""
    return next(one for one in module.all_of(spirv.EXECUTION_MODE, spirv.EXECUTION_MODE_ID)
                if one[2] in (spirv.LOCAL_SIZE, spirv.LOCAL_SIZE_ID))


def sizes(module):
    """Sizes that a workgroup may have, and the numbers that each gives ids of the execution mode."""
    mode = size_mode(module)
    if spirv.WORKGROUP_SIZE in builtins(module):
        return [(size, {}) for size in SIZES]
    if mode[2] == spirv.LOCAL_SIZE:
        return [(tuple(mode[3:6]), {})]
    fixed = {one[2]: one[3] for one in module.all_of(spirv.CONSTANT)}
    drawn = [dict(zip(mode[3:6], size)) | fixed for size in SIZES]
    return [(tuple(by_id[axis] for axis in mode[3:6]), by_id) for by_id in drawn]


def accepts(spirv_val, path):
    """Whether the validator accepts a module."""
    return subprocess.run([spirv_val, "--target-env", "vulkan1.3", path],
                          capture_output=True).returncode == 0


def main(spirv_val, paths):
    """Checks every module in three orders."""
    n_compared = n_valid = 0
    for path in paths:
        words = spirv.read(path)
        old = spirv.Module(words)
        valid = os.path.exists(spirv_val) and accepts(spirv_val, path)
        for order in (True, False, 4), (False, True, 8), (True, True, 8):
            new = spirv.Module(words)
            orders.Reordered(new, *order)
            for size, by_id in sizes(old):
                n_compared += check(path, old, new, size, by_id, order)
        if valid:
            with tempfile.NamedTemporaryFile(suffix=".spv") as file:
                new.words().tofile(file)
                file.flush()
                assert accepts(spirv_val, file.name), f"{path}: {spirv_val} refuses the new module"
            n_valid += 1
    print(f"{len(paths)} modules, {n_compared} ids, {n_valid} accepted by the validator")
    return n_compared == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
