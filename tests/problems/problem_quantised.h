/* Random layers with quantised weights and caches, each of which is run in several ways. */
#ifndef TESTS_PROBLEM_QUANTISED_H
#define TESTS_PROBLEM_QUANTISED_H

#include "problem.h"

/* True where all ways give the same bits, near those of decoded weights; text describes it. */
bool problem_quantised_check(struct vka_device *device, uint64_t seed, struct worst *worst,
                             struct problem_result *result, char text[PROBLEM_TEXT]);

#endif
