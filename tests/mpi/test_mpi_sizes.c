/* Sizes that one device refuses: all ranks refuse them too, though the slice of a larger tensor, or
 * a broadcast one, would fit a rank's slice. */
#include "test_program.h"
#include "ranks.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { BATCH = 2, WIDTH = 16, MOST = 64 };

static struct {
    struct vka_mpi *mpi;
    struct vka_tensor *made[MOST];
    size_t n_made;
} world;

static struct vka_tensor *tensor(enum vka_dtype dtype, uint32_t rank, uint32_t a, uint32_t b,
                                 uint32_t c, uint32_t d)
{
    REQUIRE(world.n_made < MOST, "more than %d tensors", MOST);
    struct vka_tensor **made = &world.made[world.n_made++];
    REQUIRE_OK(world.mpi, vka_tensor_create(vka_mpi_device(world.mpi), dtype, rank,
                                            (uint32_t[]){a, b, c, d}, made));
    return *made;
}

static struct vka_tensor *four(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    return tensor(VKA_F32, 4, a, b, c, d);
}

static void destroy_tensors(void)
{
    while (world.n_made > 0)
        vka_tensor_destroy(&world.made[--world.n_made]);
}

/* ---- Options, which both operations have ----------------------------------------------------- */

enum { OPTIONS = 14 };

/* n: queries and keys. */
static void make_options(uint32_t n_head, uint32_t n, struct vka_attention_options o[OPTIONS])
{
    struct vka_tensor *lengths = tensor(VKA_I32, 1, BATCH + 1, 1, 1, 1);
    struct vka_tensor *table = tensor(VKA_I32, 2, BATCH, 3, 1, 1);
    memset(o, 0, OPTIONS * sizeof *o);
    o[0].mask = four(BATCH + 1, n_head, n, n);
    o[1].mask = four(BATCH, n_head + 1, n, n);
    o[2].mask = tensor(VKA_F32, 2, n + 1, n, 1, 1);
    o[3].kv_length = lengths;
    o[4].kv_length = table;
    o[5].query_offset = lengths;
    o[6].query_offset = table;
    o[7].query_offset = tensor(VKA_F32, 1, BATCH, 1, 1, 1);
    o[8].sink = tensor(VKA_F32, 1, n_head + 1, 1, 1, 1);
    o[9].alibi = tensor(VKA_F32, 1, n_head + 1, 1, 1, 1);
    o[10].scores = four(BATCH + 1, n_head, n, n);
    o[11].scores = four(BATCH, n_head + 1, n, n);
    o[10].scores_kind = o[11].scores_kind = VKA_SCORES_RAW;
    o[12].log_sum_exp = tensor(VKA_F32, 3, BATCH + 1, n_head, n, 1);
    o[13].log_sum_exp = tensor(VKA_F32, 3, BATCH, n_head + 1, n, 1);
}

/* ---- Attention ------------------------------------------------------------------------------- */

static enum vka_status on_one_device(const struct vka_attention_op *op)
{
    struct vka_plan *plan;
    REQUIRE_OK(world.mpi, vka_plan_create(vka_mpi_device(world.mpi), NULL, &plan));
    enum vka_status status = vka_plan_add_attention(plan, op);
    vka_plan_destroy(&plan);
    return status;
}

static enum vka_status on_all(const struct vka_attention_op *op, enum vka_mpi_split split)
{
    struct vka_mpi_plan *plan;
    enum vka_status status =
        vka_mpi_plan_attention(world.mpi, op, VKA_INFO(vka_mpi_plan_info, .split = split), &plan);
    vka_mpi_plan_destroy(&plan);
    return status;
}

enum { OPERANDS = 10, ALL = OPERANDS + OPTIONS };

/* own: positions of a rank's q, k, v and output; n: of all. */
static void make_ops(uint32_t n_head, uint32_t own, uint32_t n, struct vka_attention_op op[ALL])
{
    struct vka_attention_options options[OPTIONS];
    struct vka_tensor *in = four(BATCH, n_head, own, 4), *out = four(BATCH, n_head, own, 4);
    struct vka_tensor *more = four(BATCH + 1, n_head, own, 4), *one = four(1, n_head, own, 4);
    struct vka_tensor *wide = four(BATCH, 2 * n_head, own, 4);
    struct vka_tensor *past = four(BATCH, n_head, 2 * own, 4);
    for (int i = 0; i < ALL; i++)
        op[i] = *VKA_INFO(vka_attention_op, .q = in, .k = in, .v = in, .output = out);
    op[0].k = op[0].v = more;
    op[1].k = op[1].v = one;
    op[2].v = one;
    op[3].v = more;
    op[4].v = wide;
    for (int i = 5; i < OPERANDS; i++) {
        op[i].past_key = op[i].past_value = in;
        op[i].present_key = op[i].present_value = past;
    }
    op[5].past_key = more;
    op[6].past_value = wide;
    op[7].present_key = four(BATCH + 1, n_head, 2 * own, 4);
    op[8].present_value = four(BATCH, 2 * n_head, 2 * own, 4);
    op[9].past_key = op[9].past_value = one;
    make_options(n_head, n, options);
    for (int i = 0; i < OPTIONS; i++)
        op[OPERANDS + i].options = options[i];
}

