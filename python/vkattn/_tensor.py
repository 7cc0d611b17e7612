"""Tensors."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from ._abi import ffi, lib
from ._arrays import (
    DTYPES,
    STORED,
    Array,
    HostArray,
    Shape,
    check_dtype,
    check_shape,
    host_array,
    widen,
)
from ._blocks import ENCODED, dequantize, quantize
from ._core import Child
from ._device import Device, pick_device
from ._errors import InvalidError
from ._numbers import whole, wholes

_DTYPE_NAMES = {value: name for name, value in DTYPES.items()}


class Tensor(Child):
    """Elements of one type on a device: an owner of memory, or a view of another tensor's.

    shape: 1 to 4 axes. dtype: "f32", "f16", "bf16", "i32", "bool", or a type of quantised weights
    such as "q8_0" or "q4_k", whose bytes are those of a GGUF file (`write_bytes`, `quantize`,
    `GGUF.upload`).
    """

    def __init__(self, device: Device | None, shape: Shape, dtype: str = "f32") -> None:
        device = pick_device(device)
        axes = check_shape(shape, "shape")
        kind = DTYPES[check_dtype(dtype, "dtype")]
        core = device._core
        self._create(
            device,
            "tensor",
            lambda box: lib.vka_tensor_create(core.box[0], kind, len(axes), axes, box),
        )

    def _made(self) -> None:
        box = self._box
        rank = lib.vka_tensor_rank(box[0])
        self.shape = tuple(lib.vka_tensor_shape(box[0], i) for i in range(rank))
        self.dtype: str = _DTYPE_NAMES[lib.vka_tensor_dtype(box[0])]
        self.nbytes: int = lib.vka_tensor_size(box[0])

    def __repr__(self) -> str:
        closed = ", closed" if self.closed else ""
        return f"<vkattn.Tensor {self.dtype} {list(self.shape)}{closed}>"

    def write(self, array: Array, dtype: str | None = None) -> None:
        """Copies an array of the tensor's shape and type; with dtype, which must be the tensor's,
        floats of other types are converted. A tensor of q8_0 or q4_0 takes floats, see `quantize`.
        """
        if self.dtype not in ENCODED or dtype not in (None, self.dtype):
            self._write(host_array(array, "array", dtype))
            return
        host = host_array(array, "array", "f32")
        if host.data.shape != self.shape:
            raise InvalidError(
                f"array: expected floats {list(self.shape)}, got {list(host.data.shape)}"
            )
        self.write_bytes(quantize(host, self.dtype))

    def _write(self, host: HostArray) -> None:
        if host.data.shape != self.shape or host.dtype != self.dtype:
            raise InvalidError(
                f"array: expected {self.dtype} {list(self.shape)}, got {host.dtype}"
                f" {list(host.data.shape)}"
            )
        data = ffi.from_buffer(host.data)
        self.device._core.call(lambda: lib.vka_tensor_write(self._pointer, data, len(data)))

    def write_bytes(self, data: Any) -> None:
        """Copies elements or blocks as the library stores them: any dense bytes-like object."""
        raw = ffi.from_buffer(data)
        self.device._core.call(lambda: lib.vka_tensor_write(self._pointer, raw, len(raw)))

    def read_bytes(self) -> bytes:
        """What `write_bytes` takes, after what is in flight on the device."""
        raw = bytearray(self.nbytes)
        self._read_into(raw)
        return bytes(raw)

    def read(self, out: np.ndarray | None = None) -> np.ndarray:
        """A copy of the elements, after what is in flight on the device; bf16 and quantised types
        come as float32.

        out: the numpy array to fill and return, dense and writable, of the tensor's shape and type
        (float32 of bf16 and quantised types). An array that does not fit is InvalidError and left
        as it was.
        """
        dense = self.dtype in STORED and self.dtype != "bf16"
        stored = STORED[self.dtype] if dense else np.dtype(np.float32)
        if out is not None:
            self._check_out(out, stored)
        if dense:
            result = np.empty(self.shape, stored) if out is None else out
            self._read_into(result)
            return result
        if self.dtype == "bf16":
            halves = np.empty(self.shape, STORED["bf16"])
            self._read_into(halves)
            floats = widen(halves)
        else:
            blocks = np.frombuffer(self.read_bytes(), np.uint8)
            floats = dequantize(blocks, self.dtype).reshape(self.shape)
        if out is None:
            return floats
        out[...] = floats
        return out

    def _read_into(self, array: Any) -> None:
        data = ffi.from_buffer(array, require_writable=True)
        self.device._core.call(lambda: lib.vka_tensor_read(self._pointer, data, len(data)))

    def _check_out(self, out: Any, dtype: np.dtype) -> None:
        if not isinstance(out, np.ndarray):
            raise TypeError(f"out: expected a numpy array, got {type(out).__name__}")
        if out.shape != self.shape or out.dtype != dtype:
            raise InvalidError(
                f"out: expected {dtype} {list(self.shape)}, got {out.dtype} {list(out.shape)}"
            )
        if not (out.flags.c_contiguous and out.flags.writeable):
            raise InvalidError("out: expected a dense, row-major array that can be written")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a tensor lies on the device: it cannot be seen without a copy")
        array = self.read()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __copy__(self) -> Tensor:
        """Another tensor with the same elements, dense."""
        made = Tensor(self.device, self.shape, self.dtype)
        made.write_bytes(self.read_bytes())
        return made

    def __dlpack__(self, *, copy: bool | None = None, **arguments: Any) -> Any:
        """A copy on the host, as `read` gives it, for numpy.from_dlpack, torch.from_dlpack and such;
        bf16 and quantised types come as float32."""
        if copy is False:
            raise BufferError("a tensor lies on the device: it cannot be seen without a copy")
        return self.read().__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # kDLCPU

    def _view(self, function: Any, *arguments: Any) -> Tensor:
        view = Tensor.__new__(Tensor)
        view._create(self.device, "tensor", lambda box: function(self._pointer, *arguments, box))
        return view

    def permute(self, *axes: int) -> Tensor:
        """A view whose axis i is axis axes[i] of this tensor."""
        order = wholes(axes, "axes")
        if len(order) != len(self.shape):
            raise InvalidError(f"axes: expected {len(self.shape)} of them, got {list(axes)}")
        return self._view(lib.vka_tensor_permute, order)

    def slice(self, axis: int, first: int, count: int) -> Tensor:
        """A view of elements first .. first + count - 1 of one axis."""
        given = {"axis": axis, "first": first, "count": count}
        numbers = [whole(value, name) for name, value in given.items()]
        return self._view(lib.vka_tensor_slice, *numbers)

    def reshape(self, *shape: int) -> Tensor:
        """A view of the same elements in row-major order; InvalidError where it needs a copy."""
        axes = check_shape(shape, "shape")
        return self._view(lib.vka_tensor_reshape, len(axes), axes)

    def strided(self, offset: int, shape: Shape, strides: Sequence[int]) -> Tensor:
        """A view of any shape and strides, in elements, from this tensor's first + offset."""
        axes, steps = check_shape(shape, "shape"), wholes(strides, "strides", 0, 2**64 - 1)
        if len(steps) != len(axes):
            raise InvalidError(f"strides: expected {len(axes)} of them, got {list(steps)}")
        first = whole(offset, "offset", 0, 2**64 - 1)
        return self._view(lib.vka_tensor_strided, first, len(axes), axes, steps)
