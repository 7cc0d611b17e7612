/* The page of vkattn run: what each head attends to. SPDX-License-Identifier: MIT */
#ifndef TOOLS_RUN_PAGE_H
#define TOOLS_RUN_PAGE_H

#include "case/contents.h"

#include <jansson.h>

/* The most that a page shows: the first queries and keys of a map, and weights in all, which take
 * two characters each. At least one map is shown. */
#define RUN_PAGE_SIDE 512
#define RUN_PAGE_WEIGHTS (8u << 20)

struct run_page {
    const char *layer, *query; /* paths */
    const char *device, *driver;
    const struct case_file *problem;
    const double *weights; /* [batch][n_head][n_q][n_kv] */
    const json_t *tokens;  /* checked by tokens_check; NULL: labels are numbers */
};

/* Writes the page to a new file beside path, which is then renamed. A status other than VKA_OK has
 * a sentence in error (VKA_IO_ERROR_SIZE characters). */
enum vka_status run_page_write(const char *path, const struct run_page *page, char *error);

#endif
