/* The operands of a problem, and what the oracle says of them. Shared by the problem_*.c files. */
#ifndef TESTS_PROBLEM_DATA_H
#define TESTS_PROBLEM_DATA_H

#include "problem.h"

#include <reference/reference.h>

enum operand_id {
    OPERAND_Q = 0,
    OPERAND_K,
    OPERAND_V,
    OPERAND_PAST_K,
    OPERAND_PAST_V,
    OPERAND_MASK,
    OPERAND_LENGTH,
    OPERAND_OFFSET,
    OPERAND_Q_START,
    OPERAND_KV_START,
    OPERAND_N_APPEND,
    OPERAND_Q_NORM,
    OPERAND_K_NORM,
    OPERAND_SINK,
    OPERAND_ALIBI,
    OPERAND_OUTPUT, /* from here on written by the plan */
    OPERAND_SCORES,
    OPERAND_LOG_SUM,
    OPERAND_PRESENT_K,
    OPERAND_PRESENT_V,
    OPERAND_COUNT
};

/* What an operand is; rank 0: the problem has none. */
struct operand_shape {
    enum vka_dtype dtype;
    uint32_t rank, size[4];
};
struct operand_shape problem_shape(const struct problem *p, enum operand_id id);

struct problem_data {
    const struct problem *p;
    struct rng rng;
    bool empty; /* the operands are on the device alone, and hold nothing */
    struct operand operands[OPERAND_COUNT]; /* view NULL: not of the problem */
    /* The oracle's; NULL where nobody compares them. */
    double *context, *scores, *log_sum, *key, *value;
};

/* Creates and fills the operands; *status is that of the failing call. */
enum vka_status problem_data_create(struct vka_device *device, const struct problem *p,
                                    struct problem_data *d);

/* Creates the operands, which hold nothing yet. empty: on the device alone, for plans whose
 * results nobody reads. */
enum vka_status problem_data_open(struct vka_device *device, const struct problem *p, bool empty,
                                  struct problem_data *d);
void problem_data_destroy(struct problem_data *d);

/* The operation on the operands' views, and on those of any tensors of a problem. */
void problem_op(const struct problem_data *d, struct vka_attention_op *op);
struct vka_attention_op problem_op_of(const struct problem *p,
                                      struct vka_tensor *const view[OPERAND_COUNT]);

/* Gives operands first .. last random values of their kind, which are not yet written. */
void problem_fill(struct problem_data *d, enum operand_id first, enum operand_id last);

/* The kernels that a plan uses. */
struct kernel_set problem_kernels(struct vka_plan *plan);

/* What the oracle reads beside the operands' own values. */
struct question {
    struct ref_attention ref;
    double *k, *v; /* [batch][n_kv_head][n_kv][...], past first */
    uint8_t *mask;
    int64_t lengths[8], offsets[8]; /* a problem has fewer batch elements than 8 */
};
enum vka_status problem_ask(const struct problem_data *d, struct question *q);
void question_destroy(struct question *q);

/* Sets the options alone. */
void problem_ask_options(const struct problem_data *d, struct ref_attention *r);

/* A finished plan of it, without the kernels that the problem leaves out. */
enum vka_status problem_plan(struct vka_device *device, const struct problem_data *d,
                             struct vka_plan **plan);

/* Sets visible[batch][n_kv_head][n_kv] to whether any query of the head group sees the key. */
enum vka_status problem_visible(const struct problem_data *d, bool *visible);

/* Computes what the outputs have to be, after the plan has run. */
enum vka_status problem_oracle(struct problem_data *d);

/* Computes the gradients, each NULL where it is not wanted. dy: of the output. */
struct ref_attention_gradients;
enum vka_status problem_backward_oracle(const struct problem_data *d, const double *dy,
                                        const struct ref_attention_gradients *g);

/* Computes what a layer around the problem gives, whose sizes and options replace l->a: y, and the
 * gradients of dy. */
struct ref_layer;
struct ref_layer_gradients;
enum vka_status problem_layer_oracle(const struct problem_data *d, struct ref_layer *l,
                                     const double *dy, double *y,
                                     const struct ref_layer_gradients *g);

#endif
