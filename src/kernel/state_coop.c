/* linear_weights_coop and linear_chunked_coop: chunks of linear attention on matrix units. */
#include "kernel/state.h"

#include "core/arith.h"
#include "gpu/kernels.h"
#include "params/params.h"
#include "params/model.h"
#include "params/state.h"

#define WIDTH_MOST 32u     /* values of a workgroup: rows are loaded once for all of these */
#define HEAD_MOST 256u     /* features */
#define HEAD_LEAST 32u     /* with fewer, half of the matrices and more is padding */
#define LEAST_MATRIX 128u  /* results: with fewer, FMAs do as much, and an A770 spills */
#define VECTOR_ELEMENTS 8u /* that a lane loads */

static uint32_t features_of(const struct recurrent_choice *c)
{
    return 4 * c->fours;
}

/* Bytes of shared memory of both kernels. */
static uint32_t shared_bytes(const struct recurrent_choice *c)
{
    const uint32_t width = 4 * c->columns, d = features_of(c), n = LINEAR_CHUNK;
    const uint32_t of_state = 2 * width * (d / 8 + 1), of_tokens = 4 * width * (n / 8 + 1);
    const uint32_t states = width * (d / 4 + 1) + (of_state > of_tokens ? of_state : of_tokens) +
                            n * (width / 4 + 1) + LINEAR_GATES + 2 * width + divide_up(width, 4);
    const uint32_t weights = 2 * n * (n / 8 + 1) + n + n + n / 4;
    return 16 * (states > weights ? states : weights);
}

static bool is_of_16_bits(enum vka_dtype type)
{
    return type == VKA_F16 || type == VKA_BF16;
}

/* Whether chunks are rows, columns and depths of whole matrices, with a subgroup for each of their rows. */
static bool set_lanes(const struct caps *caps, struct recurrent_choice *c)
{
    const struct matrix_size *size = &c->size;
    if (LINEAR_CHUNK % size->m || LINEAR_CHUNK % size->n || LINEAR_CHUNK % size->k || size->m % 4 ||
        size->n % 4 || size->k % VECTOR_ELEMENTS)
        return false;
    c->lanes = LINEAR_CHUNK / size->m * caps->least_subgroup;
    return c->lanes >= LINEAR_CHUNK && c->lanes <= caps->properties.max_workgroup;
}

bool tune_chunked_coop(const struct caps *caps, enum vka_dtype q, enum vka_dtype k,
                       uint32_t head_dim, uint32_t value_dim, uint32_t decay,
                       struct recurrent_choice *choice)
{
    const uint32_t most = caps->properties.max_shared_memory;
    struct recurrent_choice c = {.splits = 1, .tokens = LINEAR_CHUNK, .size = caps->matrix_f16};
    if (kernel_missing(KERNEL_linear_chunked_coop, caps) ||
        kernel_missing(KERNEL_linear_weights_coop, caps) || decay == DECAY_KEY ||
        !is_of_16_bits(q) || !is_of_16_bits(k) || head_dim > HEAD_MOST || !set_lanes(caps, &c))
        return false;
    /* CPU drivers compute a matrix in many steps. */
    const bool wanted = caps->properties.type != VKA_DEVICE_CPU && head_dim >= HEAD_LEAST &&
                        value_dim >= c.size.n && c.size.m * c.size.n >= LEAST_MATRIX;
    if (!wanted && !kernel_missing(KERNEL_linear_chunked, caps))
        return false;
    c.fours = divide_up(head_dim, LINEAR_CHUNK) * (LINEAR_CHUNK / 4);
    uint32_t width = WIDTH_MOST > c.size.n ? WIDTH_MOST : c.size.n;
    c.columns = width / 4;
    while (width > c.size.n && (width / 2 >= value_dim || shared_bytes(&c) > most)) {
        width /= 2;
        c.columns = width / 4;
    }
    *choice = c;
    return width <= c.lanes && shared_bytes(&c) <= most;
}
