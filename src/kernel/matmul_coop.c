/* Products of 16-bit inputs on matrix units. */
#include "core/arith.h"
#include "gpu/pipeline.h"
#include "kernel/matmul_family.h"
#include "kernel/matmul_lane.h"
#include "params/params.h"

#define COOP_LEAST 16    /* fewest columns for matrix units */
#define LEAST_MATRIX 128 /* fewest results of a matrix: kernels with smaller ones spill */
#define ASSUMED_PROCESSORS 64u
#define FEW_ROWS 32u
#define FEW_LANES 128u
#define FEW_DEPTH 512u
#define LARGE_CHIP 96u /* processors from which the second-level cache is short of bandwidth */

/* The kernel for the types; KERNEL_COUNT: none. float32 inputs have none: they would be rounded. */
static enum kernel kernel_of(const struct matmul_problem *p)
{
    if ((p->a_type != p->b_type && !p->quantised) || p->hidden || p->b_tile)
        return KERNEL_COUNT;
    return p->a_type == VKA_F16    ? KERNEL_matmul_coop_f16
           : p->a_type == VKA_BF16 ? KERNEL_matmul_coop_bf16
                                   : KERNEL_COUNT;
}

/* Whether matrix units are used. CPU drivers compute a matrix in many steps; few columns leave most
 * of it empty. */
static bool is_wanted(const struct matmul_choice *c, const struct caps *caps,
                      const struct matmul_problem *p)
{
    if (c->kernel == KERNEL_COUNT || kernel_missing(c->kernel, caps))
        return false;
    /* Not by m: the bits of a row must not depend on the number of rows. */
    bool wanted = caps->properties.type != VKA_DEVICE_CPU && (p->n >= COOP_LEAST || p->cached) &&
                  c->size.m * c->size.n >= LEAST_MATRIX;
    return wanted || (kernel_missing(KERNEL_matmul_tile, caps) && !matmul_uses_lanes(caps));
}

/* Words of a column of quantised B in a tile whose bundles are read. */
static uint32_t raw_words(const struct matmul_choice *c, const struct matmul_problem *p)
{
    return c->depth / 128 * BUNDLE_PAIR_WORDS(p->b_type);
}

/* Vectors of such a column; blocks of q6_K begin at half words, a tile's first vector before them. */
static uint32_t raw_vectors(const struct matmul_choice *c, const struct matmul_problem *p)
{
    if (p->b_type == VKA_Q6_K)
        return (c->depth / 256 * (BLOCK_BYTES(VKA_Q6_K) / 2) + 14) / 8;
    return divide_up(raw_words(c, p), 4);
}

/* Bytes of shared memory: tiles of both inputs, with rows or bundles padded by 16 bytes, and a matrix
 * per subgroup; words of quantised B, or a grid. */
static uint64_t shared_bytes(const struct matmul_choice *c, const struct matmul_problem *p)
{
    uint64_t pitch = c->b_vec && p->quantised ? c->depth / 64 * 9 | 1 : c->depth / 8 + 1;
    uint64_t raw = c->b_vec && p->quantised ? c->columns * raw_vectors(c, p) : 0;
    uint64_t rows = c->a_rows + c->columns > c->rows ? c->a_rows + c->columns : c->rows;
    return 16 * (rows * pitch + raw + GRID_VECTORS(p->b_type)) +
           4ull * c->subs_m * c->subs_n * c->size.m * c->size.n;
}

static void set_tile(struct matmul_choice *c)
{
    c->rows = c->a_rows = c->subs_m * c->mats_m * c->size.m;
    c->columns = c->subs_n * c->mats_n * c->size.n;
}

/* Few rows take as long as reading B: a matrix of columns a workgroup, with much of k in flight. */
static bool choose_few(const struct caps *caps, const struct matmul_problem *p,
                       struct matmul_choice *c)
{
    bool low = c->size.m < 16; /* fewer registers are free for loads */
    c->subs_m = divide_up(p->m, c->size.m);
    uint32_t vectors = !low ? 16 : p->quantised && c->subs_m > 1 ? 2 : 4; /* of a lane */
    c->subs_n = c->mats_m = c->mats_n = 1;
    if (p->m > FEW_ROWS || c->subs_m > COOP_SUBGROUPS)
        return false;
    c->lanes = c->subgroup * (low ? COOP_SUBGROUPS : c->subs_m);
    c->lanes = c->lanes < FEW_LANES ? FEW_LANES : c->lanes;
    set_tile(c);
    for (c->a_rows = 1; c->a_rows < p->m;)
        c->a_rows *= 2;
    c->a_rows = c->a_rows < c->rows ? c->a_rows : c->rows;
    /* A lane has no registers for one either. */
    uint32_t bundles = low ? 0 : p->b_type == VKA_Q6_K ? p->b_halves : p->b_bundles;
    uint32_t least = p->b_type == VKA_Q6_K ? 256 : 2 * BUNDLE_VALUES; /* k of them */
    c->b_vec = p->quantised ? bundles : p->b_vectors;
    for (c->depth = FEW_DEPTH; c->depth > COOP_DEPTH; c->depth /= 2) {
        /* A bundle of B is as many words as a few vectors. */
        uint32_t loaded = c->a_rows + (bundles ? c->columns / 4 : c->columns);
        if (bundles && c->depth < least)
            c->b_vec = 0;
        if (shared_bytes(c, p) <= caps->properties.max_shared_memory && c->depth < 2 * p->k &&
            loaded * c->depth <= 8 * c->lanes * vectors)
            break;
    }
    if (p->quantised && c->b_vec == 2 && p->b_type != VKA_Q6_K && raw_words(c, p) % 4 != 0)
        c->b_vec = 1;
    c->reason = "16-bit inputs: the device's matrix units, few rows";
    return shared_bytes(c, p) <= caps->properties.max_shared_memory;
}

