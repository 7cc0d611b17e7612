#include "mpi/exchange.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum vka_status image_create(struct vka_mpi *mpi, struct vka_tensor *tensor, bool needed,
                             struct image *image)
{
    struct log *log = &mpi->log;
    struct box all = box_along(tensor, 0, (struct vka_mpi_range){0, vka_tensor_shape(tensor, 0)});
    ENSURE_DEVICE(box_view(tensor, &all, &image->tensor));
    if (needed && !vka_device_properties(mpi->device)->mapped_memory) {
        image->host = malloc(vka_tensor_size(tensor));
        ENSURE_ALLOC(image->host);
    }
    return VKA_OK;
}

void image_destroy(struct image *image)
{
    vka_tensor_destroy(&image->tensor);
    free(image->host);
    *image = (struct image){0};
}

void image_fetch(const struct image *image, struct run *run)
{
    if (image->host)
        run_read(run, image->tensor, image->host);
}

void image_flush(const struct image *image, struct run *run)
{
    if (image->host)
        run_write(run, image->tensor, image->host);
}

/* Copies row by row of the last axis. */
static void copy_box(const struct image *image, const struct box *box, char *dense, bool to_image)
{
    const struct vka_tensor *tensor = image->tensor;
    uint32_t last = vka_tensor_rank(tensor) - 1;
    size_t element = vka_dtype_size(vka_tensor_dtype(tensor));
    size_t bytes = box->count[last] * element;
    uint64_t rows = box_count(box, last);
    for (uint64_t row = 0; row < rows; row++, dense += bytes) {
        uint64_t rest = row, at = box->first[last], stride = vka_tensor_shape(tensor, last);
        for (uint32_t i = last; i-- > 0;) {
            at += (box->first[i] + rest % box->count[i]) * stride;
            rest /= box->count[i];
            stride *= vka_tensor_shape(tensor, i);
        }
        char *there = image->host + at * element;
        memcpy(to_image ? there : dense, to_image ? dense : there, bytes);
    }
}

void image_get(const struct image *image, struct run *run, const struct box *box,
               struct vka_tensor *view, char *to)
{
    if (image->host)
        copy_box(image, box, to, false);
    else
        run_read(run, view, to);
}

void image_put(const struct image *image, struct run *run, const struct box *box,
               struct vka_tensor *view, const char *from)
{
    if (image->host)
        copy_box(image, box, (char *)(uintptr_t)from, true);
    else
        run_write(run, view, from);
}

static enum vka_status create_legs(struct vka_mpi *mpi, size_t room, struct legs *legs)
{
    struct log *log = &mpi->log;
    legs->room = room;
    legs->leg = calloc(room, sizeof *legs->leg);
    legs->count = calloc((size_t)mpi->size, sizeof *legs->count);
    legs->at = calloc((size_t)mpi->size, sizeof *legs->at);
    ENSURE_ALLOC(legs->leg && legs->count && legs->at ? legs : NULL);
    return VKA_OK;
}

enum vka_status exchange_create(struct vka_mpi *mpi, size_t room, size_t unit, MPI_Request *request,
                                struct exchange *exchange)
{
    *request = MPI_REQUEST_NULL;
    *exchange = (struct exchange){.mpi = mpi, .unit = unit, .request = request};
    ENSURE(create_legs(mpi, room, &exchange->out));
    return create_legs(mpi, room, &exchange->in);
}

