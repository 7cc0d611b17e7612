/* attention_coop: 16-bit tiles on matrix units. As with attention_tile, sizes never depend on other
 * sequences of the batch. */
#include "core/arith.h"
#include "gpu/pipeline.h"
#include "kernel/attention_family.h"
#include "kernel/attention_split.h"
#include "params/params.h"

#include <math.h>

/* Largest head_dim and value_dim whose context stays in registers. */
#define DIM_MOST 256u

/* Rows of a workgroup: the most whose tiles fit shared memory. */
#define ROWS_MOST 64u
#define ROWS_LEAST 16u

/* Keys of a step: as many products for scores as for the context. Fewer than KEYS_WANTED only where
 * nothing else fits: a step has work that does not shrink with them. */
#define KEYS_MOST 64u
#define KEYS_WANTED 32u
#define KEYS_LEAST 16u

/* Scores of a step for one lane: a bit of a word each, stored in whole vectors. */
#define SCORES_LEAST 8u
#define SCORES_MOST 32u

/* Fewest registers for matrices beside which there are some for values on their way, and largest
 * head_dim at which q leaves some for the keys of the next step. */
#define AHEAD_LEAST 96u
#define AHEAD_MOST 128u

/* Subgroups that share rows. */
#define COLUMNS_MOST 4u

/* Bytes of shared memory a workgroup takes where possible, so that a processor has room for
 * several. */
#define SHARED_AIM 40960u
#define SHARED_AIM_ONE_STAGE 49152u

/* AHEAD_ bits by the registers of a lane. Where these are few, q stays in shared memory; with heads
 * that leave too little of it, what a step has in turn lies in one place, for which only subgroups
 * that share rows wait for each other anyway. */
static uint32_t ahead_of(const struct caps *caps, const struct attention_choice *c)
{
    if (caps->matrix_registers >= MATRIX_REGISTERS)
        return AHEAD_VALUES | AHEAD_Q | (c->head4 > AHEAD_MOST / 4 ? 0 : AHEAD_KEYS);
    uint32_t ahead = caps->matrix_registers < AHEAD_LEAST ? 0 : AHEAD_VALUES | AHEAD_LANE_Q;
    bool whole = (c->head4 & (c->head4 - 1)) == 0; /* others spill addresses of loads */
    if (c->columns > 1 && c->head4 > KEYS_MOST / 4 && whole)
        ahead |= AHEAD_ONE_STAGE | AHEAD_LANE_Q;
    return ahead;
}

static uint64_t shared_bytes(const struct attention_choice *c)
{
    uint64_t rows = c->tile, keys = c->keys, k_pitch = c->head4 / 2 + 1;
    uint64_t k = keys * k_pitch, v = 4 * c->value4 * (keys / 8 + 1), q = rows * k_pitch;
    uint64_t scores = rows * (keys / 4 + 1), stage = k + v;
    if (c->ahead & AHEAD_ONE_STAGE) {
        stage = k > v ? k : v;
        stage = stage > scores ? stage : scores;
        scores = 0;
    }
    stage = !(c->ahead & AHEAD_Q) ? stage + q : stage > q ? stage : q;
    uint64_t weights = c->columns > 1 ? rows * (keys / 8 + 1) : 0;
    return 16 * (stage + scores + weights + c->size.n / 4) + 4 * (3 * rows + 16);
}

/* Registers of a lane, of 32 bits, for the context and the scores of a step. */
static uint32_t registers(const struct attention_choice *c, uint32_t subgroup_size)
{
    return (4 * c->value4 + c->keys) * c->size.m / (subgroup_size * c->columns);
}

static bool keys_fit(const struct attention_choice *c, uint32_t subgroup_size)
{
    uint32_t scores = c->keys * c->size.m / (subgroup_size * c->columns);
    return c->keys % (c->size.n * c->columns) == 0 && c->keys % c->size.k == 0 &&
           scores % SCORES_LEAST == 0 && scores <= SCORES_MOST;
}

static uint32_t keys_most(const struct caps *caps, const struct attention_problem *problem,
                          const struct attention_choice *c)
{
    bool half = c->head4 > KEYS_MOST / 4;
    if (c->ahead & AHEAD_ONE_STAGE)
        half = caps->matrix_registers < AHEAD_LEAST;
    return half && !attention_has_few_rows(problem) ? KEYS_MOST / 2 : KEYS_MOST;
}

/* Sets rows, and keys of at least `least`, to the most whose tiles fit `shared` bytes; false where
 * none do. */
static bool set_tiles(const struct caps *caps, const struct attention_problem *problem,
                      uint32_t least, uint32_t shared, struct attention_choice *c)
{
    uint32_t size = caps->least_subgroup;
    bool few = attention_has_few_rows(problem);
    for (c->tile = few ? ROWS_LEAST : ROWS_MOST; c->tile >= ROWS_LEAST; c->tile /= 2) {
        c->lanes_y = c->tile / c->size.m * c->columns;
        c->lanes = c->lanes_y * size;
        if (c->tile % c->size.m || c->lanes > caps->properties.max_workgroup)
            continue;
        for (c->keys = keys_most(caps, problem, c) >> attention_step_variant(problem);
             c->keys && c->keys >= least; c->keys /= 2)
            if (keys_fit(c, size) && registers(c, size) <= caps->matrix_registers / 2 &&
                shared_bytes(c) <= shared)
                return true;
    }
    return false;
}

/* Spreads the context over as few subgroups as have registers for it; that of few rows over as many
 * as there are, which all load keys and values. */
