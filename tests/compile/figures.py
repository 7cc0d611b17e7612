#!/usr/bin/env python3
"""What compilers of GPUs that are not there make of the kernels: the ctest `figures`.

figures.py --tree TREE --program BUILD/compile_kernels [--all] [--gpu NAME]...
figures.py --tree TREE --program BUILD/compile_kernels --update
figures.py --tree TREE --program BUILD/compile_kernels --admit "REASON"
figures.py --tree TREE --program BUILD/compile_kernels --loops PART [--gpu NAME]...

TREE is made by tools/dev/sid_tree.sh. Fails where a pipeline spills or has local memory and is not in
figures/known_spills.tsv, where an entry of that list spills no more, and where a hot loop, the step
around it or what a pipeline of the list spills is more than 3 % longer than before, or a pipeline has
more atomics. Before is the table of the GPU in figures/, if the same driver and shader compiler made
it, else the commit that last wrote the tables (FIGURES_BASE names another one), built and measured in
the same run. Kernels whose modules, constants and driver are those of a table are not compiled again,
unless --all says so.

--update writes the tables and docs/gpus.md, and removes from the list what spills no more. --admit adds to the list
what spills today, for that reason. --loops prints all loops of the pipelines whose kernel or
problem holds PART, and judges nothing. GPUs whose drivers are for arm64 alone, Raspberry Pi's and Mali, are
compiled for only when named, with a TREE and a program of arm64; what they spill is counted in
docs/gpus.md and judged by nobody. SPDX-License-Identifier: MIT"""
import argparse
import os
import subprocess
import sys

import base
import gpu_page
import known
import null_gpus

HERE = os.path.dirname(os.path.abspath(__file__))
TABLES = os.path.join(HERE, "figures")
SKIPPED = 77
LONGER = 1.03


def number(row, column):
    return int(row[column]) if row[column] != "-" else 0


def operations(row, prefix):
    """What a loop is for: matrix operations, else FMAs."""
    return number(row, prefix + "matrix") or number(row, prefix + "fma")


def find_old(row, old_rows):
    """The row of the same pipeline; else, as constants or tiles changed, of the same problem."""
    same = [old for old in old_rows if null_gpus.key(old) == null_gpus.key(row)]
    if same:
        return same[0], True
    first = row["problems"].split("; ")[0]
    for old in old_rows:
        if (old["kernel"], old["dtype"]) == (row["kernel"], row["dtype"]) and \
                first in old["problems"].split("; "):
            return old, False
    return None, False


def longer_loops(row, old_rows):
    """A sentence for each loop that is too long. Instructions are compared, or, where the loop does
    another number of operations, instructions an operation."""
    old, same = find_old(row, old_rows)
    out = []
    for column, prefix in (("loop", ""), ("step", "step_")):
        if not old or "-" in (row[column], old[column]):
            continue
        if column == "step" and row["step"] == row["loop"] and old["step"] == old["loop"]:
            continue  # there is no loop around
        new_length, old_length, unit = number(row, column), number(old, column), "instructions"
        done, before = operations(row, prefix), operations(old, prefix)
        if done != before and done and before:
            new_length, old_length = new_length / done, old_length / before
            unit += " an operation"
        elif not same and done == before == 0:
            continue
        if new_length > old_length * LONGER:
            out.append("the %s of %s is %.4g %s, %.4g before" % (
                "hot loop" if column == "loop" else "step around the hot loop",
                null_gpus.title(row), new_length, unit, old_length))
    return out


def grown_spills(row, old_rows):
    """A sentence where a pipeline that spilled before spills more."""
    old, same = find_old(row, old_rows)
    columns = ("spills", "fills", "local_bytes")
    if not same or not any(number(row, c) > number(old, c) * LONGER > 0 for c in columns):
        return []
    return ["%s has %s, %s before" % (null_gpus.title(row), *(", ".join(
        "%s %s" % (r[c], c) for c in columns) for r in (row, old)))]


def more_atomics(row, old_rows):
    """A sentence where a kernel has more atomics than before: each stores one element of a word."""
    old, _ = find_old(row, old_rows)
    counts = [r.get("all_atomic", "-") for r in (row, old or {})]
    if "-" in counts or int(counts[0]) <= int(counts[1]):
        return []
    return ["%s has %s atomics, %s before" % (null_gpus.title(row), *counts)]


class Report:
    def __init__(self):
        self.failures = 0

    def say(self, gpu, text):
        print("%-10s %s" % (gpu, text), flush=True)

    def fail(self, gpu, text):
        self.failures += 1
        self.say(gpu, "FAIL: " + text)


def check_loops(gpu, figures, before, report):
    """before: rows to compare with, and where they come from."""
    old_rows, origin = before
    if old_rows is None:
        report.say(gpu, "hot loops are not compared: " + origin)
        return
    found = 0
    for row in figures.rows:
        found += find_old(row, old_rows)[0] is not None
        for text in (longer_loops(row, old_rows) + grown_spills(row, old_rows) +
                     more_atomics(row, old_rows)):
            report.fail(gpu, text)
    report.say(gpu, "%d of %d pipelines compared with %s" % (found, len(figures.rows), origin))


