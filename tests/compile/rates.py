#!/usr/bin/env python3
"""rates.py [COMMIT]

Prints the rates by which kernels are judged, from the tables in figures/: as they are, and as COMMIT
has them. Attention is counted by steps: its hot loop where that does all of a step, else with the
loops in it and around it. Branches that seldom run are counted. SPDX-License-Identifier: MIT"""
import csv
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent / "figures"

PREFILL = (["attention_coop_f16"], "prefill f16 full d128 8192")
DECODE = (["attention_coop_f16", "attention_decode"], "decode f16 d128 4096")
PRODUCT = (["matmul_coop_f16"], "linear f16 4096x4096x4096")
PLAIN_PRODUCT = (["matmul_tile"], PRODUCT[1])


def step(row, *columns):
    """Counts of the hot loop if it has all matrix operations of the step, else of the step."""
    whole = row["matrix"] < row["step_matrix"]
    return sum(row["step" if c == "loop" else "step_" + c] if whole else row[c] for c in columns)


def vector_a_matrix(row):
    return step(row, "alu", "fma") / row["step_matrix"]


def all_a_matrix(row):
    return step(row, "loop") / row["step_matrix"]


def all_a_load(row):
    return row["loop"] / row["global_load"]


def other_a_256_fma(row):
    return row["alu"] / row["fma"] * 256


RATES = [
    ("vector instructions a WMMA, attention f16 D128", "navi31", PREFILL, vector_a_matrix),
    ("vector instructions a WMMA, attention f16 D128", "gfx1201", PREFILL, vector_a_matrix),
    ("instructions a HMMA, attention f16 D128", "hopper", PREFILL, all_a_matrix),
    ("instructions a DPAS, attention f16 D128", "bmg", PREFILL, all_a_matrix),
    ("instructions a DPAS, matmul f16", "bmg", PRODUCT, all_a_matrix),
    ("vector instructions a WMMA, matmul f16", "navi31", PRODUCT, vector_a_matrix),
    ("instructions a HMMA, matmul f16", "hopper", PRODUCT, all_a_matrix),
    ("instructions a 16-byte load, decode f16 D128", "navi31", DECODE, all_a_load),
    ("instructions a 16-byte load, decode f16 D128", "hopper", DECODE, all_a_load),
    ("vector instructions besides 256 FMA, matmul f16", "navi21", PLAIN_PRODUCT, other_a_256_fma),
]


def read(gpu, commit):
    path = HERE / (gpu + ".tsv")
    text = path.read_text()
    if commit:
        root = subprocess.check_output(["git", "-C", HERE, "rev-parse", "--show-prefix"], text=True)
        text = subprocess.check_output(["git", "-C", HERE, "show", f"{commit}:{root.strip()}{gpu}.tsv"],
                                       text=True)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines, delimiter="\t"))


def rate(gpu, commit, problem, of):
    kernels, name = problem
    for row in read(gpu, commit):
        if row["kernel"] in kernels and name in row["problems"].split("; "):
            numbers = {k: float(v) for k, v in row.items() if v.isdigit()}
            return f"{of(numbers):.1f}"
    return "-"


def main():
    commits = [*sys.argv[1:2], None]
    print("| rate | GPU |", " | ".join(c or "now" for c in commits), "|")
    print("|---|---|" + "---|" * len(commits))
    for text, gpu, problem, of in RATES:
        print(f"| {text} | {gpu} |", " | ".join(rate(gpu, c, problem, of) for c in commits), "|")


if __name__ == "__main__":
    main()
