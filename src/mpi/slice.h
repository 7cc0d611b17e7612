/* A rank's slice of an operation, as views of the tensors of the whole problem. */
#ifndef VKA_MPI_SLICE_H
#define VKA_MPI_SLICE_H

#include "core/status.h"

#include <vkattn/vkattn_mpi.h>

/* What each rank computes: arithmetic only, with the same result on every rank. */

/* Slice `index` of `count` slices of n, whose lengths differ by at most one. */
struct vka_mpi_range split_even(uint32_t n, uint32_t count, uint32_t index);

/* The query heads of a round and the key heads that they read. */
struct head_ranges {
    struct vka_mpi_range query, key;
};

/* The heads of round `round` of `rounds` of a rank: the rank's heads are divided in the same way as
 * those of the problem are between ranks. */
struct head_ranges split_heads(uint32_t n_head, uint32_t n_kv_head, int size, int rank,
                               uint32_t rounds, uint32_t round);

/* The number of rounds of each rank's slice of `length` (key heads or batch elements): what the
 * caller wants, or, if that is 0, two if every rank has two of them. A single rank has one round, as
 * it sends to nobody. */
uint32_t split_rounds(uint32_t wanted, uint32_t length, int size);

/* Views made for one operation. They are destroyed once it has been added, as the plan keeps their
 * storage alive. */
struct views {
    size_t n;
    struct vka_tensor *made[40];
};
void views_destroy(struct views *views);

/* Checks the size of a tensor along an axis that is split between ranks: it must be that of the
 * whole problem, as a slice of a larger tensor would look like the right size. NULL is accepted. */
enum vka_status slice_check(struct log *log, const char *caller, const char *name,
                            const struct vka_tensor *tensor, uint32_t axis, uint32_t whole);

/* Checks the tensors of options in this way; what may be broadcast may also have size 1. */
enum vka_status slice_check_options(struct log *log, const char *caller,
                                    const struct vka_attention_options *options, uint32_t batch,
                                    uint32_t n_head);

/* Takes a slice of a tensor along an axis. *slice is the tensor itself if that is all of it, if
 * the axis has length 1 (and is broadcast), or if the tensor is NULL. */
enum vka_status views_slice(struct views *views, struct vka_tensor *tensor, uint32_t axis,
                            struct vka_mpi_range range, struct vka_tensor **slice);

/* A slice of a tensor: a range on each of its axes. */
struct slice {
    uint32_t first[VKA_MAX_RANK], count[VKA_MAX_RANK];
};

/* The slice that is `range` along `axis` and everything along the other axes. */
struct slice slice_along(const struct vka_tensor *tensor, uint32_t axis,
                         struct vka_mpi_range range);

/* The number of elements of a slice. */
uint64_t slice_count(const struct slice *slice, uint32_t rank);

/* Makes a view of a slice; the caller destroys it. */
enum vka_status slice_view(struct vka_tensor *tensor, const struct slice *slice,
                           struct vka_tensor **view);

/* A slice of a problem: batch elements and heads. */
struct problem_slice {
    struct vka_mpi_range batch;
    struct head_ranges heads;
};

/* Makes the options of a slice; `options` may be those of the whole. */
enum vka_status slice_options(struct views *views, const struct vka_attention_options *whole,
                              const struct problem_slice *slice,
                              struct vka_attention_options *options);

/* Makes the options of some queries; the caller adjusts query_offset. */
enum vka_status slice_queries(struct views *views, struct vka_mpi_range queries,
                              struct vka_attention_options *options);

/* Takes the slice of the tensors of an attention operation, except output. */
enum vka_status slice_attention(struct views *views, const struct vka_attention_op *whole,
                                const struct problem_slice *slice, struct vka_attention_op *op);

#endif
