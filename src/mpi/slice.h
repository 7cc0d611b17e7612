/* A rank's part of an operation, as views of the tensors of the whole. */
#ifndef VKA_MPI_SLICE_H
#define VKA_MPI_SLICE_H

#include "core/status.h"
#include "mpi/split.h"

/* Views made for one operation; the plan keeps what they show alive, so that they go once it has
 * been added. */
struct views {
    size_t n;
    struct vka_tensor *made[40];
};
void views_destroy(struct views *views);

/* The size of a tensor along an axis that ranks share is that of the whole problem: a part of a
 * larger tensor would pass for one of the right size. NULL passes. */
enum vka_status slice_check(struct log *log, const char *caller, const char *name,
                            const struct vka_tensor *tensor, uint32_t axis, uint32_t whole);

/* The same of options; what may be broadcast may also have size 1. */
enum vka_status slice_check_options(struct log *log, const char *caller,
                                    const struct vka_attention_options *options, uint32_t batch,
                                    uint32_t n_head);

/* The part of a tensor along an axis; *part is the tensor itself where the part is all of it, where
 * the axis has length 1 (and is broadcast), and where it is NULL. */
enum vka_status views_slice(struct views *views, struct vka_tensor *tensor, uint32_t axis,
                            struct vka_mpi_range range, struct vka_tensor **part);

/* A box of a tensor, counted in its own axes. */
struct box {
    uint32_t first[VKA_MAX_RANK], count[VKA_MAX_RANK];
};

/* All of the tensor, but for `range` along `axis`. */
struct box box_along(const struct vka_tensor *tensor, uint32_t axis, struct vka_mpi_range range);

/* Elements of the box. */
uint64_t box_count(const struct box *box, uint32_t rank);

/* A view that the caller destroys. */
enum vka_status box_view(struct vka_tensor *tensor, const struct box *box,
                         struct vka_tensor **view);

/* Which part of a problem: batch elements, and heads. */
struct part {
    struct vka_mpi_range batch;
    struct share heads;
};

/* Options for the part; `part` may be the options of the whole. */
enum vka_status slice_options(struct views *views, const struct vka_attention_options *whole,
                              const struct part *part, struct vka_attention_options *options);

/* Options for some queries; query_offset is the caller's to move. */
enum vka_status slice_queries(struct views *views, struct vka_mpi_range queries,
                              struct vka_attention_options *options);

/* The tensors of an attention operation, output aside. */
enum vka_status slice_attention(struct views *views, const struct vka_attention_op *whole,
                                const struct part *part, struct vka_attention_op *op);

#endif
