"""Host arrays: what callers pass, as dense numpy arrays with an element type of the library.

numpy has no bfloat16. A dense bf16 array is kept as uint16 here, the upper halves of float32.
"""

from __future__ import annotations

import os
import reprlib
import sys
import warnings
from typing import Any, NamedTuple, Sequence, Union

import numpy as np

from . import _dlpack
from ._abi import enum_names
from ._core import Child
from ._errors import InvalidError
from ._numbers import wholes

# numpy array, or anything on the CPU with __dlpack__ (PyTorch, JAX, CuPy's host arrays, ...).
Array = Any
Floats = np.ndarray[Any, np.dtype[Any]]  # of float32 or float16
# "f32" and so on, or numpy's or PyTorch's name or object of the same type.
DType = Any
Shape = Union[Sequence[int], "tuple[int, ...]"]

DTYPES = enum_names("VKA_", "vka_dtype")  # {"f32": 0, ...}
STORED: dict[str, np.dtype] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16),
    "i32": np.dtype(np.int32),
    "bool": np.dtype(np.bool_),
}
FLOATS = ("f32", "f16", "bf16")
_NAMES = {STORED[name]: name for name in ("f32", "f16", "i32", "bool")}


_PACKAGE = os.path.dirname(__file__) + os.sep


def warn(sentence: str) -> None:
    """A UserWarning at the line that called this package."""
    level = 1
    while sys._getframe(level - 1).f_code.co_filename.startswith(_PACKAGE):
        level += 1
    warnings.warn(sentence, UserWarning, stacklevel=level)


def warn_of_gradient(array: Any, what: str) -> None:
    """Warns where a tensor of PyTorch would learn nothing, as numpy arrays carry no gradients."""
    torch = sys.modules.get("torch")
    if getattr(array, "requires_grad", False) and (torch is None or torch.is_grad_enabled()):
        warn(
            f"{what}: it requires a gradient, which does not pass through here: vkattn.torch has"
            f" functions that PyTorch trains through; {what}.detach() says that none is wanted"
        )


class HostArray(NamedTuple):
    """data is dense, row-major, of type STORED[dtype]."""

    data: np.ndarray
    dtype: str


# What numpy and PyTorch call the types that both have.
_ELSEWHERE = {
    **{"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int32": "i32", "int8": "i8"},
    **{"half": "f16", "bool_": "bool"},
}


def check_dtype(dtype: DType, what: str) -> str:
    """The library's name of a type that may be numpy's or PyTorch's: "f32" of "float32",
    numpy.float32, numpy.dtype("f4") and torch.float32."""
    name = dtype
    if isinstance(dtype, np.dtype) or (isinstance(dtype, type) and issubclass(dtype, np.generic)):
        name = np.dtype(dtype).name
    elif type(dtype).__module__ == "torch" and type(dtype).__name__ == "dtype":
        name = str(dtype).rpartition(".")[2]
    name = _ELSEWHERE.get(name, name) if isinstance(name, str) else name
    if not isinstance(name, str) or name not in DTYPES:
        cure = ": give float32" if name in ("f64", "float64", "double") else ""
        raise InvalidError(f"{what}: expected one of {', '.join(DTYPES)}, got {dtype!r}{cure}")
    return name


def check_shape(shape: Shape, what: str, least: int = 1) -> tuple[int, ...]:
    """1 to 4 axes of `least` to 2^32 - 1 elements."""
    axes = wholes(shape, what, -(2**200), 2**200)
    if not 1 <= len(axes) <= 4 or not all(least <= n < 2**32 for n in axes):
        raise InvalidError(
            f"{what}: expected 1 to 4 axes of at least {least}, got {reprlib.repr(list(axes))}"
        )
    return axes


def _native(view: np.ndarray) -> np.ndarray:
    """Numbers of the other byte order in the machine's; all else as it is."""
    if view.dtype.isnative or view.dtype.kind in "OV":
        return view
    return view.astype(view.dtype.newbyteorder("="))


