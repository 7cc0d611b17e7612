"""Reads DLPack capsules of CPU arrays, bfloat16 included, which numpy.from_dlpack refuses."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ._errors import InvalidError

_CPU = 1  # kDLCPU
_ANY_DEVICE_ON_HOST = (_CPU, 3, 11)  # with CUDA's and ROCm's pinned host memory: 3, 11
_BFLOAT = 4
_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}  # DLDataTypeCode: numpy's letter


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h, which begins a DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),  # in elements; NULL: dense
        ("byte_offset", ctypes.c_uint64),
    ]


class _Memory:
    """What numpy views. The capsule, which nobody takes over, frees its tensor when this goes."""

    def __init__(
        self, capsule: Any, address: int, shape: Any, strides: Any, dtype: np.dtype
    ) -> None:
        self.capsule = capsule
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),  # read only
            "shape": shape,
            "strides": strides,  # bytes; None: dense
            "typestr": dtype.str,
        }


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _element_type(tensor: _Tensor, what: str) -> tuple[np.dtype, str]:
    """The type of a numpy view, and its name."""
    if tensor.lanes == 1 and tensor.code == _BFLOAT and tensor.bits == 16:
        return np.dtype(np.uint16), "bfloat16"
    if tensor.lanes == 1 and tensor.code in _KINDS and tensor.bits in (8, 16, 32, 64):
        try:
            dtype = np.dtype(f"{_KINDS[tensor.code]}{tensor.bits // 8}")
            return dtype, dtype.name
        except TypeError:  # an 8-bit float, which numpy lacks
            pass
    raise InvalidError(
        f"{what}: DLPack type code {tensor.code} of {tensor.bits} bits in {tensor.lanes} lanes is"
        " not supported"
    )


def view(array: Any, what: str) -> tuple[np.ndarray, str]:
    """A numpy view of the array's memory, bfloat16 as uint16, and the name of its type."""
    try:
        kind = int(array.__dlpack_device__()[0]) if hasattr(array, "__dlpack_device__") else _CPU
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidError(f"{what}: its DLPack device cannot be had: {error}") from error
    if kind not in _ANY_DEVICE_ON_HOST:
        raise InvalidError(f"{what}: expected an array on the CPU, got DLPack device type {kind}")
    try:
        capsule = array.__dlpack__()
        tensor = _Tensor.from_address(_pointer_of(capsule, b"dltensor"))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidError(f"{what}: its DLPack form cannot be had: {error}") from error
    dtype, name = _element_type(tensor, what)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if 0 in shape:
        return np.empty(shape, dtype), name
    if not tensor.data:  # PyTorch's tensors without memory
        raise InvalidError(f"{what}: expected an array with memory")
    address = tensor.data + tensor.byte_offset
    strides = None
    if tensor.strides:
        strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim))
    return np.asarray(_Memory(capsule, address, shape, strides, dtype)), name
