#!/usr/bin/env python3
"""docs/gpus.md, made of the tables in figures/: the ctest `gpu_page`.

gpu_page.py          writes it, as figures.py --update does
gpu_page.py --check  fails where it is not what the tables give

SPDX-License-Identifier: MIT"""
import os
import re
import sys
import textwrap

import known
import null_gpus

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PAGE = os.path.join(ROOT, "docs", "gpus.md")

HEAD = """# GPUs that the kernels are compiled for

None of these GPUs ran anything by these drivers: Mesa's compile for them on null devices, without the
hardware, as [contributing.md](contributing.md#what-compilers-make-of-a-kernel) tells. NVIDIA's GPUs
are compiled for by NVK; by NVIDIA's own driver an H100 and an H200 ran
[every kernel that they have](robustness.md#the-first-gpu), listed in
`tests/compile/figures/executed.txt`. So what a GPU here could run, its driver has never executed; what no
GPU at all has executed is named. `tests/compile/gpu_page.py` makes this page of the tables in
`tests/compile/figures/`; the ctest `figures` compiles what has changed and compares, but for those of
Raspberry Pi's and Mali, whose drivers are for arm64 alone.

A plan chooses the kernels: for prefill and decoding, products of a layer, the operations around
attention and those of training, in float32 and float16, of the sizes in
`tests/compile/problem_list.c`. All pipelines of the kernels chosen are compiled; one that spills has
registers or arrays in memory, as many on Raspberry Pi's have. A refused kernel needs what the device
lacks: another does its work.

On Mali, `attention_tile` of heads of 256 and `attention_decode` of 16-bit and quantised keys spill 2 to
15 of 64 registers, with the fewest rows and loads that they have. In the code of heads of 256, of
float16 and of q8_0 keys these are stored before the loop over the keys and read after it, some of q8_0
once a step of 128 keys, none in an innermost loop. Tiles of half of a head would make all scores twice.

Products of 16 bits on a chip of 96 processors or more, of 64 lanes a subgroup, take tiles of 256 x 128,
of which an operation reads 0.0117 bytes of the second-level cache; 0.0156 of 128 x 128, by however many
subgroups, and 0.0234 of 64 x 128. That is computed from the tiles (`test_unit tune_large`), not measured.
Tables have them as on 132 processors. A tile is stored by halves of 16 k, one while the other is multiplied:
two tiles of 32 k for 384 rows are 61,440 bytes of shared memory, and NVIDIA's driver gives 49,152. No GPU has
run the halves. What did not help: by NVK their loop has 1,043 instructions for 64 matrix operations on
Hopper, 1,030 without branches, and 227 where the tile is stored as a whole; 128 x 128 has 546 for 128. So
NVIDIA's GPUs keep 128 x 128, which an H100 ran faster than the whole tiles, see
[benchmarks.md](benchmarks.md#nvidia-h100-80gb-hbm3); `vkattn tune` times both.

`attention_backward_coop` stages the others of a step once where rows are whole, but on Intel's GPUs. Such a
step has four barriers: a subgroup's scores are a tile that it alone reads, and the ranges of a step's first
and last row are its bounds. In the tables, the loop of the spans of dk and dv of heads of 128 has 26
instructions a matrix operation on Hopper and 45 on navi31, 61 and 114 where each product was staged; the
step alone has 16 and 31, the rest is done once a span of 1,024 rows. On bmg, which has that older form, it
has 102, and that of dq 70: of 2,436 instructions 457 are moves, 385 wait for a register (`sync.nop`), 227
are branches and their ends and 241 access shared memory, for 24 matrix operations, of which loops repeat 8.
On navi31 8 waves run a SIMD, not 12, for which a workgroup of 8 would have 21 KiB of shared memory: the
others turned are 20 KiB, weights and scores 10 KiB. What did not help: tiles of a subgroup's own were 4
spills on the a770, where a row has one lane; bounds by first and last row are recomputed on Intel's GPUs,
200 instructions, or were 15 spills there in registers; eight rounds of one hidden key for four of two took
8 registers more by NVK, 12 waves for 16; with one staging bmg had 41 to 77 spills in the first, whether
products and scores were loops or not, and the a770 15 in that of dq; places of rows in registers, as in the
pass of dq, gave bmg 10 and the a770 23 spills in that of dk and dv; others loaded a second time, for fewer
registers, are the same code, as compilers see that nothing writes them; weights of hidden keys without a
loop took 32 registers more by NVK. RADV loads 16 bytes of shared memory by halves on RDNA3 and RDNA4. On
Turing, whose processors have 64 KiB of shared memory, one workgroup of that pass runs at a time, two
before. No GPU has timed any of it.

In `attention_coop` a matrix of keys or values is read for one operation, as those of BMG have 8 rows: of
783 instructions of the loop of heads of 128, 102 load from shared memory and 262 wait for a register of an
earlier one (`sync.nop`), for 32 operations. What did not help: a lane's scores kept from the search for the
largest, not loaded again, were up to 19 spilled registers on bmg, 10 on a770, and 32 more registers by NVK. In
`attention_tile` half the lanes, each with four rows of heads of 128 for two, have 168 registers for 96 on
Hopper, and their loops are not unrolled: 54 % of the step are FMAs, for 61 %. Heads of 256 on NVIDIA's GPUs
take 12 by 16 lanes of two rows; 8 by 16 of three have 75 % FMAs in the loop over scores, for 68 %, but 12
waves for 20 by their registers, and 4 for 6 on Turing, whose memory holds one workgroup of either.

`attention_coop2_ext` is the source of `attention_coop2` for `VK_EXT_cooperative_matrix_maintenance1`, which
any vendor may have, from Vulkan 1.1 on: no driver here has it, so that each refuses it by name. By a layer
that renames NVIDIA's extension (`tests/devices/maintained.c`) Mesa's CPU driver runs it, and RADV makes the
3,787 instructions of `attention_coop2` of it on navi31 with heads of 128, and 3,355 on gfx1201. Where a row
of a matrix lies in 16 lanes, as on AMD's GPUs, `attention_coop` comes before both: it has 17 instructions a
matrix operation on navi31 and 15 on gfx1201 with heads of 128, `attention_coop2` 28 and 19; with heads of
64 19 and 17, for 32 and 23. `vkattn tune` times all of them.

On vega20 and navi21 two matrices of float16 are multiplied by `matmul_tile_mixed` and `matmul_few_mixed`, in
which an instruction adds two products to a float32. Tiles of 8 x 4 results a lane have 50 instructions for
two k, and had as many for one; with the loop around it 16 k are 503 for 1,104. Eight k of one row are 17
instructions, 122 before, of 16 rows 123 and 335. Beyond one group of k a lane has 8 x 4 results, 4 x 4
before, in 128 registers. What did not help: four k in a turn of the loop of 8 x 4 are 96 instructions, but 8
waves for 10 on navi21. Queries and keys of float16 are multiplied so by `attention_tile_mixed`: the loop over
keys has 1,826 instructions a step for heads of 128 on navi21, 2,198 before, 2,435 of 64 and 2,349 of 256 for
2,925 and 2,743; weights stay float32, so values are multiplied as before: their loop is 941 of the 1,826, of
which 512 are FMA, and pairs would save about 17 % of the step, but round the weights. Navi31 and gfx1201 have
the instruction too, and matrix units, which take all this.

16-bit results of aligned tensors are stored as words, two neighbours by one lane. Where neighbours lie in two
lanes, as scores of a row and scales of a cache do, they are exchanged by shared memory, on GPUs alone: on
Mesa's CPU driver the barrier ends the code by vectors, 320 ms for 220 of an exact softmax.

| name | device | driver | pipelines compiled | of these spill | kernels chosen | refused |
|---|---|---|---|---|---|---|
"""


