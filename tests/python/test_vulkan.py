"""Memory that vkattn does not own: numpy arrays, and the buffers and device of an application that
calls Vulkan itself."""

import gc
import weakref

import numpy as np
import pytest
from cffi import FFI

import vkattn
import vkattn.vulkan

STORAGE, SRC, DST = 0x20, 1, 2  # VkBufferUsageFlagBits
VERSION = 1 << 22 | 1 << 12  # 1.1


def attention_of(q):
    return vkattn.attention(q, q, q, causal=True)


# ---- Memory of the host -------------------------------------------------------------------------


@pytest.fixture
def sharing(device):
    if not device.host_alignment:
        pytest.skip("THE DRIVER HAS NO VK_EXT_external_memory_host: NO MEMORY WAS SHARED")
    return device


def test_share(sharing, rng):
    """The device reads and writes the arrays in place, run after run, also when nothing else refers
    to them."""
    x, y = (sharing.host_array((2, 3, 5, 8)) for _ in range(2))
    assert not x.any() and x.ctypes.data % sharing.host_alignment == 0
    plan = vkattn.Plan(sharing)
    q = sharing.share(x)
    plan.attention(q, q, q, sharing.share(y), causal=True)
    plan.finish()
    for _ in range(2):
        x[...] = rng.standard_normal(x.shape)
        plan.run()
        assert np.array_equal(y, attention_of(x))
    q.write(np.ones(x.shape, np.float32))
    assert (x == 1).all()
    x[0] = 5
    assert (q.slice(0, 0, 1).read() == 5).all()
    del q, x
    gc.collect()
    y[...] = 0
    plan.run()
    assert (y[0] == 5).all() and (y[1] == 1).all()


def test_share_kept(sharing):
    """The device keeps the memory for its plans until it is closed."""
    with vkattn.Device() as own:
        array = own.host_array((64,))
        memory = weakref.ref(array.base)
        own.share(array).close()
        del array
        gc.collect()
        assert memory() is not None
    gc.collect()
    assert memory() is None


