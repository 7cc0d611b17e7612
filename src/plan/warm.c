#include "plan/warm.h"
#include "core/os.h"
#include "plan/record.h"

#include <math.h>
#include <string.h>

/* Milliseconds of compiling that the log tells of. */
#define SLOW_MS 10000.0

static bool compiles_in_runs(const struct vka_device *device)
{
    return device->caps.properties.type == VKA_DEVICE_CPU;
}

static bool is_cold(const struct vka_plan *plan, size_t pass)
{
    return !pipeline_get(plan->device, &plan->passes[pass].key)->warm;
}

/* The names of the kernels whose pipelines were not dispatched yet, each once, cut to size. */
static void list_cold(const struct vka_plan *plan, char *text, size_t size)
{
    struct kernel_set listed = NO_KERNELS;
    text[0] = '\0';
    for (size_t i = 0; i < plan->n_pass; i++) {
        const enum kernel kernel = plan->passes[i].key.kernel;
        if (set_has(listed, kernel) || !is_cold(plan, i))
            continue;
        size_t length = strlen(text);
        set_add(&listed, kernel);
        snprintf(text + length, size - length, "%s%s", length ? ", " : "",
                 kernel_table[kernel].name);
    }
}

static void set_warm(const struct vka_plan *plan)
{
    for (size_t i = 0; i < plan->n_pass; i++)
        pipeline_get(plan->device, &plan->passes[i].key)->warm = true;
}

/* Submits an empty dispatch of each cold pipeline; sets plan->warm_ticket where there is one. */
static enum vka_status submit(struct vka_plan *plan)
{
    static const uint32_t no_groups[3] = {0, 0, 0};
    const VkPipelineStageFlags compute = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
    const VkAccessFlags shader = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT;
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    VkCommandBuffer commands; /* freed with the plan's pool */
    size_t cold = 0;
    while (cold < plan->n_pass && !is_cold(plan, cold))
        cold++;
    if (cold == plan->n_pass)
        return VKA_OK;
    ENSURE(vk_allocate_commands(log, &device->vk, device->handle, plan->pool, 1, &commands));
    ENSURE(vk_begin(log, &device->vk, commands, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT));
    for (size_t i = cold; i < plan->n_pass; i++)
        pipeline_get(device, &plan->passes[i].key)->listed = false;
    for (size_t i = cold; i < plan->n_pass; i++) {
        struct pipeline *p = pipeline_get(device, &plan->passes[i].key);
        if (!p->warm && !p->listed) {
            pass_record(device, commands, &plan->passes[i], no_groups);
            /* A validation layer takes a dispatch without workgroups for one that writes. */
            vk_barrier(&device->vk, commands, compute, compute, VK_ACCESS_SHADER_WRITE_BIT, shader);
        }
        p->listed = true;
    }
    ENSURE_VK(device->vk.vkEndCommandBuffer(commands));
    plan->warm_since = os_now_ms();
    return queue_submit(device, &commands, 1, false, NULL, &plan->warm_ticket);
}

enum vka_status plan_warm(struct vka_plan *plan, const char *caller)
{
    struct log *log = &plan->device->log;
    char names[200];
    if (!compiles_in_runs(plan->device))
        return VKA_OK;
    if (!plan->warm_ticket)
        ENSURE(submit(plan));
    if (!plan->warm_ticket)
        return VKA_OK;
    list_cold(plan, names, sizeof names);
    enum vka_status status = queue_try(plan->device, plan->warm_ticket, plan->compile_timeout);
    const double ms = os_now_ms() - plan->warm_since;
    if (status == VKA_TIMEOUT)
        return log_error(
            log, VKA_TIMEOUT,
            "%s: the driver has not compiled %s after %.3g s: call it again to wait on", caller,
            names, fmax(ms / 1e3, (double)plan->compile_timeout * 1e-9));
    ENSURE(status);
    if (ms >= SLOW_MS)
        log_message(log, VKA_LOG_WARNING, "the driver compiled %s for %.1f s", names, ms / 1e3);
    set_warm(plan);
    plan->warm_ticket = 0;
    return VKA_OK;
}
