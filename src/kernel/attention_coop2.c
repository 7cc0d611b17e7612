/* attention_coop2: 16-bit tiles on matrices with reductions, of flexible size where there are such.
 * As with attention_coop, no size on which bits depend depends on other sequences of the batch. */
#include "core/arith.h"
#include "gpu/pipeline.h"
#include "kernel/attention_family.h"
#include "kernel/attention_split.h"
#include "params/params.h"

#include <math.h>

/* Largest head_dim and value_dim whose q and context stay in registers: heads of 192 ran at a quarter of
 * the rate of those of 128 on an H200. */
#define DIM_MOST 160u

/* Subgroups of a workgroup, which share keys and values. 8 were 4 % slower on an H100 and an H200, at heads
 * of 128. */
#define SUBGROUPS 4u

#define KEYS_MOST 64u
#define KEYS_LEAST 32u

/* Bytes of shared memory that a workgroup takes where possible, so that a processor has room for several. */
#define SHARED_AIM 40960u

/* Bits of a variant: half the keys of a step, half the rows of a subgroup. */
#define VARIANT_KEYS 1u
#define VARIANT_ROWS 2u

/* Registers of a lane, of 32 bits: context and scores in float32, q in 16 bits. Weights take the
 * place of scores. */
static uint32_t registers(const struct attention_choice *c, uint32_t subgroup_size)
{
    uint32_t columns = 4 * c->value4 + c->keys + 4 * c->head4 / 2;
    return columns * c->size.m / subgroup_size;
}

