#include "kernel/softmax.h"

/* On CPU drivers a barrier costs more than the atomics of a score. A subgroup may have one lane. */
static bool exchanges(const struct caps *caps, uint32_t lanes)
{
    return caps->properties.type != VKA_DEVICE_CPU && lanes % 2 == 0;
}

void tune_softmax(const struct caps *caps, uint32_t n_kv, struct softmax_choice *choice)
{
    if (!kernel_missing(KERNEL_softmax_subgroup, caps)) {
        choice->kernel = KERNEL_softmax_subgroup;
        choice->lanes = caps->properties.subgroup_size;
        choice->exchange = exchanges(caps, choice->lanes);
        choice->reason = "a subgroup a row: reductions without shared memory";
        return;
    }
    choice->kernel = KERNEL_softmax_shared;
    choice->lanes = 128;
    while (choice->lanes > 8 && choice->lanes / 2 >= n_kv)
        choice->lanes /= 2;
    choice->exchange = exchanges(caps, choice->lanes);
    choice->reason = "no usable subgroup reductions: shared memory";
}
