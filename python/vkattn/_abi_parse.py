"""What cffi makes of the library's headers: in a tree of sources at each import, for a package when it
is built, see `write_types`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from cffi import FFI  # type: ignore[import-untyped]

HEADERS = (
    *("vkattn.h", "vkattn_cache.h", "vkattn_dtype.h", "vkattn_model.h", "vkattn_train.h"),
    *("vkattn_io.h", "vkattn_vulkan.h"),
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
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in HEADERS}
    types = texts.pop("vkattn_dtype.h")  # what vkattn.h includes in the middle
    return "\n".join(texts.values()).replace("#include <vkattn/vkattn_dtype.h>", types, 1)


def _without_comments(header: str) -> str:
    return re.sub(r"/\*.*?\*/", "", header, flags=re.S)


def _declarations(header: str) -> str:
    """What cffi can read: no comments, and of the preprocessor only whole numbers."""
    text = _without_comments(header).replace("\\\n", " ")
    text = re.sub(r"^#ifdef __cplusplus.*?^#endif", "", text, flags=re.S | re.M)
    text = re.sub(r"^#(?!define \w+ \d+$).*$", "", text, flags=re.M)
    return text.replace("VKA_API", "")


def _cdef(headers: str) -> Any:
    ffi = FFI()
    ffi.cdef(_VULKAN + _declarations(headers))
    return ffi


def parse() -> Any:
    """A cffi.FFI with all types and functions."""
    return _cdef(_read_headers())


def write_types(path: str) -> None:
    """Writes a module whose `ffi` has them, so that nothing is parsed where it is imported."""
    ffi = _cdef(_read_headers())
    ffi.set_source("vkattn._abi_types", None)
    ffi.emit_python_code(path)
