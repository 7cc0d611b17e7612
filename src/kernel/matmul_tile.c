/* Tiles of both matrices in shared memory: the kernel that every device can run. */
#include "core/arith.h"
#include "gpu/pipeline.h"
#include "kernel/matmul_family.h"
#include "kernel/matmul_mixed.h"
#include "params/params.h"

#define ASSUMED_PROCESSORS 64u

/* Results of an invocation along m and n, the most first. */
static const uint32_t tiles[][2] = {{8, 8}, {8, 4}, {4, 4}, {4, 2}, {2, 2}, {1, 1}};
#define LARGE 32 /* results of an invocation, beyond which there are registers for two sums each */

/* Bytes of both inputs in shared memory, and a grid. */
static uint32_t shared_bytes(const struct matmul_choice *c, const struct matmul_problem *p)
{
    uint32_t words = c->kernel == KERNEL_matmul_tile_mixed ? TILE_DEPTH / 2 : TILE_DEPTH;
    return words * (c->rows + c->columns + 8) * 4 + 16 * GRID_VECTORS(p->b_type);
}

/* Whether an invocation has many registers. CPU drivers have few, and VideoCore 32. */
static bool has_registers(const struct caps *caps)
{
    return caps->properties.type != VKA_DEVICE_CPU && caps->properties.vendor_id != VENDOR_BROADCOM;
}

/* Whether 64 registers hold the sums, of which groups and quantised weights have several a result.
 * Only there a tile of 4 x 2 is between the others. */
static bool suits_few_registers(const struct matmul_problem *p, const struct matmul_choice *c)
{
    uint32_t most = p->quantised ? 4 : p->k > MATMUL_GROUP ? 8 : 16;
    return c->tile_m * c->tile_n <= most;
}

/* Whether an invocation has 255 registers, where drivers may use as many. */
static bool has_most_registers(const struct caps *caps)
{
    return caps->properties.type != VKA_DEVICE_CPU && caps->properties.vendor_id == VENDOR_NVIDIA;
}

/* Whether registers hold the sums of large tiles: of a block, of a group, and of all groups where k
 * has several, unless C can hold those. Quantised weights would take as many again. */
static bool holds_sums(const struct caps *caps, const struct matmul_problem *p,
                       const struct matmul_choice *c)
{
    if (!has_registers(caps) || p->quantised)
        return false;
    if (c->tile_m * c->tile_n > LARGE)
        return has_most_registers(caps) && (p->k <= MATMUL_GROUP || p->c_free);
    /* With three sums a result, 128 registers on AMD's GPUs: room for 8 waves of RDNA2. */
    bool mixed = c->kernel == KERNEL_matmul_tile_mixed && caps->properties.vendor_id == VENDOR_AMD;
    return has_most_registers(caps) || mixed || p->k <= MATMUL_GROUP;
}

/* Whether there are registers for the tile, and, of the largest, enough tiles to keep the device
 * busy. */
static bool suits(const struct caps *caps, const struct matmul_problem *p,
                  const struct matmul_choice *c)
{
    if (tune_has_few_registers(&caps->properties))
        return suits_few_registers(p, c);
    if (c->tile_m != c->tile_n && c->tile_m < 8)
        return false;
    uint32_t busy = caps->processors ? caps->processors : ASSUMED_PROCESSORS;
    uint64_t count = p->batch * divide_up(p->m, c->rows) * divide_up(p->n, c->columns);
    uint32_t each = c->tile_m * c->tile_n > LARGE ? 2 : 1; /* of a processor */
    return c->tile_m < 8 || (holds_sums(caps, p, c) && p->a_vectors && p->b_vectors &&
                             count >= (uint64_t)each * busy);
}

static bool choose(const struct caps *caps, const struct matmul_problem *p, struct matmul_choice *c)
{
    const struct vka_device_properties *has = &caps->properties;
    bool wide = has_registers(caps);
    bool mixed = matmul_is_mixed(caps, p) && !kernel_missing(KERNEL_matmul_tile_mixed, caps);
    *c = (struct matmul_choice){.kernel = mixed ? KERNEL_matmul_tile_mixed : KERNEL_matmul_tile,
                                .a_vec = wide && p->a_vectors,
                                .b_vec = p->quantised || (wide && p->b_vectors)};
    c->side = has->max_workgroup >= 256 ? 16 : 8;
    uint32_t smaller = p->variant;
    for (size_t i = 0;; i++) { /* the largest tile that m and n fill and memory holds */
        c->tile_m = tiles[i][0];
        c->tile_n = tiles[i][1];
        c->rows = c->side * c->tile_m;
        c->columns = c->side * c->tile_n;
        bool fits = shared_bytes(c, p) <= has->max_shared_memory && suits(caps, p, c);
        bool filled = p->m > c->rows / 2 && p->n > c->columns / 2;
        if (i + 1 == COUNTOF(tiles) || (fits && filled && !smaller))
            break;
        smaller -= fits && filled;
    }
    c->reason = c->tile_m >= 4   ? "shared-memory tile, the largest"
                : c->tile_m == 2 ? "shared-memory tile, halved to fit the matrix or the device"
                                 : "shared-memory tile, smallest for a small matrix or device";
    return true;
}

static void set_key(const struct matmul_choice *c, const struct matmul_operands *o,
                    struct pipeline_key *key)
{
    key->n_spec = MATMUL_TILE_SPECS;
    key->spec[MATMUL_TILE_M] = c->tile_m;
    key->spec[MATMUL_TILE_N] = c->tile_n;
    key->spec[MATMUL_SIDE_X] = key->spec[MATMUL_SIDE_Y] = c->side;
    key->spec[MATMUL_TILE_A_VEC] = c->a_vec;
    key->spec[MATMUL_TILE_B_VEC] = c->b_vec;
    key->spec[MATMUL_TILE_EDGE] = o->k % TILE_DEPTH != 0;
    key->spec[MATMUL_TILE_HELD] = c->tile_m * c->tile_n > LARGE && o->c_type == VKA_F32 &&
                                  (o->sums & (SUMS_GROUPS | SUMS_LOAD)) != 0 &&
                                  (o->sums & SUMS_ADD) == 0;
}

static double count_loops(const struct matmul_choice *c, double k)
{
    double loads = 2.0 * TILE_DEPTH * c->tile_m / c->side + 4;
    double steps = c->kernel == KERNEL_matmul_tile_mixed ? TILE_DEPTH / 2 : TILE_DEPTH;
    double products = steps * (2.0 + c->tile_n + c->tile_m * (c->tile_n + 2.0));
    return (k / TILE_DEPTH + 2) * (loads + products);
}

const struct matmul_family matmul_tile = {choose, set_key, count_loops};
