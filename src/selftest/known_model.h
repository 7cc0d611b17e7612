/* Known problems of the operations around attention. */
#ifndef VKA_SELFTEST_KNOWN_MODEL_H
#define VKA_SELFTEST_KNOWN_MODEL_H

#include "selftest/solution.h"

/* Solves a problem from KNOWN_NORM on. */
enum vka_status known_model_solve(struct solution *s, enum known_problem problem);

#endif
