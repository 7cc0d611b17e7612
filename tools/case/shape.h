/* Sizes of a case, from its shapes. SPDX-License-Identifier: MIT */
#ifndef CASE_SHAPE_H
#define CASE_SHAPE_H

#include "contents.h"
#include "refuse.h"

/* Fills in the sizes of a case whose arrays have the right types, and checks every shape and every
 * length against them. */
enum vka_status case_check_shapes(const struct case_where *at, struct case_file *c);

/* Fills in n_head, n_kv_head, head_dim, value_dim and the four widths of a weight file from config,
 * which the caller may have changed, and from the shapes of the weights. path is only used in
 * sentences. */
enum vka_status case_layer_sizes(struct case_file *c, const char *path, char *error);

#endif
