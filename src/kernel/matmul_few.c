/* Products of few rows, which take as long as reading B: many small workgroups, and blocks of k in
 * the invocations of one. Adds in the order of matmul_tile, which takes more rows. */
#include "core/arith.h"
#include "core/dtype.h"
#include "gpu/pipeline.h"
#include "gpu/quirks.h"
#include "kernel/matmul_family.h"
#include "kernel/matmul_mixed.h"
#include "params/params.h"

#define MOST_ROWS 32u /* of a product: two tiles */
#define LEAST_THREADS 32u
#define CPU_LANES 8u /* for one row: a workgroup is a subgroup */
#define SMALL_TILE FEW_WHOLE_ROWS
#define GROUPS 4u /* of a processor, before a workgroup takes more columns */
#define ASSUMED_PROCESSORS 64u
#define LANE_SETS 4u /* of columns, that share a block of A in shared memory */

/* Whether lanes read blocks of B by themselves: see matmul_few_lanes.glsl. */
static bool in_lanes(const struct matmul_problem *p)
{
    return p->quantised && p->a_type == VKA_F32;
}

static uint32_t blocks_of(const struct matmul_choice *c)
{
    return c->lanes * c->own_columns / c->columns;
}

/* How a lane reads words of blocks; 0: byte by byte, where it lacks the registers for those that are no
 * bundles. */
static uint32_t lane_vec(const struct caps *caps, const struct matmul_problem *p)
{
    const struct vka_device_properties *has = &caps->properties;
    if (p->b_type != VKA_Q6_K && p->b_type != VKA_Q3_K && p->b_type != VKA_Q2_K)
        return p->b_bundles;
    return !tune_has_few_registers(has) && (has->vendor_id != VENDOR_QUALCOMM || p->m == 1);
}

static uint64_t shared_bytes(const struct matmul_choice *c, const struct matmul_problem *p)
{
    uint32_t fours = c->vectors * (p->b_type == VKA_F32 || p->quantised ? 1 : 2);
    if (c->kernel == KERNEL_matmul_few_mixed)
        fours = c->vectors;
    uint64_t blocks = blocks_of(c), a = c->rows * blocks * FEW_PITCH(fours);
    uint64_t b = c->lanes * FEW_PITCH(c->vectors);
    uint64_t grid = 16 * GRID_VECTORS(p->b_type);
    uint64_t table = 4 * FEW_TABLE_WORDS(p->b_type, c->kernel == KERNEL_matmul_few_half);
    if (in_lanes(p)) /* sums of fours of A, and those of blocks */
        return 16 * (a + 9 * c->rows * blocks) + 4 * c->rows * blocks * c->columns + table + grid;
    if (p->quantised && c->b_vec)
        b = c->columns * (divide_up((uint32_t)blocks * BUNDLE_PAIR_WORDS(p->b_type), 4) | 1);
    return 16 * (a + b) + grid;
}

static uint32_t round_up_to_power(uint32_t x)
{
    uint32_t power = 1;
    while (power < x)
        power *= 2;
    return power;
}

/* The most rows of a tile, by what compilers make of quantised weights: none spills. */
static uint32_t most_rows(const struct caps *caps, const struct matmul_problem *p)
{
    const uint32_t vendor = caps->properties.vendor_id;
    if (caps->properties.type == VKA_DEVICE_CPU) /* nor takes long to compile */
        return 2 * SMALL_TILE;
    bool more = p->b_type == VKA_Q5_1 || p->b_type == VKA_Q5_K || /* fifth bits and offsets */
                p->b_type == VKA_IQ1_M;                           /* high bits and scales apart */
    if (HAS_TABLE(p->b_type) && vendor == VENDOR_QUALCOMM && in_lanes(p))
        return SMALL_TILE / 2;
    if (p->quantised && vendor == VENDOR_QUALCOMM)
        return in_lanes(p) || more ? SMALL_TILE : 2 * SMALL_TILE;
    bool small = HAS_OFFSET(p->b_type) && vendor != VENDOR_AMD && vendor != VENDOR_NVIDIA;
    if (p->quantised && (in_lanes(p) ? small : vendor == VENDOR_INTEL))
        return 2 * SMALL_TILE;
    return FEW_TILE_ROWS;
}

/* Sets rows, lanes and vectors, which wait in registers beside the sums. Quantised weights have
 * three sums a result, and products longer than a group two. */
