/* Without shared memory. Rows in lanes: attention_row for GPUs, attention_texel and
 * attention_address for CPU drivers. Features in lanes: attention_feature for CPU drivers. */
#include "core/arith.h"
#include "core/dtype.h"
#include "gpu/pipeline.h"
#include "gpu/quirks.h"
#include "kernel/attention_family.h"
#include "params/params.h"

#include <math.h>

/* Fewest keys for which a fused kernel pays on a CPU driver. With fewer, compiling the large kernel
 * costs more than not writing scores saves: half a minute, or a second with scalars. With a cache it is
 * always taken, as its capacity may not decide. */
#define CPU_FUSED_KEYS 2048
#define CPU_FUSED_KEYS_ADDRESS 128
#define CPU_FUSED_KEYS_FEATURE 32 /* few rows: three dispatches cost more than the kernel */

/* Floats of q and context that an invocation of a GPU keeps in registers without spilling. */
#define GPU_ROW_FLOATS 64

/* Vec4 of q and of the context of a row that attention_feature takes: with more, compiling it takes
 * too long. */
#define FEATURE_VEC4 128u

/* Values of a vector of attention_feature. */
static uint32_t vector_of(enum vka_dtype dtype)
{
    return 8 * dtype_word_values(dtype);
}

/* Whether rows are whole vectors of attention_feature: 32 bytes. */
static bool suits_features(const struct caps *caps, const struct attention_problem *problem)
{
    uint32_t head = vector_of(problem->kv_type), value = vector_of(problem->v_type);
    return attention_has_few_rows(problem) && problem->head_dim % head == 0 &&
           problem->value_dim % value == 0 &&
           problem->head_dim + problem->value_dim <= 4 * FEATURE_VEC4 &&
           !kernel_missing(KERNEL_attention_feature, caps);
}

static enum kernel kernel_of(const struct caps *caps, const struct attention_problem *problem)
{
    bool blocks = dtype_is_scaled(problem->kv_type) || dtype_is_scaled(problem->v_type);
    bool texel = !blocks && !kernel_missing(KERNEL_attention_texel, caps);
    bool address = problem->address && (quirk_has_scalars(&caps->properties) || !texel);
    if (address && suits_features(caps, problem))
        return KERNEL_attention_feature;
    if (address && !blocks && !kernel_missing(KERNEL_attention_address, caps))
        return KERNEL_attention_address;
    return texel ? KERNEL_attention_texel : KERNEL_attention_row;
}

/* Rows of an invocation for which q and context stay in registers. */
static uint32_t rows_that_fit(uint32_t vec4, uint64_t n_row, uint32_t lanes)
{
    uint32_t rows = vec4 <= 16 ? 4 : vec4 <= 40 ? 2 : 1;
    while (rows > 1 && (uint64_t)lanes * rows / 2 >= n_row)
        rows /= 2;
    return rows;
}

/* Vec4 of q and of the context of all rows of a workgroup of attention_feature. The time that the
 * compilers of Mesa before 26, whose lanes load alone, take for it grows faster than they do: with
 * q8_0 of 64 vec4 on Mesa 22 0.7 s for one row, 2.3 s for two, 6 s for four. */
#define FEATURE_ROWS_VEC4 256u
#define FEATURE_ROWS_VEC4_ALONE 128u

/* Rows of a workgroup of attention_feature, which share what it loads: a power of two. */
static uint32_t rows_of_features(uint32_t vec4, bool own_words, uint64_t n_row)
{
    const uint32_t most = own_words ? FEATURE_ROWS_VEC4_ALONE : FEATURE_ROWS_VEC4;
    uint32_t rows = 1;
    while (rows < 4 && rows < n_row && 2 * rows * vec4 <= most)
        rows *= 2;
    return rows;
}

/* Reduces the rows to what a GPU's registers hold; the kernel is not preferred if they hold
 * none. */
static void rows_for_gpu(struct attention_choice *c)
{
    uint32_t floats = 4 * (c->head4 + c->value4);
    while (c->rows > 1 && c->rows * floats > GPU_ROW_FLOATS)
        c->rows /= 2;
    c->preferred = c->rows * floats <= GPU_ROW_FLOATS;
}

