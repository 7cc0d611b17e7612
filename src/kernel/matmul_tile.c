/* Tiles of both matrices in shared memory: the kernel that every device can run. */
#include "gpu/pipeline.h"
#include "kernel/matmul_family.h"
#include "params.h"

static bool choose(const struct caps *caps, const struct matmul_problem *p, struct matmul_choice *c)
{
    const struct vka_device_properties *has = &caps->properties;
    *c = (struct matmul_choice){.kernel = KERNEL_matmul_tile};
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
    return true;
}

static void set_key(const struct matmul_choice *c, const struct matmul_operands *o,
                    struct pipeline_key *key)
{
    (void)o;
    key->n_spec = MATMUL_TILE_SPECS;
    key->spec[MATMUL_TILE_M] = c->tile_m;
    key->spec[MATMUL_TILE_N] = c->tile_n;
    key->spec[MATMUL_SIDE_X] = key->spec[MATMUL_SIDE_Y] = c->side;
}

static double count_loops(const struct matmul_choice *c, double k)
{
    double loads = 2.0 * TILE_DEPTH * c->tile_m / c->side + 4;
    double products = TILE_DEPTH * (2.0 + c->tile_n + c->tile_m * (c->tile_n + 2.0));
    return (k / TILE_DEPTH + 2) * (loads + products);
}

const struct matmul_family matmul_tile = {choose, set_key, count_loops};
