#include "mpi/plan.h"

#include <limits.h>
#include <stdlib.h>

/* Key chunks begin at multiples of this, see vka_attention_op.state. A block is one key chunk. */
#define BLOCK_UNIT 128u

enum { K = 0, V, TENSOR_COUNT };

/* The keys of a block that one rank owns: first k, then v, both dense. */
struct ring_leg {
    int owner;
    struct box mine[TENSOR_COUNT], there[TENSOR_COUNT]; /* in tensors of the owner, of the block */
    struct vka_tensor *from[TENSOR_COUNT], *to[TENSOR_COUNT]; /* from: on the owner */
    size_t at[TENSOR_COUNT], bytes; /* offsets in the staging memory; bytes of k and v */
};

struct block {
    struct vka_mpi_range keys;
    size_t first, n_leg;
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
    size_t n_leg;
    struct ring_leg *leg;
    uint32_t n_ahead; /* blocks that are sent while one is computed */
    struct slot {
        char *data;           /* a block */
        MPI_Request *request; /* [legs of a block] */
    } * slot;                 /* [n_ahead + 1], used in turn */
};

static struct slot *slot_of(const struct ring *ring, uint32_t block)
{
    return &ring->slot[block % (ring->n_ahead + 1)];
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Adds the keys of an owner's half that are in the block. */
static enum vka_status add_leg(struct ring *ring, struct block *block, int owner, int half,
                               size_t *bytes)
{
    struct vka_mpi *mpi = ring->mpi;
    struct log *log = &mpi->log;
    struct vka_mpi_range range[2];
    vka_mpi_positions(ring->n_kv, mpi->size, owner, range);
    struct vka_mpi_range part = range[half], keys = block->keys;
    uint32_t behind = half ? range[0].count : 0;
    uint32_t first = part.first > keys.first ? part.first : keys.first;
    uint32_t end = least(part.first + part.count, keys.first + keys.count);
    if (first >= end)
        return VKA_OK;
    struct ring_leg *leg = &ring->leg[ring->n_leg++];
    leg->owner = owner;
    block->n_leg++;
    for (int i = 0; i < TENSOR_COUNT; i++) {
        const struct vka_tensor *t = ring->local[i].tensor;
        leg->mine[i] =
            box_along(t, 2, (struct vka_mpi_range){behind + first - part.first, end - first});
        leg->there[i] = box_along(t, 2, (struct vka_mpi_range){first - keys.first, end - first});
        leg->at[i] = *bytes;
        size_t size = box_count(&leg->mine[i], 4) * vka_dtype_size(vka_tensor_dtype(t));
        leg->bytes += size;
        *bytes += size;
        ENSURE_DEVICE(box_view(ring->held[i], &leg->there[i], &leg->to[i]));
        if (owner == mpi->rank)
            ENSURE_DEVICE(box_view(ring->local[i].tensor, &leg->mine[i], &leg->from[i]));
    }
    ENSURE_ARG(leg->bytes <= INT_MAX, "a key chunk of %zu bytes exceeds the %d that MPI can count",
               leg->bytes, INT_MAX);
    return VKA_OK;
}

/* The front halves come in the order of the ranks, the back halves after them in reverse order. */
static enum vka_status add_legs(struct ring *ring, struct block *block, size_t *most)
{
    size_t bytes = 0;
    int size = ring->mpi->size;
    block->first = ring->n_leg;
    for (int i = 0; i < 2 * size; i++)
        ENSURE(add_leg(ring, block, i < size ? i : 2 * size - 1 - i, i >= size, &bytes));
    *most = bytes > *most ? bytes : *most;
    return VKA_OK;
}

/* Records attention over a block; or asks for the states, see rows_record. */
static enum vka_status record(struct vka_mpi_plan *plan, struct ring *ring, const struct rows *rows,
                              const struct vka_attention_op *op, const struct block *block,
                              uint64_t *count, struct vka_plan **recorded)
{
    const struct share all = {{0, plan->n_head}, {0, plan->n_kv_head}};
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
    uint32_t most = (slice + BLOCK_UNIT - 1) / BLOCK_UNIT * BLOCK_UNIT;
    struct vka_tensor *const given[TENSOR_COUNT] = {op->k, op->v};
    ring->n_block = (ring->n_kv + most - 1) / most;
    ring->block = calloc(ring->n_block, sizeof *ring->block);
    ring->leg = calloc(ring->n_block + slices, sizeof *ring->leg);
    ENSURE_ALLOC(ring->block && ring->leg ? ring : NULL);
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

static enum vka_status create_staging(struct ring *ring)
{
    struct log *log = &ring->mpi->log;
    size_t most = 0, legs = 0;
    for (uint32_t b = 0; b < ring->n_block; b++) {
        ENSURE(add_legs(ring, &ring->block[b], &most));
        legs = ring->block[b].n_leg > legs ? ring->block[b].n_leg : legs;
    }
    ring->slot = calloc(ring->n_ahead + 1, sizeof *ring->slot);
    ENSURE_ALLOC(ring->slot);
    for (uint32_t i = 0; i <= ring->n_ahead; i++) {
        struct slot *slot = &ring->slot[i];
        slot->data = malloc(most);
        slot->request = malloc(legs * sizeof *slot->request);
        ENSURE_ALLOC(slot->data && slot->request ? slot : NULL);
    }
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
    ENSURE(create_staging(ring));
    for (uint32_t b = 0; b < ring->n_block; b++)
        ENSURE(record(plan, ring, rows, op, &ring->block[b], NULL, &ring->block[b].plan));
    return VKA_OK;
}

/* Starts to send the owners' parts of a block to all ranks. */
static enum vka_status start(struct ring *ring, struct run *run, uint32_t b)
{
    struct vka_mpi *mpi = ring->mpi;
    const struct block *block = &ring->block[b];
    const struct slot *slot = slot_of(ring, b);
    for (size_t i = 0; i < block->n_leg; i++) {
        const struct ring_leg *leg = &ring->leg[block->first + i];
        bool mine = leg->owner == mpi->rank;
        for (int t = 0; t < TENSOR_COUNT && mine; t++)
            image_get(&ring->local[t], run, &leg->mine[t], leg->from[t], slot->data + leg->at[t]);
        run->stats.sent += mine ? leg->bytes : 0;
        run->stats.received += mine ? 0 : leg->bytes;
        ENSURE(comm_check(mpi,
                          MPI_Ibcast(slot->data + leg->at[K], (int)leg->bytes, MPI_BYTE, leg->owner,
                                     mpi->comm, &slot->request[i]),
                          "MPI_Ibcast"));
    }
    return VKA_OK;
}

static enum vka_status land(struct ring *ring, struct run *run, uint32_t b)
{
    const struct block *block = &ring->block[b];
    const struct slot *slot = slot_of(ring, b);
    enum vka_status status = run_wait(run, (int)block->n_leg, slot->request);
    if (status != VKA_OK)
        return status;
    for (size_t i = 0; i < block->n_leg; i++) {
        const struct ring_leg *leg = &ring->leg[block->first + i];
        for (int t = 0; t < TENSOR_COUNT; t++)
            image_put(&ring->block_image[t], run, &leg->there[t], leg->to[t],
                      slot->data + leg->at[t]);
    }
    for (int t = 0; t < TENSOR_COUNT; t++)
        image_flush(&ring->block_image[t], run);
    return VKA_OK;
}

enum vka_status ring_run(struct ring *ring, struct run *run)
{
    for (int i = 0; i < TENSOR_COUNT; i++)
        image_fetch(&ring->local[i], run);
    for (uint32_t b = 0; b < ring->n_ahead; b++)
        ENSURE(start(ring, run, b));
    for (uint32_t b = 0; b < ring->n_block; b++) {
        ENSURE(land(ring, run, b));
        if (b + ring->n_ahead < ring->n_block)
            ENSURE(start(ring, run, b + ring->n_ahead));
        int n = b + 1 < ring->n_block ? (int)ring->block[b + 1].n_leg : 0;
        ENSURE(run_compute(run, ring->block[b].plan, n, slot_of(ring, b + 1)->request));
    }
    return VKA_OK;
}

void ring_destroy(struct ring **owned)
{
    if (!owned || !*owned)
        return;
    struct ring *ring = *owned;
    for (uint32_t b = 0; ring->block && b < ring->n_block; b++)
        vka_plan_destroy(&ring->block[b].plan);
    for (size_t i = 0; i < ring->n_leg; i++)
        for (int t = 0; t < TENSOR_COUNT; t++) {
            vka_tensor_destroy(&ring->leg[i].from[t]);
            vka_tensor_destroy(&ring->leg[i].to[t]);
        }
    for (int i = 0; i < 2; i++) {
        image_destroy(&ring->local[i]);
        image_destroy(&ring->block_image[i]);
        vka_tensor_destroy(&ring->held[i]);
        vka_tensor_destroy(&ring->state[i]);
    }
    for (uint32_t i = 0; ring->slot && i <= ring->n_ahead && !ring->mpi->broken; i++) {
        free(ring->slot[i].data); /* otherwise MPI may still write to it */
        free(ring->slot[i].request);
    }
    free(ring->slot);
    free(ring->block);
    free(ring->leg);
    free(ring);
    *owned = NULL;
}
