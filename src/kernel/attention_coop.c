/* attention_coop: 16-bit tiles on matrix units. As with attention_tile, sizes never depend on other
 * sequences of the batch. */
#include "core/arith.h"
#include "gpu/pipeline.h"
#include "kernel/attention_family.h"
#include "params.h"

#include <math.h>

/* Largest head_dim and value_dim whose context stays in registers. */
#define DIM_MOST 256u

/* Bytes of shared memory a workgroup takes where possible, so that a processor has room for
 * several. */
#define SHARED_AIM 40960u

/* Keys of a step for one lane: a bit of a word each. */
#define PART_MOST 32u

/* The kernel for the types; KERNEL_COUNT: none. None for float32 output, because weights are
 * rounded to 16 bits. */
static enum kernel kernel_of(const struct attention_problem *p)
{
    if (p->q_type != p->kv_type || p->kv_type != p->v_type || p->o_type == VKA_F32)
        return KERNEL_COUNT;
    return p->q_type == VKA_F16    ? KERNEL_attention_coop_f16
           : p->q_type == VKA_BF16 ? KERNEL_attention_coop_bf16
                                   : KERNEL_COUNT;
}

static uint64_t shared_bytes(const struct attention_choice *c)
{
    uint64_t rows = c->tile, keys = c->keys;
    uint64_t q_pitch = c->head4 / 2 + 1, v_pitch = c->value4 / 2 + 1;
    uint64_t chunks =
        rows * q_pitch + keys * (q_pitch > v_pitch ? q_pitch : v_pitch) + rows * (keys / 8 + 1);
    uint64_t exchange = c->lanes > 2 * rows ? c->lanes : 2 * rows;
    uint64_t words = rows * (keys + 4) + (rows + c->size.m) * c->size.n + exchange + 2 * rows + 5;
    return 16 * chunks + 4 * words;
}

/* Whether a lane gets a whole and even number of keys. */
static bool parts_fit(const struct attention_choice *c, uint32_t subgroup_size)
{
    uint32_t parts = subgroup_size / c->size.m;
    return c->keys % c->size.n == 0 && c->keys % c->size.k == 0 && c->keys % (2 * parts) == 0 &&
           c->keys / parts <= PART_MOST;
}

/* Sets the most keys a step that fit `shared` bytes; false where none fit. */
static bool set_keys(const struct attention_problem *problem, uint32_t subgroup_size,
                     uint32_t shared, struct attention_choice *c)
{
    for (c->keys = 64 >> problem->variant; c->keys >= 16; c->keys /= 2)
        if (parts_fit(c, subgroup_size) && shared_bytes(c) <= shared)
            return true;
    return false;
}

static bool choose(const struct caps *caps, const struct attention_problem *problem,
                   struct attention_choice *choice)
{
    enum kernel kernel = kernel_of(problem);
    uint32_t subgroup_size = caps->properties.subgroup_size;
    if (kernel == KERNEL_COUNT || kernel_missing(kernel, caps))
        return false;
    struct attention_choice c = {.usable = true, .kernel = kernel, .n_chunk = 1};
    c.preferred =
        caps->properties.type != VKA_DEVICE_CPU; /* CPU drivers compute a matrix in many steps */
    c.size = kernel == KERNEL_attention_coop_f16 ? caps->matrix_f16 : caps->matrix_bf16;
    if (subgroup_size % c.size.m || c.size.n % 8 || problem->head_dim > DIM_MOST ||
        problem->value_dim > DIM_MOST)
        return false;
    c.lanes = ATTENTION_COOP_SUBGROUPS * subgroup_size;
    c.rows = 1;
    c.tile = ATTENTION_COOP_SUBGROUPS * c.size.m;
    c.head4 = divide_up(problem->head_dim, c.size.k) * c.size.k / 4;
    c.value4 = divide_up(problem->value_dim, c.size.n) * c.size.n / 4;
    uint32_t most = caps->properties.max_shared_memory;
    if (!set_keys(problem, subgroup_size, most < SHARED_AIM ? most : SHARED_AIM, &c) &&
        !set_keys(problem, subgroup_size, most, &c))
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
    key->n_spec = ATTENTION_COOP_SPECS;
    key->spec[ATTENTION_COOP_THREADS] = c->lanes;
    key->spec[ATTENTION_COOP_M] = c->size.m;
    key->spec[ATTENTION_COOP_N] = c->size.n;
    key->spec[ATTENTION_COOP_K] = c->size.k;
    key->spec[ATTENTION_COOP_HEAD] = 4 * c->head4;
    key->spec[ATTENTION_COOP_VALUE] = 4 * c->value4;
    key->spec[ATTENTION_COOP_KEYS] = c->keys;
    key->spec[ATTENTION_COOP_O_TYPE] = o->o_type;
    key->spec[ATTENTION_COOP_K_VEC] = o->k_chunks;
    key->spec[ATTENTION_COOP_V_VEC] = o->v_chunks;
    key->spec[ATTENTION_COOP_GENERAL] = o->bias || o->dropout;
    key->spec[ATTENTION_COOP_PIECES] = c->n_split > 1;
}

/* Accurate to a factor of two: drivers that limit loops are CPU drivers, which have no matrices. */
static double count_loops(const struct attention_choice *c, const struct attention_operands *o,
                          double keys)
{
    double loads = 9.0 * c->keys * (c->head4 + c->value4) / 2 / c->lanes;
    double odd = (double)c->keys * c->size.m * c->size.n * ATTENTION_COOP_SUBGROUPS / c->lanes *
                 divide_up(4 * c->value4, c->size.n);
    double weigh = (3 + (o->dropout ? PHILOX_LOOPS : 0)) * c->keys;
    return 1024 + ceil(keys / c->keys + 1) * (loads + odd + weigh) +
           keys * attention_masked_loops(o, c->value4);
}

/* Lanes of a row. */
static uint32_t state_lanes(const struct attention_choice *c)
{
    return c->lanes / ATTENTION_COOP_SUBGROUPS / c->size.m;
}

const struct attention_family attention_coop = {
    .choose = choose,
    .set_key = set_key,
    .count_loops = count_loops,
    .shared_bytes = shared_bytes,
    .state_lanes = state_lanes,
    .state_spec = ATTENTION_COOP_STATE,
};