def any_array(array: Array, what: str) -> tuple[np.ndarray, str]:
    """A view of the caller's memory, and the name of its element type, "f64" and such included."""
    if isinstance(array, HostArray):
        return array.data, array.dtype
    if isinstance(array, (np.ndarray, np.generic)):
        if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
            raise InvalidError(f"{what}: expected an array without masked elements")
        view = np.asarray(array)
        if view.dtype.name == "bfloat16" and view.dtype.itemsize == 2:  # of package ml_dtypes
            return view.view(np.uint16), "bf16"
    elif isinstance(array, Child):
        raise TypeError(f"{what}: expected a host array, got {type(array).__name__} of a device")
    elif hasattr(array, "__dlpack__"):
        if getattr(array, "requires_grad", False):  # PyTorch exports no such tensor
            array = array.detach()
        for resolve in ("resolve_conj", "resolve_neg"):  # PyTorch's views whose sign is a bit
            if hasattr(array, resolve):
                array = getattr(array, resolve)()
        view, name = _dlpack.view(array, what)
        if name == "bfloat16":
            return view, "bf16"
    else:
        raise TypeError(
            f"{what}: expected a numpy array or an object with __dlpack__, got"
            f" {type(array).__name__}"
        )
    view = _native(view)
    return view, _NAMES.get(view.dtype, view.dtype.name)


def widen(bf16: np.ndarray) -> np.ndarray:
    """uint16 halves to float32."""
    wide = np.atleast_1d(bf16.astype(np.uint32)) << 16  # numpy 1.24 views no array without axes
    return wide.view(np.float32).reshape(bf16.shape)


def _narrow(x: np.ndarray) -> np.ndarray:
    """To bf16 halves, to nearest even; a NaN stays one."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16
    return np.where(np.isnan(x), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def _convert(view: np.ndarray, name: str, dtype: str, what: str) -> np.ndarray:
    if name == dtype:
        return view
    if name == "bf16":
        view = widen(view)
    elif view.dtype.kind != "f":
        raise InvalidError(f"{what}: expected floats to make {dtype} of, got {name}")
    with np.errstate(over="ignore"):  # a float16 that overflows is infinite, as everywhere
        return _narrow(view) if dtype == "bf16" else view.astype(STORED[dtype])


def _cure(name: str) -> str:
    """What to do with an array of a type that no tensor has."""
    if name in ("float64", "float128", "longdouble"):
        return "convert it by .astype(np.float32)"
    return f"they are {', '.join(x for x in DTYPES if x in STORED)}, and blocks of weights"


def host_array(
    array: Array, what: str, dtype: DType | None = None, *, empty: bool = False
) -> HostArray:
    """The array in its own element type or, converted, in a float type that was asked for. empty:
    axes of 0 elements are allowed, which no tensor has."""
    view, name = any_array(array, what)
    if dtype is None:
        if name not in DTYPES:
            raise InvalidError(f"{what}: {name} is not an element type of tensors; {_cure(name)}")
        dtype = name
    else:
        dtype = check_dtype(dtype, what)
        if dtype in FLOATS:
            view = _convert(view, name, dtype, what)
        elif name != dtype:
            raise InvalidError(f"{what}: expected {dtype}, got {name}")
    check_shape(view.shape, what, 0 if empty else 1)
    return HostArray(np.ascontiguousarray(view, STORED[dtype]), dtype)


def host_integers(values: Any, what: str) -> HostArray:
    """Lengths and offsets: a sequence or array of whole numbers that fit 32 bits, as i32."""
    exporting = hasattr(values, "__dlpack__")  # a Tensor too, which any_array refuses
    view = values if exporting else np.asarray(values)
    numbers, name = any_array(view, what)
    limits = np.iinfo(np.int32)
    if numbers.dtype.kind not in "iu" or name == "bf16":
        raise InvalidError(f"{what}: expected whole numbers, got {name}")
    if numbers.size and (numbers.min() < limits.min or numbers.max() > limits.max):
        raise InvalidError(f"{what}: expected whole numbers of 32 bits, got {numbers.tolist()}")
    check_shape(numbers.shape, what)
    return HostArray(np.ascontiguousarray(numbers, np.int32), "i32")
