#!/usr/bin/env python3
"""Races in the shared memory of kernels, which the GPU-assisted part of Khronos' validation layer finds.

races.py [--draw N | --few] [--kernel NAME]... LAYERS VKATTN MODULES MANIFEST CHECK_KERNELS

A case of each kernel with shared memory runs as on a GPU (as_gpu.sh), behind the layer of MANIFEST, a
version that knows gpuav_shared_memory_data_race (1.4). It compares the accesses of all invocations
between two barriers, so it sees a race whichever order the driver takes, where order_ tests see what that
order breaks. It knows no control barrier of subgroup scope: those are widened to the workgroup, which is
legal as whole workgroups come to them. By default each kernel; --draw: N of them, by the commit's hash,
but for those that take long; --few: three cases of each. First a kernel without a barrier has to be
reported. Exits with 77 where there is nothing to run on.
SPDX-License-Identifier: MIT"""
from __future__ import annotations

import argparse
import functools
import hashlib
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "compile"))

import orders  # noqa: E402
import spirv  # noqa: E402

CANARY = "argmax"  # its only barrier parts what lanes write from what one reads
RACE = "SharedMemoryDataRace"
WORKGROUP, SCOPE_WORKGROUP, SCOPE_SUBGROUP = 4, 2, 3
# Kernels that are not run, by a part of their names: why, and what judges them instead.
EXCEPTIONS = {
    "bf16": "Mesa 26's CPU driver has no bfloat16 matrices; the float16 kernel of the same source is run",
    "_mixed": "the driver has no dot products of float16; the kernel of the same source is run",
    "matmul_few_half": "check_kernels leaves it to test_gpu row_bits; matmul_few of the same source is run",
}
# Kernels of which only races are judged, and why; their results are as_gpu_NAME's.
NO_RESULTS = {
    "matmul_coop_f16": "with the layer's checks in it Mesa 26.2 stores matrices of shared memory wrong",
}
# A case takes 13 to 34 s of processor time, of the others 2 to 10 s: not drawn, run with all.
LONG = {"attention_merge", "attention_tile", "attention_decode", "attention_coop_f16",
        "attention_backward_coop_f16", "matmul_few"}
SETTINGS = {
    "debug_action": "VK_DBG_LAYER_ACTION_LOG_MSG",
    "report_flags": "error,warn",
    "log_filename": "stdout",
    "validate_core": "false",
    "gpuav_enable": "true",
    "gpuav_shared_memory_data_race": "true",
    # Other checks of the layer, which .ci/validation makes; they take most of the driver's compiler.
    "gpuav_descriptor_checks": "false",
    "gpuav_buffer_address_oob": "false",
    "gpuav_post_process_descriptor_indexing": "false",
    "gpuav_buffers_validation": "false",
    "gpuav_shader_sanitizer": "false",
    "gpuav_validate_trace_ray": "false",
    "gpuav_mesh_shading": "false",
    # Features that the layer turns on for itself, and how long its checks take to compile.
    "message_id_filter": "VALIDATION-SETTINGS,WARNING-Setting-Limit-Adjusted,"
                         "GPUAV-Compile-time-general-buffer,GPUAV-Compile-time-texel-buffer",
}


class Skip(Exception):
    """What is missing to run anything."""


def path_of(modules: str, kernel: str) -> str:
    """The file of a kernel's module."""
    return os.path.join(modules, kernel + ".spv")


def with_shared_memory(modules: str) -> list[str]:
    """Names of the kernels that have some."""
    found = []
    for file in sorted(os.listdir(modules)):
        if file.endswith(".spv"):
            module = spirv.Module(spirv.read(os.path.join(modules, file)))
            if any(one[3] == WORKGROUP for one in module.all_of(spirv.VARIABLE)):
                found.append(file[:-4])
    return found


@functools.cache
def with_narrow(modules: str) -> set[str]:
    """Names of the kernels that have control barriers of subgroup scope."""
    return {name for name in with_shared_memory(modules)
            if widen(spirv.Module(spirv.read(path_of(modules, name)))) > 0}


def widen(module: spirv.Module) -> int:
    """Makes control barriers of subgroup scope ones of the workgroup. Returns how many."""
    uint = module.declare(spirv.TYPE_INT, 32, 0)
    wide = module.declare(spirv.CONSTANT, uint, SCOPE_WORKGROUP)
    numbers = {one[2]: one[3] for one in module.all_of(spirv.CONSTANT) if one[1] == uint}
    narrow = [one for one in module.all_of(spirv.CONTROL_BARRIER)
              if numbers.get(one[1]) == SCOPE_SUBGROUP]
    for one in narrow:
        one[1] = one[2] = wide
    return len(narrow)