static bool set_columns(const struct caps *caps, const struct attention_problem *problem,
                        uint32_t least, struct attention_choice *c)
{
    uint32_t most = caps->properties.max_shared_memory;
    for (uint32_t i = 1; i <= COLUMNS_MOST; i *= 2) {
        c->columns = attention_has_few_rows(problem) ? COLUMNS_MOST / i : i;
        c->ahead = ahead_of(caps, c);
        uint32_t multiple = c->size.n * c->columns;
        c->value4 = divide_up(problem->value_dim, multiple) * multiple / 4;
        uint32_t aim = c->ahead & AHEAD_ONE_STAGE ? SHARED_AIM_ONE_STAGE : SHARED_AIM;
        if (set_tiles(caps, problem, least, most < aim ? most : aim, c) ||
            set_tiles(caps, problem, least, most, c))
            return true;
    }
    return false;
}

static bool choose(const struct caps *caps, const struct attention_problem *problem,
                   struct attention_choice *choice)
{
    enum kernel kernel =
        attention_kernel_of_16_bits(problem, KERNEL_attention_coop_f16, KERNEL_attention_coop_bf16);
    if (kernel == KERNEL_COUNT || kernel_missing(kernel, caps))
        return false;
    struct attention_choice c = {.usable = true, .kernel = kernel, .n_feature_tile = 1, .rows = 1};
    c.preferred =
        caps->properties.type != VKA_DEVICE_CPU; /* CPU drivers compute a matrix in many steps */
    c.size = kernel == KERNEL_attention_coop_f16 ? caps->matrix_f16 : caps->matrix_bf16;
    if (caps->least_subgroup % c.size.m || c.size.n % 8 || problem->head_dim > DIM_MOST ||
        problem->value_dim > DIM_MOST)
        return false;
    c.head4 = divide_up(problem->head_dim, c.size.k) * c.size.k / 4;
    if (!set_columns(caps, problem, KEYS_WANTED >> attention_step_variant(problem), &c) &&
        !set_columns(caps, problem, KEYS_LEAST, &c))
        return false;
    attention_split_keys(caps, problem, &c);
    c.map = problem->mask && !kernel_missing(KERNEL_attention_map, caps);
    c.reason = c.n_split > 1 ? "16-bit inputs: the device's matrix units; keys are split"
                             : "16-bit inputs: the device's matrix units";
    *choice = c;
    return true;
}

static void set_key(const struct attention_choice *c, const struct attention_operands *o,
                    struct pipeline_key *key)
{
    /* Registers for values on their way are wanted elsewhere. */
    bool crowded = c->ahead & AHEAD_ONE_STAGE && (c->n_split > 1 || o->bias || o->dropout);
    key->n_spec = ATTENTION_COOP_SPECS;
    key->spec[ATTENTION_COOP_THREADS] = c->lanes;
    key->spec[ATTENTION_COOP_SUBGROUPS] = c->lanes_y;
    key->spec[ATTENTION_COOP_COLUMNS] = c->columns;
    key->spec[ATTENTION_COOP_M] = c->size.m;
    key->spec[ATTENTION_COOP_N] = c->size.n;
    key->spec[ATTENTION_COOP_K] = c->size.k;
    key->spec[ATTENTION_COOP_HEAD] = 4 * c->head4;
    key->spec[ATTENTION_COOP_VALUE] = 4 * c->value4;
    key->spec[ATTENTION_COOP_KEYS] = c->keys;
    key->spec[ATTENTION_COOP_AHEAD] = crowded ? c->ahead & ~AHEAD_VALUES : c->ahead;
    key->spec[ATTENTION_COOP_O_TYPE] = o->o_type;
    key->spec[ATTENTION_COOP_K_VEC] = attention_vec_of(o->k_vectors, o->head_dim, 4 * c->head4);
    key->spec[ATTENTION_COOP_V_VEC] =
        attention_vec_of(o->v_vectors, o->value_dim, 4 * c->value4 * c->n_feature_tile);
    key->spec[ATTENTION_COOP_GENERAL] = o->bias || o->dropout;
    key->spec[ATTENTION_COOP_PAGED] = o->paged;
    key->spec[ATTENTION_COOP_SPLITS] = c->n_split > 1;
    key->spec[ATTENTION_COOP_LOG_SUM] = attention_stores_log_sum(c, o);
}

/* Accurate to a factor of two: drivers that limit loops are CPU drivers, which have no matrices. */
static double count_loops(const struct attention_choice *c, const struct attention_operands *o,
                          double keys)
{
    double loads = 9.0 * c->keys * (c->head4 + c->value4) / 2 / c->lanes;
    double odd = (double)c->keys * c->size.m * c->size.n * c->lanes_y / c->lanes *
                 divide_up(4 * c->value4, c->size.n);
    double weigh = (3 + (o->dropout ? PHILOX_LOOPS : 0)) * c->keys;
    return 1024 + ceil(keys / c->keys + 1) * (loads + odd + weigh) +
           keys * attention_masked_loops(o, c->value4);
}

/* Lanes of a row. */
static uint32_t state_lanes(const struct attention_choice *c)
{
    return c->lanes / c->tile;
}

const struct attention_family attention_coop = {
    .choose = choose,
    .set_key = set_key,
    .count_loops = count_loops,
    .shared_bytes = shared_bytes,
    .state_lanes = state_lanes,
    .state_spec = ATTENTION_COOP_STATE,
};
