/* Products of 16-bit inputs on matrix units. */
#include "gpu/pipeline.h"
#include "kernel/matmul_family.h"
#include "params.h"

/* Fewest columns for matrix units, and fewest tiles of a size before a larger size is chosen. */
#define COOP_LEAST 16
#define COOP_TILES 64

/* The kernel for the types; KERNEL_COUNT: none. float32 inputs have none: they would be rounded. */
static enum kernel kernel_of(const struct matmul_problem *p)
{
    if (p->a_type != p->b_type || p->hidden || p->panel)
        return KERNEL_COUNT;
    return p->a_type == VKA_F16    ? KERNEL_matmul_coop_f16
           : p->a_type == VKA_BF16 ? KERNEL_matmul_coop_bf16
                                   : KERNEL_COUNT;
}

/* Whether matrix units are used. CPU drivers compute a matrix in many steps; few columns leave most
 * of it empty. */
static bool is_wanted(enum kernel kernel, const struct caps *caps, const struct matmul_problem *p)
{
    if (kernel == KERNEL_COUNT || kernel_missing(kernel, caps))
        return false;
    /* Not by m: the bits of a row must not depend on the number of rows. */
    bool wanted = caps->properties.type != VKA_DEVICE_CPU && p->n >= COOP_LEAST;
    return wanted || (kernel_missing(KERNEL_matmul_tile, caps) && !matmul_uses_lanes(caps));
}

/* Bytes of shared memory: both tiles, with rows padded by 16 bytes, and a matrix per subgroup. */
static uint32_t shared_bytes(const struct matmul_choice *c)
{
    return (c->rows + c->columns) * (COOP_DEPTH + 8) * 2 +
           COOP_SUBGROUPS * c->size.m * c->size.n * 4;
}

/* Chooses the largest tile that m and n fill, with enough tiles to keep a GPU busy. False where
 * shared memory holds none. */
static bool choose(const struct caps *caps, const struct matmul_problem *p,
                   struct matmul_choice *choice)
{
    static const uint32_t mats[][2] = {{2, 4}, {1, 2}, {1, 1}};
    struct matmul_choice c = {.kernel = kernel_of(p), .a_vec = p->a_chunks, .b_vec = p->b_chunks};
    if (!is_wanted(c.kernel, caps, p))
        return false;
    c.size = p->a_type == VKA_F16 ? caps->matrix_f16 : caps->matrix_bf16;
    c.lanes = COOP_SUBGROUPS * caps->properties.subgroup_size;
    c.reason = "16-bit inputs: the device's matrix units";
    for (size_t i = 0; i < sizeof mats / sizeof mats[0]; i++) {
        c.mats_m = mats[i][0];
        c.mats_n = mats[i][1];
        c.rows = COOP_ROWS * c.mats_m * c.size.m;
        c.columns = COOP_COLUMNS * c.mats_n * c.size.n;
        bool fits = shared_bytes(&c) <= caps->properties.max_shared_memory;
        bool last = i + 1 == sizeof mats / sizeof mats[0];
        uint64_t tiles =
            p->batch * ((p->m + c.rows - 1) / c.rows) * ((p->n + c.columns - 1) / c.columns);
        if (fits && (last || (p->m > c.rows / 2 && p->n > c.columns / 2 && tiles >= COOP_TILES))) {
            *choice = c;
            return true;
        }
    }
    return false;
}

static void set_key(const struct matmul_choice *c, const struct matmul_operands *o,
                    struct pipeline_key *key)
{
    (void)o;
    key->n_spec = MATMUL_COOP_SPECS;
    key->spec[MATMUL_COOP_THREADS] = c->lanes;
    key->spec[MATMUL_COOP_M] = c->size.m;
    key->spec[MATMUL_COOP_N] = c->size.n;
    key->spec[MATMUL_COOP_K] = c->size.k;
    key->spec[MATMUL_COOP_MATS_M] = c->mats_m;
    key->spec[MATMUL_COOP_MATS_N] = c->mats_n;
    key->spec[MATMUL_COOP_A_VEC] = c->a_vec;
    key->spec[MATMUL_COOP_B_VEC] = c->b_vec;
}

static double count_loops(const struct matmul_choice *choice, double k)
{
    (void)choice;
    return 64 * (k / COOP_DEPTH + 2);
}

const struct matmul_family matmul_coop = {choose, set_key, count_loops};
