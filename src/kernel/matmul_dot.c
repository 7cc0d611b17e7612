/* Products of quantised activations, for any number of rows: blocks of k in the invocations of a
 * workgroup, as matmul_few has them. */
#include "kernel/matmul_dot.h"
#include "core/arith.h"
#include "gpu/pipeline.h"
#include "kernel/matmul_family.h"
#include "params/params.h"

#define LANES 64u
#define CPU_LANES 8u
#define SMALL_TILE FEW_WHOLE_ROWS
#define ASSUMED_PROCESSORS 64u
#define LANE_SETS 4u /* of columns, that read a block of A at about the same time */

bool matmul_is_dot(enum kernel kernel)
{
    return kernel == KERNEL_matmul_dot || kernel == KERNEL_matmul_dot_plain;
}

static uint32_t blocks_of(const struct matmul_choice *c)
{
    return c->lanes * c->own_columns / c->columns;
}

/* Columns of a lane, which share what it reads of A: two where there are registers and work. */
static uint32_t own_columns(const struct caps *caps, const struct matmul_problem *p,
                            const struct matmul_choice *c)
{
    uint32_t processors = caps->processors ? caps->processors : ASSUMED_PROCESSORS;
    uint64_t tiles = p->batch * divide_up(p->m, c->rows);
    uint32_t vendor = caps->properties.vendor_id;
    bool registers = vendor == VENDOR_AMD || vendor == VENDOR_NVIDIA;
    bool busy = tiles * divide_up(p->n, LANE_SETS * 2) >= processors;
    return registers && busy && c->b_vec && c->rows <= SMALL_TILE ? 2 : 1;
}

/* The kernel, rows and columns follow from n, k and the device alone, but for sizes that do not
 * change the order of sums. */
static bool choose(const struct caps *caps, const struct matmul_problem *p, struct matmul_choice *c)
{
    const struct vka_device_properties *has = &caps->properties;
    bool cpu = has->type == VKA_DEVICE_CPU;
    bool dot = !kernel_missing(KERNEL_matmul_dot, caps);
    uint32_t most = tune_has_few_registers(has) ? SMALL_TILE : DOT_ROWS;
    *c = (struct matmul_choice){
        .kernel = dot ? KERNEL_matmul_dot : KERNEL_matmul_dot_plain,
        .pack_a = true,
        .b_vec = p->b_bundles,
        .lanes = cpu ? CPU_LANES : LANES,
        .reason = dot ? "quantised activations: integer dot products"
                      : "quantised activations: products of integers, one by one",
    };
    c->rows = divide_up(p->m, divide_up(p->m, most)); /* tiles of about equal height */
    c->own_columns = own_columns(caps, p, c);
    c->columns = (cpu ? CPU_LANES : LANE_SETS) * c->own_columns;
    uint32_t blocks = divide_up(p->k, MATMUL_BLOCK);
    while (blocks_of(c) > 1 && blocks_of(c) / 2 >= blocks)
        c->columns *= 2;
    return true;
}

static void set_key(const struct matmul_choice *c, const struct matmul_operands *o,
                    struct pipeline_key *key)
{
    key->n_spec = MATMUL_DOT_SPECS;
    key->spec[MATMUL_A_TYPE] = key->spec[MATMUL_RELU] = 0; /* quantise has read A */
    key->spec[MATMUL_DOT_THREADS] = c->lanes;
    key->spec[MATMUL_DOT_ROWS] = c->rows;
    key->spec[MATMUL_DOT_COLUMNS] = c->columns;
    key->spec[MATMUL_DOT_B_VEC] = c->b_vec;
    key->spec[MATMUL_DOT_OWN_COLUMNS] = c->own_columns;
    key->spec[MATMUL_DOT_PAIRS] = o->c_pairs && blocks_of(c) > 1;
    key->spec[MATMUL_DOT_EDGE] = o->k % (blocks_of(c) * MATMUL_BLOCK) != 0;
}

static double count_loops(const struct matmul_choice *c, double k)
{
    double blocks = blocks_of(c), own = c->own_columns, rows = c->rows;
    double each = own * 10 + rows * (1 + own * 5);
    return (k / (blocks * MATMUL_BLOCK) + 1) * (4 * each + rows * own * 2 + 2 * blocks) + 64;
}

const struct matmul_family matmul_dot = {choose, set_key, count_loops};
