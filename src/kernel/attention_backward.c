#include "kernel/attention_backward.h"
#include "core/arith.h"
#include "gpu/pipeline.h"
#include "kernel/attention_backward_coop.h"
#include "params/params.h"
/* Their order: train.h needs what comes before it. */
#include "params/model.h"

#include "params/train.h"

#define SHARED_AIM 32768u /* bytes, so that a processor has room for several workgroups */
#define INVOCATIONS 128u
#define MOST_LANES 32u

/* Most rows of an invocation, and vec4 of their sums in its registers, besides 4 of operands and one of
 * scores a row: NVIDIA and AMD have 256 registers a lane or nearly so, Intel 128 in its smallest
 * subgroups, others are between, Mali has 64. */
static uint32_t most_rows(const struct vka_device_properties *has, bool sums)
{
    if (tune_has_few_registers(has))
        return sums ? 1 : 2;
    return has->vendor_id == VENDOR_INTEL ? 2 : 4;
}

static uint32_t most_sums(const struct vka_device_properties *has)
{
    const bool many = has->vendor_id == VENDOR_AMD || has->vendor_id == VENDOR_NVIDIA;
    if (tune_has_few_registers(has))
        return 2;
    return many ? 16 : has->vendor_id == VENDOR_INTEL ? 4 : 8;
}

/* Vec4 of a row of both sides that are staged at a time: compilers unroll the loop over them. */
static uint32_t most_depth(const struct vka_device_properties *has, bool two_sums)
{
    return !tune_has_few_registers(has) ? 4 : two_sums ? 1 : 2;
}

/* Vec4 of sums of a row in an invocation. */
static uint32_t lane_sums(const struct backward_tile *t)
{
    return divide_up(t->a4, t->lanes_x) + divide_up(t->b4, t->lanes_x);
}

static uint64_t shared_bytes(const struct backward_tile *t, uint32_t stage)
{
    const uint64_t own = backward_own(t), others = backward_others(t);
    const uint64_t operands = (own + others) * TILE_PITCH(t->depth4);
    const uint64_t results = (uint64_t)t->at_once * (t->a4 > t->b4 ? t->a4 : t->b4);
    const uint64_t queries = stage == BACKWARD_KEYS ? others : own;
    const uint64_t sums = stage == BACKWARD_SUMS ? own * t->lanes_x : 1;
    return 16 * ((operands > results ? operands : results) +
                 2 * own * TILE_WEIGHT_PITCH(t->lanes_x)) +
           8 * sums + 24 * queries + 32;
}

/* Rows whose results are added at a time: as many as the memory of the operands holds. */
static void set_at_once(struct backward_tile *t)
{
    const uint32_t wide = t->a4 > t->b4 ? t->a4 : t->b4;
    const uint32_t operands = (backward_own(t) + backward_others(t)) * TILE_PITCH(t->depth4);
    for (t->at_once = backward_others(t); t->at_once > 4 && t->at_once * wide > operands;)
        t->at_once /= 2;
}

/* Sets lanes and rows so that the sums of one of n_feature_tile tiles stay in registers; false where they do
 * not. */
static bool fit_registers(const struct vka_device_properties *has, uint32_t a4, uint32_t b4,
                          uint32_t n_feature_tile, struct backward_tile *t)
{
    *t = (struct backward_tile){.lane_others = 4,
                                .depth4 = most_depth(has, b4 > 0),
                                .a4 = divide_up(a4, n_feature_tile),
                                .b4 = divide_up(b4, n_feature_tile)};
    const uint32_t a_tiles = a4 ? divide_up(a4, t->a4) : 1;
    const uint32_t b_tiles = b4 ? divide_up(b4, t->b4) : 1;
    t->n_feature_tile = a_tiles > b_tiles ? a_tiles : b_tiles;
    const uint32_t most = most_sums(has), rows = most_rows(has, a4 > 0);
    for (t->lanes_x = 8; t->lanes_x <= MOST_LANES; t->lanes_x *= 2) {
        const uint32_t sums = lane_sums(t);
        t->rows = sums * rows <= most ? rows : most / sums;
        t->lanes_y = INVOCATIONS / t->lanes_x;
        if (t->rows == rows || (t->lanes_x == MOST_LANES && t->rows > 0))
            return true;
    }
    return false;
}

static bool fit_device(const struct vka_device_properties *has, uint32_t stage,
                       struct backward_tile *t)
{
    const uint32_t limit =
        has->max_shared_memory < SHARED_AIM ? has->max_shared_memory : SHARED_AIM;
    for (set_at_once(t);
         shared_bytes(t, stage) > limit || t->lanes_x * t->lanes_y > has->max_workgroup;
         set_at_once(t)) {
        if (t->depth4 > 1 && t->lanes_x * t->lanes_y <= has->max_workgroup)
            t->depth4 /= 2;
        else if (t->lanes_y > 1)
            t->lanes_y /= 2;
        else if (t->rows > 1)
            t->rows--;
        else
            return false;
    }
    return true;
}

static bool fit(const struct vka_device_properties *has, uint32_t stage, uint32_t a4, uint32_t b4,
                struct backward_tile *t)
{
    const uint32_t wide = a4 > b4 ? a4 : b4;
    for (uint32_t n_feature_tile = 1; n_feature_tile == 1 || n_feature_tile <= wide;
         n_feature_tile++)
        if (fit_registers(has, a4, b4, n_feature_tile, t) && fit_device(has, stage, t))
            return true;
    return false;
}

