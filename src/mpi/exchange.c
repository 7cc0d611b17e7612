#include "mpi/exchange.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum vka_status image_create(struct vka_mpi *mpi, struct vka_tensor *tensor, bool needed,
                             struct image *image)
{
    struct log *log = &mpi->log;
    struct slice all =
        slice_along(tensor, 0, (struct vka_mpi_range){0, vka_tensor_shape(tensor, 0)});
    ENSURE_DEVICE(slice_view(tensor, &all, &image->tensor));
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
static void copy_slice(const struct image *image, const struct slice *slice, char *dense,
                       bool to_image)
{
    const struct vka_tensor *tensor = image->tensor;
    uint32_t last = vka_tensor_rank(tensor) - 1;
    size_t element = vka_dtype_size(vka_tensor_dtype(tensor));
    size_t bytes = slice->count[last] * element;
    uint64_t rows = slice_count(slice, last);
    for (uint64_t row = 0; row < rows; row++, dense += bytes) {
        uint64_t rest = row, at = slice->first[last], stride = vka_tensor_shape(tensor, last);
        for (uint32_t i = last; i-- > 0;) {
            at += (slice->first[i] + rest % slice->count[i]) * stride;
            rest /= slice->count[i];
            stride *= vka_tensor_shape(tensor, i);
        }
        char *there = image->host + at * element;
        memcpy(to_image ? there : dense, to_image ? dense : there, bytes);
    }
}

void image_get(const struct image *image, struct run *run, const struct slice *slice,
               struct vka_tensor *view, char *to)
{
    if (image->host)
        copy_slice(image, slice, to, false);
    else
        run_read(run, view, to);
}

void image_put(const struct image *image, struct run *run, const struct slice *slice,
               struct vka_tensor *view, const char *from)
{
    if (image->host)
        copy_slice(image, slice, (char *)(uintptr_t)from, true);
    else
        run_write(run, view, from);
}

static enum vka_status create_legs(struct vka_mpi *mpi, struct legs *legs)
{
    struct log *log = &mpi->log;
    legs->count = calloc((size_t)mpi->size, sizeof *legs->count);
    legs->at = calloc((size_t)mpi->size, sizeof *legs->at);
    ENSURE_ALLOC(legs->count && legs->at ? legs : NULL);
    return VKA_OK;
}

enum vka_status exchange_create(struct vka_mpi *mpi, enum exchange_kind kind,
                                const struct image *images, int n, MPI_Request *request,
                                struct exchange *exchange)
{
    *exchange =
        (struct exchange){.mpi = mpi, .kind = kind, .element = SIZE_MAX, .request = request};
    exchange->n_request = kind == EXCHANGE_FEW ? mpi->size : 1;
    for (int i = 0; i < n; i++) {
        size_t size = vka_dtype_size(vka_tensor_dtype(images[i].tensor));
        exchange->element = size < exchange->element ? size : exchange->element;
    }
    for (int i = 0; i < exchange->n_request; i++)
        request[i] = MPI_REQUEST_NULL;
    ENSURE(create_legs(mpi, &exchange->out));
    return create_legs(mpi, &exchange->in);
}

enum vka_status exchange_add(struct exchange *exchange, struct legs *legs, int rank,
                             const struct image *image, const struct slice *slice)
{
    struct vka_mpi *mpi = exchange->mpi;
    struct log *log = &mpi->log;
    size_t size = vka_dtype_size(vka_tensor_dtype(image->tensor));
    uint64_t count = slice_count(slice, vka_tensor_rank(image->tensor)) * size / exchange->element;
    uint64_t begin = exchange_size(exchange, legs) / exchange->element;
    if (!count)
        return VKA_OK;
    ENSURE_ARG(begin + count <= INT_MAX,
               "a message of %llu elements or more exceeds the %d that MPI can count: use more "
               "rounds or ranks",
               (unsigned long long)(begin + count), INT_MAX);
    if (legs->n == legs->room) {
        size_t room = legs->room ? 2 * legs->room : 4;
        struct leg *moved = realloc(legs->leg, room * sizeof *moved);
        ENSURE_ALLOC(moved);
        legs->leg = moved;
        legs->room = room;
    }
    struct leg *leg = &legs->leg[legs->n];
    *leg = (struct leg){
        .rank = rank, .image = image, .slice = *slice, .at = (size_t)begin * exchange->element};
    ENSURE_DEVICE(slice_view(image->tensor, slice, &leg->view));
    legs->n++;
    if (!legs->count[rank])
        legs->at[rank] = (int)begin;
    legs->count[rank] += (int)count;
    return VKA_OK;
}

size_t exchange_size(const struct exchange *exchange, const struct legs *legs)
{
    size_t elements = 0;
    for (int rank = 0; rank < exchange->mpi->size; rank++)
        elements += (size_t)legs->count[rank];
    return elements * exchange->element;
}

enum vka_status exchange_finish(struct exchange *exchange, char *data)
{
    struct log *log = &exchange->mpi->log;
    struct legs *out = &exchange->out, *in = &exchange->in;
    exchange->borrowed = data;
    in->data = data ? data : malloc(exchange_size(exchange, in) + 1);
    ENSURE_ALLOC(in->data);
    if (exchange->kind == EXCHANGE_EACH) {
        out->data = malloc(exchange_size(exchange, out) + 1);
        ENSURE_ALLOC(out->data);
    }
    return VKA_OK;
}

/* Reads what this rank sends; unless each rank receives others, to its place among all. */
static void read_out(struct exchange *exchange, struct run *run)
{
    const struct legs *out = &exchange->out, *in = &exchange->in;
    int own = exchange->mpi->rank;
    char *to = exchange->kind == EXCHANGE_EACH ? out->data
                                               : in->data + (size_t)in->at[own] * exchange->element;
    for (size_t i = 0; i < out->n; i++) {
        const struct leg *leg = &out->leg[i];
        image_get(leg->image, run, &leg->slice, leg->view, to + leg->at);
    }
    for (size_t i = 0; i < in->n && out->n == 0 && exchange->kind != EXCHANGE_EACH; i++)
        if (in->leg[i].rank == own)
            run_read(run, in->leg[i].view, in->data + in->leg[i].at);
}

/* Counts a message to or from each other rank; FEW: a broadcast is one message. */
static void count_bytes(const struct exchange *exchange, struct vka_mpi_stats *stats)
{
    const struct legs *out = &exchange->out, *in = &exchange->in;
    int own = exchange->mpi->rank;
    uint64_t mine = (uint64_t)in->count[own] * exchange->element;
    for (int rank = 0; rank < exchange->mpi->size; rank++) {
        uint64_t to = (uint64_t)out->count[rank] * exchange->element;
        if (rank == own)
            continue;
        stats->received += (uint64_t)in->count[rank] * exchange->element;
        stats->sent += exchange->kind == EXCHANGE_EACH  ? to
                       : exchange->kind == EXCHANGE_ALL ? mine
                                                        : 0;
    }
    stats->sent += exchange->kind == EXCHANGE_FEW ? mine : 0;
}

enum vka_status exchange_start(struct exchange *exchange, struct run *run)
{
    struct legs *out = &exchange->out, *in = &exchange->in;
    struct vka_mpi *mpi = exchange->mpi;
    MPI_Request *request = exchange->request;
    size_t element = exchange->element;
    MPI_Datatype type = element == 4 ? MPI_UINT32_T : element == 2 ? MPI_UINT16_T : MPI_BYTE;
    read_out(exchange, run);
    count_bytes(exchange, &run->stats);
    if (exchange->kind == EXCHANGE_EACH)
        return comm_check(mpi,
                          MPI_Ialltoallv(out->data, out->count, out->at, type, in->data, in->count,
                                         in->at, type, mpi->comm, request),
                          "MPI_Ialltoallv");
    if (exchange->kind == EXCHANGE_ALL)
        return comm_check(mpi,
                          MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in->data, in->count,
                                          in->at, type, mpi->comm, request),
                          "MPI_Iallgatherv");
    for (int rank = 0; rank < mpi->size; rank++)
        if (in->count[rank])
            ENSURE(comm_check(mpi,
                              MPI_Ibcast(in->data + (size_t)in->at[rank] * element, in->count[rank],
                                         type, rank, mpi->comm, &request[rank]),
                              "MPI_Ibcast"));
    return VKA_OK;
}

