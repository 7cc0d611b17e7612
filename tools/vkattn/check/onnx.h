/* Runs a case of an operation of ONNX on a device. SPDX-License-Identifier: MIT */
#ifndef RUN_ONNX_H
#define RUN_ONNX_H

#include "case/contents.h"
#include "common/device.h"

/* Computes output 0 of an operation of ONNX, [elements of expect]. */
enum vka_status onnx_run(struct tool_device *d, const struct case_op *op, double *output);

/* Makes a tensor of this type with the values of an array. */
enum vka_status onnx_upload(struct tool_device *d, const struct vka_io_array *array,
                            enum vka_dtype dtype, struct vka_tensor **tensor);

#endif
