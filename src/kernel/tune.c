#include "kernel/tune.h"
#include "params.h"

/* Fewest rows of A for which packing B pays: packing reads each element of B once, the product once
 * for each tile of rows. */
#define PACK_ROWS 32

#define VENDOR_MESA 0x10005u

/* Fewest columns for matrix units, and fewest tiles of a size before a larger size is chosen. */
#define COOP_LEAST 16
#define COOP_TILES 64

/* The widest lane kernel that the device can run; lane4 if it can run none. */
static enum kernel lane_kernel(const struct caps *caps)
{
    return kernel_missing(KERNEL_matmul_lane8, caps) ? KERNEL_matmul_lane4 : KERNEL_matmul_lane8;
}

/* CPU drivers turn shared memory into per-lane gathers and each barrier into spills of every live
 * register; a register tile without either is several times faster. Not wanted with subgroups of 4:
 * SwiftShader, which has them, never finishes compiling it. */
static bool use_lanes(const struct caps *caps)
{
    const struct vka_device_properties *has = &caps->properties;
    bool wanted = has->type == VKA_DEVICE_CPU && has->subgroup_size >= 8;
    return !kernel_missing(lane_kernel(caps), caps) && has->subgroup_size >= 4 &&
           (wanted || kernel_missing(KERNEL_matmul_tile, caps));
}

/* Whether the compiler keeps uniform values scalar, as Mesa 26's does, so that reads by address
 * pay. Measured on the matrix product: more than twice as fast as texels on Mesa 26, 40 times
 * slower on Mesa 22.3. */
static bool has_scalars(const struct caps *caps)
{
    const struct vka_device_properties *has = &caps->properties;
    return has->type == VKA_DEVICE_CPU && has->vendor_id == VENDOR_MESA &&
           has->driver_version >> 22 >= 26;
}

enum kernel tune_packed_kernel(const struct caps *caps)
{
    const struct vka_device_properties *has = &caps->properties;
    if (has->type != VKA_DEVICE_CPU || has->subgroup_size != 8)
        return KERNEL_COUNT;
    bool texel = !kernel_missing(KERNEL_matmul_texel, caps);
    if ((has_scalars(caps) || !texel) && !kernel_missing(KERNEL_matmul_address, caps))
        return KERNEL_matmul_address;
    return texel ? KERNEL_matmul_texel : KERNEL_COUNT;
}

