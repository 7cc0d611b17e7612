#include "mpi/ring.h"
#include "mpi/exchange.h"

#include <stdlib.h>

/* Key chunks begin at multiples of this, see vka_attention_op.state. A block is one key chunk. */
#define KEY_MULTIPLE 128u

enum { K = 0, V, TENSOR_COUNT };

struct block {
    struct vka_mpi_range keys;
    struct exchange exchange; /* of the ranks that have these keys */
    struct vka_plan *plan;
};

struct ring {
    struct vka_mpi *mpi;
    struct image local[TENSOR_COUNT];      /* the caller's k and v: this rank's positions */
    struct vka_tensor *held[TENSOR_COUNT]; /* [batch][n_kv_head][most keys of a block][dim] */
    struct image block_image[TENSOR_COUNT];
    struct vka_tensor *state[2]; /* of the rows of each half; NULL: the half is empty */
    uint32_t n_kv, n_block;
    struct block *block;
    MPI_Request *request; /* [n_block][size] */
    uint32_t n_ahead;     /* blocks that are sent while one is computed */
    char **slot;          /* [n_ahead + 1], each of a block; used in turn */
};

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Adds the keys of an owner's half that are in the block. */
static enum vka_status add_legs(struct ring *ring, struct block *block, int owner, int half)
{
    struct vka_mpi_range range[2], keys = block->keys;
    vka_mpi_positions(ring->n_kv, ring->mpi->size, owner, range);
    uint32_t behind = half ? range[0].count : 0, begin = range[half].first;
    uint32_t first = begin > keys.first ? begin : keys.first;
    uint32_t end = least(begin + range[half].count, keys.first + keys.count);
    for (int i = 0; i < TENSOR_COUNT && first < end; i++) {
        const struct vka_tensor *t = ring->local[i].tensor;
        struct vka_mpi_range from = {behind + first - begin, end - first};
        struct slice mine = slice_along(t, 2, from);
        struct slice there =
            slice_along(t, 2, (struct vka_mpi_range){first - keys.first, end - first});
        ENSURE(exchange_add(&block->exchange, &block->exchange.in, owner, &ring->block_image[i],
                            &there));
        if (owner == ring->mpi->rank)
            ENSURE(exchange_add(&block->exchange, &block->exchange.out, 0, &ring->local[i], &mine));
    }
    return VKA_OK;
}

/* Records attention over a block; or asks for the states, see rows_record. */
static enum vka_status record(struct vka_mpi_plan *plan, struct ring *ring, const struct rows *rows,
                              const struct vka_attention_op *op, const struct block *block,
                              uint64_t *count, struct vka_plan **recorded)
{
    const struct head_ranges all = {{0, plan->n_head}, {0, plan->n_kv_head}};
    const struct rows_block where = {.key_first = block->keys.first,
                                     .n_key = ring->n_kv,
                                     .n = block->keys.count,
                                     .state = {ring->state[0], ring->state[1]}};
    return rows_record(plan, rows, op, &all, ring->held[K], ring->held[V], &where, count, recorded);
}

/* Makes the softmax state of both halves. */
static enum vka_status make_states(struct vka_mpi_plan *plan, struct ring *ring,
                                   const struct rows *rows, const struct vka_attention_op *op)
{
    struct vka_mpi *mpi = ring->mpi;
    struct vka_plan *asked = NULL;
    uint64_t count[2] = {0};
    enum vka_status status = record(plan, ring, rows, op, &ring->block[0], count, &asked);
    vka_plan_destroy(&asked);
    for (int i = 0; i < 2 && status == VKA_OK; i++) {
        const uint32_t shape = (uint32_t)count[i];
        if (!rows->half[i].range.count)
            continue;
        if (!count[i] || count[i] > UINT32_MAX)
            return VKA_UNSUPPORTED;
        ENSURE_DEVICE(vka_tensor_create(mpi->device, VKA_F32, 1, &shape, &ring->state[i]));
    }
    return status;
}

static enum vka_status create_blocks(struct ring *ring, const struct vka_attention_op *op)
{
    struct vka_mpi *mpi = ring->mpi;
    struct log *log = &mpi->log;
    uint32_t slices = 2 * (uint32_t)mpi->size;
    uint32_t slice = (ring->n_kv + slices - 1) / slices;
    uint32_t most = (slice + KEY_MULTIPLE - 1) / KEY_MULTIPLE * KEY_MULTIPLE;
    struct vka_tensor *const given[TENSOR_COUNT] = {op->k, op->v};
    ring->n_block = (ring->n_kv + most - 1) / most;
    ring->block = calloc(ring->n_block, sizeof *ring->block);
    ring->request = malloc((size_t)ring->n_block * (size_t)mpi->size * sizeof *ring->request);
    ENSURE_ALLOC(ring->block && ring->request ? ring : NULL);
    for (uint32_t b = 0; b < ring->n_block; b++) {
        uint32_t first = b * most;
        ring->block[b].keys = (struct vka_mpi_range){first, least(most, ring->n_kv - first)};
    }
    for (int i = 0; i < TENSOR_COUNT; i++) {
        const struct vka_tensor *t = given[i];
        const uint32_t shape[] = {vka_tensor_shape(t, 0), vka_tensor_shape(t, 1),
                                  ring->block[0].keys.count, vka_tensor_shape(t, 3)};
        ENSURE(image_create(mpi, given[i], true, &ring->local[i]));
        ENSURE_DEVICE(
            vka_tensor_create(mpi->device, vka_tensor_dtype(t), 4, shape, &ring->held[i]));
        ENSURE(image_create(mpi, ring->held[i], true, &ring->block_image[i]));
    }
    return VKA_OK;
}

