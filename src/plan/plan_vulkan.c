/* Plans with the application's own command buffers and semaphores. */
#include "plan/plan.h"
#include "plan/record.h"

enum vka_status vka_plan_record(struct vka_plan *plan, VkCommandBuffer commands)
{
    if (!plan)
        return VKA_INVALID;
    struct log *log = &plan->device->log;
    ENSURE_ARG(plan->finished, "%s: the plan is not finished: call vka_plan_finish", __func__);
    ENSURE_ARG(commands, "%s: commands is VK_NULL_HANDLE", __func__);
    ENSURE(plan_check_alive(plan));
    plan_record_into(plan, commands);
    return VKA_OK;
}

static enum vka_status check_semaphores(struct vka_device *device, const char *caller,
                                        const char *name, const struct vka_semaphore *list,
                                        uint32_t n)
{
    struct log *log = &device->log;
    ENSURE_ARG(n <= VKA_MAX_SEMAPHORES, "%s: %s has %u semaphores, but at most %d are supported",
               caller, name, n, VKA_MAX_SEMAPHORES);
    ENSURE_ARG(list || !n, "%s: %s is NULL", caller, name);
    for (uint32_t i = 0; i < n; i++) {
        ENSURE_ARG(list[i].semaphore, "%s: %s[%u] is VK_NULL_HANDLE", caller, name, i);
        if (list[i].value && !device->queue.timeline)
            return log_error(log, VKA_UNSUPPORTED,
                             "%s: %s[%u] has a value, but timelineSemaphore is not enabled", caller,
                             name, i);
    }
    return VKA_OK;
}

enum vka_status vka_plan_submit_with(struct vka_plan *plan, const struct vka_submit_info *info,
                                     uint64_t *ticket)
{
    static const struct vka_submit_info defaults = {.struct_size = sizeof defaults};
    if (!plan)
        return VKA_INVALID;
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    if (!info)
        info = &defaults;
    ENSURE_ARG(info->struct_size == sizeof *info, "%s: struct_size is %zu, not %zu", __func__,
               info->struct_size, sizeof *info);
    ENSURE(check_semaphores(device, __func__, "waits", info->waits, info->n_wait));
    ENSURE(check_semaphores(device, __func__, "signals", info->signals, info->n_signal));
    return plan_submit(plan, __func__, info, ticket);
}
