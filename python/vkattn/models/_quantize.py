"""Which matrices of floats `load(quantize=)` makes blocks of, and of which type: the rules of
llama-quantize."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Callable

import numpy as np

from .._blocks import ENCODED, block_of, quantize
from .._errors import InvalidError
from .._int4 import Blocks

# Names of the matrix that gives logits, where the embedding is another one.
HEADS = ("lm_head.weight", "output.weight", "embed_out.weight", "proj_out.weight")
# What rows take that are no whole blocks of 256.
_FALLBACK = {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
_CHUNK = 1 << 19  # values that are float32 at a time, for each thread
_THREADS = 8  # at most, as each has its own floats


def check_quantize(kind: str | None) -> str | None:
    if kind is None:
        return None
    if not isinstance(kind, str) or kind.lower() not in ENCODED:
        raise InvalidError(f"quantize: expected one of {', '.join(ENCODED)}, got {kind!r}")
    return kind.lower()


def kind_of(columns: int, wanted: str | None, is_head: bool) -> str | None:
    """The type of a matrix of products; None: it stays as it is."""
    if wanted is None:
        return None
    if is_head and wanted != "q8_0":
        wanted = "q6_k"
    for kind in (wanted, _FALLBACK.get(wanted, wanted)):
        if columns % block_of(kind, "quantize")[0] == 0:
            return kind
    return None


def encode(
    name: str, rows: int, columns: int, kind: str, floats: Callable[[int, int], np.ndarray]
) -> Blocks:
    """floats: rows from the first number on, as many as the second says, as float32."""
    values, size = block_of(kind, "quantize")
    blocks = np.empty((rows, columns // values * size), np.uint8)
    step = max(_CHUNK // columns, 1)

    def fill(first: int) -> None:
        count = min(step, rows - first)
        try:
            blocks[first : first + count] = quantize(floats(first, count), kind)
        except InvalidError as error:
            raise InvalidError(f"{name}: {error}") from error

    # The library's function runs without Python's lock.
    with ThreadPoolExecutor(min(os.cpu_count() or 1, _THREADS)) as pool:
        for _ in pool.map(fill, range(0, rows, step)):
            pass
    return Blocks(blocks, kind, columns)
