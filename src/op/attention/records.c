#include "op/attention/records.h"
#include "kernel/attention.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MERGE_INVOCATIONS 64 /* for up to as many features */
#define MERGE_MOST 128       /* on GPUs for more: all of a row are read at a time */

/* Records that a lane reads at a time: as many as hide a GPU's latency. CPU drivers have none, and one
 * took minutes to compile more. */
#define AHEAD_CPU 8
#define AHEAD_GPU 32
#define STATE_MULTIPLE 64u /* floats: so records begin where a binding may */

/* Rows of all tiles of a pass, for each of heads_of key heads and batch elements. */
static uint64_t tile_rows(const struct attention_choice *c, const struct attention_cuts *cuts)
{
    return (uint64_t)cuts->tiles * c->tile;
}

static uint64_t heads_of(const struct attention *a, const struct head_slice *s)
{
    return s->n_batch * (uint64_t)(s->n_head / (a->n_head / a->n_kv_head));
}

/* Rows of all records. The last tile has only those of its rows that are there: where a slice is cut
 * within a tile for a binding, its records shrink with it. */
static uint64_t record_rows(const struct attention *a, const struct head_slice *s,
                            const struct attention_cuts *cuts)
{
    uint64_t rows = tile_rows(&a->choice, cuts);
    uint64_t there = (uint64_t)s->n_query * (a->n_head / a->n_kv_head);
    return heads_of(a, s) * rows - (a->n_sequence ? 0 : rows - there);
}

/* Floats of all records of a row. */
static uint64_t record_floats(const struct attention *a)
{
    return (uint64_t)a->choice.n_split * RECORD_PITCH(a->value_dim);
}

uint64_t attention_record_bytes(const struct attention *a, const struct head_slice *s,
                                const struct attention_cuts *cuts)
{
    return a->choice.n_split == 1 ? 0 : record_rows(a, s, cuts) * record_floats(a) * 4;
}

enum vka_status attention_make_records(struct vka_plan *plan, const struct attention *a,
                                       const struct head_slice *s,
                                       const struct attention_cuts *cuts,
                                       struct vka_tensor *records)
{
    const uint32_t size[4] = {1, 1, (uint32_t)record_rows(a, s, cuts), (uint32_t)record_floats(a)};
    return plan_scratch(plan, VKA_F32, size, records);
}

static uint32_t merge_lanes(const struct vka_plan *plan, const struct attention *a)
{
    const bool few = a->value_dim <= MERGE_INVOCATIONS ||
                     plan->caps.properties.type == VKA_DEVICE_CPU ||
                     plan->caps.properties.max_workgroup < MERGE_MOST;
    return few ? MERGE_INVOCATIONS : MERGE_MOST;
}

/* Workgroups along x, which take rows in turn; those of ragged batches take a tile each. */
static uint32_t merge_groups(const struct vka_plan *plan, const struct attention *a, uint64_t rows,
                             uint32_t n_tile)
{
    const uint32_t most = plan->caps.max_groups[0];
    if (a->n_sequence)
        return n_tile;
    return rows < most ? (uint32_t)rows : most;
}

static struct work merge_work(const struct vka_plan *plan, const struct attention *a,
                              const struct head_slice *s, const struct attention_cuts *cuts)
{
    const struct attention_choice *c = &a->choice;
    double row = WORK_MOVE * c->n_split * RECORD_PITCH(a->value_dim);
    double rows = (double)tile_rows(c, cuts);
    double rows_each = a->n_sequence ? c->tile : ceil(rows / plan->caps.max_groups[0]);
    double features = (double)divide_up(a->value_dim, MERGE_INVOCATIONS);
    double rounds = 32 + (2 + features) * (c->n_split / 4.0 + 4);
    return (struct work){row * rows * (double)heads_of(a, s), row * rows_each,
                         (rows_each + 1) * rounds};
}

bool attention_merge_fits(const struct vka_plan *plan, const struct attention *a,
                          const struct head_slice *s, const struct attention_cuts *cuts)
{
    const struct attention_choice *c = &a->choice;
    struct work work = merge_work(plan, a, s, cuts);
    return c->n_split == 1 || plan_fits(plan, KERNEL_attention_merge, &work);
}

