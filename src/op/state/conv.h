/* What the causal convolution and its gradient share. */
#ifndef VKA_OP_STATE_CONV_H
#define VKA_OP_STATE_CONV_H

#include <vkattn/vkattn_model.h>

#include "op/state/rows.h"

/* Rows of a tile of CONV_EACH dilated rows that items begin with: `dilation`, or all if there are fewer. */
uint32_t conv_residues(uint32_t dilation, uint32_t rows);

/* Checks the operation but for what a cache holds, and sets *rows. */
enum vka_status causal_conv_check(struct vka_plan *plan, const char *caller,
                                  const struct vka_causal_conv_op *op, struct state_rows *rows);

/* Adds the passes of an operation that was checked. */
enum vka_status plan_causal_conv(struct vka_plan *plan, const struct vka_causal_conv_op *op,
                                 const struct state_rows *rows);

/* What is kept, [batch][channels][keep] or NULL, as [batch][1][keep][channels]. */
struct vka_tensor causal_conv_kept(const struct vka_tensor *tensor);

#endif
