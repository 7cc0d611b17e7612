/* The weights of chunks of linear attention, and what its kernels cost. */
#include "op/state/recurrent_work.h"

#include "core/arith.h"

bool recurrent_is_chunked(const struct recurrent *r)
{
    return r->kernel != KERNEL_linear_recurrent;
}

bool recurrent_has_matrices(const struct recurrent *r)
{
    return r->kernel == KERNEL_linear_chunked_coop;
}

bool recurrent_is_by_address(const struct recurrent *r)
{
    return r->kernel == KERNEL_linear_chunked_address;
}

/* Weights of a chunk of a state. */
static uint64_t chunk_bytes(const struct recurrent *r)
{
    const uint32_t fours = r->tile.fours;
    return 16 * (uint64_t)(recurrent_is_by_address(r)  ? LINEAR_ADDRESS_WEIGHTS(fours)
                           : recurrent_has_matrices(r) ? LINEAR_COOP_WEIGHTS(fours)
                                                       : LINEAR_WEIGHTS);
}

/* What stands in front of the weights, of a state. */
static uint64_t state_bytes(const struct recurrent *r)
{
    const uint64_t groups = divide_up(r->l->value_dim, LINEAR_ADDRESS_VALUES);
    return recurrent_is_by_address(r) ? 16 * groups * LINEAR_ADDRESS_STATES(r->tile.fours) : 0;
}

/* Loops of an invocation over a chunk on matrix units. */
static double coop_loops(const struct recurrent_choice *t)
{
    const double lanes = t->lanes, depth = 4.0 * t->fours / t->size.k;
    const double values = 6 * (LINEAR_CHUNK * t->columns / lanes + 1);
    const double features = 2.0 * t->fours * t->columns / lanes + 2;
    const double products = depth * (1 + LINEAR_CHUNK / t->size.k) + 2 * LINEAR_CHUNK / t->size.k;
    return LINEAR_GATES / lanes + 2 + features + values + products;
}

/* Loops of an invocation over a chunk, by address, of one pass or the other. */
static double address_loops(const struct recurrent_choice *t)
{
    const double vectors = t->fours / 2.0, c = LINEAR_CHUNK;
    const double weights = c * (6 * vectors + c / 8) + c * c / 8 * (2 * vectors + 1);
    const double tokens = c / 4 * (vectors + c / 4 + 2), states = vectors * (c / 4 + 1);
    return weights > tokens + states ? weights : tokens + states;
}

/* Loops of an invocation over so many tokens. */
static double loops_of(const struct recurrent *r, double tokens)
{
    const struct recurrent_choice *t = &r->tile;
    const double staging = t->tokens * t->fours * t->splits / t->lanes + 2.0;
    if (recurrent_has_matrices(r)) /* those of the state's memory, and of linear_weights_coop */
        return (tokens / LINEAR_CHUNK + 1) * coop_loops(t) + 4 * staging +
               (2.0 * LINEAR_CHUNK / t->lanes + 1) * (3 * t->fours + LINEAR_CHUNK) +
               4 * LINEAR_CHUNK;
    if (recurrent_is_by_address(r)) /* and those that load and store the state */
        return (tokens / LINEAR_CHUNK + 1) * address_loops(t) + 8.0 * t->fours;
    if (recurrent_is_chunked(r))
        return (tokens / LINEAR_CHUNK + 1) * (4 * staging + 3.0 * t->fours + 4 * LINEAR_CHUNK);
    return tokens * (2 + t->splits) + (tokens / t->tokens + 1) * (2 * staging + 2);
}

uint64_t recurrent_slots(const struct recurrent *r, const uint32_t size[4], uint32_t *own)
{
    const struct linear *l = r->l;
    const uint64_t together = (uint64_t)l->n / LINEAR_CHUNK + size[0] + 1;
    *own = divide_up(size[AXIS_TOKEN], LINEAR_CHUNK);
    const uint64_t apart = (uint64_t)*own * size[0];
    if (!l->rows.q_start || apart <= together)
        return apart;
    *own = 0;
    return together;
}

uint64_t recurrent_most_weights(const struct vka_plan *plan, const struct recurrent *r)
{
    const struct vka_device_properties *has = &plan->caps.properties;
    const uint64_t room = least(has->max_buffer_range, has->max_allocation / 2);
    const uint64_t most = least(plan->workspace_limit, room);
    const uint64_t one = chunk_bytes(r) + state_bytes(r);
    return most > one ? most : one;
}

uint64_t recurrent_weights(const struct recurrent *r, const uint32_t size[4])
{
    uint32_t own;
    const uint64_t states = (uint64_t)size[0] * size[1];
    return recurrent_is_chunked(r)
               ? recurrent_slots(r, size, &own) * size[1] * chunk_bytes(r) + states * state_bytes(r)
               : 0;
}

struct work recurrent_work(const struct recurrent *r, const uint32_t size[4])
{
    const struct linear *l = r->l;
    const struct recurrent_choice *t = &r->tile;
    const double group = linear_group(l), tokens = size[AXIS_TOKEN];
    const double rows = l->rows.q_start ? tokens + size[0] : tokens * size[0];
    const double features = 4.0 * t->fours * t->splits, wide = 4.0 * r->tile.columns;
    const double values = divide_up(l->value_dim, 4 * r->tile.columns) * wide;
    return (struct work){
        (rows * group + 2.0 * size[0]) * size[1] * features * values * WORK_MOVE,
        (tokens * group + 2) * features * wide * WORK_MOVE,
        group * loops_of(r, tokens) + tokens / t->splits,
    };
}
