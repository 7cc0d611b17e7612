#include "mpi/gather.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum vka_status gather_create(struct vka_mpi *mpi, struct vka_tensor *target, uint32_t n_piece,
                              struct gather **out)
{
    struct log *log = &mpi->log;
    enum vka_status status = VKA_OK;
    size_t size = (size_t)mpi->size;
    struct gather *gather = calloc(1, sizeof *gather);
    *out = NULL;
    CHECK_ALLOC(gather);
    *gather = (struct gather){.mpi = mpi, .n_piece = n_piece};
    gather->piece = calloc(n_piece, sizeof *gather->piece);
    gather->request = malloc(n_piece * sizeof *gather->request);
    CHECK_ALLOC(gather->piece && gather->request ? gather : NULL);
    for (uint32_t p = 0; p < n_piece; p++) {
        struct gather_piece *piece = &gather->piece[p];
        gather->request[p] = MPI_REQUEST_NULL;
        piece->box = calloc(size, sizeof *piece->box);
        piece->view = calloc(size, sizeof *piece->view);
        piece->count = calloc(size, sizeof *piece->count);
        piece->at = calloc(size, sizeof *piece->at);
        CHECK_ALLOC(piece->box && piece->view && piece->count && piece->at ? piece : NULL);
    }
    TRY(image_create(mpi, target, mpi->size > 1, &gather->target));
    *out = gather;
    return VKA_OK;
fail:
    gather_destroy(&gather);
    return status;
}

/* Makes the views of the boxes of a piece, and their places in `data`. */
static enum vka_status finish_piece(struct gather *gather, struct gather_piece *piece)
{
    struct vka_mpi *mpi = gather->mpi;
    struct log *log = &mpi->log;
    uint64_t total = 0;
    uint32_t rank = vka_tensor_rank(gather->target.tensor);
    size_t element = vka_dtype_size(vka_tensor_dtype(gather->target.tensor));
    for (int i = 0; i < mpi->size; i++) {
        uint64_t count = box_count(&piece->box[i], rank);
        if (count)
            ENSURE(comm_device_error(
                mpi, box_view(gather->target.tensor, &piece->box[i], &piece->view[i])));
        ENSURE_ARG(
            total + count <= INT_MAX,
            "a piece of %llu elements or more exceeds the %d that MPI can count: use more pieces",
            (unsigned long long)(total + count), INT_MAX);
        piece->count[i] = (int)count;
        piece->at[i] = (int)total;
        total += count;
    }
    uint64_t own = (uint64_t)piece->count[mpi->rank] * element;
    piece->sent = own * ((uint64_t)mpi->size - 1);
    piece->received = total * element - own;
    if (mpi->size > 1) {
        piece->data = malloc(total * element + 1);
        ENSURE_ALLOC(piece->data);
    }
    return VKA_OK;
}

enum vka_status gather_finish(struct gather *gather)
{
    for (uint32_t p = 0; p < gather->n_piece; p++)
        ENSURE(finish_piece(gather, &gather->piece[p]));
    return VKA_OK;
}

struct vka_tensor *gather_output(const struct gather *gather, uint32_t piece)
{
    return gather->piece[piece].view[gather->mpi->rank];
}

/* Computes this rank's box of a piece and starts to send it. */
static enum vka_status start_piece(struct gather *gather, struct run *run, uint32_t p)
{
    struct vka_mpi *mpi = gather->mpi;
    struct gather_piece *piece = &gather->piece[p];
    size_t element = vka_dtype_size(vka_tensor_dtype(gather->target.tensor));
    MPI_Datatype type = element == 4 ? MPI_UINT32_T : MPI_UINT16_T;
    ENSURE(run_compute(run, piece->plan, (int)p, gather->request));
    if (mpi->size == 1)
        return VKA_OK;
    ENSURE(run_meet(run));
    if (piece->plan)
        run_read(run, gather_output(gather, p),
                 piece->data + (size_t)piece->at[mpi->rank] * element);
    ENSURE(comm_check(mpi,
                      MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, piece->data, piece->count,
                                      piece->at, type, mpi->comm, &gather->request[p]),
                      "MPI_Iallgatherv"));
    run->stats.sent += piece->sent;
    run->stats.received += piece->received;
    return VKA_OK;
}

/* Writes the boxes of a piece that other ranks have computed to the tensor. This rank's own box is
 * there already, except in an image. */
static void land_piece(struct gather *gather, struct run *run, const struct gather_piece *piece)
{
    size_t element = vka_dtype_size(vka_tensor_dtype(gather->target.tensor));
    for (int i = 0; i < gather->mpi->size; i++) {
        if (!piece->view[i] || (i == gather->mpi->rank && !gather->target.host))
            continue;
        image_put(&gather->target, run, &piece->box[i], piece->view[i],
                  piece->data + (size_t)piece->at[i] * element);
    }
}

enum vka_status gather_run(struct gather *gather, struct run *run)
{
    for (uint32_t p = 0; p < gather->n_piece; p++)
        ENSURE(start_piece(gather, run, p));
    for (uint32_t p = 0; p < gather->n_piece && gather->mpi->size > 1; p++) {
        ENSURE(run_wait(run, 1, &gather->request[p]));
        land_piece(gather, run, &gather->piece[p]);
    }
    if (gather->mpi->size > 1)
        image_flush(&gather->target, run);
    return VKA_OK;
}

/* Keeps `data` if the ranks are out of step: MPI may still write to it. */
static void destroy_piece(struct gather_piece *piece, int size, bool broken)
{
    for (int i = 0; piece->view && i < size; i++)
        vka_tensor_destroy(&piece->view[i]);
    vka_plan_destroy(&piece->plan);
    free(piece->view);
    free(piece->box);
    if (broken)
        return;
    free(piece->count);
    free(piece->at);
    free(piece->data);
}

void gather_destroy(struct gather **slot)
{
    if (!slot || !*slot)
        return;
    struct gather *gather = *slot;
    for (uint32_t p = 0; gather->piece && p < gather->n_piece; p++)
        destroy_piece(&gather->piece[p], gather->mpi->size, gather->mpi->broken);
    image_destroy(&gather->target);
    free(gather->piece);
    free(gather->request);
    free(gather);
    *slot = NULL;
}
