#include "mpi/rows.h"

#include <stdlib.h>

/* Kernels clamp the position of query 0 to +-this. */
#define OFFSET_MOST (1 << 30)

enum vka_status rows_create(struct vka_mpi *mpi, const struct vka_attention_op *op, uint32_t n_q,
                            struct rows *rows)
{
    struct log *log = &mpi->log;
    struct vka_tensor *given = op->options.query_offset, *mask = op->options.mask;
    uint32_t n = given ? vka_tensor_shape(given, 0) : 1;
    struct vka_mpi_range range[2];
    vka_mpi_positions(n_q, mpi->size, mpi->rank, range);
    *rows = (struct rows){
        .mpi = mpi, .half = {{.range = range[0]}, {.range = range[1], .behind = range[0].count}}};
    if (vka_tensor_rank(mask) > 1 && vka_tensor_shape(mask, vka_tensor_rank(mask) - 2) > 1)
        ENSURE(slice_check(log, "vka_mpi_plan_attention", "mask", mask, vka_tensor_rank(mask) - 2,
                           n_q));
    if (given)
        ENSURE_DEVICE(vka_tensor_slice(given, 0, 0, n, &rows->offset));
    for (int i = 0; i < 2; i++)
        ENSURE_DEVICE(vka_tensor_create(mpi->device, VKA_I32, 1, &n, &rows->half[i].offset));
    return VKA_OK;
}

/* Describes attention of half `index`, which is not empty, as an operation on views. */
static enum vka_status describe_half(struct views *views, const struct rows *rows, int index,
                                     const struct vka_attention_op *op,
                                     const struct head_ranges *heads,
                                     const struct rows_block *block, struct vka_attention_op *own)
{
    const struct rows_half *half = &rows->half[index];
    struct problem_slice slice = {{0, vka_tensor_shape(op->q, 0)}, *heads};
    struct vka_mpi_range mine = {half->behind, half->range.count};
    ENSURE(views_slice(views, op->q, 1, heads->query, &own->q));
    ENSURE(views_slice(views, own->q, 2, mine, &own->q));
    ENSURE(views_slice(views, op->output, 1, heads->query, &own->output));
    ENSURE(views_slice(views, own->output, 2, mine, &own->output));
    ENSURE(slice_options(views, &op->options, &slice, &own->options));
    ENSURE(slice_queries(views, half->range, &own->options));
    own->options.query_offset = half->offset;
    if (block) {
        struct vka_mpi_range keys = {0, block->n};
        ENSURE(views_slice(views, own->k, 2, keys, &own->k));
        ENSURE(views_slice(views, own->v, 2, keys, &own->v));
        own->state = block->state[index];
        own->key_first = block->key_first;
        own->n_key = block->n_key;
    }
    return VKA_OK;
}

enum vka_status rows_record(struct vka_mpi_plan *plan, const struct rows *rows,
                            const struct vka_attention_op *op, const struct head_ranges *heads,
                            struct vka_tensor *k, struct vka_tensor *v,
                            const struct rows_block *block, uint64_t *count,
                            struct vka_plan **recorded)
{
    enum vka_status status = VKA_OK;
    struct views views = {0};
    TRY(mpi_plan_begin(plan, recorded));
    for (int i = 0; i < 2; i++) {
        struct vka_attention_op own = {.struct_size = sizeof own, .k = k, .v = v};
        if (!rows->half[i].range.count)
            continue;
        TRY(describe_half(&views, rows, i, op, heads, block, &own));
        TRY(count ? vka_plan_attention_state(*recorded, &own, &count[i])
                  : vka_plan_add_attention(*recorded, &own));
    }
    if (!count)
        TRY(vka_plan_finish(*recorded));
fail:
    views_destroy(&views);
    return comm_device_error(plan->mpi, status);
}

void rows_move(const struct rows *rows, struct run *run)
{
    uint32_t n = vka_tensor_shape(rows->half[0].offset, 0);
    int32_t *from = calloc(2 * (size_t)n, sizeof *from), *to = from + n;
    if (!from) {
        run_note(run, VKA_OUT_OF_HOST_MEMORY);
        return;
    }
    if (rows->offset)
        run_read(run, rows->offset, from);
    for (int i = 0; i < 2; i++) {
        for (uint32_t b = 0; b < n; b++) {
            int32_t at = from[b] < -OFFSET_MOST  ? -OFFSET_MOST
                         : from[b] > OFFSET_MOST ? OFFSET_MOST
                                                 : from[b];
            to[b] = at + (int32_t)rows->half[i].range.first;
        }
        run_write(run, rows->half[i].offset, to);
    }
    free(from);
}

void rows_destroy(struct rows *rows)
{
    vka_tensor_destroy(&rows->offset);
    for (int i = 0; i < 2; i++)
        vka_tensor_destroy(&rows->half[i].offset);
}
