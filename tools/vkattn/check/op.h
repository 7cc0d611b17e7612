/* Runs a case of kind op on a device. SPDX-License-Identifier: MIT */
#ifndef RUN_OP_H
#define RUN_OP_H

#include "case/contents.h"
#include "common/device.h"

/* What a case of Linear gives, freed by the caller; NULL until it is computed. */
struct op_results {
    float *decoded; /* [out][in], by the host */
    double *weight; /* [out][in], by the device: the product with the identity */
    double *output; /* [rows][out] */
    double *state;  /* [elements of expect_state] */
};

enum vka_status op_run(struct tool_device *d, const struct case_file *c, struct op_results *r);
void op_results_free(struct op_results *r);

#endif
