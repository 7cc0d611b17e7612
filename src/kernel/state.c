#include "kernel/state.h"

#include "core/arith.h"
#include "gpu/kernels.h"
#include "params/params.h"
#include "params/model.h"
#include "params/state.h"

#define LANE_FOURS 2u /* of four features by four values: with 4, Intel's GPUs spill */
#define CPU_FOURS \
    4u /* of a CPU driver: fewer lanes meet at barriers, but long code compiles slowly */
#define MOST_LANES 128u   /* every device starts so many */
#define USUAL_LANES 64u   /* one subgroup of AMD's, two of others */
#define COLUMN_LANES 32u  /* of linear_chunked, for four values */
#define CHUNKED_MOST 128u /* fours of features: longer rows are staged for too few values */
#define LEAST_LANES 8u    /* for a CPU driver's subgroup */
#define MOST_TOKENS 8u    /* staged at once: more gain nothing */
#define SHARED_AIM 16384u /* bytes, of which a GPU's processor holds several workgroups */

/* Bytes of shared memory. */
static uint32_t shared_bytes(const struct recurrent_choice *c, uint32_t decay)
{
    const uint32_t row = c->fours * c->splits, columns = c->lanes / c->splits;
    const uint32_t rows = decay == DECAY_KEY ? 3 : 2;
    const uint32_t norms = 16 * c->splits + 8 * (2 * c->tokens + 1); /* where q and k are divided */
    return 16 * (c->tokens * row * rows + 1 + c->tokens * columns + 4 * c->lanes) + 16 * c->tokens +
           8 * c->splits + norms + 12;
}

/* Lanes of a workgroup: no more than the values give work to. An Adreno 660 spills with the most. */
static uint32_t lanes_of(const struct vka_device_properties *has, uint32_t splits,
                         uint32_t value_dim)
{
    uint32_t lanes = splits;
    const bool many = splits > USUAL_LANES / 8 && has->vendor_id != VENDOR_QUALCOMM;
    const uint32_t aim = many ? MOST_LANES : USUAL_LANES;
    while (lanes < LEAST_LANES || (lanes < aim && lanes / splits * 4 < value_dim))
        lanes *= 2;
    return lanes;
}

bool tune_recurrent(const struct caps *caps, uint32_t head_dim, uint32_t value_dim, uint32_t decay,
                    struct recurrent_choice *choice)
{
    const uint32_t most = (uint32_t)least(caps->properties.max_shared_memory, SHARED_AIM);
    struct recurrent_choice c = {.splits = 1, .tokens = MOST_TOKENS};
    const uint32_t fours = divide_up(head_dim, 4);
    const uint32_t own = caps->properties.type == VKA_DEVICE_CPU ? CPU_FOURS : LANE_FOURS;
    if (fours > MOST_LANES * LANE_FOURS)
        return false;
    while (c.splits < MOST_LANES && c.splits * own < fours)
        c.splits *= 2;
    c.fours = divide_up(fours, c.splits);
    c.lanes = lanes_of(&caps->properties, c.splits, value_dim);
    while (c.tokens > 1 && shared_bytes(&c, decay) > most)
        c.tokens /= 2;
    while (c.lanes > c.splits && c.lanes > LEAST_LANES && shared_bytes(&c, decay) > most)
        c.lanes /= 2;
    c.columns = c.lanes / c.splits;
    *choice = c;
    return shared_bytes(&c, decay) <= caps->properties.max_shared_memory;
}

/* Bytes of shared memory of linear_chunked, and those of linear_weights. */
static uint32_t chunked_bytes(uint32_t fours, uint32_t columns)
{
    const uint32_t c = LINEAR_CHUNK, staged = 2 * c * 5;
    const uint32_t weights = staged + c * (c / 4 + 1) + c + c;
    const uint32_t states = staged + 4 * fours * columns + 2 * c * columns + 2 * c;
    return 16 * (weights > states ? weights : states);
}

bool tune_gains_by_chunks(const struct caps *caps)
{
    return caps->properties.type != VKA_DEVICE_CPU ||
           (!kernel_missing(KERNEL_linear_chunked_address, caps) &&
            !kernel_missing(KERNEL_linear_weights_address, caps));
}

bool tune_chunked_address(const struct caps *caps, uint32_t head_dim, uint32_t decay,
                          struct recurrent_choice *choice)
{
    *choice = (struct recurrent_choice){
        .lanes = LINEAR_ADDRESS_LANES,
        .splits = 1,
        .fours = 4 * divide_up(head_dim, 16),
        .tokens = LINEAR_CHUNK,
        .columns = LINEAR_ADDRESS_VALUES / 4,
    };
    return decay != DECAY_KEY && choice->fours <= CHUNKED_MOST &&
           !kernel_missing(KERNEL_linear_chunked_address, caps) &&
           !kernel_missing(KERNEL_linear_weights_address, caps);
}

bool tune_chunked(const struct caps *caps, uint32_t head_dim, uint32_t value_dim, uint32_t decay,
                  struct recurrent_choice *choice)
{
    const uint32_t most = caps->properties.max_shared_memory, fours = divide_up(head_dim, 4);
    uint32_t columns = 4;
    if (decay == DECAY_KEY || fours > CHUNKED_MOST)
        return false;
    while (columns > 1 && (2 * columns >= value_dim || chunked_bytes(fours, columns) > most))
        columns /= 2;
    *choice = (struct recurrent_choice){
        .lanes = COLUMN_LANES * columns,
        .splits = 1,
        .fours = fours,
        .tokens = LINEAR_CHUNK,
        .columns = columns,
    };
    return chunked_bytes(fours, columns) <= most;
}

#define BACK_FEATURES 4u /* that a lane holds */
#define BACK_STATE \
    4u /* fours of the state, and of its gradient, of a lane: with 8, Intel's GPUs spill */
#define BACK_MOST_LANES 256u

/* Bytes of shared memory of linear_backward. */
static uint32_t backward_bytes(const struct linear_backward_choice *c)
{
    return 16 * ((c->fours + 1) * (c->lanes + 8) + LINEAR_CHUNK * (1 + c->fours)) +
           4 * LINEAR_CHUNK;
}

bool tune_linear_backward(const struct caps *caps, uint32_t head_dim, uint32_t value_dim,
                          struct linear_backward_choice *choice)
{
    const struct vka_device_properties *has = &caps->properties;
    const uint32_t most = (uint32_t)least(has->max_workgroup, BACK_MOST_LANES);
    struct linear_backward_choice c = {.lanes = 32};
    while (c.lanes < head_dim && 2 * c.lanes <= most)
        c.lanes *= 2;
    c.features = divide_up(head_dim, c.lanes);
    c.fours = c.features < BACK_STATE ? BACK_STATE / c.features : 1;
    while (c.fours > 1 &&
           (4 * (c.fours - 1) >= value_dim || backward_bytes(&c) > has->max_shared_memory))
        c.fours--;
    *choice = c;
    return c.features <= BACK_FEATURES && backward_bytes(&c) <= has->max_shared_memory;
}