static void check_attention(uint32_t n_head)
{
    struct vka_attention_op op[ALL];
    make_ops(n_head, 2, 2, op);
    for (int i = 0; i < ALL; i++) {
        enum vka_status alone = on_one_device(&op[i]);
        REQUIRE(alone == VKA_INVALID, "%d of %u heads: one device gives %s", i, n_head,
                vka_status_name(alone));
        for (int split = VKA_MPI_HEADS; split <= VKA_MPI_BATCH; split++) {
            enum vka_status status = on_all(&op[i], (enum vka_mpi_split)split);
            REQUIRE(status == VKA_INVALID, "%d of %u heads, split %d: %s", i, n_head, split,
                    vka_status_name(status));
        }
    }
    destroy_tensors();
}

/* Each rank has two positions; where ranks outnumber heads they keep those. */
static void check_positions(uint32_t n_head)
{
    struct vka_attention_op op[ALL];
    make_ops(n_head, 2, 2 * (uint32_t)vka_mpi_size(world.mpi), op);
    for (int i = 0; i < ALL; i++) {
        bool returned =
            (i >= 5 && i < OPERANDS) || op[i].options.scores || op[i].options.log_sum_exp;
        enum vka_status status = on_all(&op[i], VKA_MPI_SEQUENCE);
        REQUIRE(status == VKA_INVALID || (returned && status == VKA_UNSUPPORTED),
                "%d of %u heads by positions: %s", i, n_head, vka_status_name(status));
    }
    destroy_tensors();
}

/* ---- Layers ---------------------------------------------------------------------------------- */

static void check_layer(enum vka_mpi_split split, enum vka_layout layout)
{
    static const float weights[WIDTH * WIDTH];
    enum { HEADS = 4, N = 3, INPUTS = 3 };
    const struct vka_linear_weights w = {weights, NULL};
    bool first = layout == VKA_SEQUENCE_FIRST;
    struct vka_mpi_layer *layer;
    struct vka_mpi_plan *plan;
    struct vka_attention_options options[OPTIONS];
    struct vka_tensor *x[BATCH + 2], *y;
    REQUIRE_OK(world.mpi, vka_mpi_layer_create(world.mpi,
                                               VKA_INFO(vka_mpi_layer_info, .split = split,
                                                        .layer = {.n_head = HEADS,
                                                                  .head_dim = 4,
                                                                  .query_dim = WIDTH,
                                                                  .output_dim = WIDTH,
                                                                  .query = w,
                                                                  .key = w,
                                                                  .value = w,
                                                                  .output = w}),
                                               &layer));
    for (uint32_t batch = 1; batch < COUNT(x); batch++)
        x[batch] = tensor(VKA_F32, 3, first ? N : batch, first ? batch : N, WIDTH, 1);
    y = tensor(VKA_F32, 3, first ? N : BATCH, first ? BATCH : N, WIDTH, 1);
    make_options(HEADS, N, options);
    const struct vka_layer_op good =
        *VKA_INFO(vka_layer_op, .query = x[BATCH], .output = y, .layout = layout);
    struct vka_layer_op op[INPUTS + OPTIONS];
    for (size_t i = 0; i < COUNT(op); i++)
        op[i] = good;
    op[0].key = x[BATCH + 1];
    op[1].key = x[1];
    op[2].value = x[BATCH + 1];
    for (int i = 0; i < OPTIONS; i++)
        op[INPUTS + i].attention = options[i];
    for (size_t i = 0; i < COUNT(op); i++) {
        enum vka_status status = vka_mpi_plan_layer(world.mpi, layer, &op[i], NULL, &plan);
        REQUIRE(status == VKA_INVALID, "%zu of a layer, split %d: %s", i, (int)split,
                vka_status_name(status));
    }
    REQUIRE_OK(world.mpi, vka_mpi_plan_layer(world.mpi, layer, &good, NULL, &plan));
    vka_mpi_plan_destroy(&plan);
    vka_mpi_layer_destroy(&layer);
    destroy_tensors();
}

TEST_PROGRAM_ARGUMENTS(mpi_sizes)
{
    world.mpi = ranks_begin(&argc, &argv);
    for (uint32_t n_head = 1; n_head <= 4; n_head += 3) {
        check_attention(n_head);
        check_positions(n_head);
    }
    for (int layout = 0; layout < VKA_LAYOUT_COUNT; layout++) {
        check_layer(VKA_MPI_HEADS, (enum vka_layout)layout);
        check_layer(VKA_MPI_BATCH, (enum vka_layout)layout);
    }
    return ranks_end(&world.mpi);
}
