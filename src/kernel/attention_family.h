/* The families of kernels of fused attention, for attention.c, and what they share. */
#ifndef VKA_KERNEL_ATTENTION_FAMILY_H
#define VKA_KERNEL_ATTENTION_FAMILY_H

#include "kernel/attention_problem.h"

struct attention_family {
    /* Fills in *choice; false where types, sizes or the device do not suit the family. */
    bool (*choose)(const struct caps *caps, const struct attention_problem *problem,
                   struct attention_choice *choice);
    /* Sets n_spec and all constants but the one of the state. */
    void (*set_key)(const struct attention_choice *choice,
                    const struct attention_operands *operands, struct pipeline_key *key);
    double (*count_loops)(const struct attention_choice *choice,
                          const struct attention_operands *operands, double keys);
    uint64_t (*shared_bytes)(const struct attention_choice *choice); /* NULL: none */
    uint32_t (*state_lanes)(const struct attention_choice *choice);  /* floats of a row's row_sum */
    uint32_t state_spec;
};

/* Where choose returns false, attention_row sets choice->reason; the others leave *choice as it
 * was. */
extern const struct attention_family attention_row, attention_tile, attention_coop, attention_coop2,
    attention_decode;

/* Most rows of decoding, where each key read gives little work: steps are wide, and every lane has
 * keys of its own. */
#define ATTENTION_FEW_ROWS 16u

static inline bool attention_has_few_rows(const struct attention_problem *problem)
{
    return problem->n_row <= ATTENTION_FEW_ROWS;
}

/* The one of two kernels that is for the types; KERNEL_COUNT: none. None for an output of more digits
 * than the weights, which are rounded to the type of the values. */
static inline enum kernel attention_kernel_of_16_bits(const struct attention_problem *p,
                                                      enum kernel f16, enum kernel bf16)
{
    if (p->q_type != p->kv_type || p->kv_type != p->v_type || p->o_type == VKA_F32)
        return KERNEL_COUNT;
    if (p->q_type == VKA_F16)
        return f16;
    return p->q_type == VKA_BF16 && p->o_type == VKA_BF16 ? bf16 : KERNEL_COUNT;
}

/* Whether attention_coop2 is the kernel's family. */
static inline bool attention_reduces_matrices(enum kernel kernel)
{
    return kernel == KERNEL_attention_coop2_f16 || kernel == KERNEL_attention_coop2_bf16 ||
           kernel == KERNEL_attention_coop2_ext_f16 || kernel == KERNEL_attention_coop2_ext_bf16;
}

/* See ATTENTION_COOP_K_VEC. */
static inline uint32_t attention_vec_of(bool vectors, uint32_t dim, uint32_t padded)
{
    return !vectors ? 0 : dim == padded ? 2 : 1;
}

/* Whether the kernel stores the log-sum-exp itself; where keys are split, attention_merge does. */
static inline bool attention_stores_log_sum(const struct attention_choice *choice,
                                            const struct attention_operands *operands)
{
    return operands->log_sum && choice->n_split == 1;
}

#define PHILOX_LOOPS 12.0 /* of a draw of dropout */

/* Loop iterations that a fully masked row adds for each key; value_loops: those that read its
 * value. */
static inline double attention_masked_loops(const struct attention_operands *operands,
                                            double value_loops)
{
    double draw = operands->dropout ? PHILOX_LOOPS : 0;
    return operands->reads_masked ? 1 + draw + value_loops : 0;
}

#endif
