/* Kernels for CPU drivers: rows in lanes (matmul_lane4, matmul_lane8), and packed B
 * (matmul_address, matmul_texel), quantised B (matmul_block, matmul_bytes). */
#include "kernel/matmul_lane.h"
#include "core/arith.h"
#include "core/dtype.h"
#include "gpu/pipeline.h"
#include "kernel/matmul_family.h"
#include "params/params.h"

/* Fewest rows of A for which packing B pays: packing reads each element of B once, the product once
 * for each tile of rows. */
#define PACK_ROWS 32

/* The widest lane kernel that the device can run; lane4 if it can run none. */
static enum kernel lane_kernel(const struct caps *caps)
{
    return kernel_missing(KERNEL_matmul_lane8, caps) ? KERNEL_matmul_lane4 : KERNEL_matmul_lane8;
}

/* CPU drivers turn shared memory into per-lane gathers and each barrier into spills of every live
 * register; a register tile without either is several times faster. Not wanted with subgroups of 4:
 * SwiftShader, which has them, never finishes compiling it. */
bool matmul_uses_lanes(const struct caps *caps)
{
    const struct vka_device_properties *has = &caps->properties;
    bool wanted = has->type == VKA_DEVICE_CPU && has->subgroup_size >= 8;
    return !kernel_missing(lane_kernel(caps), caps) && has->subgroup_size >= 4 &&
           (wanted || kernel_missing(KERNEL_matmul_tile, caps));
}

bool tune_transposes_weights(const struct caps *caps)
{
    return matmul_uses_lanes(caps);
}

enum kernel tune_packed_kernel(const struct caps *caps)
{
    const struct vka_device_properties *has = &caps->properties;
    if (has->type != VKA_DEVICE_CPU || has->subgroup_size != 8)
        return KERNEL_COUNT;
    if (!kernel_missing(KERNEL_matmul_address, caps))
        return KERNEL_matmul_address;
    return kernel_missing(KERNEL_matmul_texel, caps) ? KERNEL_COUNT : KERNEL_matmul_texel;
}

static uint32_t tile_of(enum kernel kernel)
{
    return kernel == KERNEL_matmul_address ? ADDRESS_COLUMNS
           : kernel == KERNEL_matmul_texel ? TEXEL_COLUMNS
                                           : 0;
}

uint32_t tune_weight_tile(const struct caps *caps)
{
    return tile_of(tune_packed_kernel(caps));
}

/* Rows of a tile: a power of two up to `most`, no larger than m needs; halved by each variant. */
static uint32_t rows_of(uint32_t most, const struct matmul_problem *p)
{
    uint32_t rows = most;
    while (rows > 1 && rows / 2 >= p->m)
        rows /= 2;
    rows >>= p->variant;
    return rows ? rows : 1;
}

static struct matmul_choice choose_packed(enum kernel kernel, const struct matmul_problem *p)
{
    uint32_t tile = tile_of(kernel);
    struct matmul_choice c = {.kernel = kernel, .b_tile = tile, .lanes = 8, .columns = tile};
    if (kernel == KERNEL_matmul_address) {
        uint32_t tiles = (p->m + ADDRESS_ROWS - 1) / ADDRESS_ROWS;
        c.rows = (p->m + tiles - 1) / tiles; /* tiles of equal height */
        c.pack_a = !p->a_plain;
        c.reason = "CPU driver with scalars: rows and packed tiles by address";
    } else {
        c.rows = rows_of(TEXEL_ROWS, p);
        c.pack_a = !p->a_plain || !p->a_vec;
        c.reason = "CPU driver: rows and packed tiles as texels";
    }
    return c;
}

static struct matmul_choice choose_lanes(const struct caps *caps, const struct matmul_problem *p)
{
    uint32_t lanes = caps->properties.subgroup_size;
    return (struct matmul_choice){
        .kernel = lane_kernel(caps),
        .lanes = lanes,
        .rows = rows_of(LANE_ROWS, p),
        .columns = lanes * LANE_COLUMNS,
        .a_vec = p->a_vec,
        .b_vec = p->b_vec,
        .reason = "CPU driver: register tile without barriers",
    };
}

/* The kernels' MATMUL_B_VEC. With more rows than two, four steps spill. */
static uint32_t byte_steps(const struct matmul_problem *p)
{
    if (p->k % 64 != 0)
        return 1;
    return p->k % 128 == 0 && p->m <= 2 ? 4 : 2;
}

static uint32_t block_pairs(const struct matmul_problem *p)
{
    return p->k % 64 == 0 && p->b_words;
}

/* By n, k and the types alone, as the bits of a row are those of its kernel. matmul_bytes is the
 * faster one. */
static bool choose_block(const struct caps *caps, const struct matmul_problem *p,
                         struct matmul_choice *choice)
{
    const bool bytes = !kernel_missing(KERNEL_matmul_bytes, caps);
    const enum kernel kernel = bytes ? KERNEL_matmul_bytes : KERNEL_matmul_block;
    const struct vka_device_properties *has = &caps->properties;
    bool wanted = has->type == VKA_DEVICE_CPU || kernel_missing(KERNEL_matmul_tile, caps);
    if (kernel_missing(kernel, caps) || has->subgroup_size != 8 || p->k % 32 != 0 || !p->b_ours ||
        !wanted || !dtype_has_cpu_kernels(p->b_type))
        return false;
    uint32_t tiles = divide_up(p->m, BLOCK_ROWS);
    *choice = (struct matmul_choice){
        .kernel = kernel,
        .lanes = 8,
        .rows = divide_up(p->m, tiles), /* tiles of equal height */
        .columns = 8,
        .pack_a = !p->a_plain,
        .b_vec = bytes ? byte_steps(p) : block_pairs(p),
        .reason = "CPU driver: quantised weights by address",
    };
    return true;
}

static bool choose(const struct caps *caps, const struct matmul_problem *problem,
                   struct matmul_choice *choice)
{
    if (problem->quantised)
        return choose_block(caps, problem, choice);
    enum kernel packed = tune_packed_kernel(caps);
    bool lanes = matmul_uses_lanes(caps);
    bool other = lanes || !kernel_missing(KERNEL_matmul_tile, caps);
    if (packed != KERNEL_COUNT && (problem->b_tile || problem->m >= PACK_ROWS || !other))
        *choice = choose_packed(packed, problem);
    else if (lanes)
        *choice = choose_lanes(caps, problem);
    else
        return false;
    return true;
}

static void set_key(const struct matmul_choice *c, const struct matmul_operands *o,
                    struct pipeline_key *key)
{
    (void)o;
    key->n_spec = MATMUL_LANE_SPECS; /* kernels for packed B read MATMUL_ROWS alone */
    key->spec[MATMUL_LANES] = c->lanes;
    key->spec[MATMUL_A_VEC] = c->a_vec;
    key->spec[MATMUL_B_VEC] = c->b_vec;
    key->spec[MATMUL_ROWS] = c->rows;
}

static double count_loops(const struct matmul_choice *c, double k)
{
    double blocks = k / MATMUL_BLOCK + 1;
    if (matmul_reads_blocks(c->kernel))
        return k / 32 + 4 * blocks + 64;
    return k / (c->kernel == KERNEL_matmul_address ? 32 : 4) + 4 * blocks + 33;
}

const struct matmul_family matmul_lane = {choose, set_key, count_loops};
