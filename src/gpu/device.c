#include "gpu/device.h"
#include "core/os.h"
#include "gpu/device_caps.h"
#include "gpu/device_logical.h"
#include "gpu/memory_block.h"
#include "gpu/storage.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PHYSICAL 64

static enum vka_status list_physical(struct log *log, const struct vk_instance *instance,
                                     VkPhysicalDevice physical[MAX_PHYSICAL], uint32_t *count)
{
    *count = MAX_PHYSICAL;
    VkResult result = instance->vkEnumeratePhysicalDevices(instance->handle, count, physical);
    if (result != VK_SUCCESS && result != VK_INCOMPLETE)
        return vk_error(log, result, "vkEnumeratePhysicalDevices");
    if (*count == 0)
        return log_error(
            log, VKA_NO_DEVICE,
            "no Vulkan device was found: install the GPU's driver, or Mesa's for CPUs");
    return VKA_OK;
}

enum vka_status vka_device_list(const struct vka_device_info *info,
                                struct vka_device_properties *properties, size_t *count)
{
    struct log log_here = {0}, *log = &log_here;
    struct vk_instance instance = {0};
    enum vka_status status = VKA_OK;
    VkPhysicalDevice physical[MAX_PHYSICAL];
    uint32_t n = 0;
    if (info) {
        log_here.callback = info->log;
        log_here.user = info->log_user;
    }
    CHECK_ARG(count, "%s: count is NULL", __func__);
    CHECK_ARG(properties || *count == 0, "%s: properties is NULL, but *count is not 0", __func__);
    TRY(vk_instance_create(log, false, false, &instance));
    TRY(list_physical(log, &instance, physical, &n));
    for (uint32_t i = 0; i < n && i < *count; i++) {
        struct caps caps;
        uint32_t family;
        device_read_caps(&instance, physical[i], i, &caps, &family);
        properties[i] = caps.properties;
        if (caps.properties.type != VKA_DEVICE_CPU)
            vk_keep_driver();
    }
    *count = n;
fail:
    if (status != VKA_OK)
        log_keep(log);
    vk_instance_destroy(&instance);
    return status;
}

/* The small letter of ASCII. tolower() follows the program's locale, and a Turkish one leaves I as it is. */
static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool contains(const char *text, const char *word)
{
    for (; *text; text++) {
        size_t i = 0;
        while (word[i] && lower(text[i]) == lower(word[i]))
            i++;
        if (!word[i])
            return true;
    }
    return false;
}

/* Whether `wanted` (vka_device_info.device, not NULL) names this device. */
static bool is_wanted(const char *wanted, const struct vka_device_properties *p)
{
    char *end;
    unsigned long index = strtoul(wanted, &end, 10);
    if (isdigit((unsigned char)wanted[0]) && *end == '\0')
        return index == p->index;
    return contains(p->name, wanted);
}

enum vka_status device_few_bindings(struct log *log, const struct caps *caps)
{
    return log_error(log, VKA_UNSUPPORTED,
                     "%s: maxPerStageDescriptorStorageBuffers is %" PRIu32
                     ", and kernels bind up to %u",
                     caps->properties.name, caps->max_bindings, LEAST_BINDINGS);
}

/* Chooses the most capable physical device that is wanted and can compute. */
static enum vka_status choose(struct vka_device *device, const char *wanted)
{
    struct log *log = &device->log;
    VkPhysicalDevice physical[MAX_PHYSICAL];
    uint32_t n;
    enum vka_status status = list_physical(log, &device->instance, physical, &n);
    bool found = false, wanted_found = false;
    struct caps few = {0}; /* of a device that binds too few buffers */
    char names[400] = "";
    for (uint32_t i = 0; status == VKA_OK && i < n; i++) {
        struct caps caps;
        uint32_t family;
        device_read_caps(&device->instance, physical[i], i, &caps, &family);
        const size_t named = strlen(names);
        snprintf(names + named, sizeof names - named, "%s%" PRIu32 ": %s", i ? ", " : "", i,
                 caps.properties.name);
        if (wanted && !is_wanted(wanted, &caps.properties))
            continue;
        wanted_found = true;
        if (family == UINT32_MAX || caps.properties.api_version < VK_API_VERSION_1_1)
            continue;
        if (caps.max_bindings < LEAST_BINDINGS) {
            few = caps;
            continue;
        }
        if (found && caps.properties.type <= device->caps.properties.type)
            continue;
        found = true;
        device->physical = physical[i];
        device->caps = caps;
        device->queue_family = family;
    }
    if (status != VKA_OK || found)
        return status;
    if (wanted && !wanted_found)
        return log_error(log, VKA_NO_DEVICE, "no Vulkan device is called \"%s\": there is %s",
                         wanted, names);
    if (few.properties.name[0])
        return device_few_bindings(log, &few);
    return log_error(log, VKA_UNSUPPORTED, "no device has Vulkan 1.1 and a compute queue");
}

