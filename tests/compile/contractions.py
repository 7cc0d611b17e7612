"""Finds products that are added. A compiler may make one fma of them, as those of GPUs do and those of CPU
drivers do not, and which it makes depends on the code around: kernels, or pipelines of one kernel, that
promise the same bits would differ. So an fma is written as fma(), and what has to be rounded by itself is
`precise`.

    contractions.py MODULE.spv ...

Looks through negations and parts of vectors. Prints each with its module and fails where there is one that
is not known.

SPDX-License-Identifier: MIT"""
import os
import sys

import spirv

COMPOSITES = spirv.COMPOSITE_CONSTRUCT, spirv.COMPOSITE_EXTRACT
SHUFFLE, COPY_OBJECT, NEGATE, ADD, SUBTRACT = 79, 83, 127, 129, 131
PRODUCTS = 133, 142, 143  # OpFMul, OpVectorTimesScalar, OpMatrixTimesScalar
DOT = 148  # the order of its sum is the compiler's
NO_CONTRACTION = 42
GLSL_IMPORT, EXTENDED = 11, 12
SUMS = {46: "mix", 66: "length", 67: "distance", 69: "normalize"}  # of GLSL.std.450: products and sums
# How many a module has, and why they change no bits.
KNOWN = {
    "attention_backward_coop_f16": (1, "cooperative matrices have no fma(); the factor is a power of two"),
}


def found(module):
    """The ids of such sums, and of what is one by itself."""
    precise = {one[1] for one in module.all_of(spirv.DECORATE) if one[2] == NO_CONTRACTION}
    library = [one[1] for one in module.all_of(GLSL_IMPORT)]
    products, bad = set(), []
    for op, *w in module.code:
        if op in PRODUCTS and w[1] not in precise:
            products.add(w[1])
        elif op in (NEGATE, COPY_OBJECT, *COMPOSITES) and products.intersection(w[2:]):
            products.add(w[1])
        elif op == SHUFFLE and products.intersection(w[2:4]):
            products.add(w[1])
        elif op in (ADD, SUBTRACT) and w[1] not in precise and products.intersection(w[2:]):
            bad.append(w[1])
        elif op == DOT or (op == EXTENDED and w[2] in library and w[3] in SUMS):
            bad.append(w[1])
    return bad


def main(paths):
    """Checks each file; returns the exit status."""
    n_bad = 0
    for path in paths:
        name = os.path.splitext(os.path.basename(path))[0]
        bad = found(spirv.Module(spirv.read(path)))
        n_known, why = KNOWN.get(name, (0, ""))
        if len(bad) > n_known:
            print(f"{name}: {len(bad)} sums of products, the last as %{bad[-1]}: write fma() or `precise`")
            n_bad += 1
        elif len(bad) < n_known:
            print(f"{name}: {len(bad)} sums of products, not {n_known} ({why}): mend the table KNOWN")
            n_bad += 1
    print(f"{len(paths)} modules, {n_bad} wrong")
    return 1 if n_bad or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