/* Subgroups and matrices of a subgroup along m and n, the depth, and in how many stages it is
 * stored, from the largest tile down. By what compilers make of them: none spills, and more matrices
 * would on the first GPUs. */
struct tile {
    uint32_t subs_m, subs_n, mats_m, mats_n, depth, stages;
};
static const struct tile short_tiles[] = {{4, 2, 2, 2, 32, 1},
                                          {4, 2, 1, 2, 32, 1},
                                          {4, 2, 1, 1, 32, 1}},
                         wide_tiles[] = {{4, 2, 2, 4, 32, 1},
                                         {2, 2, 2, 2, 64, 1},
                                         {2, 2, 1, 1, 64, 1}},
                         usual_tiles[] = {{4, 2, 2, 4, 64, 1},
                                          {2, 2, 2, 4, 64, 1},
                                          {4, 1, 1, 4, 64, 1},
                                          {2, 2, 2, 1, 64, 1}},
                         large_tiles[] = {{4, 2, 4, 4, 32, 2}, {2, 4, 4, 4, 32, 2}};

/* Variants 1, 2, ..., which `vkattn tune` measures where they fit, the first three by itself: less of
 * the second-level cache's bandwidth for each product, or more workgroups on a processor. */
static const struct tile variants[] = {
    {4, 2, 4, 4, 32, 2}, {2, 2, 4, 4, 64, 1}, {4, 2, 2, 4, 64, 1}, {2, 2, 4, 4, 64, 2},
    {2, 2, 2, 4, 64, 1}, {4, 2, 2, 4, 32, 1}, {2, 4, 4, 4, 32, 1}};

/* Those for matrices of few rows, for wide subgroups and for all others; the number in *n. */
static const struct tile *tiles_of(const struct matmul_choice *c, size_t *n)
{
    bool few = c->size.m < 16;
    bool wide = c->subgroup > 32;
    *n = few ? COUNTOF(short_tiles) : wide ? COUNTOF(wide_tiles) : COUNTOF(usual_tiles);
    return few ? short_tiles : wide ? wide_tiles : usual_tiles;
}

static bool take_tile(const struct caps *caps, const struct matmul_problem *p,
                      const struct tile *tile, struct matmul_choice *c)
{
    c->subs_m = tile->subs_m;
    c->subs_n = tile->subs_n;
    c->mats_m = tile->mats_m;
    c->mats_n = tile->mats_n;
    c->depth = tile->depth;
    c->halves = tile->stages > 1;
    c->lanes = c->subs_m * c->subs_n * c->subgroup;
    set_tile(c);
    return shared_bytes(c, p) <= caps->properties.max_shared_memory &&
           c->lanes <= caps->properties.max_workgroup &&
           (!c->halves || c->depth / 2 % c->size.k == 0);
}

/* Registers of a lane for its matrices: sums, a column of A and a matrix of B. */
static uint32_t registers(const struct matmul_choice *c)
{
    uint32_t sums = c->mats_m * c->mats_n * c->size.m * c->size.n;
    uint32_t operands = c->mats_m * c->size.m * c->size.k + c->size.k * c->size.n;
    return (sums + operands / 2) / c->subgroup;
}

/* Whether a tile of 256 x 128 is taken, or of 128 x 256, of which an operation reads 0.012 bytes;
 * 0.016 of 128 x 128, 0.023 of 64 x 128. Vulkan tells neither the size nor the bandwidth of the
 * second-level cache, but the more processors share it, the less of it is each one's. A processor has
 * registers for one such workgroup; it is taken where rounds of them lose at most an eighth to idle
 * processors and ragged edges. Not by subgroups of 32 lanes: NVK makes 16 instructions a matrix
 * operation of its halves, 4 of 128 x 128, and no other driver of theirs has been tried. */
static bool choose_large(const struct caps *caps, const struct matmul_problem *p,
                         struct matmul_choice *c)
{
    if (caps->processors < LARGE_CHIP || c->subgroup <= 32 || c->size.m != 16 || c->size.n != 16 ||
        !c->a_vec || !c->b_vec)
        return false;
    for (size_t i = 0; i < COUNTOF(large_tiles); i++) {
        if (!take_tile(caps, p, &large_tiles[i], c) || registers(c) > caps->matrix_registers)
            continue;
        uint64_t tiles = p->batch * divide_up(p->m, c->rows) * divide_up(p->n, c->columns);
        double rounds = (double)((tiles + caps->processors - 1) / caps->processors);
        double room = rounds * caps->processors * c->rows * c->columns;
        if ((double)p->batch * p->m * p->n >= 7.0 / 8.0 * room)
            return true;
    }
    return false;
}

