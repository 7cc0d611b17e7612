#include "mpi/sequence.h"
#include "mpi/exchange.h"
#include "mpi/ring.h"

#include <stdlib.h>
#include <string.h>

enum { Q = 0, K, V, OUTPUT, TENSOR_COUNT };

static const char caller[] = "vka_mpi_plan_attention";
static const char *const names[TENSOR_COUNT] = {"q", "k", "v", "output"};

/* One round: all positions of some heads of this rank; or, by rows, all keys of heads that are the
 * same on all ranks. */
struct sequence_round {
    struct head_ranges heads;
    struct vka_tensor *tensor[TENSOR_COUNT]; /* [batch][heads][n][dim]; NULL: no heads, or by rows
                                                q and the output */
    struct image whole[TENSOR_COUNT];
    struct exchange scatter; /* what is received before it is computed */
    struct exchange collect; /* and its output, unless by rows */
    MPI_Request request[2];  /* of these */
    struct vka_plan *plan;
};

struct sequence {
    struct vka_mpi *mpi;
    struct image local[TENSOR_COUNT]; /* of the caller's tensors: some positions of all heads */
    uint32_t n[TENSOR_COUNT];         /* positions on all ranks */
    uint32_t n_round;
    struct sequence_round *round;
    bool by_rows; /* there are more ranks than heads */
    struct rows rows;
    struct ring *ring; /* by rows with keys in blocks: used instead of rounds */
};

static struct vka_tensor *operand(const struct vka_attention_op *op, int which)
{
    struct vka_tensor *const all[TENSOR_COUNT] = {op->q, op->k, op->v, op->output};
    return all[which];
}

enum vka_status sequence_check(struct vka_mpi *mpi, const struct vka_attention_op *op)
{
    struct log *log = &mpi->log;
    for (int i = 0; i < TENSOR_COUNT; i++)
        ENSURE_ARG(operand(op, i) && vka_tensor_rank(operand(op, i)) == 4,
                   "%s: q, k, v or output is NULL or not of rank 4", caller);
    uint32_t n_head = vka_tensor_shape(op->q, 1), n_kv = vka_tensor_shape(op->k, 1);
    ENSURE_ARG(n_head % n_kv == 0 && vka_tensor_shape(op->v, 1) == n_kv,
               "%s: q has %u heads, not a multiple of the %u of k, or v has another number than k",
               caller, n_head, n_kv);
    ENSURE_ARG(vka_tensor_shape(op->output, 0) == vka_tensor_shape(op->q, 0) &&
                   vka_tensor_shape(op->output, 1) == n_head &&
                   vka_tensor_shape(op->output, 2) == vka_tensor_shape(op->q, 2) &&
                   vka_tensor_shape(op->output, 3) == vka_tensor_shape(op->v, 3),
               "%s: output is not [%u, %u, %u, %u]", caller, vka_tensor_shape(op->q, 0), n_head,
               vka_tensor_shape(op->q, 2), vka_tensor_shape(op->v, 3));
    if (op->past_key || op->past_value || op->present_key || op->present_value ||
        op->options.scores || op->options.log_sum_exp)
        return log_error(
            log, VKA_UNSUPPORTED,
            "%s: past, present, returned scores and log_sum_exp are not supported for positions "
            "split over ranks",
            caller);
    uint32_t batch = vka_tensor_shape(op->q, 0);
    ENSURE(slice_check(log, caller, "k", op->k, 0, batch));
    ENSURE(slice_check(log, caller, "v", op->v, 0, batch));
    ENSURE(slice_check_options(log, caller, &op->options, batch, n_head));
    return VKA_OK;
}

