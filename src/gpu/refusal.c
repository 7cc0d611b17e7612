#include "gpu/refusal.h"

#include <stdlib.h>
#include <string.h>

bool refusal_is(VkResult result)
{
    return result < 0 && result != VK_ERROR_DEVICE_LOST;
}

static bool is_memory(VkResult result)
{
    return result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY;
}

#define WHY(result) "is refused by the driver's compiler (vkCreateComputePipelines: " result ")"
#define WHY_MODULE(result) "is refused by the driver's compiler (vkCreateShaderModule: " result ")"
#define ROW(result)                                \
    {                                              \
        result, WHY(#result), WHY_MODULE(#result), \
    }

/* The end of a sentence that begins with "the kernel", for as long as the program runs. */
static const char *why(VkResult result, const char *call)
{
    static const struct {
        int result;
        const char *pipeline, *module;
    } rows[] = {
        ROW(VK_ERROR_OUT_OF_HOST_MEMORY),
        ROW(VK_ERROR_OUT_OF_DEVICE_MEMORY),
        ROW(VK_ERROR_INITIALIZATION_FAILED),
        ROW(VK_ERROR_FEATURE_NOT_PRESENT),
        ROW(VK_ERROR_UNKNOWN),
        ROW(VK_ERROR_INVALID_SHADER_NV),
        {0, WHY("another error"), WHY_MODULE("another error")},
    };
    size_t i = 0;
    while (rows[i].result && rows[i].result != (int)result)
        i++;
    return strcmp(call, "vkCreateShaderModule") == 0 ? rows[i].module : rows[i].pipeline;
}

static enum vka_status add(struct vka_device *device, const struct refusal *refusal)
{
    struct log *log = &device->log;
    struct refusals *all = &device->refusals;
    struct refusal *added = malloc(sizeof *added);
    ENSURE_ALLOC(added);
    *added = *refusal;
    added->serial = ++all->serial;
    added->next = all->last;
    all->last = added;
    return VKA_OK;
}

enum vka_status refusal_add_why(struct vka_device *device, const struct pipeline_key *key,
                                VkResult result, const char *reason)
{
    struct refusals *all = &device->refusals;
    ENSURE(add(device, &(struct refusal){.key = *key, .result = result}));
    all->of[key->kernel]++;
    all->why[key->kernel] = reason;
    all->result[key->kernel] = result;
    log_message(&device->log, VKA_LOG_WARNING,
                "a pipeline of the kernel %s %s; another kernel is taken where there is one",
                kernel_table[key->kernel].name, all->why[key->kernel]);
    return VKA_OK;
}

enum vka_status refusal_add(struct vka_device *device, const struct pipeline_key *key,
                            VkResult result, const char *call)
{
    return refusal_add_why(device, key, result, why(result, call));
}

enum vka_status refusal_add_kernel(struct vka_device *device, enum kernel kernel)
{
    const struct refusals *all = &device->refusals;
    ENSURE(add(device, &(struct refusal){
                           .key.kernel = kernel, .whole = true, .result = all->result[kernel]}));
    device->caps.refused[kernel] = all->why[kernel];
    log_message(&device->log, VKA_LOG_WARNING, "the kernel %s %s, and is not used",
                kernel_table[kernel].name, all->why[kernel]);
    return VKA_OK;
}

bool refusal_find(const struct vka_device *device, const struct pipeline_key *key)
{
    const struct refusal *r = device->refusals.last;
    while (r && (r->whole || !pipeline_same_key(&r->key, key)))
        r = r->next;
    return r;
}

enum vka_status refusals_forget(struct vka_device *device, uint64_t serial, bool all)
{
    struct refusal **link = &device->refusals.last;
    VkResult first = VK_SUCCESS;
    while (*link && (*link)->serial > serial) {
        struct refusal *r = *link;
        const bool memory = is_memory(r->result);
        if (!memory && !all) {
            link = &r->next;
            continue;
        }
        first = memory ? r->result : first;
        if (r->whole)
            device->caps.refused[r->key.kernel] = NULL;
        *link = r->next;
        free(r);
    }
    return first == VK_SUCCESS ? VKA_OK : vk_error(&device->log, first, "vkCreateComputePipelines");
}

void refusals_finish(struct refusals *refusals)
{
    while (refusals->last) {
        struct refusal *r = refusals->last;
        refusals->last = r->next;
        free(r);
    }
}
