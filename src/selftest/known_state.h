/* Known problems of the operations with a state. */
#ifndef VKA_SELFTEST_KNOWN_STATE_H
#define VKA_SELFTEST_KNOWN_STATE_H

#include "selftest/solution.h"

/* Solves a problem from KNOWN_CONV on. */
enum vka_status known_state_solve(struct solution *s, enum known_problem problem);

#endif
