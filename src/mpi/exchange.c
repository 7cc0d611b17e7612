#include "mpi/exchange.h"

#include <limits.h>
#include <stdlib.h>

static enum vka_status create_legs(struct vka_mpi *mpi, size_t room, struct legs *legs)
{
    struct log *log = &mpi->log;
    legs->room = room;
    legs->leg = calloc(room, sizeof *legs->leg);
    legs->bytes = calloc((size_t)mpi->size, sizeof *legs->bytes);
    legs->at = calloc((size_t)mpi->size, sizeof *legs->at);
    ENSURE_ALLOC(legs->leg && legs->bytes && legs->at ? legs : NULL);
    return VKA_OK;
}

enum vka_status exchange_create(struct vka_mpi *mpi, size_t room, struct exchange *exchange)
{
    *exchange = (struct exchange){.mpi = mpi, .request = MPI_REQUEST_NULL};
    enum vka_status status = create_legs(mpi, room, &exchange->out);
    return status == VKA_OK ? create_legs(mpi, room, &exchange->in) : status;
}

enum vka_status exchange_add(struct exchange *exchange, struct legs *legs, int rank,
                             const struct image *image, const struct box *box)
{
    struct vka_mpi *mpi = exchange->mpi;
    struct log *log = &mpi->log;
    uint64_t count = box_count(box, vka_tensor_rank(image->tensor));
    uint64_t bytes = count * vka_dtype_size(vka_tensor_dtype(image->tensor));
    size_t begin =
        legs->n ? legs->leg[legs->n - 1].at + vka_tensor_size(legs->leg[legs->n - 1].view) : 0;
    if (!count)
        return VKA_OK;
    ENSURE_ARG(begin + bytes <= INT_MAX,
               "a message of %llu bytes or more exceeds the %d that MPI can count: use more pieces",
               (unsigned long long)(begin + bytes), INT_MAX);
    ENSURE_ALLOC(legs->n < legs->room ? legs : NULL);
    struct leg *leg = &legs->leg[legs->n];
    *leg = (struct leg){.image = image, .box = *box, .at = begin};
    ENSURE(comm_device_error(mpi, box_view(image->tensor, box, &leg->view)));
    legs->n++;
    if (!legs->bytes[rank])
        legs->at[rank] = (int)begin;
    legs->bytes[rank] += (int)bytes;
    return VKA_OK;
}

enum vka_status exchange_finish(struct exchange *exchange)
{
    struct log *log = &exchange->mpi->log;
    struct legs *both[] = {&exchange->out, &exchange->in};
    for (int i = 0; i < 2; i++) {
        size_t total = 1;
        for (int rank = 0; rank < exchange->mpi->size; rank++)
            total += (size_t)both[i]->bytes[rank];
        both[i]->data = malloc(total);
        ENSURE_ALLOC(both[i]->data);
    }
    return VKA_OK;
}

enum vka_status exchange_start(struct exchange *exchange, struct run *run)
{
    struct legs *out = &exchange->out, *in = &exchange->in;
    int own = exchange->mpi->rank;
    for (size_t i = 0; i < out->n; i++) {
        const struct leg *leg = &out->leg[i];
        image_get(leg->image, run, &leg->box, leg->view, out->data + leg->at);
    }
    for (int rank = 0; rank < exchange->mpi->size; rank++) {
        run->stats.sent += rank == own ? 0 : (uint64_t)out->bytes[exchange->same ? 0 : rank];
        run->stats.received += rank == own ? 0 : (uint64_t)in->bytes[rank];
    }
    if (exchange->same)
        return comm_check(exchange->mpi,
                          MPI_Iallgatherv(out->data, out->bytes[0], MPI_BYTE, in->data, in->bytes,
                                          in->at, MPI_BYTE, exchange->mpi->comm,
                                          &exchange->request),
                          "MPI_Iallgatherv");
    return comm_check(exchange->mpi,
                      MPI_Ialltoallv(out->data, out->bytes, out->at, MPI_BYTE, in->data, in->bytes,
                                     in->at, MPI_BYTE, exchange->mpi->comm, &exchange->request),
                      "MPI_Ialltoallv");
}

enum vka_status exchange_land(struct exchange *exchange, struct run *run)
{
    const struct legs *in = &exchange->in;
    enum vka_status status = run_wait(run, 1, &exchange->request);
    for (size_t i = 0; status == VKA_OK && i < in->n; i++) {
        const struct leg *leg = &in->leg[i];
        image_put(leg->image, run, &leg->box, leg->view, in->data + leg->at);
    }
    return status;
}

/* Keeps the buffers if the ranks are out of step: MPI may still write to them. */
static void destroy_legs(struct legs *legs, bool broken)
{
    for (size_t i = 0; i < legs->n; i++)
        vka_tensor_destroy(&legs->leg[i].view);
    free(legs->leg);
    if (broken)
        return;
    free(legs->bytes);
    free(legs->at);
    free(legs->data);
}

void exchange_destroy(struct exchange *exchange)
{
    if (!exchange->mpi)
        return;
    destroy_legs(&exchange->out, exchange->mpi->broken);
    destroy_legs(&exchange->in, exchange->mpi->broken);
    *exchange = (struct exchange){0};
}