static void fit_registers(const struct caps *caps, const struct matmul_problem *p,
                          struct matmul_choice *c)
{
    bool few = tune_has_few_registers(&caps->properties);
    uint32_t room = p->quantised || p->k > MATMUL_GROUP ? SMALL_TILE : 2 * SMALL_TILE;
    uint32_t most = few ? room : most_rows(caps, p);
    c->rows = divide_up(p->m, divide_up(p->m, most)); /* tiles of about equal height */
    c->lanes = c->rows > SMALL_TILE ? 128 : 64;
    if (caps->properties.type == VKA_DEVICE_CPU && p->m == 1)
        c->lanes = CPU_LANES;
    c->vectors = few ? 2 : c->rows > SMALL_TILE ? 4 : 8;
    if (!few && (p->b_type == VKA_Q3_K || p->b_type == VKA_Q2_K))
        c->vectors /=
            2; /* a vector takes the more registers, the more numbers its values are made of */
}

/* Columns of a workgroup. They share its reads of A, which should be few beside those of B; but k
 * has to have a block for each invocation, and each processor some workgroups. */
static uint32_t columns_of(const struct caps *caps, const struct matmul_problem *p,
                           const struct matmul_choice *c)
{
    uint32_t processors = caps->processors ? caps->processors : ASSUMED_PROCESSORS;
    uint32_t blocks = round_up_to_power(divide_up(p->k, MATMUL_BLOCK));
    uint32_t least = 2 * round_up_to_power(c->rows), columns = 2 * least;
    uint64_t tiles = p->batch * divide_up(p->m, c->rows);
    if (tiles * divide_up(p->n, columns) < (uint64_t)GROUPS * processors)
        columns = least;
    while (columns < c->lanes && c->lanes / columns > blocks)
        columns *= 2;
    return columns < c->lanes ? columns : c->lanes;
}

/* Sets columns, and vectors to those of a block, for bundles of quantised B. False where shared memory
 * or the rows leave them no room. */
static bool fits_bundles(const struct caps *caps, const struct matmul_problem *p,
                         struct matmul_choice *choice)
{
    struct matmul_choice c = *choice;
    c.vectors = MATMUL_BLOCK / 4;
    c.columns = columns_of(caps, p, &c);
    uint32_t pair = BUNDLE_PAIR_WORDS(p->b_type), raw = c.lanes / c.columns * pair;
    if (tune_has_few_registers(&caps->properties) && pair > 32)
        return false; /* as many words wait in the registers of an invocation */
    /* Sums of blocks take the place of B. */
    if (shared_bytes(&c, p) > caps->properties.max_shared_memory ||
        c.lanes * c.rows > c.columns * raw)
        return false;
    c.b_vec = c.b_vec == 2 && raw % 4 == 0 ? 2 : 1;
    *choice = c;
    return true;
}

/* matmul_few_half where fma() takes float16 operands, or where matmul_few is missing; see
 * matmul_mixed.h. */
static enum kernel kernel_of(const struct caps *caps, const struct matmul_problem *p)
{
    if (matmul_is_mixed(caps, p) && !kernel_missing(KERNEL_matmul_few_mixed, caps))
        return KERNEL_matmul_few_mixed;
    bool able = in_lanes(p) && lane_vec(caps, p) && !kernel_missing(KERNEL_matmul_few_half, caps);
    bool mixes = caps->properties.vendor_id == VENDOR_AMD;
    bool half = able && (mixes || kernel_missing(KERNEL_matmul_few, caps));
    return half ? KERNEL_matmul_few_half : KERNEL_matmul_few;
}

/* Columns of a lane. They share what it reads of A. */
static uint32_t own_columns(const struct caps *caps, const struct matmul_problem *p,
                            const struct matmul_choice *c)
{
    uint32_t processors = caps->processors ? caps->processors : ASSUMED_PROCESSORS;
    uint64_t tiles = p->batch * divide_up(p->m, c->rows);
    const uint32_t vendor = caps->properties.vendor_id;
    bool registers = vendor == VENDOR_AMD || vendor == VENDOR_NVIDIA;
    uint32_t most = c->rows > 1 || quirk_has_half_registers(&caps->properties) ? 2 : 4;
    uint32_t own = !registers || !c->b_vec || c->rows > SMALL_TILE ? 1 : most;
    while (own > 1 && tiles * divide_up(p->n, LANE_SETS * own) < processors)
        own /= 2;
    return own;
}

