/* The backward softmax of some rows of attention. */
#ifndef VKA_OP_TRAIN_SOFTMAX_H
#define VKA_OP_TRAIN_SOFTMAX_H

#include "op/train/attention_sums.h"

/* Scores and gradients of weights of some rows, float32 [n_batch][n_head][n_query][n_kv] with rows
 * SLOPES_PITCH apart, and numbers of a row, float32 [n_batch][n_head][n_query][SLOPES_ROW_PITCH]: see
 * softmax_backward_params. */
struct attention_slopes {
    struct vka_tensor scores, slopes, rows;
};

/* Adds a stage of softmax_backward, SLOPES_: the sums of the rows, or what scores and slopes become. */
enum vka_status attention_add_slopes(struct vka_plan *plan, const struct attention_backward *b,
                                     const struct attention_rows *r,
                                     const struct attention_slopes *s, uint32_t stage);

#endif