def kernels(path):
    """The names in kernels.def, in its order."""
    with open(path) as f:
        return re.findall(r"^KERNEL\((\w+),", f.read(), re.M)


def key_of(figures, names):
    """Kernels chosen, kernels neither chosen nor refused, reason -> kernels refused, and sentence ->
    problems without a plan."""
    chosen = {row["kernel"] for row in figures.rows}
    refused, unsupported = {}, {}
    for text in figures.refused:
        kind, text = text.split(" ", 1)
        name, reason = text.split(": ", 1)
        (refused if kind == "refused" else unsupported).setdefault(reason, []).append(name)
    out = {kernel for group in refused.values() for kernel in group}
    if (chosen | out) - set(names):
        raise ValueError("not in kernels.def: %s" % sorted((chosen | out) - set(names)))
    return (tuple(n for n in names if n in chosen),
            tuple(n for n in names if n not in chosen | out),
            tuple((reason, tuple(group)) for reason, group in refused.items()),
            tuple((reason, tuple(group)) for reason, group in unsupported.items()))


def executed(path):
    """The kernels that a GPU has run, from a file with comments."""
    with open(path) as f:
        return {line.strip() for line in f if line.strip() and not line.startswith("#")}


def words(text, indent=""):
    return textwrap.fill(text, 100, subsequent_indent=indent, break_on_hyphens=False,
                         break_long_words=False) + "\n"


