#include "gpu/blob.h"

#include <string.h>

struct tail {
    char magic[8];
    uint64_t fingerprint;          /* of device, driver and kernels */
    struct kernel_set done, wrong; /* kernels that were self-tested, that failed */
    uint64_t check;                /* hash of the driver's bytes and the fields above */
};

_Static_assert(sizeof(struct tail) == BLOB_TAIL, "no padding");

/* Increase the digit when the tail or the problems of the self-tests change. */
static const char magic[8] = {'v', 'k', 'a', 't', 't', 'n', '-', '3'};

/* Hashes the kernels, how they are compiled, the device, and everything that tells one build of its
 * driver from another. */
static uint64_t fingerprint(const struct vka_device *device)
{
    const struct vka_device_properties *p = &device->caps.properties;
    VkPhysicalDeviceProperties driver;
    device->instance.vkGetPhysicalDeviceProperties(device->physical, &driver);
    uint64_t h = tuning_profile_fingerprint(p);
    h = hash_bytes(h, &p->driver_version, sizeof p->driver_version);
    h = hash_bytes(h, driver.pipelineCacheUUID, VK_UUID_SIZE);
    h = hash_bytes(h, &p->subgroup_size, sizeof p->subgroup_size);
    h = hash_bytes(h, &p->max_shared_memory, sizeof p->max_shared_memory);
    return hash_bytes(h, &p->max_workgroup, sizeof p->max_workgroup);
}

static uint64_t checksum(const void *driver, size_t size, const struct tail *tail)
{
    uint64_t h = hash_bytes(HASH_START, driver, size);
    return hash_bytes(h, tail, offsetof(struct tail, check));
}

/* Checks the header that Vulkan defines for pipeline caches. Data of another driver or device is
 * dropped before the driver sees it, as not all drivers check. So is the data of Mesa 26's
 * llvmpipe, which writes a header that is too short. */
static bool is_of_driver(const struct vka_device *device, const void *data, size_t size)
{
    VkPipelineCacheHeaderVersionOne header;
    if (size < sizeof header)
        return false;
    memcpy(&header, data, sizeof header);
    VkPhysicalDeviceProperties p;
    device->instance.vkGetPhysicalDeviceProperties(device->physical, &p);
    return header.headerSize >= sizeof header && header.headerSize <= size &&
           header.headerVersion == VK_PIPELINE_CACHE_HEADER_VERSION_ONE &&
           header.vendorID == p.vendorID && header.deviceID == p.deviceID &&
           memcmp(header.pipelineCacheUUID, p.pipelineCacheUUID, VK_UUID_SIZE) == 0;
}

static void take_results(struct vka_device *device, const struct tail *found)
{
    struct caps *caps = &device->caps;
    for (int k = 0; k < KERNEL_COUNT; k++) {
        bool wrong = set_has(found->wrong, k);
        if (caps->kernels[k] == KERNEL_UNTESTED && set_has(found->done, k))
            caps->kernels[k] = wrong ? KERNEL_WRONG : KERNEL_RIGHT;
        if (wrong && !caps->trusted)
            log_message(&device->log, VKA_LOG_WARNING,
                        "kernel %s failed its self-test in an earlier run and is not used",
                        kernel_table[k].name);
    }
}

size_t blob_read(struct vka_device *device, const void *blob, size_t size)
{
    struct tail found;
    if (!blob || size < sizeof found)
        return 0;
    size -= sizeof found;
    memcpy(&found, (const char *)blob + size, sizeof found);
    if (memcmp(found.magic, magic, sizeof magic) != 0 ||
        found.check != checksum(blob, size, &found))
        return 0;
    if (found.fingerprint == fingerprint(device))
        take_results(device, &found);
    return is_of_driver(device, blob, size) ? size : 0;
}

void blob_write_tail(const struct vka_device *device, void *blob, size_t size)
{
    struct tail t = {.fingerprint = fingerprint(device)};
    for (int k = 0; k < KERNEL_COUNT; k++) {
        bool wrong = device->caps.kernels[k] == KERNEL_WRONG;
        if (wrong || device->caps.kernels[k] == KERNEL_RIGHT)
            set_add(&t.done, k);
        if (wrong)
            set_add(&t.wrong, k);
    }
    memcpy(t.magic, magic, sizeof magic);
    t.check = checksum(blob, size, &t);
    memcpy((char *)blob + size, &t, sizeof t);
}
