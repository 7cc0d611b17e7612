#include "kernel/softmax.h"

void tune_softmax(const struct caps *caps, uint32_t n_kv, struct softmax_choice *choice)
{
    /* On CPU drivers a barrier costs more than the atomics of a score. */
    choice->exchange = caps->properties.type != VKA_DEVICE_CPU;
    if (!kernel_missing(KERNEL_softmax_subgroup, caps)) {
        choice->kernel = KERNEL_softmax_subgroup;
        choice->lanes = caps->properties.subgroup_size;
        choice->reason = "a subgroup a row: reductions without shared memory";
        return;
    }
    choice->kernel = KERNEL_softmax_shared;
    choice->lanes = 128;
    while (choice->lanes > 8 && choice->lanes / 2 >= n_kv)
        choice->lanes /= 2;
    choice->reason = "no usable subgroup reductions: shared memory";
}
