#include "op/state/recurrent_problem.h"

uint32_t linear_group(const struct linear *l)
{
    const uint32_t n_head = l->q.shape.size[1];
    return n_head > l->n_state ? n_head / l->n_state : 1;
}