void sequence_describe(const struct vka_attention_op *op, struct terms *terms)
{
    for (int i = 0; i < TENSOR_COUNT; i++) {
        const struct vka_tensor *t = operand(op, i);
        terms_add(terms, "%s: %s [%u, %u, its positions, %u]", names[i],
                  vka_dtype_name(vka_tensor_dtype(t)), vka_tensor_shape(t, 0),
                  vka_tensor_shape(t, 1), vka_tensor_shape(t, 3));
        terms->each[i] = (int32_t)vka_tensor_shape(t, 2);
    }
}

/* Adds up the positions of all ranks and checks that each has its own; the result is the same on
 * all. */
static enum vka_status count_positions(struct vka_mpi *mpi, uint32_t n[TENSOR_COUNT])
{
    struct log *log = &mpi->log;
    for (int i = 0; i < TENSOR_COUNT; i++) {
        uint64_t sum = 0;
        for (int rank = 0; rank < mpi->size; rank++)
            sum += (uint32_t)comm_each(mpi, rank)[i];
        ENSURE_ARG(sum <= INT32_MAX, "%s: %llu positions exceed 2^31 - 1", caller,
                   (unsigned long long)sum);
        n[i] = (uint32_t)sum;
        for (int rank = 0; rank < mpi->size; rank++) {
            struct vka_mpi_range half[2];
            uint32_t own = (uint32_t)comm_each(mpi, rank)[i];
            vka_mpi_positions(n[i], mpi->size, rank, half);
            ENSURE_ARG(half[0].count + half[1].count == own,
                       "%s: %s of rank %d has %u of %u positions, but should have %u", caller,
                       names[i], rank, own, n[i], half[0].count + half[1].count);
        }
    }
    ENSURE_ARG(n[K] == n[V], "%s: k has %u positions, but v has %u", caller, n[K], n[V]);
    return VKA_OK;
}

static struct vka_mpi_range heads_of(const struct head_ranges *heads, int which)
{
    return which == K || which == V ? heads->key : heads->query;
}

/* The positions of `rank` of some heads, one slice for each half: in a tensor of all positions, and
 * in the tensor of that rank. */
static void slices_of(const struct sequence *s, int which, int rank, struct vka_mpi_range heads,
                      bool whole, struct slice slice[2])
{
    struct vka_mpi_range half[2];
    vka_mpi_positions(s->n[which], s->mpi->size, rank, half);
    uint32_t behind[2] = {0, half[0].count};
    for (int i = 0; i < 2; i++) {
        slice[i] = slice_along(s->local[which].tensor, 2, half[i]);
        slice[i].first[2] = whole ? half[i].first : behind[i];
        slice[i].first[1] = whole ? 0 : heads.first;
        slice[i].count[1] = heads.count;
    }
}

static struct head_ranges round_heads(const struct sequence *s, uint32_t n_head, uint32_t n_kv,
                                      int rank, uint32_t round)
{
    return s->by_rows ? split_heads(n_head, n_kv, 1, 0, s->n_round, round)
                      : split_heads(n_head, n_kv, s->mpi->size, rank, s->n_round, round);
}

/* Adds tensors first .. last to both directions of an exchange between local tensors and those of
 * all positions. */
static enum vka_status add_legs(struct sequence *s, struct sequence_round *round, uint32_t p,
                                const struct vka_attention_op *op, int first, int last,
                                struct exchange *exchange)
{
    struct vka_mpi *mpi = s->mpi;
    bool back = first == OUTPUT;
    uint32_t n_head = vka_tensor_shape(op->q, 1), n_kv = vka_tensor_shape(op->k, 1);
    struct legs *to_whole = back ? &exchange->out : &exchange->in;
    struct legs *to_local = back ? &exchange->in : &exchange->out;
    ENSURE(exchange_create(mpi, s->by_rows ? EXCHANGE_ALL : EXCHANGE_EACH, &s->local[first],
                           last - first + 1, &round->request[back], exchange));
    for (int rank = 0; rank < mpi->size; rank++) {
        struct head_ranges theirs = round_heads(s, n_head, n_kv, rank, p);
        for (int i = first; i <= last; i++) {
            struct slice mine[2], other[2];
            slices_of(s, i, mpi->rank, heads_of(&theirs, i), false, mine);
            slices_of(s, i, rank, heads_of(&round->heads, i), true, other);
            for (int half = 0; half < 2; half++) {
                if (!s->by_rows || rank == 0)
                    ENSURE(exchange_add(exchange, to_local, rank, &s->local[i], &mine[half]));
                if (round->tensor[i])
                    ENSURE(exchange_add(exchange, to_whole, rank, &round->whole[i], &other[half]));
            }
        }
    }
    return exchange_finish(exchange, NULL);
}

