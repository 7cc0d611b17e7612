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

On Intel nearly half of the loop of `attention_coop` loads from shared memory or waits for it: a load
has a `sync` before it and one after, and a matrix of rows is four loads, eight on the A770. So q lies
there as lanes read it, and in heads of 128 and 256 scores lie over keys and values over both, for more
rows and keys a step. What did not help, in instructions a matrix operation of heads of 128 on BMG, 25.2
now: 64 rows by 32 keys, 30.6; 32 rows by 64 keys, 29.2. Steps of 64 keys spill on the A770, and in
heads of 64 on BMG, whose 64 rows by two subgroups take 36.1 for 31.6; q as lanes read it spills on the
A770 in heads of 64. The pipeline of softcap, mask tensors, ALiBi and dropout spills 29 to 107 registers
on BMG in heads of 64 to 256, as it did before in those of 64 to 160; no problem here has it.

In `attention_tile` most that was no FMA found the places of keys: pages, sizes and ends of rows, for
each load. Loops over parts of a head and of a step that are unrolled take 104 registers for 96 on
Hopper, and 3,881 instructions for 849 on RDNA3, for no fewer in each part. On Adreno 660 the loop of
heads of 128 has 280 instructions for 261, the step around it 377 for 685.

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
