"""What devices there are, and what each is and can do."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

from ._abi import enum_names, ffi, lib, new_struct, text_of
from ._core import close_dropped
from ._errors import InvalidError, error_of
from ._log import Log

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


DeviceInfo.__module__ = "vkattn._device"  # as pickles name it


def info_of(properties: Any) -> DeviceInfo:
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
    return [info_of(properties[i]) for i in range(min(count[0], len(properties)))]


def name_of(device: int | str | None) -> Any:
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