def test_share_types(sharing):
    for dtype, stored in (("f16", np.float16), ("bf16", np.uint16), ("i32", np.int32)):
        array = sharing.host_array((3, 7), dtype)
        assert array.dtype == stored
        tensor = sharing.share(array, dtype)
        assert tensor.dtype == dtype and tensor.shape == (3, 7)
        array[1] = 0x3F80 if dtype == "bf16" else 1
        assert (tensor.read()[1] == 1).all()
    whole = sharing.host_array((2 * sharing.host_alignment // 4,))
    half = sharing.share(whole[: sharing.host_alignment // 4])  # whole multiples from the beginning
    half.write(np.ones(half.shape, np.float32))
    assert whole.sum() == half.shape[0]


def test_share_refused(sharing):
    n = sharing.host_alignment
    fit = sharing.host_array((4, n))
    room = np.zeros(4 * n, np.uint8)
    first = -room.ctypes.data % n
    for array, sentence in (
        (fit[:, :1], "dense, row-major"),
        (fit.reshape(-1)[1:], "its memory is not whole multiples"),
        (room[first : first + 3 * n - 4].view(np.float32)[: n // 4 + 1].copy()[1:], "its memory"),
        (fit.view(np.float64), "float64 is not an element type"),
        (fit.view(np.uint16), "uint16 is not"),
        (np.zeros((), np.float32), "1 to 4 axes"),
    ):
        with pytest.raises(vkattn.InvalidError, match=sentence):
            sharing.share(array)
    fit.flags.writeable = False
    with pytest.raises(vkattn.InvalidError, match="that can be written"):
        sharing.share(fit)
    with pytest.raises(TypeError, match="expected a numpy array, got list"):
        sharing.share([1.0])
    with pytest.raises(vkattn.InvalidError, match="float32 is not bf16"):
        sharing.share(sharing.host_array((4,)), "bf16")
    with pytest.raises(vkattn.InvalidError, match="dtype: expected one of f32"):
        sharing.host_array((4,), "q8_0")


# ---- An application's own Vulkan ----------------------------------------------------------------

ffi = FFI()
ffi.cdef(
    """
typedef uint64_t Handle;
typedef struct { int type; const void *next; const char *name; uint32_t version;
    const char *engine; uint32_t engine_version, api; } Application;
typedef struct { int type; const void *next; uint32_t flags; const Application *application;
    uint32_t n_layer; const char *const *layers; uint32_t n_extension;
    const char *const *extensions; } InstanceInfo;
typedef struct { int type; const void *next; uint32_t flags, family, n; const float *priorities;
    } QueueInfo;
typedef struct { int type; const void *next; uint32_t flags, n_queue; const QueueInfo *queues;
    uint32_t n_layer; const char *const *layers; uint32_t n_extension;
    const char *const *extensions; const void *features; } DeviceInfo;
typedef struct { int type; const void *next; uint32_t flags; uint64_t size; uint32_t usage;
    int sharing; uint32_t n_family; const uint32_t *families; } BufferInfo;
typedef struct { uint64_t size, alignment; uint32_t types; } Needs;
typedef struct { int type; const void *next; uint64_t size; uint32_t index; } MemoryInfo;
typedef struct { uint32_t n_type; struct { uint32_t flags, heap; } types[32]; uint32_t n_heap;
    struct { uint64_t size; uint32_t flags; } heaps[16]; } Memory;
typedef struct { int type; const void *next; uint32_t flags, family; } PoolInfo;
typedef struct { int type; const void *next; Handle pool; int level; uint32_t n; } CommandsInfo;
typedef struct { int type; const void *next; uint32_t flags; const void *inherited; } BeginInfo;
typedef struct { int type; const void *next; uint32_t n_wait; const Handle *waits;
    const uint32_t *stages; uint32_t n; void *const *commands; uint32_t n_signal;
    const Handle *signals; } SubmitInfo;
typedef struct { int type; const void *next; uint32_t flags; } Plain;
int vkCreateInstance(const InstanceInfo *, const void *, void **);
int vkEnumeratePhysicalDevices(void *, uint32_t *, void **);
int vkCreateDevice(void *, const DeviceInfo *, const void *, void **);
void vkGetDeviceQueue(void *, uint32_t, uint32_t, void **);
void vkGetPhysicalDeviceMemoryProperties(void *, Memory *);
int vkCreateBuffer(void *, const BufferInfo *, const void *, Handle *);
void vkGetBufferMemoryRequirements(void *, Handle, Needs *);
int vkAllocateMemory(void *, const MemoryInfo *, const void *, Handle *);
int vkBindBufferMemory(void *, Handle, Handle, uint64_t);
int vkMapMemory(void *, Handle, uint64_t, uint64_t, uint32_t, void **);
int vkCreateCommandPool(void *, const PoolInfo *, const void *, Handle *);
int vkAllocateCommandBuffers(void *, const CommandsInfo *, void **);
int vkBeginCommandBuffer(void *, const BeginInfo *);
int vkEndCommandBuffer(void *);
int vkCreateSemaphore(void *, const Plain *, const void *, Handle *);
int vkQueueSubmit(void *, uint32_t, const SubmitInfo *, Handle);
int vkQueueWaitIdle(void *);
void vkDestroySemaphore(void *, Handle, const void *);
void vkDestroyCommandPool(void *, Handle, const void *);
void vkDestroyBuffer(void *, Handle, const void *);
void vkFreeMemory(void *, Handle, const void *);
void vkDestroyDevice(void *, const void *);
void vkDestroyInstance(void *, const void *);
"""
)


class Application:
    """A program with a VkDevice, a mapped buffer and command buffers of its own."""

    def __init__(self, missing=False):
        try:
            self.vk = ffi.dlopen("libvulkan.so.1")
        except OSError as error:
            pytest.skip(f"NO VULKAN LOADER TO CALL: NO DEVICE WAS ADOPTED: {error}")
        application = ffi.new("Application *", {"api": VERSION})
        self.instance = self.one(
            "vkCreateInstance", ffi.new("InstanceInfo *", {"type": 1, "application": application})
        )
        n, found = ffi.new("uint32_t *", 1), ffi.new("void **")
        assert self.vk.vkEnumeratePhysicalDevices(self.instance, n, found) in (0, 5)
        self.physical = found[0]
        wanted = self.wanted = vkattn.vulkan.request(
            self.instance, self.physical, api_version=VERSION
        )
        names = [] if missing else [ffi.new("char[]", x.encode()) for x in wanted.extensions]
        priority = ffi.new("float *", 1)
        queue = ffi.new("QueueInfo *", {"type": 2, "n": 1, "priorities": priority})
        kept = ffi.new("char *[]", names)
        info = ffi.new(
            "DeviceInfo *",
            {
                "type": 3,
                "n_queue": 1,
                "queues": queue,
                "extensions": kept,
                "n_extension": len(names),
            },
        )
        info.next = ffi.NULL if missing else ffi.cast("void *", wanted.features)
        device = ffi.new("void **")
        assert self.vk.vkCreateDevice(self.physical, info, ffi.NULL, device) == 0
        self.device = device[0]
        self.vk.vkGetDeviceQueue(self.device, 0, 0, found)
        self.queue = found[0]
        self.made = []

    def one(self, function, info, kind="void **"):
        """What a function of (info, allocator, result) makes."""
        made = ffi.new(kind)
        assert getattr(self.vk, function)(info, ffi.NULL, made) == 0
        return made[0]

    def make(self, function, kind, values):
        """The same below the device, destroyed in the end."""
        made = ffi.new("Handle *")
        info = ffi.new(f"{kind} *", values)
        assert getattr(self.vk, function)(self.device, info, ffi.NULL, made) == 0
        self.made.append((function, made[0]))
        return made[0]

    def buffer(self, size):
        """A VkBuffer, and a numpy view of its memory."""
        usage = STORAGE | SRC | DST
        made = self.make("vkCreateBuffer", "BufferInfo", {"type": 12, "size": size, "usage": usage})
        needs, memory = ffi.new("Needs *"), ffi.new("Memory *")
        self.vk.vkGetBufferMemoryRequirements(self.device, made, needs)
        self.vk.vkGetPhysicalDeviceMemoryProperties(self.physical, memory)
        index = next(
            i
            for i in range(memory.n_type)
            if needs.types >> i & 1 and memory.types[i].flags & 6 == 6  # visible, coherent
        )
        info = {"type": 5, "size": needs.size, "index": index}
        held = self.make("vkAllocateMemory", "MemoryInfo", info)
        assert self.vk.vkBindBufferMemory(self.device, made, held, 0) == 0
        place = ffi.new("void **")
        assert self.vk.vkMapMemory(self.device, held, 0, 2**64 - 1, 0, place) == 0
        return made, np.frombuffer(ffi.buffer(place[0], size), np.float32)

    def submit(self, commands, **more):
        info = ffi.new("SubmitInfo *", {"type": 4, **more})
        if commands:
            info.n, info.commands = 1, commands
        assert self.vk.vkQueueSubmit(self.queue, 1, info, 0) == 0

    def close(self):
        self.vk.vkQueueWaitIdle(self.queue)
        for function, handle in reversed(self.made):
            name = {"vkAllocateMemory": "vkFreeMemory"}.get(
                function, function.replace("Create", "Destroy")
            )
            getattr(self.vk, name)(self.device, handle, ffi.NULL)
        self.vk.vkDestroyDevice(self.device, ffi.NULL)
        self.vk.vkDestroyInstance(self.instance, ffi.NULL)


@pytest.fixture
def application(device):
    app = Application()
    yield app
    app.close()


def adopted(app, **options):
    return vkattn.vulkan.adopt(
        app.instance,
        app.physical,
        app.device,
        app.queue,
        queue_family=0,
        api_version=VERSION,
        features=app.wanted.features,
        extensions=app.wanted.extensions,
        **options,
    )


SHAPE = (1, 2, 6, 8)
SIZE, OFFSET = 4 * 96, 4096


def plan_over(app, device):
    """A plan over tensors in a buffer of the application: what it reads and writes."""
    buffer, floats = app.buffer(2 * OFFSET)
    usage = STORAGE | SRC | DST
    q = vkattn.vulkan.wrap(device, buffer, SHAPE, size=SIZE, usage=usage)
    y = vkattn.vulkan.wrap(device, buffer, SHAPE, offset=OFFSET, size=SIZE, usage=usage)
    assert vkattn.vulkan.buffer_of(y) == (int(buffer), OFFSET, SIZE, usage)
    second = y.slice(2, 1, 5)
    assert vkattn.vulkan.buffer_of(second).offset == OFFSET + 4 * 8
    plan = vkattn.Plan(device)
    plan.attention(q, q, q, y, causal=True)
    plan.finish()
    return plan, floats[:96].reshape(SHAPE), floats[OFFSET // 4 :][:96].reshape(SHAPE)


def test_wrap(application, rng):
    """A plan runs on the application's device, over its buffer."""
    with adopted(application) as device:
        assert device.info.name
        plan, x, y = plan_over(application, device)
        x[...] = rng.standard_normal(SHAPE)
        plan.run()
        assert np.array_equal(y, attention_of(x))
        own = device.tensor(np.ones((4, 4), np.float32))
        assert vkattn.vulkan.buffer_of(own).size == 64


def test_record(application, rng):
    """A plan in the application's command buffer, submitted by it."""
    app = application
    with adopted(app) as device:
        plan, x, y = plan_over(app, device)
        pool = app.make("vkCreateCommandPool", "PoolInfo", {"type": 39})
        commands = ffi.new("void **")
        info = ffi.new("CommandsInfo *", {"type": 40, "pool": pool, "n": 1})
        assert app.vk.vkAllocateCommandBuffers(app.device, info, commands) == 0
        begin = ffi.new("BeginInfo *", {"type": 42})
        assert app.vk.vkBeginCommandBuffer(commands[0], begin) == 0
        vkattn.vulkan.record(plan, commands[0])
        assert app.vk.vkEndCommandBuffer(commands[0]) == 0
        for _ in range(2):
            x[...] = rng.standard_normal(SHAPE)
            app.submit(commands)
            app.vk.vkQueueWaitIdle(app.queue)
            assert np.array_equal(y, attention_of(x))


def test_semaphores(application, rng):
    """A run waits for a semaphore of the application and signals another."""
    app = application
    with adopted(app) as device:
        plan, x, y = plan_over(app, device)
        before, after = (app.make("vkCreateSemaphore", "Plain", {"type": 9}) for _ in range(2))
        x[...] = rng.standard_normal(SHAPE)
        app.submit(None, n_signal=1, signals=ffi.new("Handle *", before))
        ticket = vkattn.vulkan.submit(plan, waits=[(before, 0)], signals=[(after, 0)])
        stage = ffi.new("uint32_t *", 0x800)
        waits = ffi.new("Handle *", after)
        app.submit(None, n_wait=1, waits=waits, stages=stage)
        plan.wait(ticket, 600.0)
        app.vk.vkQueueWaitIdle(app.queue)
        assert np.array_equal(y, attention_of(x))
        assert vkattn.vulkan.submit(plan) > ticket


def test_refused(application):
    app = application
    with adopted(app) as device:
        buffer, _ = app.buffer(OFFSET)
        for change, sentence in (
            ({"size": 16}, "size"),
            ({"offset": 8}, "offset"),
            ({"usage": 1}, "usage"),
            ({"buffer": 0}, "buffer"),
        ):
            given = {"buffer": buffer, "size": SIZE, "usage": STORAGE, **change}
            with pytest.raises(vkattn.InvalidError, match=sentence):
                vkattn.vulkan.wrap(device, given.pop("buffer"), SHAPE, **given)
        plan = vkattn.Plan(device)
        with pytest.raises(vkattn.InvalidError, match="not finished"):
            vkattn.vulkan.record(plan, 1)
        with pytest.raises(TypeError, match="commands: expected a handle, got str"):
            vkattn.vulkan.record(plan, "x")
        with pytest.raises(TypeError, match="plan: expected a Plan"):
            vkattn.vulkan.submit(device)
    with pytest.raises(vkattn.InvalidError, match="queue"):
        vkattn.vulkan.adopt(
            app.instance, app.physical, app.device, 0, queue_family=0, api_version=VERSION
        )
    with pytest.raises(vkattn.UnsupportedError, match="1.1"):
        vkattn.vulkan.request(app.instance, app.physical, api_version=1 << 22)


def test_missing(device):
    """A device without what vkattn asks for is adopted when that is allowed, and gives the same."""
    app = Application(missing=True)
    options = {"queue_family": 0, "api_version": VERSION}
    handles = app.instance, app.physical, app.device, app.queue
    with pytest.raises(vkattn.UnsupportedError):
        vkattn.vulkan.adopt(*handles, **options)
    with vkattn.vulkan.adopt(*handles, **options, allow_missing=True) as made:
        x = np.linspace(-1, 1, 96, dtype=np.float32).reshape(SHAPE)
        assert np.allclose(vkattn.attention(x, x, x, causal=True, device=made), attention_of(x))
    app.close()
