/* attention_tile and attention_tile_mixed: tiles of rows and keys in shared memory. The keys of a step and
 * of a split decide the bits of a row; both follow from the row's own sequence, never from the batch. */
#include "core/arith.h"
#include "gpu/pipeline.h"
#include "kernel/attention_family.h"
#include "kernel/attention_split.h"
#include "params/params.h"

#include <math.h>

/* Most bytes of shared memory of a workgroup, so that a processor has room for several. */
#define SHARED_AIM 32768u
#define SHARED_AIM_WIDE 49152u /* of 256 invocations */

#define VALUE_VEC4 16u  /* vec4 of context in registers of an invocation, all its rows */
#define LOADS_MOST 4u   /* vec4 of keys or values on their way to shared memory */
#define CONTEXT_VEC4 8u /* vec4 of context in registers of an invocation, one row */

/* Sets lanes, which share a row, and the most rows of an invocation, where rows are many: so that
 * sums and operands stay in registers. AMD and NVIDIA have 256 registers a lane or nearly so, Intel
 * 128 in its smallest subgroups, Mali 64, others are between. NVIDIA's wide heads take 24 rows, with
 * which q stays in shared memory. */
static void fit_registers(const struct vka_device_properties *has, uint32_t value4,
                          struct attention_choice *c)
{
    bool many = has->vendor_id == VENDOR_AMD || has->vendor_id == VENDOR_NVIDIA;
    bool wide = has->vendor_id == VENDOR_NVIDIA && value4 > 32;
    c->lanes = wide ? 16 : many || value4 <= 16 ? 8 : value4 <= 32 ? 16 : 32;
    c->rows = has->vendor_id == VENDOR_INTEL ? 2 : 4;
    c->ahead = LOADS_MOST;
    if (tune_has_few_registers(has)) {
        c->ahead = 1;
        c->lanes = value4 <= 16 ? 16 : 32;
        c->rows = 1;
    }
    c->lanes_y = wide ? 12 : c->lanes == 32 ? 8 : 16;
    while (c->lanes_y > 1 && c->lanes * c->lanes_y > has->max_workgroup)
        c->lanes_y /= 2;
}

static uint64_t shared_bytes(const struct attention_choice *c)
{
    uint64_t rows = c->tile, keys = c->keys;
    uint64_t q = rows * TILE_PITCH(c->q_whole ? c->head4 : c->depth4);
    uint64_t k_stage = keys * TILE_PITCH(c->depth4), v_stage = (uint64_t)c->v_keys * c->value4;
    uint64_t weights = rows * TILE_WEIGHT_PITCH(c->lanes);
    uint64_t words = rows * c->lanes + 2 * rows + 4;
    if (c->kernel == KERNEL_attention_tile_mixed)
        return 16 * (v_stage + weights) + 8 * (q + k_stage) + 4 * words;
    return 16 * (q + (k_stage > v_stage ? k_stage : v_stage) + weights) + 4 * words;
}

static void set_feature_tiles(const struct attention_problem *p, uint32_t n,
                              struct attention_choice *c)
{
    uint32_t value4 = divide_up(p->value_dim, 4);
    c->value4 = divide_up(value4, n);
    c->n_feature_tile = divide_up(value4, c->value4);
}

/* Sets all that follows from lanes, lanes_y, rows and the depth of the stage. */
static void derive(const struct attention_problem *p, uint32_t depth4, struct attention_choice *c)
{
    uint32_t head4 = divide_up(p->head_dim, 4);
    uint32_t stages = divide_up(head4, depth4);
    c->depth4 = divide_up(head4, stages);
    c->head4 = c->depth4 * stages;
    c->tile = c->lanes_y * c->rows;
    uint32_t stage4 = c->keys * TILE_PITCH(c->depth4);
    for (c->v_keys = c->keys; c->v_keys > 4 && c->v_keys * c->value4 > stage4;)
        c->v_keys /= 2;
}

/* Sets lanes and rows by the rows of the problem, before they shrink to fit memory. */
static void begin(const struct vka_device_properties *has, const struct attention_problem *p,
                  struct attention_choice *c)
{
    bool few = attention_has_few_rows(p);
    fit_registers(has, divide_up(p->value_dim, 4), c);
    if (few)
        c->lanes = 32;
    c->keys = 4 * c->lanes;
    set_feature_tiles(p, divide_up(divide_up(p->value_dim, 4), CONTEXT_VEC4 * c->lanes), c);
    uint32_t rows = VALUE_VEC4 / divide_up(c->value4, c->lanes);
    c->rows = rows < c->rows ? rows : c->rows;
    while (c->rows > 1 && p->n_row < c->rows)
        c->rows--;
    if (few)
        c->lanes_y = divide_up((uint32_t)p->n_row, c->rows);
    while (!few && c->rows > 1 && p->n_row <= (uint64_t)c->lanes_y * (c->rows - 1))
        c->rows--;
    c->q_whole = true;
}

/* Takes the cheapest step that shrinks the tile; false where none is left. */
static bool shrink(const struct attention_problem *p, struct attention_choice *c, uint32_t *depth4)
{
    if (c->rows > 2)
        c->rows--;
    else if (c->q_whole)
        c->q_whole = false;
    else if (*depth4 > 4)
        *depth4 /= 2;
    else if (c->rows > 1)
        c->rows--;
    else if (c->lanes_y > 1)
        c->lanes_y /= 2;
    else if (*depth4 > 1)
        *depth4 /= 2;
    else if (c->value4 > 1)
        set_feature_tiles(p, 2 * c->n_feature_tile, c);
    else
        return false;
    return true;
}

