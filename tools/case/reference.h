/* The oracle for case files. SPDX-License-Identifier: MIT */
#ifndef CASE_REFERENCE_H
#define CASE_REFERENCE_H

#include "contents.h"

/* Computes an open case in double from its stored values. Each result may be NULL and has the shape
 * of the expected array of its name. scores are of the kind config.scores, or the weights if that
 * is NONE. VKA_OK or VKA_OUT_OF_HOST_MEMORY. */
enum vka_status case_reference(const struct case_file *c, double *output, double *scores,
                               double *present_key, double *present_value);

#endif