static void choose_scalar(const struct caps *caps, const struct backward_problem *problem,
                          struct backward_choice *choice)
{
    const struct vka_device_properties *has = &caps->properties;
    struct backward_choice c = {
        .kernel = KERNEL_attention_backward,
        .head4 = divide_up(problem->head_dim, 4),
        .value4 = divide_up(problem->value_dim, 4),
        .batch = has->vendor_id == VENDOR_INTEL || tune_has_few_registers(has) ? 1 : 2,
        .reason = kernel_missing(KERNEL_attention_backward, caps),
    };
    c.usable = !c.reason;
    for (uint32_t stage = 0; stage < BACKWARD_STAGES && c.usable; stage++) {
        c.usable = fit(has, stage, stage == BACKWARD_SUMS ? 0 : c.head4,
                       stage == BACKWARD_KEYS ? c.value4 : 0, &c.tiles[stage]);
        if (!c.usable)
            c.reason = "has no tile that fits this device";
    }
    if (c.usable)
        c.reason = "tiles in shared memory, without a buffer of scores";
    *choice = c;
}

/* Whether the loops of a span are within those of the driver. */
static bool loops_fit(const struct caps *caps, const struct backward_choice *c)
{
    for (uint32_t stage = 0; stage < BACKWARD_STAGES && caps->max_loops; stage++)
        if (tune_backward_loops(c, stage) > caps->max_loops)
            return false;
    return true;
}

/* CPU drivers compute a matrix in many steps, and pay for every barrier. */
void tune_attention_backward(const struct caps *caps, const struct backward_problem *problem,
                             struct backward_choice *choice)
{
    const bool cpu = caps->properties.type == VKA_DEVICE_CPU;
    choose_scalar(caps, problem, choice);
    if (!cpu || !choice->usable)
        backward_coop_choose(caps, problem, choice);
    choice->preferred = !cpu;
    if (choice->usable && !loops_fit(caps, choice)) {
        choice->usable = false;
        choice->reason = "has no tile that fits this device";
    }
    if (problem->head_dim > TUNE_CHAIN || problem->value_dim > TUNE_CHAIN) {
        choice->usable = false;
        choice->reason = "sums at most 16,384 features of a head";
    }
}

static void scalar_key(const struct backward_choice *c, uint32_t stage,
                       const struct backward_operands *o, struct pipeline_key *key)
{
    const struct backward_tile *t = &c->tiles[stage];
    key->n_spec = BACKWARD_SPECS;
    key->spec[BACKWARD_STAGE] = stage;
    key->spec[BACKWARD_LANES_X] = t->lanes_x;
    key->spec[BACKWARD_LANES_Y] = t->lanes_y;
    key->spec[BACKWARD_ROWS] = t->rows;
    key->spec[BACKWARD_HEAD4] = c->head4;
    key->spec[BACKWARD_VALUE4] = c->value4;
    key->spec[BACKWARD_DEPTH4] = t->depth4;
    key->spec[BACKWARD_A4] = t->a4;
    key->spec[BACKWARD_B4] = t->b4;
    key->spec[BACKWARD_AT_ONCE] = t->at_once;
    key->spec[BACKWARD_Q_TYPE] = o->q_type;
    key->spec[BACKWARD_K_TYPE] = o->k_type;
    key->spec[BACKWARD_V_TYPE] = o->v_type;
    key->spec[BACKWARD_DY_TYPE] = o->dy_type;
    key->spec[BACKWARD_VECS] = o->vecs;
    key->spec[BACKWARD_GENERAL] = o->general;
    key->spec[BACKWARD_BATCH] = c->batch;
}

void tune_backward_key(const struct backward_choice *c, uint32_t stage,
                       const struct backward_operands *o, struct pipeline_key *key)
{
    *key = (struct pipeline_key){.kernel = c->kernel};
    (c->kernel == KERNEL_attention_backward ? scalar_key : backward_coop_key)(c, stage, o, key);
}

uint64_t tune_backward_shared(const struct backward_choice *c, uint32_t stage)
{
    return c->kernel == KERNEL_attention_backward ? shared_bytes(&c->tiles[stage], stage)
                                                  : backward_coop_shared(c, stage);
}

double tune_backward_loops(const struct backward_choice *c, uint32_t stage)
{
    if (c->kernel != KERNEL_attention_backward)
        return backward_coop_loops(c, stage);
    const struct backward_tile *t = &c->tiles[stage];
    const double threads = (double)t->lanes_x * t->lanes_y;
    const double own = backward_own(t), others = backward_others(t), depth = t->depth4;
    const double depths = divide_up(c->head4, t->depth4) + divide_up(c->value4, t->depth4);
    const double product = (own + others) * depth / threads + depth + 8;
    const double adds = others / t->at_once;
    double step = depths * product + 5.0 * t->rows + 12.0 /* of philox */ * 4 * t->rows;
    step +=
        stage != BACKWARD_SUMS ? adds * (t->at_once * t->a4 / threads + t->at_once / 4.0 + 4) : 0;
    step +=
        stage == BACKWARD_KEYS ? adds * (t->at_once * t->b4 / threads + t->at_once / 4.0 + 4) : 0;
    step += stage == BACKWARD_KEYS ? others / threads + 2 : 0;
    const double ends = own / threads + t->rows * 4.0 * lane_sums(t) + t->lanes_x * own / threads;
    return BACKWARD_SPAN / others * (step + 2) + ends + 32;
}
