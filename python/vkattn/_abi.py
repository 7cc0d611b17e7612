"""The C library, called with the types of its own header.

They are read from the headers that the library was built from, so that no struct is written down
twice and none can be out of step: when a package is built, or else when the module is imported.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from typing import Any

LIBRARY_NAME = {"win32": "vkattn.dll", "darwin": "libvkattn.0.dylib"}.get(
    sys.platform, "libvkattn.so.0"
)


def _find_library() -> str:
    """The library of the wheel, or the one that VKATTN_LIBRARY names (a build tree's)."""
    named = os.environ.get("VKATTN_LIBRARY")
    path = named or os.path.join(os.path.dirname(os.path.abspath(__file__)), LIBRARY_NAME)
    if not os.path.isfile(path):
        raise ImportError(
            f"{path}: there is no vkattn library; install the wheel, or set VKATTN_LIBRARY to"
            " libvkattn.so, libvkattn.dylib or vkattn.dll of a build tree"
        )
    return path


LOG_CALLBACK = "void (*)(void *, enum vka_log_level, const char *)"
_OTHER_TYPES = (
    LOG_CALLBACK,
    "char *",
    "char *[]",
    "char[]",
    "double[]",
    "float *",
    "float[]",
    "enum vka_status",
    "size_t *",
    "struct vka_device_properties[]",
    "struct vka_parameter[]",
    "struct vka_semaphore[]",
    "struct vka_tensor *[]",
    "uint32_t *",
    "uint32_t[]",
    "uint64_t *",
    "uintptr_t",
    "void *",
    "const VkPhysicalDeviceFeatures2 *",
    "PFN_vkGetInstanceProcAddr",
)


def _resolve() -> None:
    """Has cffi make all types now. It does so at their first use otherwise, and a type in whose
    making it was interrupted stays broken."""
    for name in ffi.list_types()[1]:
        if name.startswith("vka_"):
            ffi.typeof(f"struct {name} *")
            ffi.typeof(f"struct {name} **")
    for other in _OTHER_TYPES:
        ffi.typeof(other)


def _types() -> Any:
    try:
        return importlib.import_module("vkattn._abi_types").ffi
    except ModuleNotFoundError:
        from . import _abi_parse  # whose imports take as long as all others

        return _abi_parse.parse()


ffi: Any = _types()
try:
    _library = ffi.dlopen(_find_library())  # open as long as this lives
except OSError as error:
    raise ImportError(str(error)) from error
# All functions and constants, found now.
lib: Any = types.SimpleNamespace(**{name: getattr(_library, name) for name in dir(_library)})
_resolve()


def new_struct(name: str) -> Any:
    """A zeroed struct that begins with struct_size."""
    struct = ffi.new(f"struct {name} *")
    struct.struct_size = ffi.sizeof(struct[0])
    return struct


def text_of(pointer: Any) -> str:
    """A C string; "" for NULL."""
    return ffi.string(pointer).decode("utf-8", "replace") if pointer else ""


def enum_names(prefix: str, enum: str) -> dict[str, int]:
    """{"f32": 0, ...} of an enum, in its order, with its prefix and _COUNT taken away."""
    values: dict[str, int] = ffi.typeof(f"enum {enum}").relements
    return {
        name[len(prefix) :].lower(): value
        for name, value in sorted(values.items(), key=lambda item: item[1])
        if not name.endswith("_COUNT")
    }
