#include "mpi/gather.h"

#include <stdlib.h>

enum vka_status gather_create(struct vka_mpi *mpi, struct vka_tensor *target, uint32_t n_round,
                              struct gather **out)
{
    struct log *log = &mpi->log;
    struct gather *gather = *out = calloc(1, sizeof *gather);
    ENSURE_ALLOC(gather);
    *gather = (struct gather){.mpi = mpi, .n_round = n_round};
    gather->round = calloc(n_round, sizeof *gather->round);
    gather->request = malloc(n_round * sizeof *gather->request);
    ENSURE_ALLOC(gather->round && gather->request ? gather : NULL);
    ENSURE(image_create(mpi, target, mpi->size > 1, &gather->target));
    for (uint32_t p = 0; p < n_round; p++) {
        ENSURE(exchange_create(mpi, EXCHANGE_ALL, &gather->target, 1, &gather->request[p],
                               &gather->round[p].slices));
    }
    return VKA_OK;
}

enum vka_status gather_add(struct gather *gather, uint32_t p, int rank, struct slice slice)
{
    struct gather_round *round = &gather->round[p];
    struct legs *in = &round->slices.in;
    size_t n = in->n;
    ENSURE(exchange_add(&round->slices, in, rank, &gather->target, &slice));
    if (rank == gather->mpi->rank && in->n > n)
        round->output = in->leg[n].view;
    if (rank == gather->mpi->size - 1 && rank > 0)
        ENSURE(exchange_finish(&round->slices, NULL));
    return VKA_OK;
}

enum vka_status gather_run(struct gather *gather, struct run *run)
{
    bool alone = gather->mpi->size == 1;
    for (uint32_t p = 0; p < gather->n_round; p++) {
        ENSURE(run_compute(run, gather->round[p].plan, (int)p, gather->request));
        if (alone)
            continue;
        ENSURE(run_meet(run));
        ENSURE(exchange_start(&gather->round[p].slices, run));
    }
    for (uint32_t p = 0; p < gather->n_round && !alone; p++)
        ENSURE(exchange_land(&gather->round[p].slices, run));
    if (!alone)
        image_flush(&gather->target, run);
    return VKA_OK;
}

void gather_destroy(struct gather **slot)
{
    if (!slot || !*slot)
        return;
    struct gather *gather = *slot;
    for (uint32_t p = 0; gather->round && p < gather->n_round; p++) {
        vka_plan_destroy(&gather->round[p].plan);
        exchange_destroy(&gather->round[p].slices);
    }
    image_destroy(&gather->target);
    free(gather->round);
    free(gather->request);
    free(gather);
    *slot = NULL;
}
