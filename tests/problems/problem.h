/* An attention problem, described by plain data, run on a device and compared with the oracle. */
#ifndef TESTS_PROBLEM_H
#define TESTS_PROBLEM_H

#include "compare.h"

/* kv_length and query_offset. */
enum per_batch { PER_BATCH_NONE = 0, PER_BATCH_ONE, PER_BATCH_EACH };

struct problem {
    uint64_t seed; /* of the data and of where the operands lie */
    uint32_t batch, n_kv_head, group, n_q, n_past, n_new, head_dim, value_dim;
    enum vka_dtype q, k, v, output, past, present, mask, scores;
    bool one_type;               /* of a backward: each gradient has the type of its operand */
    bool has_present, scattered; /* scattered: operands are views of any strides */
    uint32_t mask_rank, mask_shape[4];
    enum per_batch lengths, offsets;
    bool far_offsets; /* also far from the keys, and beyond the clamp */
    bool causal, window;
    int32_t window_left, window_right;
    float scale, softcap, dropout, norm_epsilon;
    uint32_t given; /* which of scale and norm_epsilon are meant where they are 0 */
    uint64_t dropout_seed;
    enum vka_masked_row masked_row;
    enum vka_scores scores_kind;
    bool log_sum; /* log_sum_exp is returned */
    bool exact;   /* exact_softmax */
    struct vka_rope rope;
    bool q_norm, k_norm, sink, alibi;
    bool poison_hidden;  /* NaN and Inf in keys and values that no query of their head group sees */
    bool poison_visible; /* NaN in one key, seen or not */
    enum vka_path path;
    uint64_t workspace_limit;  /* bytes; 0: the library's */
    uint64_t submit_budget;    /* nanoseconds; 0: the library's */
    uint64_t disabled_kernels; /* bit per enum kernel, besides the device's */
    bool limits;               /* with lower limits the bits are to be the same */
    bool budgets;              /* whatever the budget of a submit, the bits are to be the same */
};

struct problem_result {
    uint64_t kernels; /* bit per enum kernel: the plan used it */
    char why[WHY];    /* of a failure */
    bool refused;     /* beyond the lowered limits, as vka_device_info says some are */
};

/* True where the library agrees with the oracle on all that the problem asks for; *worst, which
 * may be NULL, takes what was measured. */
bool problem_check(struct vka_device *device, const struct problem *p, struct worst *worst,
                   struct problem_result *result);

/* The same of its gradients, of those operands that the problem has: without past, present and
 * returned scores, with log_sum_exp. With `budgets` a plan that is cut gives the same bits. */
bool problem_backward_check(struct vka_device *device, const struct problem *p, struct worst *worst,
                            struct problem_result *result);

/* A problem for it. */
void problem_backward_draw(struct problem *p, uint64_t seed);

/* Makes one for it of any problem. */
void problem_backward_adapt(struct problem *p, uint64_t seed);

/* Gives operands and gradients one type. Rotation and norm, which make float32 of them, are left out. */
void problem_backward_set_type(struct problem *p, enum vka_dtype type);

/* All of it on one line. Returns text. */
#define PROBLEM_TEXT 640
const char *problem_text(const struct problem *p, char text[PROBLEM_TEXT]);

/* Any problem that the contract allows, of some ten million multiplications at most as a rule. */
void problem_draw(struct problem *p, uint64_t seed, enum vka_path path);

/* The same of other sizes. */
struct problem_bounds {
    double work;         /* multiplications, as a rule */
    double scores;       /* elements of the scores */
    uint32_t rows, past; /* the most queries or new keys, and past keys */
};
void problem_draw_within(struct problem *p, uint64_t seed, enum vka_path path,
                         const struct problem_bounds *bounds);

/* Gives a problem one of few sets of types and strides, and if it is fused of head sizes: a CPU
 * driver takes seconds to compile each fused kernel, and tests that draw from these share them. */
#define PROBLEM_SHARED 4 /* sets */
void problem_share(struct problem *p, uint64_t set);

#endif
