/* attention_decode: few query rows. What decides the bits of a row, the keys of a step and of a
 * split, follows from its own sequence alone. */
#include "core/arith.h"
#include "core/dtype.h"
#include "gpu/pipeline.h"
#include "kernel/attention_family.h"
#include "kernel/attention_split.h"
#include "params/params.h"

#include <math.h>

#define BATCH 8u      /* loads at a time */
#define ROWS_MOST 8u  /* rows of a workgroup: their context stays in registers */
#define ROWS_INTEL 2u /* the same on Intel, which has fewer */
#define ROWS_FEW 1u   /* and with 64 registers */
#define LEAST_SUBGROUP (DECODE_THREADS / DECODE_SUBGROUPS)

/* Sets the most rows of a workgroup and the loads at a time; decoded values take registers. */
static void fit_registers(const struct vka_device_properties *has, struct attention_choice *c)
{
    bool few = tune_has_few_registers(has);
    c->rows = few ? ROWS_FEW : has->vendor_id == VENDOR_INTEL ? ROWS_INTEL : ROWS_MOST;
    c->batch = c->k_fours > 2 ? BATCH / 2 : BATCH;
    if (few)
        c->batch = BATCH / 4;
}

static uint64_t shared_bytes(const struct attention_choice *c)
{
    uint64_t rows = c->rows, fours = rows * c->head4 + DECODE_KEYS * (uint64_t)divide_up(rows, 4) +
                                     DECODE_THREADS * (uint64_t)c->v_fours;
    return 16 * fours + 4 * (DECODE_KEYS + rows * DECODE_SUBGROUPS + 2 * rows + 4);
}

static bool choose(const struct caps *caps, const struct attention_problem *problem,
                   struct attention_choice *choice)
{
    const struct vka_device_properties *has = &caps->properties;
    struct attention_choice c = {
        .usable = true, .kernel = KERNEL_attention_decode, .n_feature_tile = 1};
    uint32_t n_row = (uint32_t)problem->n_row;
    c.k_fours = dtype_word_values(problem->kv_type);
    c.v_fours = problem->v_type == VKA_F32 ? 1 : 2;
    c.head4 = divide_up(problem->head_dim, 4 * c.k_fours) * c.k_fours;
    c.value4 = divide_up(problem->value_dim, 4 * c.v_fours) * c.v_fours;
    if (kernel_missing(c.kernel, caps) || has->subgroup_size < LEAST_SUBGROUP ||
        has->max_workgroup < DECODE_THREADS || c.value4 / c.v_fours > DECODE_THREADS)
        return false;
    c.preferred = has->type != VKA_DEVICE_CPU;
    c.lanes = DECODE_THREADS;
    c.keys = DECODE_KEYS;
    fit_registers(has, &c);
    if (problem->cached && attention_step_variant(problem))
        c.batch *= 2; /* more loads in flight */
    const uint32_t most = c.rows;
    for (uint32_t tiles = divide_up(n_row, most);; tiles++) { /* of about equal height */
        c.rows = c.tile = divide_up(n_row, tiles);
        if (shared_bytes(&c) <= has->max_shared_memory)
            break;
        if (c.rows == 1)
            return false;
    }
    attention_split_keys(caps, problem, &c);
    c.reason = c.n_split > 1 ? "few rows: keys straight to registers, and split"
                             : "few rows: keys straight to registers";
    *choice = c;
    return true;
}

static void set_key(const struct attention_choice *c, const struct attention_operands *o,
                    struct pipeline_key *key)
{
    key->n_spec = DECODE_SPECS;
    key->spec[DECODE_ROWS] = c->rows;
    key->spec[DECODE_K_VECTORS] = c->head4 / c->k_fours;
    key->spec[DECODE_V_VECTORS] = c->value4 / c->v_fours;
    key->spec[DECODE_Q_TYPE] = o->q_type;
    key->spec[DECODE_K_TYPE] = o->k_type;
    key->spec[DECODE_V_TYPE] = o->v_type;
    key->spec[DECODE_O_TYPE] = o->o_type;
    key->spec[DECODE_K_VEC] = dtype_word_values(o->k_type) == 2 ? o->k_vectors : o->k_vec;
    key->spec[DECODE_V_VEC] = o->v_type == VKA_F32 ? o->v_vec : o->v_vectors;
    key->spec[DECODE_GENERAL] = o->bias || o->dropout;
    key->spec[DECODE_PAGED] = o->paged;
    key->spec[DECODE_SPLITS] = c->n_split > 1;
    key->spec[DECODE_LOG_SUM] = attention_stores_log_sum(c, o);
    key->spec[DECODE_BATCH] = c->batch;
}

static double count_loops(const struct attention_choice *c, const struct attention_operands *o,
                          double keys)
{
    double rows = c->rows, value = c->value4, vectors = value / c->v_fours;
    double rounds = ceil(DECODE_KEYS / floor(DECODE_THREADS / vectors)) + 9;
    double step = 9.0 * (c->head4 + rounds * 2) + rows * (DECODE_SUBGROUPS + 8);
    if (o->dropout)
        step += 2 * rows * (PHILOX_LOOPS + 1);
    double ends = rows * (c->head4 + 16 * value + 2.0 * DECODE_SUBGROUPS) + 64;
    return ends + ceil(keys / DECODE_KEYS + 1) * step +
           rows * (value / 32 + 1) * keys * attention_masked_loops(o, 1);
}

static uint32_t state_lanes(const struct attention_choice *c)
{
    return DECODE_PITCH(c->v_fours) - STATE_PITCH(c->value4, 0);
}

const struct attention_family attention_decode = {
    .choose = choose,
    .set_key = set_key,
    .count_loops = count_loops,
    .shared_bytes = shared_bytes,
    .state_lanes = state_lanes,
    .state_spec = DECODE_STATE,
};
