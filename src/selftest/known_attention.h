/* Known problems of attention. */
#ifndef VKA_SELFTEST_KNOWN_ATTENTION_H
#define VKA_SELFTEST_KNOWN_ATTENTION_H

#include "selftest/solution.h"

/* Solves a problem of attention; solves the problem of softmax alone. */
enum vka_status known_attention_solve(struct solution *s, enum known_problem problem);
enum vka_status known_softmax_solve(struct solution *s);

#endif
