/* Random steps of packed sequences with a cache: against the oracle, and bit for bit against each
 * sequence in a cache of its own, one contiguous where the other is paged. */
#ifndef TESTS_RAGGED_PROBLEM_H
#define TESTS_RAGGED_PROBLEM_H

#include "compare.h"

struct ragged_problem {
    uint64_t seed; /* of data, lengths and where the operands lie */
    uint32_t n_sequence, n_kv_head, group, head_dim, value_dim, capacity, page_size, n_row, n_layer;
    uint32_t whole_n_q; /* 0: the library's */
    enum vka_dtype io, key, value;
    bool no_hadamard, scattered, causal, window, n_append, log_sum, q_norm, k_norm, sink, alibi;
    int32_t window_left, window_right;
    float softcap, dropout;
    uint64_t dropout_seed, disabled_kernels, submit_budget;
    enum vka_masked_row masked_row;
    struct vka_rope rope;
    enum vka_dtype mask;
    uint32_t mask_rank, mask_shape[4]; /* rank 0: none */
};

/* few: of few types and sizes of head, for drivers that take seconds to compile a kernel. */
void ragged_draw(struct ragged_problem *p, uint64_t seed, bool few);

/* Takes kernels away that the device does not have in any of the problem's types. */
void ragged_fit(struct vka_device *device, struct ragged_problem *p);

/* True where all steps are right; else the reason in why. kernels: a bit for each that was used. */
bool ragged_check(struct vka_device *device, const struct ragged_problem *p, struct worst *worst,
                  uint64_t *kernels, char why[WHY]);

/* All of it on one line. Returns text. */
#define RAGGED_TEXT 512
const char *ragged_text(const struct ragged_problem *p, char text[RAGGED_TEXT]);

#endif
