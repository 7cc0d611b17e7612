/* What the draws of large problems share. */
#ifndef TESTS_LARGE_DRAW_H
#define TESTS_LARGE_DRAW_H

#include "large_problem.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define MOST_ROWS (1u << 20)  /* of queries, of a product */
#define MOST_HEADS (1u << 17) /* and of batch elements */

/* Log-uniform up to most, from 1 or, where that is more than 4,096, from 256; one in four beside a
 * power of two or a limit of 16 bits. */
uint32_t large_draw_size(struct rng *rng, uint32_t most);

enum vka_dtype large_draw_dtype(struct rng *rng);

void large_draw_attention(struct large_problem *p, struct rng *rng,
                          const struct large_bounds *bounds);

#endif
