#include "plan/calibrate.h"
#include "core/os.h"

#include <math.h>

#define RUNS 3          /* the first compiles and maps memory */
#define GROUPS 4096u    /* most workgroups: more than any device runs at once */
#define ENOUGH_MS 2.0   /* runs this long are measured well */
#define LEAST_GROUPS 16 /* fewest workgroups, even if one takes ENOUGH_MS */
#define TOO_LONG_MS 20.0
#define SCRATCH (64ull << 20) /* bytes */
#define LEAST_FRACTION \
    2.0 /* divides the cautious rate: slower runs were delayed by other programs */
#define TIMEOUT (4 * VKA_TIMEOUT_DEFAULT) /* CPU drivers compile within the first run */
#define TICK_MS 1e-4                      /* resolution of clocks */

/* Whether the plan with this pass would exceed the budget of a submit by a rate not yet measured. */
static bool is_wanted(const struct vka_plan *plan, enum kernel kernel, const struct work *work)
{
    return !budget_is_measured(&plan->device->rates, kernel) &&
           plan->predicted + plan_time(plan, kernel, work) > plan->budget;
}

uint32_t calibrate_groups(const struct vka_plan *plan, uint64_t bytes, uint32_t n)
{
    const struct vka_device_properties *has = &plan->caps.properties;
    uint64_t room = has->max_allocation / 2 < SCRATCH ? has->max_allocation / 2 : SCRATCH;
    room = room < has->max_buffer_range ? room : has->max_buffer_range;
    uint64_t most = room / bytes;
    return most < 1 ? 1 : most < n ? (uint32_t)most : n;
}

/* The milliseconds of the last run by the device's clock; negative: not measured. */
static double device_ms(const struct vka_plan *plan)
{
    double ms = plan->timestamps ? 0 : -1;
    for (size_t i = 0; i < plan->n_pass && ms >= 0; i++)
        ms = plan->gpu_ms[i] < 0 ? -1 : ms + plan->gpu_ms[i];
    return ms;
}

/* The least time of a few runs of a finished plan, by the device's clock where it has one. */
static enum vka_status time_runs(struct vka_plan *plan, double *least)
{
    *least = INFINITY;
    for (int i = 0; i < RUNS; i++) {
        double begin = os_now_ms();
        ENSURE(vka_plan_run(plan, TIMEOUT));
        const double here = os_now_ms() - begin, there = device_ms(plan);
        const double ms = there < 0 ? here : there;
        if (i > 0)
            *least = fmin(*least, fmax(ms, TICK_MS));
    }
    return VKA_OK;
}

/* Runs a plan of about n workgroups; returns its work and milliseconds. A kernel that the driver
 * refuses is refused to the operation too. */
static enum vka_status measure(struct vka_plan *operation, calibrate_add *add, const void *problem,
                               uint32_t n, struct work *work, double *ms)
{
    struct vka_device *device = operation->device;
    enum vka_status status = VKA_OK;
    struct vka_plan *plan = NULL;
    const struct vka_plan_info info = {
        .struct_size = sizeof info, .timestamps = true, .submit_budget = VKA_NO_BUDGET};
    TRY(vka_plan_create(device, &info, &plan));
    TRY(add(plan, problem, n));
    TRY(vka_plan_finish(plan));
    *work = plan->passes[0].work;
    TRY(time_runs(plan, ms));
fail:
    if (plan && !set_is_empty(plan->refused) && status != VKA_OK) {
        set_join(&operation->refused, plan->refused);
        status = VKA_UNSUPPORTED;
    }
    vka_plan_destroy(&plan);
    return status;
}

enum vka_status calibrate(struct vka_plan *plan, enum kernel kernel, const struct work *pass_work,
                          calibrate_add *add, const void *problem)
{
    struct vka_device *device = plan->device;
    const struct rate cautious = budget_cautious(&device->caps);
    struct rate best = {cautious.device / LEAST_FRACTION, cautious.group / LEAST_FRACTION};
    enum vka_status status = VKA_OK;
    if (!is_wanted(plan, kernel, pass_work))
        return VKA_OK;
    if (device->queue.submitted) /* the host's clock measures only an idle device */
        TRY(queue_wait(device, device->queue.submitted, VKA_TIMEOUT_DEFAULT));
    double ms = 0;
    for (uint32_t n = 1; n <= GROUPS && ms < TOO_LONG_MS; n *= 4) {
        struct work work = {0};
        TRY(measure(plan, add, problem, n, &work, &ms));
        if (n == 1)
            best.group = fmax(best.group, work.longest / (ms * 1e6));
        best.device = fmax(best.device, work.ops / (ms * 1e6));
        if (ms >= ENOUGH_MS && n >= LEAST_GROUPS)
            break;
    }
fail:
    if (status == VKA_TIMEOUT) /* a CPU driver compiled for so long: not measured again */
        status = VKA_OK;
    if (status == VKA_OK)
        device->rates.of[budget_class(kernel)] = best;
    return status;
}
