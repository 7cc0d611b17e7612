"""Reads DLPack capsules of CPU arrays, bfloat16 included, which numpy.from_dlpack refuses."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, TypeVar

import numpy as np

from ._errors import InvalidError

F = TypeVar("F", bound=Callable[..., Any])

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
            "data": (address, False),
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


class _Hidden:
    """An array on its way to a function that torch.compile is to leave out.

    It makes no graph of what `_eager` returns, and runs that as it is where neither an argument is a
    tensor nor the function looks at numpy.
    """

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array


def _eager(function: F) -> F:
    """Marks a function as torch.compiler.disable does, for which PyTorch would have to be imported."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function


@_eager
def _export(hidden: _Hidden, what: str) -> tuple[Any, _Tensor]:
    """Its capsule, and what that points to."""
    array = hidden.array
    try:
        kind = int(array.__dlpack_device__()[0]) if hasattr(array, "__dlpack_device__") else _CPU
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidError(f"{what}: its DLPack device cannot be had: {error}") from error
    if kind not in _ANY_DEVICE_ON_HOST:
        raise InvalidError(f"{what}: expected an array on the CPU, got DLPack device type {kind}")
    try:
        capsule = array.__dlpack__()
        return capsule, _Tensor.from_address(_pointer_of(capsule, b"dltensor"))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidError(f"{what}: its DLPack form cannot be had: {error}") from error


@_eager
def _read(capsule: Any, tensor: _Tensor, what: str, asarray: Any = np.asarray) -> Any:
    """As `view`, of an array with memory; asarray: no name of a global, for `_eager`."""
    dtype, name = _element_type(tensor, what)
    if not tensor.data:  # PyTorch's tensors without memory
        raise InvalidError(f"{what}: expected an array with memory")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    address = tensor.data + tensor.byte_offset
    strides = None
    if tensor.strides:
        strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim))
    # Read only, but as an array that could be written once more: Dynamo wraps no other.
    read_only = asarray(_Memory(capsule, address, shape, strides, dtype)).view()
    read_only.flags.writeable = False
    return read_only, name


def view(array: Any, what: str) -> tuple[np.ndarray, str]:
    """A numpy view of the array's memory, bfloat16 as uint16, and the name of its type."""
    capsule, tensor = _export(_Hidden(array), what)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if 0 in shape:
        dtype, name = _element_type(tensor, what)
        return np.empty(shape, dtype), name
    seen: tuple[np.ndarray, str] = _read(capsule, tensor, what)
    return seen
