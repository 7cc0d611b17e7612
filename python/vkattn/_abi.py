"""The C library, called with the types of its own header.

The header that the library was built from is read when the module is imported, so that no struct is
written down twice and none can be out of step.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from cffi import FFI

LIBRARY_NAME = "vkattn.dll" if sys.platform == "win32" else "libvkattn.so.0"


def _find_library() -> str:
    """The library of the wheel, or the one that VKATTN_LIBRARY names (a build tree's)."""
    named = os.environ.get("VKATTN_LIBRARY")
    path = Path(named) if named else Path(__file__).with_name(LIBRARY_NAME)
    if not path.is_file():
        raise ImportError(
            f"{path}: there is no vkattn library; install the wheel, or set VKATTN_LIBRARY to"
            " libvkattn.so or vkattn.dll of a build tree"
        )
    return str(path)


HEADERS = (
    *("vkattn.h", "vkattn_cache.h", "vkattn_dtype.h", "vkattn_model.h", "vkattn_train.h"),
    "vkattn_vulkan.h",
)
# What vkattn_vulkan.h takes from Vulkan's own headers. A handle that is no pointer everywhere has 64
# bits everywhere.
_VULKAN = """
typedef void *VkInstance, *VkPhysicalDevice, *VkDevice, *VkQueue, *VkCommandBuffer;
typedef uint64_t VkBuffer, VkSemaphore, VkDeviceSize;
typedef uint32_t VkBufferUsageFlags;
typedef struct VkPhysicalDeviceFeatures2 VkPhysicalDeviceFeatures2;
typedef void (*PFN_vkGetInstanceProcAddr)(void);
"""


def _read_headers() -> str:
    here = Path(__file__).resolve()
    folder = here.parent
    if not (folder / HEADERS[0]).is_file():
        folder = here.parents[2] / "include" / "vkattn"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in HEADERS)


def _without_comments(header: str) -> str:
    return re.sub(r"/\*.*?\*/", "", header, flags=re.S)


def _declarations(header: str) -> str:
    """What cffi can read: no comments, and of the preprocessor only whole numbers."""
    text = _without_comments(header).replace("\\\n", " ")
    text = re.sub(r"^#ifdef __cplusplus.*?^#endif", "", text, flags=re.S | re.M)
    text = re.sub(r"^#(?!define \w+ \d+$).*$", "", text, flags=re.M)
    return text.replace("VKA_API", "")


LOG_CALLBACK = "void (*)(void *, enum vka_log_level, const char *)"
_OTHER_TYPES = (
    LOG_CALLBACK,
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


def _resolve(header: str) -> None:
    """Has cffi read all functions and types now. It does so at their first use otherwise, and a
    type in whose reading it was interrupted stays broken."""
    for name in dir(lib):
        getattr(lib, name)
    for name in sorted(set(re.findall(r"\bstruct (vka_\w+)", _without_comments(header)))):
        ffi.typeof(f"struct {name} *")
        ffi.typeof(f"struct {name} **")
    for other in _OTHER_TYPES:
        ffi.typeof(other)


_header = _read_headers()
ffi = FFI()
ffi.cdef(_VULKAN + _declarations(_header))
try:
    lib: Any = ffi.dlopen(_find_library())
except OSError as error:
    raise ImportError(str(error)) from error
_resolve(_header)


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
