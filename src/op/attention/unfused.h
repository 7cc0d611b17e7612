/* Unfused attention: scores, softmax and weighted sum as passes of their own. */
#ifndef VKA_OP_ATTENTION_UNFUSED_H
#define VKA_OP_ATTENTION_UNFUSED_H

#include "op/attention/mask.h"

/* Adds scores, softmax and, unless only returned scores are wanted, weighted sum as separate passes,
 * slice by slice. */
enum vka_status plan_attention_unfused(struct vka_plan *plan, const struct attention *a,
                                       bool with_context);

/* Adds the softmax of a slice's scores, in place: float32 [n_batch][n_head][n_query][n_kv], rows a
 * multiple of 4 apart. One pass where a workgroup takes a whole row, two where the keys of a row are
 * split over workgroups. */
enum vka_status attention_add_softmax(struct vka_plan *plan, const struct attention *a,
                                      const struct head_slice *s, const struct vka_tensor *scores);

#endif