static uint64_t largest(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The bytes that any problem may take: scores of a step lie in the place of keys and values, for masks
 * and biases. */
static uint64_t shared_bytes(const struct attention_choice *c)
{
    uint64_t rows = c->tile, k_pitch = c->head4 / 2 + 1, v_pitch = c->value4 / 2 + 1;
    uint64_t stage = largest(rows * k_pitch, c->keys * (k_pitch + v_pitch));
    stage = largest(stage, rows * (c->keys / 4 + 1));
    stage = largest(stage, rows * (c->size.n / 4 + 1) + c->size.n / 4);
    return 16 * stage + 4 * (3 * rows + 6 + c->lanes_y);
}

static bool fits(const struct caps *caps, uint32_t shared, const struct attention_choice *c)
{
    return c->lanes <= caps->properties.max_workgroup && shared_bytes(c) <= shared &&
           shared_bytes(c) <= caps->properties.max_shared_memory;
}

/* Sets keys and rows to the most whose matrices fit the registers and whose stage fits `shared` bytes:
 * keys first, as each step has work that does not shrink with them. False where none do. */
static bool set_tiles(const struct caps *caps, const struct attention_problem *problem,
                      struct matrix_size matrix, uint32_t most_rows, uint32_t shared,
                      struct attention_choice *c)
{
    uint32_t most = problem->variant & VARIANT_KEYS ? KEYS_MOST / 2 : KEYS_MOST;
    c->lanes_y = SUBGROUPS;
    c->lanes = SUBGROUPS * caps->least_subgroup;
    if (problem->variant & VARIANT_ROWS)
        most_rows /= 2;
    for (c->keys = most / c->size.n * c->size.n; c->keys >= KEYS_LEAST; c->keys /= 2) {
        if (c->keys % c->size.n || c->keys % 8)
            continue;
        for (c->size.m = most_rows / matrix.m * matrix.m; c->size.m >= matrix.m;
             c->size.m -= matrix.m) {
            c->tile = SUBGROUPS * c->size.m;
            if (registers(c, caps->least_subgroup) <= caps->matrix_registers &&
                fits(caps, shared, c))
                return true;
        }
    }
    return false;
}

/* Least number of which both are factors. */
static uint32_t common_multiple(uint32_t a, uint32_t b)
{
    uint32_t n = a;
    while (n % b)
        n += a;
    return n;
}

static bool choose_kernel(const struct caps *caps, const struct attention_problem *problem,
                          enum kernel kernel, struct attention_choice *choice)
{
    if (kernel == KERNEL_COUNT || kernel_missing(kernel, caps))
        return false;
    struct attention_choice c = {.usable = true, .kernel = kernel, .n_feature_tile = 1, .rows = 1};
    c.preferred = caps->properties.type != VKA_DEVICE_CPU;
    bool flexible;
    struct matrix_size matrix = caps_reduced_size(caps, kernel_table[kernel].needs, &flexible);
    uint32_t rows = flexible ? COOP2_ROWS_MOST : matrix.m;
    if (matrix.m > COOP2_ROWS_MOST || matrix.n > KEYS_MOST || matrix.k > KEYS_MOST ||
        problem->head_dim > DIM_MOST || problem->value_dim > DIM_MOST)
        return false;
    /* Scores of n keys become weights of k keys: one size for both, of whole vectors. */
    c.size.n = c.size.k = common_multiple(common_multiple(matrix.n, matrix.k), 8);
    if (!flexible && c.size.n != matrix.n)
        return false;
    c.head4 = divide_up(problem->head_dim, c.size.n) * c.size.n / 4;
    c.value4 = divide_up(problem->value_dim, c.size.n) * c.size.n / 4;
    c.ahead = AHEAD_VALUES | (caps->matrix_registers < MATRIX_REGISTERS ? 0 : AHEAD_KEYS);
    if (c.size.n > KEYS_MOST ||
        (!set_tiles(caps, problem, matrix, rows, SHARED_AIM, &c) &&
         !set_tiles(caps, problem, matrix, rows, caps->properties.max_shared_memory, &c)))
        return false;
    attention_split_keys(caps, problem, &c);
    c.map = problem->mask && !kernel_missing(KERNEL_attention_map, caps);
    c.reason = c.n_split > 1 ? "16-bit inputs: matrices with reductions; keys are split"
                             : "16-bit inputs: matrices with reductions";
    *choice = c;
    return true;
}

/* By the extension of NVIDIA where there is one, as its kernel was measured. */
static bool choose(const struct caps *caps, const struct attention_problem *problem,
                   struct attention_choice *choice)
{
    const enum kernel nv = attention_kernel_of_16_bits(problem, KERNEL_attention_coop2_f16,
                                                       KERNEL_attention_coop2_bf16);
    const enum kernel ext = attention_kernel_of_16_bits(problem, KERNEL_attention_coop2_ext_f16,
                                                        KERNEL_attention_coop2_ext_bf16);
    return choose_kernel(caps, problem, nv, choice) || choose_kernel(caps, problem, ext, choice);
}

static void set_key(const struct attention_choice *c, const struct attention_operands *o,
                    struct pipeline_key *key)
{
    key->n_spec = COOP2_SPECS;
    key->spec[COOP2_THREADS] = c->lanes;
    key->spec[COOP2_SUBGROUPS] = c->lanes_y;
    key->spec[COOP2_M] = c->size.m;
    key->spec[COOP2_N] = c->size.n;
    key->spec[COOP2_HEAD] = 4 * c->head4;
    key->spec[COOP2_VALUE] = 4 * c->value4;
    key->spec[COOP2_KEYS] = c->keys;
    key->spec[COOP2_AHEAD] = c->ahead;
    key->spec[COOP2_O_TYPE] = o->o_type;
    key->spec[COOP2_K_VEC] = attention_vec_of(o->k_vectors, o->head_dim, 4 * c->head4);
    key->spec[COOP2_V_VEC] = attention_vec_of(o->v_vectors, o->value_dim, 4 * c->value4);
    key->spec[COOP2_GENERAL] = o->bias || o->dropout;
    key->spec[COOP2_PAGED] = o->paged;
    key->spec[COOP2_SPLITS] = c->n_split > 1;
    key->spec[COOP2_LOG_SUM] = attention_stores_log_sum(c, o);
}

/* Accurate to a factor of two: drivers that limit loops are CPU drivers without matrices. */
static double count_loops(const struct attention_choice *c, const struct attention_operands *o,
                          double keys)
{
    double loads = 9.0 * c->keys * (c->head4 + c->value4) / 2 / c->lanes;
    double elements = (double)c->tile * (c->keys + 4 * c->value4) / c->lanes;
    double draws = o->dropout ? PHILOX_LOOPS * c->tile * c->keys / c->lanes : 0;
    return 1024 + ceil(keys / c->keys + 1) * (loads + elements + draws) +
           keys * attention_masked_loops(o, c->value4);
}

/* Columns of a matrix of scores: each has a sum of its own. */
static uint32_t state_lanes(const struct attention_choice *c)
{
    return c->size.n;
}

const struct attention_family attention_coop2 = {
    .choose = choose,
    .set_key = set_key,
    .count_loops = count_loops,
    .shared_bytes = shared_bytes,
    .state_lanes = state_lanes,
    .state_spec = COOP2_STATE,
};