enum vka_status exchange_land(struct exchange *exchange, struct run *run)
{
    const struct legs *in = &exchange->in;
    bool written = exchange->kind != EXCHANGE_EACH && exchange->out.n == 0;
    ENSURE(run_wait(run, exchange->n_request, exchange->request));
    for (size_t i = 0; i < in->n; i++) {
        const struct leg *leg = &in->leg[i];
        if (!written || leg->rank != exchange->mpi->rank || leg->image->host)
            image_put(leg->image, run, &leg->slice, leg->view, in->data + leg->at);
    }
    return VKA_OK;
}

/* Keeps the buffers if the ranks are out of step: MPI may still write to them. */
static void destroy_legs(struct legs *legs, bool broken, bool borrowed)
{
    for (size_t i = 0; i < legs->n; i++)
        vka_tensor_destroy(&legs->leg[i].view);
    free(legs->leg);
    if (broken)
        return;
    free(legs->count);
    free(legs->at);
    if (!borrowed)
        free(legs->data);
}

void exchange_destroy(struct exchange *exchange)
{
    if (!exchange->mpi)
        return;
    destroy_legs(&exchange->out, exchange->mpi->broken, false);
    destroy_legs(&exchange->in, exchange->mpi->broken, exchange->borrowed);
    *exchange = (struct exchange){0};
}
