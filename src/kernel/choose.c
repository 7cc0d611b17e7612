#include "kernel/choose.h"

#include <stdio.h>
#include <string.h>

/* Fewest rows of A for which the rules may pack B. */
#define MANY_ROWS 32u

static const char measured[] = "measured on this device";

/* The largest power of 4 up to n and 4096: a measurement holds up to the next size. */
static unsigned size_class(uint64_t n)
{
    unsigned size = 1;
    while (size < 4096 && size * 4ull <= n)
        size *= 4;
    return size;
}

/* Makes the rules choose the kernel of an entry: removes each kernel that they prefer to it. So the
 * choice is one that the rules make on some device, whatever the entry says. */
static bool force_matmul(const struct caps *caps, const struct matmul_problem *problem,
                         const struct tuning_profile_entry *entry, struct matmul_choice *choice)
{
    struct caps left = *caps;
    struct matmul_problem varied = *problem;
    varied.variant = entry->variant;
    for (int i = 0; i < KERNEL_COUNT; i++) {
        tune_matmul(&left, &varied, choice);
        if (kernel_missing(choice->kernel, &left) ||
            (problem->b_tile &&
             problem->b_tile != choice->b_tile)) /* it cannot read the packed B */
            return false;
        if (choice->kernel == entry->kernel)
            return true;
        set_add(&left.without, choice->kernel);
    }
    return false;
}

void choose_matmul(const struct caps *caps, const struct matmul_problem *problem,
                   struct matmul_choice *choice)
{
    char name[PROFILE_PROBLEM];
    snprintf(name, sizeof name, "matmul/%s*%s/%s%s%s%u/m%u/n%u/k%u",
             vka_dtype_name(problem->a_type), vka_dtype_name(problem->b_type),
             problem->a_plain ? "p" : "-", problem->a_vec ? "a" : "-", problem->b_vec ? "b" : "-",
             problem->b_tile, problem->m < MANY_ROWS ? 1 : MANY_ROWS,
             size_class(problem->cached ? UINT32_MAX : problem->n),
             size_class(problem->cached ? UINT32_MAX : problem->k));
    const struct tuning_profile_entry *entry = tuning_profile_find(caps->profile, name, false);
    if (entry && force_matmul(caps, problem, entry, choice))
        choice->reason = measured;
    else
        tune_matmul(caps, problem, choice);
    memcpy(choice->problem, name, sizeof name);
}

static bool force_attention(const struct caps *caps, const struct attention_problem *problem,
                            const struct tuning_profile_entry *entry,
                            struct attention_choice *choice)
{
    struct caps left = *caps;
    struct attention_problem varied = *problem;
    varied.variant = entry->variant;
    for (int i = 0; i < KERNEL_COUNT; i++) {
        tune_attention(&left, &varied, choice);
        if (!choice->usable)
            return false;
        if (choice->kernel == entry->kernel)
            return true;
        set_add(&left.without, choice->kernel);
    }
    return false;
}

void choose_attention(const struct caps *caps, const struct attention_problem *problem,
                      struct attention_choice *choice)
{
    char name[PROFILE_PROBLEM];
    const uint32_t n_kv = problem->cached ? UINT32_MAX : problem->n_kv; /* as of many keys */
    snprintf(name, sizeof name, "attention/%s*%s/d%u/v%u/q%u/k%u", vka_dtype_name(problem->q_type),
             vka_dtype_name(problem->kv_type), problem->head_dim, problem->value_dim,
             size_class(problem->n_row), size_class(n_kv));
    const struct tuning_profile_entry *kernel = tuning_profile_find(caps->profile, name, false);
    const struct tuning_profile_entry *path = tuning_profile_find(caps->profile, name, true);
    if (kernel && force_attention(caps, problem, kernel, choice))
        choice->reason = measured;
    else
        tune_attention(caps, problem, choice);
    if (path)
        choice->preferred = path->fused;
    memcpy(choice->problem, name, sizeof name);
}
