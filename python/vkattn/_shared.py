"""Memory of the host that a device uses in place."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from ._abi import ffi
from ._arrays import DTYPES, STORED, Shape, check_shape
from ._errors import InvalidError, UnsupportedError


class Sharing(Protocol):
    """A device, as far as it shares memory."""

    @property
    def host_alignment(self) -> int: ...


def _alignment(device: Sharing) -> int:
    alignment = device.host_alignment
    if not alignment:
        raise UnsupportedError("the device cannot use memory of the host in place")
    return alignment


def host_array(device: Sharing, shape: Shape, dtype: str) -> np.ndarray:
    axes, alignment = check_shape(shape, "shape"), _alignment(device)
    if dtype not in STORED:
        raise InvalidError(f"dtype: expected one of {', '.join(STORED)}, got {dtype!r}")
    size = math.prod(axes) * STORED[dtype].itemsize
    room = np.zeros(-(-size // alignment) * alignment + alignment, np.uint8)
    first = -room.ctypes.data % alignment
    return room[first : first + size].view(STORED[dtype]).reshape(axes)


def _end_of(array: np.ndarray) -> int:
    """The address behind the memory that the array is a part of, as far as numpy knows it."""
    whole: Any = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    return int(whole.ctypes.data + whole.nbytes) if whole.flags.c_contiguous else 0


def memory_of(
    device: Sharing, array: np.ndarray, dtype: str | None
) -> tuple[Any, int, int, int, tuple[int, ...]]:
    """What vka_tensor_import takes: memory, its size, element type, rank and shape."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"array: expected a numpy array, got {type(array).__name__}")
    names = {STORED[name]: name for name in STORED if name != "bf16"}
    found = names.get(array.dtype, "bf16" if array.dtype == np.uint16 else None)
    if found is None or (dtype or found) != found or (found == "bf16" and dtype != "bf16"):
        raise InvalidError(f"array: {array.dtype} is not {dtype or 'an element type of tensors'}")
    axes, alignment = check_shape(array.shape, "array"), _alignment(device)
    if not (array.flags.c_contiguous and array.flags.writeable):
        raise InvalidError("array: expected a dense, row-major array that can be written")
    address, size = array.ctypes.data, -(-array.nbytes // alignment) * alignment
    if address % alignment or address + size > max(_end_of(array), address + array.nbytes):
        raise InvalidError(
            f"array: its memory is not whole multiples of {alignment} bytes; see Device.host_array"
        )
    return ffi.cast("void *", address), size, DTYPES[found], len(axes), axes
