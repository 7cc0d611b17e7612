"""Devices."""

from __future__ import annotations

import dataclasses
import operator
import threading
from typing import TYPE_CHECKING, Any, Callable

from ._abi import enum_names, ffi, lib, new_struct, text_of
from ._core import COMPILING, Core, close_dropped, run_locked
from ._errors import InvalidError, error_of
from ._log import Log
from ._numbers import flag, whole

if TYPE_CHECKING:
    import numpy as np

    from ._arrays import Array, Shape
    from ._tensor import Tensor

_TYPES = {value: name for name, value in enum_names("VKA_DEVICE_", "vka_device_type").items()}


@dataclasses.dataclass(frozen=True)
class DeviceInfo:
    """What a device is and can do, as its driver says."""

    name: str
    driver: str
    index: int
    type: str  # "discrete", "integrated", "virtual", "cpu" or "other"
    memory: int  # bytes of the device-local heaps
    mapped_memory: bool  # the host reads and writes device memory in place
    subgroup_size: int
    max_workgroup: int  # invocations
    max_shared_memory: int  # bytes a workgroup
    max_buffer_range: int  # bytes a binding
    max_allocation: int  # bytes
    storage16: bool
    float16: bool
    bfloat16: bool
    timestamps: bool


def _info_of(properties: Any) -> DeviceInfo:
    """From a struct vka_device_properties."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(DeviceInfo):
        value = getattr(properties, field.name)
        values[field.name] = text_of(value) if isinstance(value, ffi.CData) else value
    values["type"] = _TYPES[properties.type]
    return DeviceInfo(**values)


def devices() -> list[DeviceInfo]:
    """All Vulkan devices, in the order of their index. NoDeviceError where there is none."""
    close_dropped()
    log = Log(None)
    info = new_struct("vka_device_info")
    info.log = log.callback
    count = ffi.new("size_t *")
    properties = ffi.NULL
    for _ in range(2):  # how many, then what they are
        status = lib.vka_device_list(info, properties, count)
        log.raise_kept()
        if status:
            raise error_of(status, log.error)
        if not properties:
            properties = ffi.new("struct vka_device_properties[]", count[0])
    return [_info_of(properties[i]) for i in range(min(count[0], len(properties)))]


def _name_of(device: int | str | None) -> Any:
    """The C string that names it; NULL for None."""
    if device is None:
        return ffi.NULL
    if not isinstance(device, (bool, str)) and hasattr(device, "__index__"):
        device = operator.index(device)  # of numpy too
    if isinstance(device, bool) or not isinstance(device, (int, str)):
        raise TypeError(f"device: expected an int, a str or None, got {type(device).__name__}")
    if isinstance(device, int) and not 0 <= device < 2**32:
        raise InvalidError(f"device: expected an index of 0 or more and 32 bits, got {device:#x}")
    name = str(device).encode("utf-8", "surrogatepass")
    if not name or b"\0" in name:
        raise InvalidError(f"device: expected an index or a part of a name, got {device!r}")
    return ffi.new("char[]", name)


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
    verdict: a tuning profile, text or bytes, as `vkattn tune` writes it. One that is malformed, or
        whose first lines are not `verdict_head`, is ignored with a warning to log.
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
        verdict: str | bytes | None = None,
        max_buffer_range: int = 0,
        max_allocation: int = 0,
        max_memory: int = 0,
        max_shared_memory: int = 0,
        skip_self_test: bool = False,
    ) -> None:
        name = _name_of(device)
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
        text = verdict.encode() if isinstance(verdict, str) else verdict
        profile = ffi.from_buffer(text) if text else ffi.NULL
        info.verdict = profile
        info.verdict_size = len(profile) if text else 0
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
        self.info = _info_of(lib.vka_device_properties(core.box[0]))

    def __repr__(self) -> str:
        return f"<vkattn.Device {self.info.name!r}{', closed' if self.closed else ''}>"

    def __copy__(self) -> Device:
        return self  # copies of what holds it, such as modules of PyTorch, use the same device

    def __deepcopy__(self, memo: Any) -> Device:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a Device cannot be pickled: leave it out, and set one where it is loaded")

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes what was made from the device, then the device. Closing twice does nothing."""
        self._core.close()

    def recover(self) -> None:
        """After DeviceLostError: makes the device anew below all that was made from it.

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

    def tensor(self, array: Array, dtype: str | None = None) -> Tensor:
        """A new tensor with the array's shape and values, converted where dtype is another, "q8_0"
        and "q4_0" included, see `quantize`."""
        from ._arrays import host_array
        from ._blocks import ENCODED
        from ._tensor import Tensor

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

    def host_array(self, shape: Shape, dtype: str = "f32") -> np.ndarray:
        """A new numpy array of zeros that `share` takes; of bf16 as uint16."""
        from ._shared import host_array

        return host_array(self, shape, dtype)

    def share(self, array: np.ndarray, dtype: str | None = None) -> Tensor:
        """A tensor in the memory of a numpy array, which the device uses in place: no copy is made.

        array: dense and writable, its memory as `host_array` makes it: begins at a multiple of
        `host_alignment` and has whole multiples. dtype: "bf16" of uint16. Between runs either side
        may read and write. The device keeps the memory until it is closed, as plans may use it.
        Share memory once and take views of the tensor: two of the same memory are not ordered.
        UnsupportedError where the device cannot.
        """
        from ._shared import share

        return share(self, array, dtype)

    def empty(self, shape: Shape, dtype: str = "f32") -> Tensor:
        """A new tensor whose values are undefined."""
        from ._tensor import Tensor

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

    def verdict_head(self) -> str:
        """The two lines that a tuning profile of this device, driver and library begins with. The
        lines that may follow: "kernel PROBLEM KERNEL VARIANT", "path PROBLEM fused" (or unfused),
        "demote KERNEL"."""
        core = self._core

        def read() -> str:
            size = lib.vka_device_verdict_head(core.box[0], ffi.NULL, 0) + 1
            text = ffi.new("char[]", size)
            lib.vka_device_verdict_head(core.box[0], text, size)
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
    """The device that is used where none is given: the most capable one, made when first needed."""

    def pick() -> Device:
        global _default
        if _default is None or _default.closed:
            _default = Device()
        return _default

    return run_locked(_default_lock, pick)


def pick_device(device: Device | None) -> Device:
    """The one given, or the default."""
    if device is None:
        return default_device()
    if not isinstance(device, Device):
        raise TypeError(f"device: expected a Device, got {type(device).__name__}")
    if device.closed:
        raise InvalidError("device: it has been closed")
    return device
