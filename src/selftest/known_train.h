/* Known problems of the operations of training. */
#ifndef VKA_SELFTEST_KNOWN_TRAIN_H
#define VKA_SELFTEST_KNOWN_TRAIN_H

#include "selftest/solution.h"

/* Solves a problem from KNOWN_SUM_AXES on. */
enum vka_status known_train_solve(struct solution *s, enum known_problem problem);

#endif
