#include "plan/settle.h"

/* Tests the kernels of `kernels` that are untested and not in `tried`; *some: there was one. Tests
 * loop_probe first, as every choice depends on the loops that a driver runs. */
static enum vka_status test_some(struct vka_device *device, const struct caps *caps,
                                 uint32_t head_dim, struct kernel_set kernels,
                                 struct kernel_set *tried, bool *some)
{
    *some = false;
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < KERNEL_COUNT; k++) {
            bool wanted = pass == 0 ? k == KERNEL_loop_probe : set_has(kernels, k);
            if (!wanted || set_has(*tried, k) || caps->kernels[k] != KERNEL_UNTESTED ||
                kernel_missing((enum kernel)k, caps))
                continue;
            *some = true;
            set_add(tried, k);
            ENSURE(device->self_test.run(device, (enum kernel)k, head_dim));
        }
    return VKA_OK;
}

/* plan NULL: for the device alone. */
static enum vka_status settle(struct vka_device *device, struct vka_plan *plan, uint32_t head_dim,
                              settle_choose *choose, void *job)
{
    struct kernel_set tried = NO_KERNELS;
    bool some = true;
    while (some) {
        if (plan)
            plan_read_caps(plan);
        const struct caps caps = plan ? plan->caps : device->caps;
        struct kernel_set kernels = choose(&caps, job);
        if (device->self_test.off)
            return VKA_OK;
        ENSURE(test_some(device, &caps, head_dim, kernels, &tried, &some));
    }
    return VKA_OK;
}

enum vka_status plan_settle(struct vka_plan *plan, uint32_t head_dim, settle_choose *choose,
                            void *job)
{
    enum vka_status status = settle(plan->device, plan, head_dim, choose, job);
    plan_read_caps(plan);
    return status;
}

enum vka_status device_settle(struct vka_device *device, settle_choose *choose, void *job)
{
    return settle(device, NULL, 0, choose, job);
}

static struct kernel_set choose_one(const struct caps *caps, void *job)
{
    (void)caps;
    return KERNEL_SET(*(const enum kernel *)job);
}

enum vka_status plan_settle_kernel(struct vka_plan *plan, enum kernel kernel)
{
    return plan_settle(plan, 0, choose_one, &kernel);
}