def listed(names):
    return ", ".join("`%s`" % n for n in names) or "none"


def page(tables):
    names = kernels(os.path.join(ROOT, "shaders", "kernels.def"))
    out, groups, absent = HEAD, {}, []
    ran = executed(os.path.join(tables, "executed.txt"))
    if ran - set(names):
        raise ValueError("executed.txt has what kernels.def has not: %s" % sorted(ran - set(names)))
    for gpu in null_gpus.GPUS:
        path = os.path.join(tables, gpu + ".tsv")
        if gpu in null_gpus.ARM64 and not os.path.exists(path):
            absent.append(gpu)
            continue
        figures, _ = null_gpus.read_table(path)
        if figures.error:
            raise ValueError(figures.error)
        key = key_of(figures, names)
        groups.setdefault(key, []).append(gpu)
        pipelines = {null_gpus.key(row)[:3] for row in figures.rows}
        spilling = {null_gpus.key(row)[:3] for row in figures.rows if known.spills(row)}
        out += "| %s | %s | %s | %d | %d | %d | %d |\n" % (
            gpu, figures.device.strip(), figures.driver, len(pipelines), len(spilling), len(key[0]),
            sum(len(group) for _, group in key[2]))
    out += "\n" + words("`_matrix2` is the GPU with `VK_NV_cooperative_matrix2` turned on in RADV. Not "
                        "compiled for, as there is no null device: %s%s."
                        % (", ".join(null_gpus.NO_DEVICE),
                           "; not tried: %s" % ", ".join(absent)
                           if absent else ""))
    for (chosen, unused, refused, unsupported), gpus in groups.items():
        out += "\n## %s\n\n" % ", ".join(gpus)
        out += words("Chosen and compiled: %s." % listed(chosen)) + "\n"
        out += words("Could run, not chosen for these problems: %s." % listed(unused)) + "\n"
        out += words("Of these, never executed on any GPU: %s."
                     % listed([n for n in chosen + unused if n not in ran])) + "\n"
        out += "Refused:\n\n"
        for reason, group in refused:
            out += words("- %s: %s" % (reason, listed(group)), "  ")
        if unsupported:
            out += "\nNo plan:\n\n"
        for reason, group in unsupported:
            out += words("- %s: %s" % (reason, listed(group)), "  ")
    return out


def write(tables):
    with open(PAGE, "w") as f:
        f.write(page(tables))


def main():
    tables = os.path.join(HERE, "figures")
    if sys.argv[1:] != ["--check"]:
        write(tables)
        return 0
    with open(PAGE) as f:
        if f.read() == page(tables):
            return 0
    print("docs/gpus.md is not what the tables give: run tests/compile/gpu_page.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