def write_modules(modules: str, kernel: str, folder: str, drop: bool) -> None:
    """Every module as the layer of modules.c looks for it, with barriers widened, for a case runs other
    kernels too; and without one kernel's first barrier."""
    narrow = with_narrow(modules)
    for file in os.listdir(modules):
        if not file.endswith(".spv"):
            continue
        words = spirv.read(os.path.join(modules, file))
        out = words
        dropped = drop and file == kernel + ".spv"
        if dropped or file[:-4] in narrow:
            module = spirv.Module(words)
            if dropped:
                orders.drop_barrier(module, 0)
            widen(module)
            out = module.words()
        with open(os.path.join(folder, f"{spirv.fnv1a(words):016x}.spv"), "wb") as new:
            out.tofile(new)


def run(options: argparse.Namespace, kernel: str, work: str, drop: bool = False) -> tuple[int, str]:
    """Exit status and output of the kernel's case, or of three."""
    environment = dict(os.environ, VALIDATION_FOLDER=os.path.dirname(os.path.abspath(options.manifest)),
                       VK_LAYER_SETTINGS_PATH=work)
    with tempfile.TemporaryDirectory() as changed:
        write_modules(options.modules, kernel, changed, drop)
        environment["MODULES_FOLDER"] = changed
        done = subprocess.run([os.path.join(HERE, "as_gpu.sh"), options.layers, options.tool,
                               options.program, "--seed", "1", "--few" if options.few else "--one",
                               "--kernel", kernel],
                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace")
    if done.returncode == 77:
        raise Skip(done.stdout.strip())
    return done.returncode, done.stdout


def judge(kernel: str, status: int, output: str) -> bool:
    """Whether cases ran, all passed, and the layer said nothing."""
    ran = re.search(rf"^{kernel} +[1-9]\d* cases, .* (\d+) failed", output, re.MULTILINE)
    said = re.findall(r"^(?:validation:|Validation [A-Z]).*", output, re.MULTILINE)
    right = status == 0 and ran is not None and ran[1] == "0"
    if ran and not said and (right or kernel in NO_RESULTS):
        print(f"{kernel}: no race" + (f"; {NO_RESULTS[kernel]}" if not right else ""))
        return True
    print(f"FAIL: {kernel}: exit status {status}, {len(said)} messages of the layer")
    print("\n".join(output.splitlines()[:40]))
    return False


def draw(kernels: list[str], n: int) -> list[str]:
    """Some kernels, others with each commit."""
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "HEAD"], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True).stdout.strip()
    return sorted(kernels, key=lambda kernel: hashlib.sha256(f"{commit} {kernel}".encode()).digest())[:n]


def check(options: argparse.Namespace) -> int:
    """Returns the exit status."""
    kernels = options.kernel or with_shared_memory(options.modules)
    for name in list(kernels):
        reason = next((why for part, why in EXCEPTIONS.items() if part in name), None)
        if reason and not options.kernel:
            print(f"{name}: not run: {reason}")
            kernels.remove(name)
    if options.draw:
        kernels = draw([name for name in kernels if name not in LONG], options.draw)
    with tempfile.TemporaryDirectory() as work:
        with open(os.path.join(work, "vk_layer_settings.txt"), "w", encoding="utf-8") as file:
            file.writelines(f"khronos_validation.{name} = {value}\n" for name, value in SETTINGS.items())
        _, output = run(options, CANARY, work, drop=True)
        if RACE not in output:
            print(f"FAIL: {CANARY} without its barrier is not reported\n{output}")
            return 1
        print(f"{CANARY} without its barrier: reported")
        passed = [judge(kernel, *run(options, kernel, work)) for kernel in kernels]
    print(f"{len(passed)} kernels, {passed.count(False)} failed")
    return 0 if passed and all(passed) else 1


def main() -> int:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--draw", type=int, default=0)
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--kernel", action="append")
    for name in "layers", "tool", "modules", "manifest", "program":
        parser.add_argument(name)
    options = parser.parse_args()
    if not os.path.exists(options.manifest):
        print(f"SKIPPED: there is no {options.manifest}: Chromium's validation layer is not installed")
        return 77
    try:
        return check(options)
    except Skip as missing:
        print(missing)
        return 77


if __name__ == "__main__":
    sys.exit(main())