/* With a causal mask the ranks have the same work in total, but not for each block: with the first
 * blocks, ranks in the middle of the sequence have more work than the first rank, which has its
 * work at the end. Blocks are sent ahead so that it need not wait for them. */
static uint32_t count_ahead(const struct ring *ring, const struct vka_attention_op *op)
{
    uint32_t half = (uint32_t)ring->mpi->size / 2;
    return op->options.causal && half > 1 ? least(half, ring->n_block) : 1;
}

/* Makes the exchanges of the blocks, and host memory that they use in turn. */
static enum vka_status create_exchanges(struct ring *ring)
{
    struct vka_mpi *mpi = ring->mpi;
    struct log *log = &mpi->log;
    size_t most = 0;
    for (uint32_t b = 0; b < ring->n_block; b++) {
        struct exchange *exchange = &ring->block[b].exchange;
        MPI_Request *request = ring->request + (size_t)b * (size_t)mpi->size;
        ENSURE(exchange_create(mpi, EXCHANGE_FEW, ring->local, TENSOR_COUNT, request, exchange));
        for (int i = 0; i < 2 * mpi->size; i++)
            ENSURE(add_legs(ring, &ring->block[b], i / 2, i % 2));
        size_t size = exchange_size(exchange, &exchange->in);
        most = size > most ? size : most;
    }
    ring->slot = calloc(ring->n_ahead + 1, sizeof *ring->slot);
    ENSURE_ALLOC(ring->slot);
    for (uint32_t i = 0; i <= ring->n_ahead; i++) {
        ring->slot[i] = malloc(most);
        ENSURE_ALLOC(ring->slot[i]);
    }
    for (uint32_t b = 0; b < ring->n_block; b++)
        ENSURE(exchange_finish(&ring->block[b].exchange, ring->slot[b % (ring->n_ahead + 1)]));
    return VKA_OK;
}

enum vka_status ring_create(struct vka_mpi_plan *plan, const struct rows *rows,
                            const struct vka_attention_op *op, uint32_t n_kv, struct ring **out)
{
    struct vka_mpi *mpi = plan->mpi;
    struct log *log = &mpi->log;
    struct ring *ring = *out = calloc(1, sizeof *ring);
    ENSURE_ALLOC(ring);
    *ring = (struct ring){.mpi = mpi, .n_kv = n_kv};
    ENSURE(create_blocks(ring, op));
    ring->n_ahead = count_ahead(ring, op);
    ENSURE(make_states(plan, ring, rows, op));
    ENSURE(create_exchanges(ring));
    for (uint32_t b = 0; b < ring->n_block; b++)
        ENSURE(record(plan, ring, rows, op, &ring->block[b], NULL, &ring->block[b].plan));
    return VKA_OK;
}

enum vka_status ring_run(struct ring *ring, struct run *run)
{
    for (int i = 0; i < TENSOR_COUNT; i++)
        image_fetch(&ring->local[i], run);
    for (uint32_t b = 0; b < ring->n_ahead; b++)
        ENSURE(exchange_start(&ring->block[b].exchange, run));
    for (uint32_t b = 0; b < ring->n_block; b++) {
        const struct block *next = b + 1 < ring->n_block ? &ring->block[b + 1] : NULL;
        ENSURE(exchange_land(&ring->block[b].exchange, run));
        for (int i = 0; i < TENSOR_COUNT; i++)
            image_flush(&ring->block_image[i], run);
        if (b + ring->n_ahead < ring->n_block)
            ENSURE(exchange_start(&ring->block[b + ring->n_ahead].exchange, run));
        ENSURE(run_compute(run, ring->block[b].plan, next ? ring->mpi->size : 0,
                           next ? next->exchange.request : NULL));
    }
    return VKA_OK;
}

void ring_destroy(struct ring **owned)
{
    if (!owned || !*owned)
        return;
    struct ring *ring = *owned;
    for (uint32_t b = 0; ring->block && b < ring->n_block; b++) {
        vka_plan_destroy(&ring->block[b].plan);
        exchange_destroy(&ring->block[b].exchange);
    }
    for (int i = 0; i < 2; i++) {
        image_destroy(&ring->local[i]);
        image_destroy(&ring->block_image[i]);
        vka_tensor_destroy(&ring->held[i]);
        vka_tensor_destroy(&ring->state[i]);
    }
    for (uint32_t i = 0; ring->slot && i <= ring->n_ahead && !ring->mpi->broken; i++)
        free(ring->slot[i]); /* otherwise MPI may still write to it */
    free(ring->slot);
    free(ring->request);
    free(ring->block);
    free(ring);
    *owned = NULL;
}