static uint32_t panel_of(enum kernel kernel)
{
    return kernel == KERNEL_matmul_address ? ADDRESS_PANEL
           : kernel == KERNEL_matmul_texel ? TEXEL_PANEL
                                           : 0;
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

static void choose_packed(enum kernel kernel, const struct matmul_problem *p,
                          struct matmul_choice *c)
{
    c->kernel = kernel;
    c->lanes = 8;
    c->columns = c->panel = panel_of(kernel);
    if (kernel == KERNEL_matmul_address) {
        uint32_t tiles = (p->m + ADDRESS_ROWS - 1) / ADDRESS_ROWS;
        c->rows = (p->m + tiles - 1) / tiles; /* tiles of equal height */
        c->pack_a = !p->a_plain;
        c->reason = "CPU driver with scalars: rows and packed panels by address";
    } else {
        c->rows = rows_of(TEXEL_ROWS, p);
        c->pack_a = !p->a_plain || !p->a_vec;
        c->reason = "CPU driver: rows and packed panels as texels";
    }
}

static void choose_lanes(const struct caps *caps, const struct matmul_problem *p,
                         struct matmul_choice *c)
{
    c->kernel = lane_kernel(caps);
    c->lanes = caps->properties.subgroup_size;
    c->rows = rows_of(LANE_ROWS, p);
    c->columns = c->lanes * LANE_COLUMNS;
    c->a_vec = p->a_vec;
    c->b_vec = p->b_vec;
    c->reason = "CPU driver: register tile without barriers";
}

static void choose_tile(const struct caps *caps, const struct matmul_problem *p,
                        struct matmul_choice *c)
{
    const struct vka_device_properties *has = &caps->properties;
    c->kernel = KERNEL_matmul_tile;
    c->side = has->max_workgroup >= 256 ? 16 : 8;
    uint32_t smaller = p->variant;
    for (uint32_t t = 4;; t /= 2) { /* the largest tile that m and n fill and memory holds */
        c->tile_m = c->tile_n = t;
        c->rows = c->columns = c->side * t;
        uint32_t bytes = 2 * TILE_DEPTH * (c->rows + 1) * 4;
        bool fits = bytes <= has->max_shared_memory;
        bool filled = p->m > c->rows / 2 && p->n > c->columns / 2;
        if (t == 1 || (fits && filled && !smaller))
            break;
        smaller -= fits && filled;
    }
    c->reason = c->tile_m == 4   ? "shared-memory tile, the largest"
                : c->tile_m == 2 ? "shared-memory tile, halved to fit the matrix or the device"
                                 : "shared-memory tile, smallest for a small matrix or device";
}

/* The kernel with matrix units for the types; KERNEL_COUNT: none. float32 inputs have none: they
 * would be rounded. */
static enum kernel coop_kernel(const struct matmul_problem *p)
{
    if (p->a_type != p->b_type || p->hidden || p->panel)
        return KERNEL_COUNT;
    return p->a_type == VKA_F16    ? KERNEL_matmul_coop_f16
           : p->a_type == VKA_BF16 ? KERNEL_matmul_coop_bf16
                                   : KERNEL_COUNT;
}

/* Whether matrix units are used. CPU drivers compute a matrix in many steps; few columns leave most
 * of it empty. */
static bool use_coop(const struct caps *caps, const struct matmul_problem *p)
{
    enum kernel kernel = coop_kernel(p);
    if (kernel == KERNEL_COUNT || kernel_missing(kernel, caps))
        return false;
    /* Not by m: the bits of a row must not depend on the number of rows. */
    bool wanted = caps->properties.type != VKA_DEVICE_CPU && p->n >= COOP_LEAST;
    return wanted || (kernel_missing(KERNEL_matmul_tile, caps) && !use_lanes(caps));
}

/* Bytes of shared memory: both tiles, with rows padded by 16 bytes, and a matrix per subgroup. */
static uint32_t coop_shared(const struct matmul_choice *c)
{
    return (c->rows + c->columns) * (COOP_DEPTH + 8) * 2 +
           COOP_SUBGROUPS * c->size.m * c->size.n * 4;
}

/* Chooses the largest tile that m and n fill, with enough tiles to keep a GPU busy. False where
 * shared memory holds none. */
static bool choose_coop(const struct caps *caps, const struct matmul_problem *p,
                        struct matmul_choice *c)
{
    static const uint32_t mats[][2] = {{2, 4}, {1, 2}, {1, 1}};
    c->kernel = coop_kernel(p);
    c->size = p->a_type == VKA_F16 ? caps->matrix_f16 : caps->matrix_bf16;
    c->lanes = COOP_SUBGROUPS * caps->properties.subgroup_size;
    c->a_vec = p->a_chunks;
    c->b_vec = p->b_chunks;
    c->reason = "16-bit inputs: the device's matrix units";
    for (size_t i = 0; i < sizeof mats / sizeof mats[0]; i++) {
        c->mats_m = mats[i][0];
        c->mats_n = mats[i][1];
        c->rows = COOP_ROWS * c->mats_m * c->size.m;
        c->columns = COOP_COLUMNS * c->mats_n * c->size.n;
        bool fits = coop_shared(c) <= caps->properties.max_shared_memory;
        bool last = i + 1 == sizeof mats / sizeof mats[0];
        uint64_t tiles =
            p->batch * ((p->m + c->rows - 1) / c->rows) * ((p->n + c->columns - 1) / c->columns);
        if (fits && (last || (p->m > c->rows / 2 && p->n > c->columns / 2 && tiles >= COOP_TILES)))
            return true;
    }
    return false;
}

void tune_matmul(const struct caps *caps, const struct matmul_problem *problem,
                 struct matmul_choice *choice)
{
    enum kernel packed = tune_packed_kernel(caps);
    *choice = (struct matmul_choice){0};
    if (use_coop(caps, problem) && choose_coop(caps, problem, choice))
        return;
    *choice = (struct matmul_choice){0};
    bool other = use_lanes(caps) || !kernel_missing(KERNEL_matmul_tile, caps);
    if (packed != KERNEL_COUNT && (problem->panel || problem->m >= PACK_ROWS || !other))
        choose_packed(packed, problem, choice);
    else if (use_lanes(caps))
        choose_lanes(caps, problem, choice);
    else
        choose_tile(caps, problem, choice);
}

double tune_matmul_loops(const struct matmul_choice *c, double k)
{
    if (c->kernel == KERNEL_matmul_tile) {
        double loads = 2.0 * TILE_DEPTH * c->tile_m / c->side + 4;
        double products = TILE_DEPTH * (2.0 + c->tile_n + c->tile_m * (c->tile_n + 2.0));
        return (k / TILE_DEPTH + 2) * (loads + products);
    }
    if (c->size.m) /* matmul_coop */
        return 64 * (k / COOP_DEPTH + 2);
    double blocks = k / MATMUL_BLOCK + 1;
    return k / (c->kernel == KERNEL_matmul_address ? 32 : 4) + 4 * blocks + 33;
}

uint32_t tune_weight_panel(const struct caps *caps)
{
    return panel_of(tune_packed_kernel(caps));
}

bool tune_transposes_weights(const struct caps *caps)
{
    return use_lanes(caps);
}

void tune_softmax(const struct caps *caps, uint32_t n_kv, struct softmax_choice *choice)
{
    if (!kernel_missing(KERNEL_softmax_subgroup, caps)) {
        choice->kernel = KERNEL_softmax_subgroup;
        choice->lanes = caps->properties.subgroup_size;
        choice->reason = "a subgroup a row: reductions without shared memory";
        return;
    }
    choice->kernel = KERNEL_softmax_shared;
    choice->lanes = 128;
    while (choice->lanes > 8 && choice->lanes / 2 >= n_kv)
        choice->lanes /= 2;
    choice->reason = "no usable subgroup reductions: shared memory";
}

/* Fewest keys for which a fused kernel pays on a CPU driver. With fewer, compiling the large kernel
 * costs more than not writing scores saves: half a minute, or a second with scalars. */
#define CPU_FUSED_KEYS 2048
#define CPU_FUSED_KEYS_ADDRESS 128

/* Rows of an invocation for which q and context stay in registers. */
static uint32_t rows_that_fit(uint32_t vec4, uint64_t n_row, uint32_t lanes)
{
    uint32_t rows = vec4 <= 16 ? 4 : vec4 <= 40 ? 2 : 1;
    while (rows > 1 && (uint64_t)lanes * rows / 2 >= n_row)
        rows /= 2;
    return rows;
}

/* Floats of q and context that an invocation of a GPU keeps in registers without spilling. */
#define GPU_ROW_FLOATS 64

/* Reduces the rows to what a GPU's registers hold; the kernel is not preferred if they hold
 * none. */
static void rows_for_gpu(struct attention_choice *choice)
{
    uint32_t floats = 4 * (choice->head4 + choice->value4);
    while (choice->rows > 1 && choice->rows * floats > GPU_ROW_FLOATS)
        choice->rows /= 2;
    choice->preferred = choice->rows * floats <= GPU_ROW_FLOATS;
}

/* Chooses a kernel with rows in lanes; returns what is missing, or NULL. */
static const char *choose_rows(const struct caps *caps, const struct attention_problem *problem,
                               struct attention_choice *choice)
{
    bool cpu = caps->properties.type == VKA_DEVICE_CPU;
    bool texel = !kernel_missing(KERNEL_attention_texel, caps);
    bool address = problem->address && (has_scalars(caps) || !texel) &&
                   caps->properties.subgroup_size == 8 &&
                   !kernel_missing(KERNEL_attention_address, caps);
    choice->kernel = address ? KERNEL_attention_address
                     : texel ? KERNEL_attention_texel
                             : KERNEL_attention_row;
    const char *missing = kernel_missing(choice->kernel, caps);
    if (missing)
        return missing;
    choice->usable = true;
    choice->preferred =
        !cpu || problem->n_kv >= (address ? CPU_FUSED_KEYS_ADDRESS : CPU_FUSED_KEYS);
    choice->lanes = caps->properties.subgroup_size;
    choice->head4 = (problem->head_dim + 3) / 4;
    choice->value4 = (problem->value_dim + 3) / 4;
    choice->rows = rows_that_fit(choice->head4 + choice->value4, problem->n_row, choice->lanes);
    if (choice->kernel != KERNEL_attention_row && choice->rows > 2)
        choice->rows = 2;
    if (!cpu)
        rows_for_gpu(choice);
    for (uint32_t i = 0; i < problem->variant && choice->rows > 1; i++)
        choice->rows /= 2;
    choice->tile = choice->lanes * choice->rows;
    choice->n_chunk = choice->n_piece = 1;
    choice->reason = "one pass, rows in registers, no shared memory";
    return NULL;
}

static void choose_kernel(const struct caps *caps, const struct attention_problem *problem,
                          struct attention_choice *choice)
{
    bool cpu = caps->properties.type == VKA_DEVICE_CPU;
    bool tiles = !kernel_missing(KERNEL_attention_tile, caps);
    bool many = problem->ragged || problem->n_row > TUNE_FEW_ROWS;
    if (!cpu && many && tune_attention_coop(caps, problem, choice))
        return;
    if (!cpu && tiles && tune_attention_tile(caps, problem, choice))
        return;
    const char *missing = choose_rows(caps, problem, choice);
    if (missing && !(cpu && tiles && tune_attention_tile(caps, problem, choice)) &&
        !tune_attention_coop(caps, problem, choice))
        choice->reason = missing;
}

/* Splits keys that are more than one chain of sums. Heads of more features than that are left to
 * the unfused path, which sums them in pieces. */
static void bound_chains(const struct caps *caps, const struct attention_problem *problem,
                         struct attention_choice *choice)
{
    if (choice->n_piece == 1 && problem->n_kv > TUNE_CHAIN) {
        choice->piece_keys = TUNE_CHAIN;
        choice->n_piece = (problem->n_kv - 1) / TUNE_CHAIN + 1;
    }
    const char *missing = choice->n_piece > 1 ? kernel_missing(KERNEL_attention_merge, caps) : NULL;
    double turns = ATTENTION_BLOCK / 4.0 * (choice->head4 + 4.0 * choice->value4 + 32);
    if (caps->max_loops && turns > caps->max_loops)
        missing = "needs more loop iterations than this driver runs";
    if (problem->head_dim > TUNE_CHAIN)
        missing = "sums at most 16,384 features of a head";
    if (missing) {
        choice->usable = false;
        choice->reason = missing;
    }
}

void tune_attention(const struct caps *caps, const struct attention_problem *problem,
                    struct attention_choice *choice)
{
    *choice = (struct attention_choice){0};
    choose_kernel(caps, problem, choice);
    if (choice->usable)
        bound_chains(caps, problem, choice);
}

bool tune_is_coop(enum kernel kernel)
{
    return kernel == KERNEL_attention_coop_f16 || kernel == KERNEL_attention_coop_bf16;
}

bool tune_takes_tiles(enum kernel kernel)
{
    return kernel == KERNEL_attention_tile || tune_is_coop(kernel);
}
