/* Attention over ranks gives the bits of one device, on random problems over the whole contract.
 *
 *     test_mpi mpi_attention FIRST_SEED COUNT [--long] [--staging]
 *
 * --long: also 4,096 positions. */
#include "../patience.h"
#include "test_program.h"
#include "ranks.h"

#include "mpi/slice.h"
#include "problems/problem_data.h"

#include <stdlib.h>
#include <string.h>

struct outputs {
    struct vka_tensor *tensor[5];
    void *want[5];
    size_t n;
};

static void run_alone(struct vka_mpi *mpi, const struct problem *p,
                      const struct vka_attention_op *op)
{
    struct vka_plan *plan = NULL;
    char text[PROBLEM_TEXT];
    REQUIRE_OK(mpi, vka_plan_create(vka_mpi_device(mpi),
                                    VKA_INFO(vka_plan_info, .path = p->path,
                                             .workspace_limit = p->workspace_limit),
                                    &plan));
    enum vka_status status = vka_plan_add_attention(plan, op);
    status = status == VKA_OK ? vka_plan_finish(plan) : status;
    status = status == VKA_OK ? vka_plan_run(plan, PATIENCE) : status;
    REQUIRE(status == VKA_OK, "%s: %s: %s", vka_status_name(status),
            vka_device_error(vka_mpi_device(mpi)), problem_text(p, text));
    vka_plan_destroy(&plan);
}

/* The whole output, and of what only this rank's share is written that share. */
static void collect(struct vka_mpi *mpi, const struct vka_attention_op *op,
                    enum vka_mpi_split split, struct views *views, struct outputs *outputs)
{
    struct problem_slice mine = {{0, vka_tensor_shape(op->q, 0)}, {{0, 0}, {0, 0}}};
    struct vka_attention_op own;
    uint32_t n_head = vka_tensor_shape(op->q, 1), n_kv = vka_tensor_shape(op->k, 1);
    mine.heads = (struct head_ranges){{0, n_head}, {0, n_kv}};
    if (split == VKA_MPI_HEADS)
        vka_mpi_heads(n_head, n_kv, vka_mpi_size(mpi), vka_mpi_rank(mpi), &mine.heads.query,
                      &mine.heads.key);
    else
        mine.batch = vka_mpi_batch(mine.batch.count, vka_mpi_size(mpi), vka_mpi_rank(mpi));
    *outputs = (struct outputs){.tensor = {op->output}, .n = 1};
    if (mine.batch.count == 0 || mine.heads.query.count == 0)
        return;
    REQUIRE_OK(mpi, slice_attention(views, op, &mine, &own));
    struct vka_tensor *const more[] = {own.options.scores, own.options.log_sum_exp, own.present_key,
                                       own.present_value};
    for (int i = 0; i < 4; i++)
        if (more[i])
            outputs->tensor[outputs->n++] = more[i];
}

static void check(struct vka_mpi *mpi, const struct problem *p, const struct vka_attention_op *op,
                  enum vka_mpi_split split, uint32_t rounds)
{
    struct views views = {0};
    struct outputs outputs;
    struct vka_mpi_plan *plan = NULL;
    char text[PROBLEM_TEXT];
    size_t index;
    collect(mpi, op, split, &views, &outputs);
    for (size_t i = 0; i < outputs.n; i++)
        outputs.want[i] = ranks_read(outputs.tensor[i]);
    ranks_poison(op->output);
    for (size_t i = 1; i < outputs.n; i++)
        ranks_poison(outputs.tensor[i]);
    REQUIRE_OK(mpi, vka_mpi_plan_attention(mpi, op,
                                           VKA_INFO(vka_mpi_plan_info, .split = split,
                                                    .rounds = rounds, .path = p->path,
                                                    .workspace_limit = p->workspace_limit),
                                           &plan));
    REQUIRE_OK(mpi, vka_mpi_plan_run(plan, PATIENCE));
    for (size_t i = 0; i < outputs.n; i++) {
        REQUIRE(ranks_same(outputs.tensor[i], outputs.want[i], &index),
                "split %d in %u rounds, result %zu, element %zu differs: %s", (int)split, rounds, i,
                index, problem_text(p, text));
        free(outputs.want[i]);
    }
    vka_mpi_plan_destroy(&plan);
    views_destroy(&views);
}

