"""Quantised weights: blocks of neighbours along the last axis, as GGUF files hold them."""

from __future__ import annotations

import numpy as np

from ._abi import ffi, lib
from ._arrays import DTYPES, Array, check_dtype, host_array
from ._errors import InvalidError

# What floats can be quantised to.
ENCODED = tuple(
    name for name, kind in DTYPES.items() if not lib.vka_dtype_encode(kind, ffi.NULL, 0, ffi.NULL)
)


def block_of(dtype: str, what: str) -> tuple[int, int]:
    """Values and bytes of a block of a quantised type."""
    kind = DTYPES[check_dtype(dtype, what)]
    values, size = ffi.new("uint32_t *"), ffi.new("uint32_t *")
    lib.vka_dtype_block(kind, values, size)
    if lib.vka_dtype_size(kind):
        raise InvalidError(f"{what}: expected a type of blocks, got {dtype}")
    return values[0], size[0]


def quantize(array: Array, dtype: str = "q8_0") -> np.ndarray:
    """Blocks of an array of floats, uint8 [...][bytes of a row]: what `Tensor.write_bytes` takes.

    dtype: "q8_0", "q4_0", "q4_1", "q5_0", "q5_1" or "iq4_nl", of which the last axis is whole blocks of
    32 values, or "q4_k", "q5_k" or "q6_k", of 256. iq4_nl and those of 256 are what a search for the
    least squared error finds, the others are rounded as ggml does, as vkattn.h says. InvalidError where x or a scale is NaN,
    infinite or beyond float16.
    """
    values, size = block_of(dtype, "dtype")
    dtype = check_dtype(dtype, "dtype")
    if dtype not in ENCODED:
        raise InvalidError(f"dtype: expected one of {', '.join(ENCODED)}, got {dtype}")
    x = host_array(array, "array", "f32", empty=True).data
    if x.ndim < 1 or x.shape[-1] % values:
        raise InvalidError(
            f"array: expected whole blocks of {values} along the last axis, got {list(x.shape)}"
        )
    blocks = np.empty((*x.shape[:-1], x.shape[-1] // values * size), np.uint8)
    floats = ffi.from_buffer("float[]", x)
    if lib.vka_dtype_encode(DTYPES[dtype], floats, x.size // values, ffi.from_buffer(blocks)):
        raise InvalidError(f"array: NaN, or values that are too large for {dtype}")
    return blocks


def dequantize(blocks: Array, dtype: str) -> np.ndarray:
    """float32 values of blocks, uint8 [...][bytes of a row], of any quantised type."""
    values, size = block_of(dtype, "dtype")
    raw = np.ascontiguousarray(blocks)
    if raw.dtype != np.uint8 or raw.ndim < 1 or raw.shape[-1] % size:
        raise InvalidError(
            f"blocks: expected uint8 in whole blocks of {size}, got {raw.dtype} {list(raw.shape)}"
        )
    x = np.empty((*raw.shape[:-1], raw.shape[-1] // size * values), np.float32)
    floats = ffi.from_buffer("float[]", x, require_writable=True)
    status = lib.vka_dtype_decode(DTYPES[dtype], ffi.from_buffer(raw), raw.size // size, floats)
    assert status == 0
    return x