enum vka_status attention_add_merge(struct vka_plan *plan, const struct attention *a,
                                    const struct head_slice *s, const struct attention_cuts *cuts,
                                    uint32_t tile, const struct vka_tensor *records,
                                    struct attention_params p)
{
    const struct attention_choice *c = &a->choice;
    const bool cpu = plan->caps.properties.type == VKA_DEVICE_CPU;
    struct pass pass = {.name = "merge", .reason = "keys were split"};
    struct vka_tensor output = attention_slice(&a->output, s), parameters, log_sum;
    attention_set_tiles(cuts, tile, &p);
    pass.key = (struct pipeline_key){.kernel = KERNEL_attention_merge, .n_spec = MERGE_SPECS};
    pass.key.spec[MERGE_LANES] = merge_lanes(plan, a);
    pass.key.spec[MERGE_O_TYPE] = a->output.dtype;
    pass.key.spec[MERGE_ROWS] = c->tile;
    pass.key.spec[MERGE_AHEAD] = cpu ? AHEAD_CPU : AHEAD_GPU;
    plan_bind(plan, &pass, 0, records, false, NULL);
    plan_bind(plan, &pass, 1, &output, true, &p.o_offset);
    plan_bind(plan, &pass, 2, records, false, NULL);
    if (a->options->sink)
        plan_bind(plan, &pass, 2, a->options->sink, false, &p.sink_offset);
    plan_bind(plan, &pass, 3, records, false, NULL);
    if (a->n_sequence)
        plan_bind(plan, &pass, 3, a->q_start, false, &p.q_start_offset);
    plan_bind(plan, &pass, 5, &output, true, NULL);
    if (attention_log_sum(a, &log_sum)) {
        log_sum = attention_slice(&log_sum, s);
        plan_bind(plan, &pass, 5, &log_sum, true, &p.log_sum_offset);
        pass.key.spec[MERGE_LOG_SUM] = 1;
    }
    plan_bind(plan, &pass, 6, records, false, NULL);
    if (a->options->kv_length)
        plan_bind(plan, &pass, 6, a->options->kv_length, false, &p.mask.length_offset);
    ENSURE(plan_constant(plan, sizeof p / 4, &p, &parameters));
    plan_bind(plan, &pass, 4, &parameters, false, NULL);
    pass.work = merge_work(plan, a, s, cuts);
    pass.groups[0] = merge_groups(plan, a, (uint64_t)p.n_q * p.group, p.n_tile);
    pass.groups[1] = s->n_head / p.group;
    pass.groups[2] = s->n_batch;
    snprintf(pass.detail, sizeof pass.detail, "%u splits of %u keys", c->n_split, c->split_keys);
    return plan_add_pass(plan, &pass);
}

/* Floats of the softmax state of an unfinished chain, all rows. */
static uint64_t count_chain(const struct attention *a, const struct head_slice *all)
{
    const struct attention_choice *c = &a->choice;
    uint64_t rows = heads_of(a, all) * c->n_feature_tile * attention_tiles(a, all) * c->tile;
    uint64_t floats = rows * attention_state_pitch(c);
    return (floats + STATE_MULTIPLE - 1) / STATE_MULTIPLE * STATE_MULTIPLE;
}

uint64_t attention_count_state(const struct attention *a, const struct head_slice *all)
{
    const struct attention_cuts cuts = {.tiles = attention_tiles(a, all)};
    uint64_t rows = heads_of(a, all) * tile_rows(&a->choice, &cuts);
    return count_chain(a, all) + (a->choice.n_split == 1 ? 0 : rows * record_floats(a));
}

void attention_state_cuts(const struct attention *a, const struct head_slice *all,
                          struct vka_tensor *state, struct vka_tensor *records)
{
    const struct attention_choice *c = &a->choice;
    uint32_t chain = (uint32_t)count_chain(a, all);
    struct vka_tensor whole = tensor_rank4(a->state);
    *state = tensor_slice_along(&whole, 3, 0, chain);
    if (c->n_split > 1)
        *records =
            tensor_slice_along(&whole, 3, chain, (uint32_t)attention_count_state(a, all) - chain);
}