/* ---- By positions ---------------------------------------------------------------------------- */

/* This rank's positions of a tensor [batch][head][n][dim], as a tensor of its own. */
static struct vka_tensor *positions(struct vka_mpi *mpi, struct vka_tensor *whole)
{
    struct vka_mpi_range half[2];
    struct vka_tensor *own;
    uint32_t shape[4], at = 0;
    vka_mpi_positions(vka_tensor_shape(whole, 2), vka_mpi_size(mpi), vka_mpi_rank(mpi), half);
    for (uint32_t i = 0; i < 4; i++)
        shape[i] = vka_tensor_shape(whole, i);
    shape[2] = half[0].count + half[1].count;
    REQUIRE_OK(mpi,
               vka_tensor_create(vka_mpi_device(mpi), vka_tensor_dtype(whole), 4, shape, &own));
    for (int i = 0; i < 2; at += half[i++].count) {
        struct vka_tensor *from, *to;
        if (!half[i].count)
            continue;
        REQUIRE_OK(mpi, vka_tensor_slice(whole, 2, half[i].first, half[i].count, &from));
        REQUIRE_OK(mpi, vka_tensor_slice(own, 2, at, half[i].count, &to));
        void *data = ranks_read(from);
        REQUIRE_OK(mpi, vka_tensor_write(to, data, vka_tensor_size(to)));
        free(data);
        vka_tensor_destroy(&from);
        vka_tensor_destroy(&to);
    }
    return own;
}

/* `op` has been run alone: its output is what is wanted. */
static void check_positions(struct vka_mpi *mpi, const struct problem *p,
                            const struct vka_attention_op *op, uint32_t rounds)
{
    struct vka_attention_op own = *op;
    struct vka_mpi_plan *plan = NULL;
    char text[PROBLEM_TEXT];
    size_t index;
    own.q = positions(mpi, op->q);
    own.k = positions(mpi, op->k);
    own.v = positions(mpi, op->v);
    own.output = positions(mpi, op->output);
    own.options.log_sum_exp = NULL; /* not supported there */
    void *want = ranks_read(own.output);
    ranks_poison(own.output);
    REQUIRE_OK(mpi, vka_mpi_plan_attention(mpi, &own,
                                           VKA_INFO(vka_mpi_plan_info, .split = VKA_MPI_SEQUENCE,
                                                    .rounds = rounds, .path = p->path,
                                                    .workspace_limit = p->workspace_limit),
                                           &plan));
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(mpi, vka_mpi_plan_run(plan, PATIENCE));
        REQUIRE(ranks_same(own.output, want, &index),
                "by positions in %u rounds, element %zu differs: %s", rounds, index,
                problem_text(p, text));
    }
    free(want);
    vka_mpi_plan_destroy(&plan);
    vka_tensor_destroy(&own.q);
    vka_tensor_destroy(&own.k);
    vka_tensor_destroy(&own.v);
    vka_tensor_destroy(&own.output);
}

/* What the split by positions takes of the contract. */
static bool has_positions(struct vka_mpi *mpi, const struct problem *p)
{
    uint32_t size = (uint32_t)vka_mpi_size(mpi);
    bool by_rows = p->n_kv_head * p->group < size;
    return !p->n_past && !p->has_present && !p->scores_kind && p->n_q >= size && p->n_new >= size &&
           !(by_rows && p->offsets && p->far_offsets);
}

