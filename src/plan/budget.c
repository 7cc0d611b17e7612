#include "plan/budget.h"
#include "gpu/quirks.h"

/* Margin of measured rates: clocks change, and masks, strides and sizes that were not measured are
 * slower. */
#define MARGIN 0.5

static const struct rate cautious[VKA_DEVICE_TYPE_COUNT] = {
    [VKA_DEVICE_OTHER] = {2, 1},     [VKA_DEVICE_CPU] = {2, 1},
    [VKA_DEVICE_VIRTUAL] = {2, 1},   [VKA_DEVICE_INTEGRATED] = {8, 1},
    [VKA_DEVICE_DISCRETE] = {50, 5},
};

enum kernel budget_class(enum kernel kernel)
{
    return kernel_table[kernel].family == FAMILY_MOVE ? KERNEL_copy : kernel;
}

struct rate budget_cautious(const struct caps *caps)
{
    return cautious[caps->properties.type];
}

bool budget_is_measured(const struct rates *rates, enum kernel kernel)
{
    return rates->of[budget_class(kernel)].device > 0;
}

double budget_time(const struct caps *caps, const struct rates *rates, enum kernel kernel,
                   const struct work *work)
{
    struct rate rate = budget_cautious(caps);
    if (budget_is_measured(rates, kernel)) {
        rate = rates->of[budget_class(kernel)];
        rate.device *= MARGIN;
        rate.group *= MARGIN;
    }
    double all = work->ops / rate.device, one = work->longest / rate.group;
    return all > one ? all : one;
}

double budget_max_loops(const struct caps *caps)
{
    if (caps->kernels[KERNEL_loop_probe] == KERNEL_WRONG)
        return LOOPS_LEAST;
    return caps->max_loops ? caps->max_loops : LOOPS_CHECKED;
}

bool budget_fits(const struct caps *caps, const struct rates *rates, enum kernel kernel,
                 const struct work *work, double budget)
{
    return budget_time(caps, rates, kernel, work) <= budget &&
           work->loops <= budget_max_loops(caps);
}

size_t budget_group(const double *time, size_t n, double budget, size_t *first)
{
    size_t count = 0;
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || sum + time[i] > budget) {
            first[count++] = i;
            sum = 0;
        }
        sum += time[i];
    }
    return count;
}