def check_refused(gpu, figures, report):
    """As in the table: the problems without a plan, and, where it is by this driver, the kernels
    refused; for the same reasons."""
    table, _ = null_gpus.read_table(null_gpus.table_path(TABLES, gpu))
    for text in sorted(set(figures.refused) ^ set(table.refused)):
        if table.driver == figures.driver or text.startswith("unsupported "):
            report.fail(gpu, ("not in the table: " if text in figures.refused
                              else "in the table, and no more: ") + text)


def before_of(gpu, figures, compiler, older):
    """Rows to compare with, and their origin."""
    table, table_compiler = null_gpus.read_table(null_gpus.table_path(TABLES, gpu))
    if table.driver == figures.driver and table_compiler == compiler:
        return table.rows, "the table"
    why = "the table is by %s, %s" % (table.driver, table_compiler)
    rows, origin = older.rows(gpu)
    return rows, "%s (%s)" % (origin, table.error or why)


def check(measured, arguments, report):
    older = base.Base(arguments, TABLES)
    spills = known.read(TABLES)
    for gpu in sorted({entry[0] for entry in spills} - set(null_gpus.GPUS)):
        report.fail(gpu, "known_spills.tsv: there is no such GPU")
    for gpu, figures in measured.items():
        if figures.error:
            report.fail(gpu, figures.error)
            continue
        compiled = sum("loops" in row for row in figures.rows)
        report.say(gpu, "%s, %s: %d pipelines, %d compiled, the others are those of the table" % (
            figures.device, figures.driver, len(figures.rows), compiled))
        for text in [] if gpu in null_gpus.ARM64 else known.judge(gpu, figures.rows, spills):
            report.fail(gpu, text)
        check_refused(gpu, figures, report)
        if compiled:
            check_loops(gpu, figures, before_of(gpu, figures, arguments.compiler, older), report)


def update(measured, arguments, report):
    spills = known.read(TABLES)
    for gpu, figures in measured.items():
        if figures.error:
            report.fail(gpu, figures.error)
            continue
        path = null_gpus.table_path(TABLES, gpu)
        null_gpus.write_table(path, figures, arguments.compiler)
        report.say(gpu, "%s: %d rows" % (os.path.relpath(path), len(figures.rows)))
        if gpu in null_gpus.ARM64:
            continue
        known.renew(gpu, figures.rows, spills, arguments.admit)
        for text in known.judge(gpu, figures.rows, spills):
            report.fail(gpu, text)
    known.write(TABLES, spills)
    gpu_page.write(TABLES)


def print_loops(arguments):
    """One line a loop, those in a loop set off from it."""
    for gpu, figures in null_gpus.measure_all(arguments, arguments.program).items():
        print("%s: %s" % (gpu, figures.error or figures.driver))
        for row in figures.rows:
            if arguments.loops not in row["kernel"] + " " + row["problems"]:
                continue
            print(null_gpus.title(row))
            for loop in row["loops"]:
                print("  " * loop.depth + "%d instructions:" % loop.instructions,
                      ", ".join("%d %s" % (loop.counts[name], name) for name in loop.counts))


def version_of(program):
    """The first line of what a tool says of its version; none without the tool."""
    try:
        done = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT)
        return done.stdout.strip().splitlines()[0]
    except (OSError, IndexError):
        return "none"


def parse():
    _, usage, *text = __doc__.split("\n\n")
    parser = argparse.ArgumentParser(usage=usage, description="\n\n".join(text),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", required=True, help="unless VKATTN_SID_TREE names another one")
    parser.add_argument("--program", required=True)
    parser.add_argument("--gpu", action="append", choices=sorted(null_gpus.GPUS))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--glslang", default="glslangValidator", help="which made the modules")
    parser.add_argument("--spirv-opt", default="spirv-opt", help="which optimised them")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--admit", metavar="REASON")
    parser.add_argument("--loops", metavar="PART")
    arguments = parser.parse_args()
    arguments.tree = os.environ.get("VKATTN_SID_TREE") or arguments.tree
    arguments.gpu = arguments.gpu or [g for g in null_gpus.GPUS if g not in null_gpus.ARM64]
    arguments.compiler = "%s; %s" % (version_of(arguments.glslang), version_of(arguments.spirv_opt))
    return arguments


def main():
    arguments, report = parse(), Report()
    problem = null_gpus.tree_problem(arguments.tree)
    if problem:
        print("figures: SKIPPED, %s: NOTHING WAS COMPILED FOR A GPU" % problem)
        return SKIPPED
    if arguments.loops is not None:
        print_loops(arguments)
        return 0
    judge = update if arguments.update or arguments.admit else check
    tables = None if arguments.all else TABLES
    measured = null_gpus.measure_all(arguments, arguments.program, tables)
    judge(measured, arguments, report)
    print("figures: %d GPUs, %d failures. SKIPPED, as there is no null device: %s" %
          (len(measured), report.failures, ", ".join(null_gpus.NO_DEVICE)))
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
