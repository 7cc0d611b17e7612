/* Cases of kind op whose operation is one of ONNX. SPDX-License-Identifier: MIT */
#ifndef CASE_ONNX_H
#define CASE_ONNX_H

#include "contents.h"
#include "refuse.h"

#include <jansson.h>

/* Reads what the case has beside the metadata of all, from the object of its config; `operation` is
 * the name there. */
enum vka_status case_read_onnx(const struct case_where *at, const char *operation,
                               const json_t *config, struct case_file *c);

#endif
