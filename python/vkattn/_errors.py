"""Exceptions: one for each status that a caller may want to tell apart."""

from __future__ import annotations

from ._abi import ffi, lib, text_of
from ._sentences import in_python


class VkattnError(Exception):
    """Any failure. `status` is the library's name for it, such as "VKA_INVALID"."""

    status = "VKA_INTERNAL"


class InvalidError(VkattnError, ValueError):
    """An argument does not fit; the sentence names it."""

    status = "VKA_INVALID"


class ClosedError(InvalidError):
    """The object, or the device it was made from, has been closed."""


class UnsupportedError(VkattnError):
    """Legal, but not on this device; the sentence names what is missing."""

    status = "VKA_UNSUPPORTED"


class NoDeviceError(VkattnError):
    """No Vulkan loader, no driver, or no device of that name."""

    status = "VKA_NO_DEVICE"


class OutOfMemoryError(VkattnError, MemoryError):
    """Host or device memory ran out; everything made so far stays usable."""

    status = "VKA_OUT_OF_DEVICE_MEMORY"


class WaitTimeout(VkattnError, TimeoutError):
    """The work goes on; wait again."""

    status = "VKA_TIMEOUT"


class DeviceLostError(VkattnError):
    """The driver gave up on the device: `Device.recover`, or close it and make another."""

    status = "VKA_DEVICE_LOST"


class FileError(VkattnError, OSError):
    """A file cannot be read or is malformed."""

    status = "VKA_IO"


class InternalError(VkattnError):
    """The driver answered what Vulkan does not allow, or a bug here."""


_CLASSES: dict[str, type[VkattnError]] = {
    kind.status: kind
    for kind in (
        InvalidError,
        UnsupportedError,
        NoDeviceError,
        OutOfMemoryError,
        WaitTimeout,
        DeviceLostError,
        FileError,
        InternalError,
    )
}
_CLASSES["VKA_OUT_OF_HOST_MEMORY"] = OutOfMemoryError


def error_of(status: int, sentence: str) -> VkattnError:
    """The exception for a status that is not VKA_OK."""
    name = text_of(lib.vka_status_name(ffi.cast("enum vka_status", status)))
    error = _CLASSES.get(name, VkattnError)(in_python(sentence) or name)
    error.status = name
    return error
