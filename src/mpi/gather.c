#include "mpi/gather.h"

#include <stdlib.h>

enum vka_status gather_create(struct vka_mpi *mpi, struct vka_tensor *target, uint32_t n_piece,
                              struct gather **out)
{
    struct log *log = &mpi->log;
    struct gather *gather = *out = calloc(1, sizeof *gather);
    ENSURE_ALLOC(gather);
    *gather = (struct gather){.mpi = mpi, .n_piece = n_piece};
    gather->piece = calloc(n_piece, sizeof *gather->piece);
    gather->request = malloc(n_piece * sizeof *gather->request);
    ENSURE_ALLOC(gather->piece && gather->request ? gather : NULL);
    ENSURE(image_create(mpi, target, mpi->size > 1, &gather->target));
    for (uint32_t p = 0; p < n_piece; p++) {
        ENSURE(exchange_create(mpi, EXCHANGE_ALL, &gather->target, 1, &gather->request[p],
                               &gather->piece[p].slices));
    }
    return VKA_OK;
}

enum vka_status gather_add(struct gather *gather, uint32_t p, int rank, struct slice slice)
{
    struct gather_piece *piece = &gather->piece[p];
    struct legs *in = &piece->slices.in;
    size_t n = in->n;
    ENSURE(exchange_add(&piece->slices, in, rank, &gather->target, &slice));
    if (rank == gather->mpi->rank && in->n > n)
        piece->output = in->leg[n].view;
    if (rank == gather->mpi->size - 1 && rank > 0)
        ENSURE(exchange_finish(&piece->slices, NULL));
    return VKA_OK;
}

enum vka_status gather_run(struct gather *gather, struct run *run)
{
    bool alone = gather->mpi->size == 1;
    for (uint32_t p = 0; p < gather->n_piece; p++) {
        ENSURE(run_compute(run, gather->piece[p].plan, (int)p, gather->request));
        if (alone)
            continue;
        ENSURE(run_meet(run));
        ENSURE(exchange_start(&gather->piece[p].slices, run));
    }
    for (uint32_t p = 0; p < gather->n_piece && !alone; p++)
        ENSURE(exchange_land(&gather->piece[p].slices, run));
    if (!alone)
        image_flush(&gather->target, run);
    return VKA_OK;
}

void gather_destroy(struct gather **slot)
{
    if (!slot || !*slot)
        return;
    struct gather *gather = *slot;
    for (uint32_t p = 0; gather->piece && p < gather->n_piece; p++) {
        vka_plan_destroy(&gather->piece[p].plan);
        exchange_destroy(&gather->piece[p].slices);
    }
    image_destroy(&gather->target);
    free(gather->piece);
    free(gather->request);
    free(gather);
    *slot = NULL;
}