enum vka_status device_check_info(struct log *log, const char *caller,
                                  const struct vka_device_info *info)
{
    ENSURE_ARG(info->struct_size == sizeof *info, "%s: struct_size is %zu, not %zu", caller,
               info->struct_size, sizeof *info);
    ENSURE_ARG(!info->device || *info->device,
               "%s: device is an empty name; NULL takes the most capable device", caller);
    ENSURE_ARG(info->pipeline_cache || !info->pipeline_cache_size,
               "%s: pipeline_cache is NULL, but pipeline_cache_size is not 0", caller);
    ENSURE_ARG(info->tuning_profile || !info->tuning_profile_size,
               "%s: tuning_profile is NULL, but tuning_profile_size is not 0", caller);
    ENSURE_ARG(!info->max_buffer_range || info->max_buffer_range >= 65536,
               "%s: max_buffer_range is below 65536", caller);
    ENSURE_ARG(!info->max_allocation || info->max_allocation >= 1u << 20,
               "%s: max_allocation is below 1 MiB", caller);
    ENSURE_ARG(!info->max_memory || info->max_memory >= 1u << 20, "%s: max_memory is below 1 MiB",
               caller);
    ENSURE_ARG(!info->max_shared_memory || info->max_shared_memory >= 4096,
               "%s: max_shared_memory is below 4096", caller);
    return VKA_OK;
}

void device_lower_limits(struct vka_device *device, const struct vka_device_info *info)
{
    struct vka_device_properties *p = &device->caps.properties;
    if (info->max_buffer_range && info->max_buffer_range < p->max_buffer_range)
        p->max_buffer_range = info->max_buffer_range;
    if (info->max_allocation && info->max_allocation < p->max_allocation)
        p->max_allocation = info->max_allocation;
    if (info->max_shared_memory && info->max_shared_memory < p->max_shared_memory)
        p->max_shared_memory = info->max_shared_memory;
    p->timeline &= !info->no_timeline;
}

void device_load_labels(struct vka_device *device)
{
    PFN_vkGetDeviceProcAddr get = device->instance.vkGetDeviceProcAddr;
    device->begin_label =
        (PFN_vkCmdBeginDebugUtilsLabelEXT)get(device->handle, "vkCmdBeginDebugUtilsLabelEXT");
    device->end_label =
        (PFN_vkCmdEndDebugUtilsLabelEXT)get(device->handle, "vkCmdEndDebugUtilsLabelEXT");
}

enum vka_status device_start(struct vka_device *device, const struct vka_device_info *info)
{
    if (info->labels && (device->adopted || device->instance.debug_utils))
        device_load_labels(device);
    if (info->tuning_profile)
        ENSURE(tuning_profile_read(&device->log, info->tuning_profile, info->tuning_profile_size,
                                   &device->caps, &device->profile));
    device->caps.profile = &device->profile;
    device->self_test.off = device->caps.trusted = info->skip_self_test;
    ENSURE(memory_init(device, !info->no_mapped_memory, info->max_memory));
    /* Kept when a device is recovered: plans bind it. */
    ENSURE(storage_create(device, MEMORY_STAGING, 8, &device->running));
    ENSURE(queue_init(device, device->caps.properties.timeline));
    return pipelines_init(device, info->pipeline_cache, info->pipeline_cache_size);
}

/* Adds to why a device could not be opened which it was, and what to do. */
static enum vka_status not_opened(struct vka_device *device, enum vka_status status)
{
    char why[sizeof device->log.error];
    memcpy(why, device->log.error, sizeof why);
    return log_error(&device->log, status,
                     "%s cannot be used (%s): mend its driver, or name another device",
                     device->caps.properties.name, why);
}

enum vka_status device_create(const struct vka_device_info *info, test_kernel_function *test,
                              struct vka_device **out)
{
    static const char *const caller = "vka_device_create";
    static const struct vka_device_info defaults = {.struct_size = sizeof defaults};
    if (!out)
        return VKA_INVALID;
    *out = NULL;
    if (!info)
        info = &defaults;
    struct log log_here = {.callback = info->log, .user = info->log_user}, *log = &log_here;
    enum vka_status status = VKA_OK;
    struct vka_device *device = NULL;
    struct device_request request;
    TRY(device_check_info(log, caller, info));
    device = calloc(1, sizeof *device);
    CHECK_ALLOC(device);
    device->self_test.run = test;
    device->process = os_process();
    device->log = log_here;
    log = &device->log;
    TRY(vk_instance_create(log, info->validation, info->labels, &device->instance));
    TRY(choose(device, info->device));
    if (device->caps.properties.type != VKA_DEVICE_CPU)
        vk_keep_driver();
    device_lower_limits(device, info);
    device_request_fill(device, &request);
    status = device_create_logical(device, &request);
    if (status != VKA_OK && status != VKA_OUT_OF_HOST_MEMORY)
        status = not_opened(device, status);
    TRY(status);
    TRY(device_start(device, info));
    *out = device;
    return VKA_OK;

fail:
    log_keep(log);
    vka_device_destroy(&device);
    return status;
}