/* Makes the tensors of all positions of this rank's heads, and the plan of attention on them. */
static enum vka_status create_tensors(struct vka_mpi_plan *plan, struct sequence *s,
                                      struct sequence_round *round,
                                      const struct vka_attention_op *op)
{
    struct vka_mpi *mpi = plan->mpi;
    enum vka_status status = VKA_OK;
    struct views views = {0};
    struct problem_slice mine = {{0, vka_tensor_shape(op->q, 0)}, round->heads};
    struct vka_attention_op own = *op;
    for (int i = s->by_rows ? K : Q; i <= (s->by_rows ? V : OUTPUT); i++) {
        const struct vka_tensor *t = operand(op, i);
        const uint32_t shape[] = {mine.batch.count, heads_of(&round->heads, i).count, s->n[i],
                                  vka_tensor_shape(t, 3)};
        TRY_DEVICE(
            vka_tensor_create(mpi->device, vka_tensor_dtype(t), 4, shape, &round->tensor[i]));
        TRY(image_create(mpi, round->tensor[i], true, &round->whole[i]));
    }
    if (s->by_rows)
        return rows_record(plan, &s->rows, op, &round->heads, round->tensor[K], round->tensor[V],
                           NULL, NULL, &round->plan);
    own.q = round->tensor[Q];
    own.k = round->tensor[K];
    own.v = round->tensor[V];
    own.output = round->tensor[OUTPUT];
    TRY_DEVICE(slice_options(&views, &op->options, &mine, &own.options));
    TRY(mpi_plan_record(plan, NULL, &own, NULL, &round->plan));
fail:
    views_destroy(&views);
    return status;
}

/* Makes what comes before the rounds: by rows, the rows and, if this device supports it, the
 * ring. */
static enum vka_status begin(struct vka_mpi_plan *plan, const uint32_t n[TENSOR_COUNT],
                             const struct vka_attention_op *op)
{
    struct vka_mpi *mpi = plan->mpi;
    struct log *log = &mpi->log;
    struct sequence *s = plan->sequence = calloc(1, sizeof *s);
    ENSURE_ALLOC(s);
    s->mpi = mpi;
    s->by_rows = (uint32_t)mpi->size > plan->n_head;
    memcpy(s->n, n, sizeof s->n);
    s->n_round =
        split_rounds(plan->info.rounds, s->by_rows ? UINT32_MAX : plan->n_kv_head, mpi->size);
    if (!s->by_rows)
        return VKA_OK;
    if (s->n_round > plan->n_kv_head)
        s->n_round = plan->n_kv_head; /* so that no keys are received twice */
    ENSURE(rows_create(mpi, op, n[Q], &s->rows));
    if (plan->info.path == VKA_PATH_UNFUSED)
        return VKA_UNSUPPORTED; /* only fused passes take blocks */
    return ring_create(plan, &s->rows, op, n[K], &s->ring);
}

