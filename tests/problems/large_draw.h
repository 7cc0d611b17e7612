/* What the draws of large problems share. */
#ifndef TESTS_LARGE_DRAW_H
#define TESTS_LARGE_DRAW_H

#include "large_problem.h"
#include "problem.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define MOST_ROWS (1u << 20)  /* of queries, of a product */
#define MOST_HEADS (1u << 17) /* and of batch elements */

void large_draw_attention(struct large_problem *p, struct rng *rng,
                          const struct large_bounds *bounds);

#endif