void vka_device_destroy(struct vka_device **slot)
{
    if (!slot || !*slot)
        return;
    struct vka_device *device = *slot;
    *slot = NULL;
    if (!queue_finish(device))
        return; /* the driver may still use everything: it stays until the process ends */
    pipelines_finish(device);
    storage_unref(&device->running);
    memory_finish(device);
    if (!device_is_forked(device)) {
        if (device->handle && !device->adopted)
            device->vk.vkDestroyDevice(device->handle, NULL);
        vk_instance_destroy(&device->instance);
    }
    tuning_profile_free(&device->profile);
    refusals_finish(&device->refusals);
    free(device);
}

const char *vka_device_error(const struct vka_device *device)
{
    return device ? device->log.error : log_kept();
}

const struct vka_device_properties *vka_device_properties(const struct vka_device *device)
{
    return device ? &device->caps.properties : NULL;
}

size_t vka_device_tuning_profile_head(const struct vka_device *device, char *text, size_t size)
{
    return device ? tuning_profile_identity(&device->caps.properties, text, size) : 0;
}

size_t vka_kernel_count(void)
{
    return KERNEL_COUNT;
}

enum vka_status vka_device_kernel(struct vka_device *device, size_t index,
                                  struct vka_kernel_info *info)
{
    if (!device)
        return VKA_INVALID;
    struct log *log = &device->log;
    ENSURE_ARG(info, "%s: info is NULL", __func__);
    ENSURE_ARG(index < KERNEL_COUNT, "%s: index %zu is past the last kernel", __func__, index);
    info->name = kernel_table[index].name;
    info->missing = kernel_missing((enum kernel)index, &device->caps);
    enum kernel_state kernel_state = device->caps.kernels[index];
    info->tested = kernel_state == KERNEL_RIGHT || kernel_state == KERNEL_WRONG;
    info->refused = device->refusals.why[index];
    return VKA_OK;
}

/* Destroys every Vulkan object, the device too; skips those that do not exist. */
static void stop(struct vka_device *device)
{
    for (struct recorded *r = device->recorded; r; r = r->next)
        r->release(r);
    queue_finish(device);
    device->queue = (struct queue){.submitted = device->queue.submitted};
    device->queue.completed = device->queue.submitted;
    const struct pipelines was = device->pipelines;
    pipelines_finish(device);
    device->pipelines = (struct pipelines){.flags = was.flags, .late = was.late};
    memory_empty(device);
    if (device->handle)
        device->vk.vkDestroyDevice(device->handle, NULL);
    device->handle = VK_NULL_HANDLE;
}

/* Restores contents that were kept; marks other storages stale. */
static enum vka_status restore_storages(struct vka_device *device)
{
    for (struct storage *s = device->kept; s; s = s->next_kept) {
        s->stale = !s->kept;
        if (s->kept)
            ENSURE(storage_restore(s));
    }
    return VKA_OK;
}

static enum vka_status start(struct vka_device *device)
{
    struct device_request request;
    device_request_fill(device, &request);
    ENSURE(device_create_logical(device, &request));
    if (device->begin_label)
        device_load_labels(device);
    ENSURE(memory_refill(device));
    ENSURE(queue_init(device, device->caps.properties.timeline));
    ENSURE(pipelines_init(device, NULL, 0));
    ENSURE(restore_storages(device));
    for (struct recorded *r = device->recorded; r; r = r->next)
        ENSURE(r->restore(r));
    return VKA_OK;
}

/* Makes all Vulkan objects again. */
static enum vka_status restart(struct vka_device *device)
{
    stop(device);
    device->lost = false; /* so that the calls of start work */
    return start(device);
}

/* Has a driver compile what it would in first runs. */
static enum vka_status compile(struct vka_device *device)
{
    for (struct recorded *r = device->recorded; r; r = r->next)
        if (r->compile)
            ENSURE(r->compile(r));
    return VKA_OK;
}

enum vka_status vka_device_recover(struct vka_device *device)
{
    if (!device)
        return VKA_INVALID;
    struct log *log = &device->log;
    if (device_is_forked(device))
        return device_check(device);
    ENSURE_ARG(device->lost || device->compiles, "%s: the device is not lost", __func__);
    if (device->adopted || !memory_is_own(device))
        return log_error(log, VKA_UNSUPPORTED,
                         "%s: the device, or memory that a tensor wraps, is the application's: "
                         "make a new device",
                         __func__);
    enum vka_status status = device->lost ? restart(device) : VKA_OK;
    const bool restored = status == VKA_OK;
    if (restored)
        status = compile(device);
    device->compiles = restored && status == VKA_TIMEOUT;
    if (status == VKA_OK || device->compiles)
        return status;
    queue_drain(device); /* a copy may be in flight: the next attempt releases what it uses */
    device->lost = true;
    return status;
}
