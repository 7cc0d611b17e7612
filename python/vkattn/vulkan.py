"""vkattn on a Vulkan device of the application: `vkattn_vulkan.h`, which is the manual.

Handles are whole numbers, or what int() or cffi and ctypes make of pointers. Whoever made them keeps
them until what was made from them here is closed.

    wanted = vkattn.vulkan.request(instance, physical, api_version=VK_API_VERSION_1_3)
    ...                                # vkCreateDevice with wanted.features and wanted.extensions
    device = vkattn.vulkan.adopt(instance, physical, logical, queue, queue_family=0,
                                 api_version=VK_API_VERSION_1_3, features=wanted.features,
                                 extensions=wanted.extensions)
    x = vkattn.vulkan.wrap(device, buffer, (1, 8, 128, 64), size=262144, usage=usage)
    ...
    vkattn.vulkan.record(plan, command_buffer)
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, NamedTuple, Sequence

from ._abi import ffi, lib, new_struct, text_of
from ._arrays import DTYPES, DType, Shape, check_dtype, check_shape
from ._core import Core, check_child, close_dropped
from ._device import Device, Tensor
from ._device_info import info_of
from ._errors import error_of
from ._log import Log
from ._numbers import flag, put, whole
from ._plan import Plan

__all__ = ["Buffer", "Request", "adopt", "buffer_of", "record", "request", "submit", "wrap"]


def _number(handle: Any, what: str) -> int:
    if isinstance(handle, ffi.CData):
        return int(ffi.cast("uintptr_t", handle))
    if isinstance(handle, ctypes._SimpleCData):
        return int(handle.value or 0)
    try:
        number = int(handle)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what}: expected a handle, got {type(handle).__name__}") from error
    if not 0 <= number < 2**64:
        raise TypeError(f"{what}: expected a handle, got {number:#x}")
    return number


def _pointer(handle: Any, what: str) -> Any:
    return ffi.cast("void *", _number(handle, what))


class Buffer(NamedTuple):
    """A range of a VkBuffer: offset and size in bytes, usage as it was created with."""

    buffer: int
    offset: int
    size: int
    usage: int


class Request:
    """What a VkDevice should be created with, so that vkattn can use all that it can do.

    features: address of a VkPhysicalDeviceFeatures2, for VkDeviceCreateInfo.pNext, with
    pEnabledFeatures NULL. extensions: names. Both are valid until the object goes.
    """

    def __init__(self, box: Any) -> None:
        self._box = ffi.gc(box, lib.vka_vulkan_request_destroy)
        made = box[0]
        self.features = int(ffi.cast("uintptr_t", made.features))
        self.extensions = [text_of(made.extensions[i]) for i in range(made.n_extension)]


def _info(
    instance: Any, physical_device: Any, api_version: int, get_instance_proc_addr: Any
) -> Any:
    info = new_struct("vka_vulkan_info")
    info.instance = _pointer(instance, "instance")
    info.physical_device = _pointer(physical_device, "physical_device")
    put(info, api_version=api_version)
    if get_instance_proc_addr is not None:
        address = _number(get_instance_proc_addr, "get_instance_proc_addr")
        info.get_instance_proc_addr = ffi.cast("PFN_vkGetInstanceProcAddr", address)
    return info


def request(
    instance: Any,
    physical_device: Any,
    *,
    api_version: int,
    get_instance_proc_addr: Any = None,
) -> Request:
    """Asks what to create a VkDevice with. api_version: that of the instance.
    get_instance_proc_addr: address of the function, where it is not the system's loader's."""
    info = _info(instance, physical_device, api_version, get_instance_proc_addr)
    log, box = Log(None), ffi.new("struct vka_vulkan_request **")
    device_info = new_struct("vka_device_info")
    device_info.log = log.callback
    status = lib.vka_vulkan_request_create(info, device_info, box)
    log.raise_kept()
    if status:
        raise error_of(status, log.error)
    return Request(box)


def adopt(
    instance: Any,
    physical_device: Any,
    device: Any,
    queue: Any,
    *,
    queue_family: int,
    api_version: int,
    features: Any = 0,
    extensions: Sequence[str] = (),
    allow_missing: bool = False,
    get_instance_proc_addr: Any = None,
    log: Callable[[str, str], object] | None = None,
) -> Device:
    """A Device that uses the application's, whose handles it leaves alone when it is closed.

    features: address of the VkPhysicalDeviceFeatures2 that the device was created with; extensions:
    the names of those. Both are read by this call. allow_missing: adopt a device without all that `request` asks for.
    The queue is used by the thread that calls vkattn.
    """
    close_dropped()
    info = _info(instance, physical_device, api_version, get_instance_proc_addr)
    info.device = _pointer(device, "device")
    info.queue = _pointer(queue, "queue")
    put(info, queue_family=queue_family)
    info.allow_missing = flag(allow_missing, "allow_missing")
    address = _number(features, "features")
    info.features = ffi.cast("const VkPhysicalDeviceFeatures2 *", address)
    names = [ffi.new("char[]", name.encode()) for name in extensions]
    array = ffi.new("char *[]", names)
    info.extensions, info.n_extension = array, len(names)
    receiver = Log(log)
    device_info = new_struct("vka_device_info")
    device_info.log = receiver.callback
    made = Device.__new__(Device)
    core = made._core = Core(made, receiver)
    status = lib.vka_device_adopt(info, device_info, core.box)
    receiver.raise_kept()
    if status:
        raise error_of(status, receiver.error)
    made.info = info_of(lib.vka_device_properties(core.box[0]))
    return made


def wrap(
    device: Device,
    buffer: Any,
    shape: Shape,
    dtype: DType = "f32",
    *,
    size: int,
    usage: int,
    offset: int = 0,
) -> Tensor:
    """A dense tensor in a VkBuffer of the application, which outlives it and the plans that use it.

    offset, size: bytes, of the first element and from there on; size is that of the elements rounded
    up to 16 at least. usage: that the buffer was created with; the header says what has to be in it.
    """
    axes, kind = check_shape(shape, "shape"), DTYPES[check_dtype(dtype, "dtype")]
    range_ = ffi.new("struct vka_buffer *")
    range_.buffer = _number(buffer, "buffer")
    put(range_, offset=offset, size=size, usage=usage)
    core, tensor = device._core, Tensor.__new__(Tensor)
    tensor._create(
        device,
        "tensor",
        lambda box: lib.vka_tensor_wrap(core.box[0], range_, kind, len(axes), axes, box),
    )
    return tensor


def buffer_of(tensor: Tensor) -> Buffer:
    """Where a tensor lies. vkattn's own buffers hold others too: keep to the range. The handle is
    valid as long as the tensor or a view of it."""
    check_child(tensor, Tensor, "tensor")
    found = ffi.new("struct vka_buffer *")
    tensor.device._core.call(lambda: lib.vka_tensor_buffer(tensor._pointer, found))
    return Buffer(int(found.buffer), int(found.offset), int(found.size), int(found.usage))


def record(plan: Plan, commands: Any) -> None:
    """Records a finished plan into a VkCommandBuffer in the recording state. The header says which
    barriers it has, and that the application waits for its submits before it reads and writes."""
    check_child(plan, Plan, "plan")
    pointer = _pointer(commands, "commands")
    plan.device._core.call(lambda: lib.vka_plan_record(plan._pointer, pointer))


def submit(
    plan: Plan,
    *,
    waits: Sequence[tuple[Any, int]] = (),
    signals: Sequence[tuple[Any, int]] = (),
) -> int:
    """As `Plan.submit`, after semaphores of the application and signalling others: pairs of a
    VkSemaphore and its value, 0 of a binary one. Returns the ticket for `Plan.wait`."""
    check_child(plan, Plan, "plan")
    info, ticket = new_struct("vka_submit_info"), ffi.new("uint64_t *")
    kept = []
    for name, count, pairs in (("waits", "n_wait", waits), ("signals", "n_signal", signals)):
        array = ffi.new("struct vka_semaphore[]", len(pairs))
        for i, (semaphore, value) in enumerate(pairs):
            array[i].semaphore = _number(semaphore, name)
            array[i].value = whole(value, f"{name}: value", 0, 2**64 - 1)
        setattr(info, name, array)
        setattr(info, count, len(pairs))
        kept.append(array)
    plan.device._core.call(lambda: lib.vka_plan_submit_with(plan._pointer, info, ticket))
    return int(ticket[0])
