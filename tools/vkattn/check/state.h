/* Runs a case of an operation of ONNX with a state on a device. SPDX-License-Identifier: MIT */
#ifndef RUN_STATE_H
#define RUN_STATE_H

#include "case/contents.h"
#include "common/device.h"

/* Computes outputs 0 and, if the case has it, 1: [elements of expect], [elements of expect_state]. */
enum vka_status state_run(struct tool_device *d, const struct case_op *op, double *output,
                          double *state);

#endif
