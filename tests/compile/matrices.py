#!/usr/bin/env python3
"""The product by matrix units, made to run where no driver has matrices of that size.

matrices.py SHADERS MODULES GLSLANG FOLDER

CPU drivers have matrices of 8 x 8 alone, and what a kernel does for 16 rows (words of quantised weights
that pass through shared memory, runs of 64 values) would run on GPUs only. Here the kernel's source stays,
but for the lines of cooperative matrices: a matrix of an input is where it begins in shared memory, one of
sums is so many floats of each lane, and a product of both is a loop. What is read is SHADERS/matmul; what
is written is named as tests/devices/modules.c looks for it: FOLDER/HASH.spv, by the hash of the module of
MODULES that it stands for.
SPDX-License-Identifier: MIT"""
import subprocess
import sys
import tempfile
from pathlib import Path

from spirv import fnv1a, read

KERNEL = "matmul_coop_f16"
# What stands once in the source, and what it becomes.
EDITS = [
    ("#extension GL_KHR_cooperative_matrix : require\n", ""),
    ("coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator> acc[MATS_M * MATS_N];\n", """\
struct accumulator { float x[M * N / LANES]; };
accumulator acc[MATS_M * MATS_N];

float half_at(uint first, uint i)
{
    vec2 pair = unpackHalf2x16(tiles[first + i / 8][i % 8 / 2]);
    return i % 2 == 0 ? pair.x : pair.y;
}

void multiply(uint a, uint b, uint c)
{
    [[dont_unroll]] for (uint e = 0; e < M * N / LANES; e++) {
        uint i = e * LANES + gl_SubgroupInvocationID;
        [[dont_unroll]] for (uint k = 0; k < K; k++)
            acc[c].x[e] += half_at(a + i / N * PITCH, k) * half_at(b + i % N * PITCH, k);
    }
}

void load_sums(uint c, uint first)
{
    [[dont_unroll]] for (uint e = 0; e < M * N / LANES; e++)
        acc[c].x[e] = results[first + e * LANES + gl_SubgroupInvocationID];
}

void store_sums(uint c, uint first)
{
    [[dont_unroll]] for (uint e = 0; e < M * N / LANES; e++)
        results[first + e * LANES + gl_SubgroupInvocationID] = acc[c].x[e];
}
"""),
    ("coopmat<HALF, gl_ScopeSubgroup, M, K, gl_MatrixUseA> a[MATS_M];", "uint a[MATS_M];"),
    ("coopmat<HALF, gl_ScopeSubgroup, K, N, gl_MatrixUseB> b;", "uint b;"),
    ("coopMatLoad(a[i], tiles, ", "a[i] = ("),
    ("coopMatLoad(b, tiles, ", "b = ("),
    (", PITCH,\n                        gl_CooperativeMatrixLayoutRowMajor);", ");"),
    (", PITCH,\n                        gl_CooperativeMatrixLayoutColumnMajor);", ");"),
    ("acc[i * MATS_N + j] = coopMatMulAdd(a[i], b, acc[i * MATS_N + j]);",
     "multiply(a[i], b, i * MATS_N + j);"),
    ("acc[i] = coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>(0.0);",
     "[[dont_unroll]] for (uint e = 0; e < M * N / LANES; e++) acc[i].x[e] = 0.0;"),
    ("coopMatLoad(acc[i], results, mine, N, gl_CooperativeMatrixLayoutRowMajor);",
     "load_sums(i, mine);"),
    ("coopMatStore(acc[i * MATS_N + j], results, mine, N,\n"
     "                         gl_CooperativeMatrixLayoutRowMajor);",
     "store_sums(i * MATS_N + j, mine);"),
]


def edited(source: str) -> str:
    """The source without matrices; ends the program where a line is no longer there as it is above."""
    for old, new in EDITS:
        if source.count(old) != 1:
            sys.exit(f"FAIL: matmul_coop.comp has {source.count(old)} times, not once: {old!r}")
        source = source.replace(old, new)
    return source


def main() -> None:
    """Compiles the edited kernel into the folder."""
    shaders, modules, glslang, folder = map(Path, sys.argv[1:])
    source = edited((shaders / "matmul" / "matmul_coop.comp").read_text(encoding="utf-8"))
    target = folder / f"{fnv1a(read(modules / f'{KERNEL}.spv')):016x}.spv"
    with tempfile.NamedTemporaryFile("w", suffix=".comp", encoding="utf-8") as file:
        file.write(source)
        file.flush()
        made = subprocess.run([glslang, "--target-env", "vulkan1.1", f"-I{shaders}", "-o", target,
                               file.name], capture_output=True, text=True)
    if made.returncode:
        sys.exit(f"FAIL: {KERNEL}: {made.stdout}{made.stderr}")


if __name__ == "__main__":
    main()