static bool check_problem(struct vka_mpi *mpi, struct problem *p, uint32_t rounds)
{
    struct problem_data d;
    struct vka_attention_op op;
    bool by_positions = has_positions(mpi, p);
    REQUIRE_OK(mpi, problem_data_create(vka_mpi_device(mpi), p, &d));
    problem_op(&d, &op);
    run_alone(mpi, p, &op);
    check(mpi, p, &op, VKA_MPI_HEADS, rounds);
    check(mpi, p, &op, VKA_MPI_BATCH, rounds);
    if (by_positions)
        check_positions(mpi, p, &op, rounds);
    problem_data_destroy(&d);
    return by_positions;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The problem with so few heads and so many keys that these go round three ranks or more in several
 * blocks, and without what positions do not take. */
static void lengthen(struct problem *p)
{
    p->batch = least(p->batch, 2);
    p->n_kv_head = 1;
    p->group = least(p->group, 2);
    p->n_q += 60;
    p->n_new = 300 + 2 * p->n_new;
    p->head_dim = least(p->head_dim, 8);
    p->value_dim = least(p->value_dim, 16);
    p->rope.dim = least(p->rope.dim, p->head_dim / 2 * 2);
    p->n_past = 0;
    p->has_present = p->far_offsets = false;
    p->scores_kind = VKA_SCORES_NONE;
    const uint32_t full[4] = {p->batch, p->group, p->n_q, p->n_new};
    for (uint32_t i = 0; i < p->mask_rank; i++)
        if (p->mask_shape[i] != 1)
            p->mask_shape[i] = full[4 - p->mask_rank + i];
}

static void check_ring(struct vka_mpi *mpi, uint64_t seed)
{
    struct problem p;
    struct problem_data d;
    struct vka_attention_op op;
    problem_draw(&p, seed, VKA_PATH_FUSED);
    lengthen(&p);
    REQUIRE_OK(mpi, problem_data_create(vka_mpi_device(mpi), &p, &d));
    problem_op(&d, &op);
    run_alone(mpi, &p, &op);
    check_positions(mpi, &p, &op, 0);
    problem_data_destroy(&d);
}

/* 4,096 positions, causal, on the path that the library chooses. */
static void check_long(struct vka_mpi *mpi)
{
    struct problem p = {.seed = 4096,
                        .batch = 1,
                        .n_kv_head = 4,
                        .group = 1,
                        .n_q = 4096,
                        .n_new = 4096,
                        .head_dim = 4,
                        .value_dim = 4,
                        .causal = true};
    REQUIRE(check_problem(mpi, &p, 0), "the long problem was not split by positions");
    p.n_kv_head = 1; /* by rows on more than two ranks */
    p.group = 2;
    REQUIRE(check_problem(mpi, &p, 0), "the long problem of few heads was not split by positions");
}

TEST_PROGRAM_ARGUMENTS(mpi_attention)
{
    struct vka_mpi *mpi = ranks_begin(&argc, &argv);
    REQUIRE(argc == 3 || (argc == 4 && strcmp(argv[3], "--long") == 0),
            "usage: test_mpi mpi_attention FIRST_SEED COUNT [--long] [--staging]");
    uint64_t first = strtoull(argv[1], NULL, 10), count = strtoull(argv[2], NULL, 10);
    uint64_t by_positions = 0;
    static const enum vka_path paths[] = {VKA_PATH_FUSED, VKA_PATH_AUTO, VKA_PATH_UNFUSED,
                                          VKA_PATH_AUTO};
    for (uint64_t seed = first; seed < first + count; seed++) {
        struct problem p;
        problem_draw(&p, seed, paths[seed % 4]);
        by_positions += check_problem(mpi, &p, (uint32_t)(seed % 4));
        if (seed % 4 == 0)
            check_ring(mpi, seed);
    }
    REQUIRE(by_positions || count < 8, "no problem was split by positions");
    if (argc == 4)
        check_long(mpi);
    return ranks_end(&mpi);
}