/* Sets lanes and columns for in_lanes(). False where shared memory holds no block of all rows. */
static bool fits_lanes(const struct caps *caps, const struct matmul_problem *p,
                       struct matmul_choice *choice)
{
    struct matmul_choice c = *choice;
    uint32_t most = round_up_to_power(divide_up(p->k, MATMUL_BLOCK));
    c.vectors = MATMUL_BLOCK / 4;
    c.b_vec = lane_vec(caps, p);
    c.own_columns = own_columns(caps, p, &c);
    for (; c.lanes >= CPU_LANES; c.lanes /= 2) {
        c.columns = LANE_SETS * c.own_columns;
        while (blocks_of(&c) > 1 &&
               (blocks_of(&c) > most || shared_bytes(&c, p) > caps->properties.max_shared_memory))
            c.columns *= 2;
        if (shared_bytes(&c, p) > caps->properties.max_shared_memory)
            continue;
        *choice = c;
        return true;
    }
    return false;
}

/* CPU drivers take it where none of their own kernels reads B: 8 to 100 times as fast as matmul_tile. */
static bool is_wanted(const struct caps *caps, const struct matmul_problem *p)
{
    bool own = !p->quantised || dtype_has_cpu_kernels(p->b_type);
    return p->m <= MOST_ROWS && (p->b_vectors || p->quantised) &&
           (caps->properties.type != VKA_DEVICE_CPU || !own);
}

static bool choose(const struct caps *caps, const struct matmul_problem *p,
                   struct matmul_choice *choice)
{
    struct matmul_choice c = {.kernel = kernel_of(caps, p),
                              .a_vec = p->a_vectors,
                              .b_vec = p->quantised ? p->b_bundles : p->b_vectors,
                              .reason = "few rows: blocks of k in parallel"};
    bool tile = !kernel_missing(KERNEL_matmul_tile, caps) ||
                (matmul_is_mixed(caps, p) && !kernel_missing(KERNEL_matmul_tile_mixed, caps));
    if (kernel_missing(c.kernel, caps) || (tile && !is_wanted(caps, p)))
        return false;
    fit_registers(caps, p, &c);
    c.own_columns = 1;
    if (in_lanes(p)) {
        if (fits_lanes(caps, p, &c))
            *choice = c;
        return c.columns != 0;
    }
    if (p->quantised && c.b_vec && fits_bundles(caps, p, &c)) {
        *choice = c;
        return true;
    }
    if (p->quantised)
        c.b_vec = 0;
    for (;; c.lanes /= 2) {
        c.columns = columns_of(caps, p, &c);
        if (shared_bytes(&c, p) <= caps->properties.max_shared_memory)
            break;
        if (c.lanes <= LEAST_THREADS)
            return false;
    }
    *choice = c;
    return true;
}

static void set_key(const struct matmul_choice *c, const struct matmul_operands *o,
                    struct pipeline_key *key)
{
    key->n_spec = MATMUL_FEW_SPECS;
    key->spec[MATMUL_FEW_THREADS] = c->lanes;
    key->spec[MATMUL_FEW_ROWS] = c->rows;
    key->spec[MATMUL_FEW_COLUMNS] = c->columns;
    key->spec[MATMUL_FEW_A_VEC] = c->a_vec;
    key->spec[MATMUL_FEW_B_VEC] = c->b_vec;
    key->spec[MATMUL_FEW_VECTORS] = c->vectors;
    key->spec[MATMUL_FEW_OWN_COLUMNS] = c->own_columns;
    key->spec[MATMUL_FEW_PAIRS] = o->c_pairs;
    key->spec[MATMUL_FEW_EDGE] = o->k % (blocks_of(c) * MATMUL_BLOCK) != 0;
}

static double count_loops(const struct matmul_choice *c, double k)
{
    double blocks = blocks_of(c), rows = c->rows, vectors = c->vectors;
    double slice = vectors * (4 + rows + 8 * rows * blocks / c->lanes);
    double step = MATMUL_BLOCK / (4 * vectors) * slice + 2 * rows + 2 * blocks;
    return (k / (blocks * MATMUL_BLOCK) + 1) * step + 64;
}

const struct matmul_family matmul_few = {choose, set_key, count_loops};