enum vka_status exchange_add(struct exchange *exchange, struct legs *legs, int rank,
                             const struct image *image, const struct box *box)
{
    struct vka_mpi *mpi = exchange->mpi;
    struct log *log = &mpi->log;
    size_t size = vka_dtype_size(vka_tensor_dtype(image->tensor));
    uint64_t count = box_count(box, vka_tensor_rank(image->tensor)) * size / exchange->unit;
    const struct leg *last = legs->n ? &legs->leg[legs->n - 1] : NULL;
    uint64_t begin = last ? (last->at + vka_tensor_size(last->view)) / exchange->unit : 0;
    if (!count)
        return VKA_OK;
    ENSURE_ARG(begin + count <= INT_MAX,
               "a message of %llu elements or more exceeds the %d that MPI can count: use more "
               "pieces",
               (unsigned long long)(begin + count), INT_MAX);
    ENSURE_ALLOC(legs->n < legs->room ? legs : NULL);
    struct leg *leg = &legs->leg[legs->n];
    *leg = (struct leg){
        .rank = rank, .image = image, .box = *box, .at = (size_t)begin * exchange->unit};
    ENSURE_DEVICE(box_view(image->tensor, box, &leg->view));
    legs->n++;
    if (!legs->count[rank])
        legs->at[rank] = (int)begin;
    legs->count[rank] += (int)count;
    return VKA_OK;
}

enum vka_status exchange_finish(struct exchange *exchange)
{
    struct log *log = &exchange->mpi->log;
    struct legs *both[] = {&exchange->out, &exchange->in};
    for (int i = 0; i < 2; i++) {
        size_t total = 0;
        for (int rank = 0; rank < exchange->mpi->size; rank++)
            total += (size_t)both[i]->count[rank];
        both[i]->data = malloc(total * exchange->unit + 1);
        ENSURE_ALLOC(both[i]->data);
    }
    return VKA_OK;
}

/* What this rank sends to another one, in units. */
static int count_sent(const struct exchange *exchange, int rank)
{
    const struct legs *out = &exchange->out;
    return exchange->in_place ? exchange->in.count[exchange->mpi->rank]
                              : out->count[exchange->same ? 0 : rank];
}

enum vka_status exchange_start(struct exchange *exchange, struct run *run)
{
    struct legs *out = &exchange->out, *in = &exchange->in;
    struct vka_mpi *mpi = exchange->mpi;
    size_t unit = exchange->unit;
    MPI_Datatype type = unit == 4 ? MPI_UINT32_T : unit == 2 ? MPI_UINT16_T : MPI_BYTE;
    const void *from = exchange->in_place ? MPI_IN_PLACE : out->data;
    for (size_t i = 0; i < out->n; i++) {
        const struct leg *leg = &out->leg[i];
        image_get(leg->image, run, &leg->box, leg->view, out->data + leg->at);
    }
    for (size_t i = 0; i < in->n && exchange->in_place; i++)
        if (in->leg[i].rank == mpi->rank)
            run_read(run, in->leg[i].view, in->data + in->leg[i].at);
    for (int rank = 0; rank < mpi->size; rank++) {
        run->stats.sent += rank == mpi->rank ? 0 : (uint64_t)count_sent(exchange, rank) * unit;
        run->stats.received += rank == mpi->rank ? 0 : (uint64_t)in->count[rank] * unit;
    }
    if (exchange->same)
        return comm_check(mpi,
                          MPI_Iallgatherv(from, out->count[0], type, in->data, in->count, in->at,
                                          type, mpi->comm, exchange->request),
                          "MPI_Iallgatherv");
    return comm_check(mpi,
                      MPI_Ialltoallv(from, out->count, out->at, type, in->data, in->count, in->at,
                                     type, mpi->comm, exchange->request),
                      "MPI_Ialltoallv");
}

enum vka_status exchange_land(struct exchange *exchange, struct run *run)
{
    const struct legs *in = &exchange->in;
    ENSURE(run_wait(run, 1, exchange->request));
    for (size_t i = 0; i < in->n; i++) {
        const struct leg *leg = &in->leg[i];
        bool there = exchange->in_place && leg->rank == exchange->mpi->rank && !leg->image->host;
        if (!there)
            image_put(leg->image, run, &leg->box, leg->view, in->data + leg->at);
    }
    return VKA_OK;
}

/* Keeps the buffers if the ranks are out of step: MPI may still write to them. */
static void destroy_legs(struct legs *legs, bool broken)
{
    for (size_t i = 0; i < legs->n; i++)
        vka_tensor_destroy(&legs->leg[i].view);
    free(legs->leg);
    if (broken)
        return;
    free(legs->count);
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