static enum vka_status create_rounds(struct vka_mpi_plan *plan, const struct vka_attention_op *op)
{
    struct vka_mpi *mpi = plan->mpi;
    struct log *log = &mpi->log;
    struct sequence *s = plan->sequence;
    s->round = calloc(s->n_round, sizeof *s->round);
    ENSURE_ALLOC(s->round);
    for (int i = 0; i < TENSOR_COUNT; i++)
        ENSURE(image_create(mpi, operand(op, i), !s->by_rows || i == K || i == V, &s->local[i]));
    for (uint32_t p = 0; p < s->n_round; p++) {
        struct sequence_round *round = &s->round[p];
        round->heads = round_heads(s, plan->n_head, plan->n_kv_head, mpi->rank, p);
        if (round->heads.query.count)
            ENSURE(create_tensors(plan, s, round, op));
        ENSURE(add_legs(s, round, p, op, s->by_rows ? K : Q, V, &round->scatter));
        if (!s->by_rows)
            ENSURE(add_legs(s, round, p, op, OUTPUT, OUTPUT, &round->collect));
    }
    return VKA_OK;
}

enum vka_status sequence_create(struct vka_mpi_plan *plan, const struct vka_attention_op *op)
{
    uint32_t n[TENSOR_COUNT];
    plan->n_head = vka_tensor_shape(op->q, 1);
    plan->n_kv_head = vka_tensor_shape(op->k, 1);
    ENSURE(count_positions(plan->mpi, n));
    plan->n_q = n[Q];
    enum vka_status status = begin(plan, n, op);
    if ((uint32_t)plan->mpi->size > plan->n_head) { /* all ranks use a ring, or none does */
        status = comm_all_support(plan->mpi, status, caller);
        if (status != VKA_OK && plan->sequence)
            ring_destroy(&plan->sequence->ring);
        status = status == VKA_UNSUPPORTED ? VKA_OK : status;
    }
    if (status == VKA_OK && !plan->sequence->ring)
        return create_rounds(plan, op);
    return status;
}

/* Starts to exchange all rounds. Then each is computed while later ones are still received and the
 * outputs of earlier ones are sent back. */
enum vka_status sequence_run(struct sequence *s, struct run *run)
{
    if (s->by_rows)
        rows_move(&s->rows, run);
    ENSURE(run_meet(run));
    if (s->ring)
        return ring_run(s->ring, run);
    for (int i = Q; i <= V; i++)
        image_fetch(&s->local[i], run);
    for (uint32_t p = 0; p < s->n_round; p++)
        ENSURE(exchange_start(&s->round[p].scatter, run));
    for (uint32_t p = 0; p < s->n_round; p++) {
        struct sequence_round *round = &s->round[p];
        MPI_Request *next = p + 1 < s->n_round ? s->round[p + 1].request : NULL;
        ENSURE(exchange_land(&round->scatter, run));
        for (int i = Q; i <= V && round->plan; i++)
            image_flush(&round->whole[i], run);
        ENSURE(run_compute(run, round->plan, next != NULL, next));
        if (s->by_rows)
            continue;
        if (round->plan)
            image_fetch(&round->whole[OUTPUT], run);
        ENSURE(exchange_start(&round->collect, run));
    }
    for (uint32_t p = 0; p < s->n_round && !s->by_rows; p++)
        ENSURE(exchange_land(&s->round[p].collect, run));
    image_flush(&s->local[OUTPUT], run);
    return VKA_OK;
}

void sequence_destroy(struct sequence **slot)
{
    if (!slot || !*slot)
        return;
    struct sequence *s = *slot;
    for (uint32_t p = 0; s->round && p < s->n_round; p++) {
        struct sequence_round *round = &s->round[p];
        exchange_destroy(&round->scatter);
        exchange_destroy(&round->collect);
        vka_plan_destroy(&round->plan);
        for (int i = 0; i < TENSOR_COUNT; i++) {
            image_destroy(&round->whole[i]);
            vka_tensor_destroy(&round->tensor[i]);
        }
    }
    for (int i = 0; i < TENSOR_COUNT; i++)
        image_destroy(&s->local[i]);
    ring_destroy(&s->ring);
    rows_destroy(&s->rows);
    free(s->round);
    free(s);
    *slot = NULL;
}