/* Whether 128 x 128 by four subgroups is taken, which needs 240 registers, and those of a GPU of
 * NVIDIA: where all rows and columns are whole vectors and fill it, so that few registers hold
 * addresses. */
static bool choose_most(const struct caps *caps, const struct matmul_problem *p, uint32_t busy,
                        struct matmul_choice *c)
{
    static const struct tile most = {2, 2, 4, 4, 64, 1};
    return caps->properties.vendor_id == VENDOR_NVIDIA && c->size.m == 16 && c->size.n == 16 &&
           c->subgroup == 32 && c->a_vec && c->b_vec && take_tile(caps, p, &most, c) &&
           p->m % c->rows == 0 && p->n % c->columns == 0 &&
           p->batch * (p->m / c->rows) * (p->n / c->columns) >= busy;
}

/* Chooses the largest tile that m and n fill, with enough tiles to keep a GPU busy. False where
 * shared memory holds none. */
static bool choose_many(const struct caps *caps, const struct matmul_problem *p,
                        struct matmul_choice *c)
{
    uint32_t busy = caps->processors ? caps->processors : ASSUMED_PROCESSORS;
    size_t n;
    const struct tile *tile = tiles_of(c, &n), *last = tile + n - 1;
    c->reason = "16-bit inputs: the device's matrix units";
    c->b_vec = !p->quantised && p->b_vectors;
    /* A profile has one for all m of a class, of which a tile may be more than twice as large. */
    if (p->variant && p->variant <= COUNTOF(variants) &&
        take_tile(caps, p, &variants[p->variant - 1], c) && p->m > c->rows / 2 &&
        p->n > c->columns / 2)
        return true;
    if (choose_large(caps, p, c) || choose_most(caps, p, busy, c))
        return true;
    for (;; tile++) {
        bool fits = take_tile(caps, p, tile, c);
        uint64_t tiles = p->batch * divide_up(p->m, c->rows) * divide_up(p->n, c->columns);
        bool filled = p->m > c->rows / 2 && p->n > c->columns / 2 && tiles >= busy;
        if (tile == last || (fits && filled))
            break;
    }
    while (shared_bytes(c, p) > caps->properties.max_shared_memory && c->depth > COOP_DEPTH)
        c->depth /= 2;
    return shared_bytes(c, p) <= caps->properties.max_shared_memory;
}

static bool choose(const struct caps *caps, const struct matmul_problem *p,
                   struct matmul_choice *choice)
{
    struct matmul_choice c = {.kernel = kernel_of(p), .a_vec = p->a_vectors};
    c.size = p->a_type == VKA_F16 ? caps->matrix_f16 : caps->matrix_bf16;
    c.subgroup = caps->properties.subgroup_size;
    if (!is_wanted(&c, caps, p) || (!choose_few(caps, p, &c) && !choose_many(caps, p, &c)))
        return false;
    *choice = c;
    return true;
}

static void set_key(const struct matmul_choice *c, const struct matmul_operands *o,
                    struct pipeline_key *key)
{
    key->n_spec = MATMUL_COOP_SPECS;
    key->spec[MATMUL_COOP_THREADS] = c->lanes;
    key->spec[MATMUL_COOP_M] = c->size.m;
    key->spec[MATMUL_COOP_N] = c->size.n;
    key->spec[MATMUL_COOP_K] = c->size.k;
    key->spec[MATMUL_COOP_MATS_M] = c->mats_m;
    key->spec[MATMUL_COOP_MATS_N] = c->mats_n;
    key->spec[MATMUL_COOP_A_VEC] = c->a_vec;
    key->spec[MATMUL_COOP_B_VEC] = c->b_vec;
    key->spec[MATMUL_COOP_SUBS_M] = c->subs_m;
    key->spec[MATMUL_COOP_SUBS_N] = c->subs_n;
    key->spec[MATMUL_COOP_LANES] = c->subgroup;
    key->spec[MATMUL_COOP_DEPTH] = c->depth;
    key->spec[MATMUL_COOP_A_ROWS] = c->a_rows;
    key->spec[MATMUL_COOP_EDGE] = (o->k % c->depth ? COOP_EDGE_K : 0) |
                                  (o->m % c->rows || o->n % c->columns ? COOP_EDGE_MN : 0);
    key->spec[MATMUL_COOP_HALVES] = c->halves;
    key->spec[MATMUL_COOP_C_VEC] = o->c_vectors && o->n % 8 == 0 && c->size.n % 8 == 0;
}

static double count_loops(const struct matmul_choice *c, double k)
{
    double loads = 8.0 * (c->rows + c->columns) * c->depth / 8 / c->lanes;
    return (k / c->depth + 2) * (64 + 2 * loads + c->depth / c->size.k);
}

const struct matmul_family matmul_coop = {choose, set_key, count_loops};
