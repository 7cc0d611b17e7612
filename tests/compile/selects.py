"""Finds selects of the two numbers that are compared. A compiler may make a maximum of
`x < 0.0 ? 0.0 : x`, as those of GPUs do, which loses NaN and -0, and x of `x == 0.0 ? 0.0 : x`, which
keeps -0; Vulkan allows both. Such a choice is made by bits instead, as in shaders/lib/relu.glsl.

    selects.py MODULE.spv ...

Prints each with its module and fails where there is one.

SPDX-License-Identifier: MIT"""
import array
import os
import sys

COMPARE = set(range(180, 192))  # OpFOrdEqual .. OpFUnordGreaterThanEqual
OR, AND, NOT = 166, 167, 168
SELECT, PHI, LABEL, SELECTION_MERGE, BRANCH_CONDITIONAL = 169, 245, 248, 247, 250
CONSTANTS = {43, 44, 46}  # OpConstant, OpConstantComposite, OpConstantNull
COPY_OBJECT = 83


def instructions(path):
    with open(path, "rb") as f:
        words = array.array("I", f.read())
    at = 5
    while at < len(words):
        n = words[at] >> 16
        yield words[at] & 0xFFFF, words[at + 1:at + n]
        at += n


def found(path):
    """The ids of such selects and phis. A condition of two parts is one of each: what the other part
    says may be a constant once the module is specialised."""
    compared, conditions, merge, bad, same = {}, {}, None, [], {}

    def name(x):
        while x in same:
            x = same[x]
        return x

    def judge(result, condition, a, b):
        if {name(a), name(b)} in compared.get(condition, []):
            bad.append(result)

    def join(result, parts):
        pairs = [pair for part in parts for pair in compared.get(part, [])]
        if pairs:
            compared[result] = pairs

    values = {}  # contents of a constant -> its first id
    for op, w in instructions(path):
        if op in CONSTANTS:
            same_as = values.setdefault((op, tuple(w[:1]) + tuple(name(x) for x in w[2:])), w[1])
            if same_as != w[1]:
                same[w[1]] = same_as
        elif op == COPY_OBJECT:
            same[w[1]] = w[2]
        elif op in COMPARE:
            compared[w[1]] = [{name(w[2]), name(w[3])}]
        elif op in (OR, AND, NOT):
            join(w[1], w[2:])
        elif op == SELECT:
            judge(w[1], *w[2:5])
        elif op == SELECTION_MERGE:
            merge = w[0]
        elif op == BRANCH_CONDITIONAL and merge is not None:
            conditions[merge] = w[0]
            merge = None
        elif op == LABEL:
            block = w[0]
        elif op == PHI:
            join(w[1], w[2::2])
            if len(w) == 6 and block in conditions:
                judge(w[1], conditions[block], w[2], w[4])
    return bad


def main(paths):
    n_bad = 0
    for path in paths:
        bad = found(path)
        n_bad += len(bad)
        if bad:
            print(f"{os.path.basename(path)}: {len(bad)} selects of what is compared, as "
                  f"%{bad[0]}: a compiler may make one of them, or a maximum")
    print(f"{len(paths)} modules, {n_bad} selects")
    return 1 if n_bad or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
