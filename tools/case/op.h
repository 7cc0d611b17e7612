/* Cases of kind op. SPDX-License-Identifier: MIT */
#ifndef CASE_OP_H
#define CASE_OP_H

#include "contents.h"
#include "refuse.h"

/* Reads what a case of kind op has beside the metadata of all. */
enum vka_status case_read_op(const struct case_where *at, const char *config, struct case_file *c);

#endif