/* attention_tile_mixed for q and keys of float16, where the device has it. */
static enum kernel kernel_of(const struct caps *caps, const struct attention_problem *p)
{
    bool mixed = p->q_type == VKA_F16 && p->kv_type == VKA_F16 &&
                 !kernel_missing(KERNEL_attention_tile_mixed, caps);
    return mixed ? KERNEL_attention_tile_mixed : KERNEL_attention_tile;
}

static bool choose(const struct caps *caps, const struct attention_problem *problem,
                   struct attention_choice *choice)
{
    struct attention_choice c = {.usable = true, .kernel = kernel_of(caps, problem)};
    if (kernel_missing(c.kernel, caps))
        return false;
    c.preferred = caps->properties.type != VKA_DEVICE_CPU; /* CPU drivers pay for every barrier */
    begin(&caps->properties, problem, &c);
    bool few = attention_has_few_rows(problem), wide = !few && c.lanes > 8;
    uint32_t limit = caps->properties.max_shared_memory, depth4 = few                     ? 4
                                                                  : wide && c.value4 > 16 ? 8
                                                                                          : 16;
    uint32_t aim = wide ? SHARED_AIM_WIDE : SHARED_AIM;
    limit = limit < aim ? limit : aim;
    if (problem->n_row > ATTENTION_FEW_ROWS)
        limit >>= problem->variant; /* `vkattn tune` measures smaller tiles */
    derive(problem, depth4, &c);
    while (shared_bytes(&c) > limit || c.lanes * c.lanes_y > caps->properties.max_workgroup) {
        if (!shrink(problem, &c, &depth4))
            return false;
        derive(problem, depth4, &c);
    }
    attention_split_keys(caps, problem, &c);
    c.map = problem->mask && problem->n_row > c.tile && !kernel_missing(KERNEL_attention_map, caps);
    c.reason = c.n_split > 1 ? "one pass over tiles in shared memory; few rows: keys are split"
               : c.q_whole   ? "one pass over tiles in shared memory"
                             : "one pass over tiles in shared memory, q staged with the keys";
    *choice = c;
    return true;
}

static void set_key(const struct attention_choice *c, const struct attention_operands *o,
                    struct pipeline_key *key)
{
    key->n_spec = TILE_SPECS;
    key->spec[TILE_LANES_X] = c->lanes;
    key->spec[TILE_LANES_Y] = c->lanes_y;
    key->spec[TILE_ROWS] = c->rows;
    key->spec[TILE_HEAD4] = c->head4;
    key->spec[TILE_DEPTH4] = c->depth4;
    key->spec[TILE_VALUE4] = c->value4;
    key->spec[TILE_V_KEYS] = c->v_keys;
    key->spec[TILE_Q_TYPE] = o->q_type;
    key->spec[TILE_K_TYPE] = o->k_type;
    key->spec[TILE_V_TYPE] = o->v_type;
    key->spec[TILE_O_TYPE] = o->o_type;
    key->spec[TILE_K_VEC] = o->k_vec && o->head_dim == 4 * c->head4 ? 2 : o->k_vec;
    key->spec[TILE_V_VEC] =
        o->v_vec && o->value_dim == 4 * c->value4 * c->n_feature_tile ? 2 : o->v_vec;
    key->spec[TILE_GENERAL] = o->bias || o->dropout;
    key->spec[TILE_Q_WHOLE] = c->q_whole;
    key->spec[TILE_SPLITS] = c->n_split > 1;
    key->spec[TILE_LOG_SUM] = attention_stores_log_sum(c, o);
    key->spec[TILE_PAGED] = o->paged;
    key->spec[TILE_LOADS] = c->ahead;
}

static double count_loops(const struct attention_choice *c, const struct attention_operands *o,
                          double keys)
{
    double threads = (double)c->lanes * c->lanes_y, stages = (double)c->head4 / c->depth4;
    double rows = c->rows, loads = (double)c->keys / c->v_keys;
    double own = divide_up(c->value4, c->lanes) + 1.0;
    double score = stages * (c->keys * c->depth4 / threads + c->depth4 + 4.0) + 1;
    if (!c->q_whole)
        score += stages * (c->tile * c->depth4 / threads + 2.0);
    double bias = 4 * rows + 1, weigh = rows * (c->lanes / 4 + 1.0);
    double draw = o->dropout ? (PHILOX_LOOPS + 1) * 4 * rows + 1 : 0;
    double add = loads * (c->v_keys * c->value4 / threads + c->v_keys + 4.0) + 1;
    double step = 1 + score + bias + weigh + draw + add;
    double ends = c->tile * c->head4 / threads + rows * (20 * own + 4 * c->lanes) + 64;
    return ends + ceil(keys / c->keys + 1) * step +
           rows * own * keys * attention_masked_loops(o, 1);
}

static uint32_t state_lanes(const struct attention_choice *c)
{
    return c->lanes;
}

const struct attention_family attention_tile = {
    .choose = choose,
    .set_key = set_key,
    .count_loops = count_loops,
    .shared_bytes = shared_bytes,
    .state_lanes = state_lanes,
    .state_spec = TILE_STATE,
};
