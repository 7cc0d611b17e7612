/* Slices of a problem: the views of its tensors that they read, and the flags and bindings of masks. */
#ifndef VKA_OP_ATTENTION_MASK_H
#define VKA_OP_ATTENTION_MASK_H

#include "op/attention/problem.h"
#include "params/params.h"
#include "plan/cut.h"

/* Some batch elements with all heads, or some heads of one, or some queries of one head. */
struct head_slice {
    uint32_t batch, n_batch, head, n_head, query, n_query;
};

/* The slice [n_batch][n_head][n_query][any] of a slice. */
struct head_slice head_slice_of(const struct head_slice *s, const struct slice *slice);

/* The slice of a tensor [batch][n_head][n_q][...], and the keys or values its heads read. */
struct vka_tensor attention_slice(const struct vka_tensor *t, const struct head_slice *s);
struct vka_tensor attention_slice_kv(const struct vka_tensor *t, const struct attention *a,
                                     const struct head_slice *s);

/* The mask as [batch][n_head][n_q][mask_n_kv], strides 0 where it broadcasts. */
struct vka_tensor attention_mask(const struct attention *a, uint32_t *mask_n_kv);

/* The log-sum-exp that the operation is to write, as [batch][n_head][n_q][1]; false: none, or not
 * by this key chunk. */
bool attention_log_sum(const struct attention *a, struct vka_tensor *log_sum);

/* Whether any key can be hidden. */
bool attention_hides(const struct attention *a);

/* Moves an offset back by the origin of the slice: kernels count batch, head and query from the
 * whole problem, while a binding starts at the slice. */
uint32_t attention_rebase(uint32_t offset, const struct vka_tensor *t, const struct head_slice *s);

/* Fills in *m and binds mask, kv_length, query_offset, sink and alibi, where given, to five slots
 * from `slot` on. The caller has bound some tensor to each slot before. */
void attention_bind_mask(const struct vka_plan *plan, const struct attention *a,
                         const struct head_slice *s, struct pass *pass, uint32_t slot,
                         struct mask_params *m, uint32_t *sink_offset, uint32_t *alibi_offset);

/* Whether rows begin at a multiple of so many elements, and whether they also end at one. */
bool attention_rows_begin(const struct vka_tensor *t, uint32_t multiple);
bool attention_rows_of(const struct vka_tensor *t, uint32_t multiple);

#endif