static bool choose(const struct caps *caps, const struct attention_problem *problem,
                   struct attention_choice *c)
{
    bool cpu = caps->properties.type == VKA_DEVICE_CPU;
    c->kernel = kernel_of(caps, problem);
    c->reason = kernel_missing(c->kernel, caps);
    if (c->reason)
        return false;
    bool address = kernel_table[c->kernel].needs & NEED_ADDRESS;
    bool features = c->kernel == KERNEL_attention_feature;
    c->usable = true;
    c->preferred = !cpu || problem->cached ||
                   problem->n_kv >= (features  ? CPU_FUSED_KEYS_FEATURE
                                     : address ? CPU_FUSED_KEYS_ADDRESS
                                               : CPU_FUSED_KEYS);
    c->lanes = caps->properties.subgroup_size;
    c->head4 = divide_up(problem->head_dim, 4);
    c->value4 = divide_up(problem->value_dim, 4);
    c->rows = rows_that_fit(c->head4 + c->value4, problem->n_row, c->lanes);
    if (c->kernel != KERNEL_attention_row && c->rows > 2)
        c->rows = 2;
    c->own_words = !quirk_has_scalars(&caps->properties);
    if (features)
        c->rows = rows_of_features(c->head4 + c->value4, c->own_words, problem->n_row);
    if (!cpu)
        rows_for_gpu(c);
    for (uint32_t i = 0; i < problem->variant && c->rows > 1; i++)
        c->rows /= 2;
    c->tile = features ? c->rows : c->lanes * c->rows;
    c->n_feature_tile = c->n_split = 1;
    c->reason = features ? "few rows: features in lanes, no shared memory"
                         : "one pass, rows in registers, no shared memory";
    return true;
}

static void set_key(const struct attention_choice *c, const struct attention_operands *o,
                    struct pipeline_key *key)
{
    key->n_spec = ATTENTION_SPECS;
    key->spec[ATTENTION_LANES] = c->lanes;
    key->spec[ATTENTION_ROWS] = c->rows;
    key->spec[ATTENTION_HEAD4] = c->head4;
    key->spec[ATTENTION_VALUE4] = c->value4;
    key->spec[ATTENTION_Q_TYPE] = o->q_type;
    key->spec[ATTENTION_K_TYPE] = o->k_type;
    key->spec[ATTENTION_V_TYPE] = o->v_type;
    key->spec[ATTENTION_O_TYPE] = o->o_type;
    key->spec[ATTENTION_K_VEC] = c->kernel == KERNEL_attention_feature
                                     ? c->own_words
                                     : o->k_vec && 4 * c->head4 == o->head_dim;
    key->spec[ATTENTION_V_VEC] = o->v_vec && 4 * c->value4 == o->value_dim;
    key->spec[ATTENTION_GENERAL] = o->bias || o->dropout;
    key->spec[ATTENTION_SPLITS] = c->n_split > 1;
    key->spec[ATTENTION_LOG_SUM] = attention_stores_log_sum(c, o);
}

#define ROW_STEP 4u /* keys of a step; of the kernels that read by address, the least of them */
#define ADDRESS_STEP 8u
#define LARGE_ROW 64u /* LARGE_VEC4 of the shaders: beyond, loops over features stay loops */
#define LARGE_ADDRESS 160u

static double count_loops(const struct attention_choice *c, const struct attention_operands *o,
                          double keys)
{
    bool address = kernel_table[c->kernel].needs & NEED_ADDRESS;
    double head = c->head4 + 1.0, value = c->value4 + 1.0, rows = c->rows;
    double step_keys = address ? ADDRESS_STEP : ROW_STEP, step = 2;
    if (c->head4 + c->value4 > (address ? LARGE_ADDRESS : LARGE_ROW))
        step += address ? 2 * head + 10 * value : head + (rows + 1) * value;
    if (o->dropout)
        step += rows * step_keys * PHILOX_LOOPS;
    else if (o->bias)
        step += 2 * rows * step_keys;
    double blocks = ceil(keys / ATTENTION_BLOCK + 1) * (2 + 2 * rows * value);
    double ends =
        blocks + 5 * rows * (head + 2 * value) + 64; /* loading q and the state, storing */
    return ends + ceil(keys / step_keys + 1) * step +
           rows * keys * attention_masked_loops(o, value);
}

/* No lanes share a row: row_sum, and whether the row has a visible key. */
static uint32_t state_lanes(const struct attention_choice *c)
{
    (void)c;
    return 2;
}

const struct attention_family attention_row = {
    .choose = choose,
    .set_key = set_key,
    .count_loops = count_loops,
    .state_lanes = state_lanes,
    .state_spec = ATTENTION_STATE,
};
