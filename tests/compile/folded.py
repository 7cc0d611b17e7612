#!/usr/bin/env python3
"""Modules as portability devices get them, with the specialization constants built in: the ctest `folded`.

folded.py [--all] TREE LAYERS VKATTN COMPILE_KERNELS

compile_kernels --fold writes that of each pipeline of its lists for a GPU of Apple, with 31 buffers and
subgroups of 32, which as_gpu.sh plays.
None may have a specialization constant left, which is looked for here again, and spirv-val of TREE has to
accept it: by default one of each kernel and some more drawn by the commit, with --all each. With --all
spirv-opt makes of each what a driver would, and no product is left that is added (contractions.py). Exits
with 77 where there is no tree. SPDX-License-Identifier: MIT"""
from __future__ import annotations

import argparse
import concurrent.futures
import glob
import hashlib
import os
import subprocess
import sys
import tempfile

import contractions
import spirv

HERE = os.path.dirname(os.path.abspath(__file__))
AS_GPU = os.path.join(os.path.dirname(HERE), "devices", "as_gpu.sh")
MORE = 10  # modules at a landing, beside one of each kernel
SPEC_CONSTANTS = {48, 49, 50, 51, 52, 4462}  # OpSpecConstantTrue to OpSpecConstantOp, Replicated...
SPEC_ID = 1


def tool(tree: str, name: str) -> list[str]:
    """The command that runs a program of the tree by its own loader."""
    loader = (glob.glob(tree + "/usr/lib64/ld-linux-*") + glob.glob(tree + "/usr/lib/ld-linux-*"))[0]
    return [loader, "--library-path", glob.glob(tree + "/usr/lib/*-linux-gnu")[0],
            os.path.join(tree, "usr", "bin", name)]


def kernel_of(path: str) -> str:
    """The name before the index."""
    return os.path.basename(path).rpartition("-")[0]


def draw(paths: list[str]) -> list[str]:
    """One module of each kernel and MORE, others with each commit."""
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "HEAD"], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True).stdout.strip()
    order = sorted(paths, key=lambda path: hashlib.sha256(
        f"{commit} {os.path.basename(path)}".encode()).digest())
    first: dict[str, str] = {}
    for path in order:
        first.setdefault(kernel_of(path), path)
    chosen = set(first.values())
    return list(first.values()) + [path for path in order if path not in chosen][:MORE]


def constants_left(path: str) -> bool:
    """Whether the module declares or names a specialization constant."""
    return any(one[0] in SPEC_CONSTANTS or (one[0] == spirv.DECORATE and one[2] == SPEC_ID)
               for one in spirv.Module(spirv.read(path)).code)


def refused(tree: str, path: str) -> str:
    """What spirv-val says of it."""
    done = subprocess.run([*tool(tree, "spirv-val"), "--target-env", "vulkan1.3", path],
                          capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr.strip() or f"status {done.returncode}"


def contracted(tree: str, path: str) -> str:
    """The sums of products that are left after the optimiser, where a kernel has more than is known."""
    out = path + ".opt"
    subprocess.run([*tool(tree, "spirv-opt"), "-O", path, "-o", out], check=True)
    bad = contractions.found(spirv.Module(spirv.read(out)))
    if not bad or kernel_of(path) in contractions.KNOWN:  # of which loops that are unrolled make more
        return ""
    return f"{len(bad)} sums of products, the last as %{bad[-1]}"


def check_one(tree: str, path: str, whole: bool) -> str:
    """What is wrong with a module; empty where nothing is."""
    if constants_left(path):
        return "a specialization constant is left"
    return refused(tree, path) or (contracted(tree, path) if whole else "")


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--all", action="store_true")
    for name in "tree", "layers", "vkattn", "program":
        parser.add_argument(name)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([AS_GPU, options.layers, options.vkattn, options.program, "--fold", folder],
                              env=dict(os.environ, AS_PORTABILITY="1", AS_GPU_LANES="32"),
                              stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            print(done.stdout)
            return done.returncode
        paths = sorted(glob.glob(folder + "/*.spv"))
        chosen = paths if options.all else draw(paths)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() if options.all else 1) as pool:
            wrong = list(pool.map(lambda path: check_one(options.tree, path, options.all), chosen))
        for path, why in zip(chosen, wrong):
            if why:
                print(f"FAIL: {os.path.basename(path)}: {why}")
        print(f"{len(paths)} modules of {len(set(map(kernel_of, paths)))} kernels, {len(chosen)} judged, "
              f"{len(wrong) - wrong.count('')} wrong")
        return 1 if any(wrong) or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
