/* Plans and operands of the tests of log_sum_exp. */
#ifndef TESTS_LOG_SUM_H
#define TESTS_LOG_SUM_H

#include "problems/operand.h"

#define LOG_SUM_ERROR 4e-6 /* of 1 + |x| */

/* Fails the test where the status is not VKA_OK. */
void log_sum_check(struct vka_device *device, enum vka_status status);

/* A plan, for log_sum_run, which finishes, runs and destroys it. */
struct vka_plan *log_sum_plan(struct vka_device *device, enum vka_path path);
void log_sum_run(struct vka_device *device, struct vka_plan **plan);

/* A dense operand. */
void log_sum_operand(struct vka_device *device, struct operand *o, enum vka_dtype dtype,
                     uint32_t rank, const uint32_t *size);

#endif
