"""Devices, and the tensors in their memory: each makes the other, a tensor by the default device."""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Any, Callable, Sequence, Union

import numpy as np

from . import _shared
from ._abi import ffi, lib, new_struct, text_of
from ._arrays import (
    DTYPES,
    STORED,
    Array,
    DType,
    HostArray,
    Shape,
    check_dtype,
    check_shape,
    host_array,
    widen,
)
from ._blocks import ENCODED, dequantize, quantize
from ._core import COMPILING, Child, Core, close_dropped, run_locked
from ._device_info import DeviceInfo, info_of, name_of
from ._errors import InvalidError, error_of
from ._log import Log
from ._numbers import flag, whole, wholes

# A device, an index of `devices`, a part of a name, or None for the default.
Place = Union["Device", int, str, None]
_DTYPE_NAMES = {value: name for name, value in DTYPES.items()}


def _write_limit(info: Any, name: str, limit: int, bits: int) -> None:
    setattr(info, name, whole(limit, name, 0, 2**bits - 1))


class Device:
    """A Vulkan device with its queue, memory and kernels.

    device: None for the most capable one, an index of `devices()`, or a part of a name, any case.
    log: called with a level ("error", "warning", "info") and a sentence; must not call vkattn. What
        it raises is raised by the call that logged.
    validation: enable the Khronos validation layer where it is installed.
    pipeline_cache: bytes from `pipeline_cache()` of an earlier run, so that nothing is compiled
        again.
    tuning_profile: text or bytes, as `vkattn tune` writes it. A profile that is malformed, or whose
        first lines are not `tuning_profile_head`, is ignored with a warning to log.
    max_buffer_range, max_allocation, max_memory, max_shared_memory: bytes of a buffer that one
        kernel sees (65536 or more), of an allocation and of all allocations (2^20 or more), and of
        a workgroup (4096 or more), where they are to be below the driver's own; 0: the driver's.
        Work that exceeds one is split, with the same bits, or UnsupportedError; more than
        max_memory is OutOfMemoryError.
    skip_self_test: use kernels without the test that precedes their first use.
    """

    def __init__(
        self,
        device: int | str | None = None,
        *,
        log: Callable[[str, str], object] | None = None,
        validation: bool = False,
        labels: bool = False,
        pipeline_cache: bytes | None = None,
        tuning_profile: str | bytes | None = None,
        max_buffer_range: int = 0,
        max_allocation: int = 0,
        max_memory: int = 0,
        max_shared_memory: int = 0,
        skip_self_test: bool = False,
    ) -> None:
        name = name_of(device)
        if log is not None and not callable(log):
            raise TypeError(f"log: expected a callable, got {type(log).__name__}")
        close_dropped()
        receiver = Log(log)
        blob = ffi.from_buffer(pipeline_cache) if pipeline_cache else ffi.NULL
        info = new_struct("vka_device_info")
        info.device = name
        info.log = receiver.callback
        info.validation = flag(validation, "validation")
        info.labels = flag(labels, "labels")
        info.pipeline_cache = blob
        info.pipeline_cache_size = len(pipeline_cache) if pipeline_cache else 0
        text = tuning_profile.encode() if isinstance(tuning_profile, str) else tuning_profile
        profile = ffi.from_buffer(text) if text else ffi.NULL
        info.tuning_profile = profile
        info.tuning_profile_size = len(profile) if text else 0
        _write_limit(info, "max_buffer_range", max_buffer_range, 64)
        _write_limit(info, "max_allocation", max_allocation, 64)
        _write_limit(info, "max_memory", max_memory, 64)
        _write_limit(info, "max_shared_memory", max_shared_memory, 32)
        info.skip_self_test = flag(skip_self_test, "skip_self_test")
        core = self._core = Core(self, receiver)
        status = lib.vka_device_create(info, core.box)
        receiver.raise_kept()
        if status:
            raise error_of(status, receiver.error)
        self.info: DeviceInfo = info_of(lib.vka_device_properties(core.box[0]))
        self._key = f"{self.info.name}#{next(_numbers)}"  # see device_of
        _living[self._key] = self

    def __repr__(self) -> str:
        return f"<vkattn.Device {self.info.name!r}{', closed' if self.closed else ''}>"

    def __copy__(self) -> Device:
        return self  # copies of what holds it, such as modules of PyTorch, use the same device

    def __deepcopy__(self, memo: Any) -> Device:
        return self

    def __reduce__(self) -> Any:
        return device_of, (self._key,)

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes what was made from the device, then the device. Closing twice does nothing."""
        self._core.close()

    def recover(self) -> None:
        """After DeviceLostError: makes the device again, below all that was made from it.

        Layers with keep_weights come back, and plans give the same bits as before; tensors have
        undefined values, caches are empty. InvalidError where the device is not lost. WaitTimeout: a
        CPU driver compiles for more than 600 s; the device works, and recovering again waits on, as
        after an interrupt.
        """
        core = self._core
        core.turn(lambda: core.wait(lambda _: int(lib.vka_device_recover(core.box[0])), COMPILING))

    @property
    def closed(self) -> bool:
        return not self._core.box[0]

    def tensor(self, array: Array, dtype: DType | None = None) -> Tensor:
        """A new tensor with the array's shape and values, converted where dtype is another, or
        quantised, see `quantize`."""
        dtype = dtype if dtype is None else check_dtype(dtype, "dtype")
        if dtype in ENCODED:
            host = host_array(array, "array", "f32")
            tensor = Tensor(self, host.data.shape, dtype)
            tensor.write(host)
            return tensor
        host = host_array(array, "array", dtype)
        tensor = Tensor(self, host.data.shape, host.dtype)
        tensor._write(host)
        return tensor

    @property
    def host_alignment(self) -> int:
        """Bytes to whose multiples memory for `share` is aligned; 0: the device shares none."""
        core = self._core
        return core.turn(lambda: int(lib.vka_device_host_alignment(core.box[0])))

    def host_array(self, shape: Shape, dtype: DType = "f32") -> np.ndarray:
        """A new numpy array of zeros that `share` takes; of bf16 as uint16."""
        return _shared.host_array(self, shape, check_dtype(dtype, "dtype"))

    def share(self, array: np.ndarray, dtype: DType | None = None) -> Tensor:
        """A tensor in the memory of a numpy array, which the device uses in place: no copy is made.

        array: dense and writable, its memory as `host_array` makes it: begins at a multiple of
        `host_alignment` and has whole multiples. dtype: "bf16" of uint16. Between runs either side
        may read and write. The device keeps the memory until it is closed, as plans may use it.
        Share memory once and take views of the tensor: two of the same memory are not ordered.
        UnsupportedError where the device cannot.
        """
        dtype = dtype if dtype is None else check_dtype(dtype, "dtype")
        memory, core = _shared.memory_of(self, array, dtype), self._core
        tensor = Tensor.__new__(Tensor)

        def make(box: Any) -> int:
            status = lib.vka_tensor_import(core.box[0], *memory, box)
            if not status:
                core.kept[array.ctypes.data] = array
            return int(status)

        tensor._create(self, "tensor", make)
        return tensor

    def empty(self, shape: Shape, dtype: DType = "f32") -> Tensor:
        """A new tensor whose values are undefined."""
        return Tensor(self, shape, dtype)

    def kernels(self) -> dict[str, str | None]:
        """Every kernel: None where it is usable here, else why not, as "needs subgroups of 8"."""
        kernels: dict[str, str | None] = {}
        info = ffi.new("struct vka_kernel_info *")
        core = self._core

        def read() -> int:
            for i in range(lib.vka_kernel_count()):
                status = int(lib.vka_device_kernel(core.box[0], i, info))
                if status:
                    return status
                kernels[text_of(info.name)] = text_of(info.missing) or None
            return 0

        core.call(read)
        return kernels

    def tuning_profile_head(self) -> str:
        """The two lines that a tuning profile of this device, driver and library begins with. The
        lines that may follow: "kernel PROBLEM KERNEL VARIANT", "path PROBLEM fused" (or unfused),
        "demote KERNEL"."""
        core = self._core

        def read() -> str:
            size = lib.vka_device_tuning_profile_head(core.box[0], ffi.NULL, 0) + 1
            text = ffi.new("char[]", size)
            lib.vka_device_tuning_profile_head(core.box[0], text, size)
            return text_of(text)

        return core.turn(read)

    def self_test(self) -> None:
        """Tests now, in the time of compiling them, all kernels that can be chosen here, even with
        skip_self_test. A failed one is a warning in the log, is not used from then on, and is
        missing in `kernels`; no exception says so."""
        core = self._core
        core.call(lambda: lib.vka_device_self_test(core.box[0]))

    def pipeline_cache(self) -> bytes:
        """What the driver compiled so far, for `Device(pipeline_cache=...)` of a later run."""
        core, size = self._core, ffi.new("size_t *")
        blob = ffi.NULL

        def read() -> int:
            nonlocal blob
            status = lib.vka_device_pipeline_cache(core.box[0], ffi.NULL, size)
            blob = ffi.new("char[]", size[0])
            return status or int(lib.vka_device_pipeline_cache(core.box[0], blob, size))

        core.call(read)
        return bytes(ffi.buffer(blob, size[0]))


_default: Device | None = None
_default_lock = threading.RLock()


def default_device() -> Device:
    """The device that is used where none is given: the most capable one, made when first needed.

    Functions that take a device take an index of `devices` or a part of a name as well: that device
    is opened once, or is the open one of that name.
    """

    def pick() -> Device:
        global _default
        if _default is None or _default.closed:
            _default = Device()
        return _default

    return run_locked(_default_lock, pick)


# Devices by their keys, the name and a number, and those that were opened by a name alone.
_numbers = itertools.count(1)
_living: weakref.WeakValueDictionary[str, Device] = weakref.WeakValueDictionary()
_opened: dict[str | int, Device] = {}


def device_of(key: str | int) -> Device:
    """The device of a key, a part of a name or an index: an open one, or one that is opened for it; of
    "" the default. Pickles and exported graphs, which hold keys, so find theirs in another process."""
    if not key:
        return default_device()
    if isinstance(key, str) and key.isdigit():
        key = int(key)  # as Device takes it
    if isinstance(key, int):
        return _opened_device(key, lambda info: info.index == key)
    found = _living.get(key)
    if found is not None and not found.closed:
        return found
    name = key.rpartition("#")[0] or key
    return _opened_device(name, lambda info: name.lower() in info.name.lower())


def _opened_device(device: str | int, fits: Callable[[DeviceInfo], bool]) -> Device:
    for other in list(_living.values()):
        if not other.closed and fits(other.info):
            return other
    _opened[device] = Device(device)
    return _opened[device]


def pick_device(device: Place) -> Device:
    """The one given, that of an index or of a part of a name, or the default."""
    if device is None:
        return default_device()
    if isinstance(device, (str, int)) and not isinstance(device, bool) and device != "":
        return device_of(device)
    if not isinstance(device, Device):
        raise TypeError(f"device: expected a Device, got {type(device).__name__}")
    if device.closed:
        raise InvalidError("device: it has been closed")
    return device


class Tensor(Child):
    """Elements of one type on a device: an owner of memory, or a view of another tensor's.

    device: see `default_device`. shape: 1 to 4 axes. dtype: "f32", "f16", "bf16", "i32", "bool",
    numpy's or PyTorch's names or objects of these, or a type of quantised weights such as "q8_0" or "q4_k", whose bytes are those of a GGUF file (`write_bytes`, `quantize`,
    `GGUF.upload`).
    """

    device: Device

    def __init__(self, device: Place, shape: Shape, dtype: DType = "f32") -> None:
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

    def write(self, array: Array, dtype: DType | None = None) -> None:
        """Copies an array of the tensor's shape and type; with dtype, which must be the tensor's,
        floats of other types are converted. A tensor of blocks takes floats, see `quantize`.
        """
        dtype = dtype if dtype is None else check_dtype(dtype, "dtype")
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
