/* The case files that the arguments of vkattn check mean. SPDX-License-Identifier: MIT */
#ifndef TOOLS_CHECK_PATHS_H
#define TOOLS_CHECK_PATHS_H

#include "options.h"

struct path_list {
    char **path;
    size_t count, room;
};

/* Adds a file, or every *.safetensors file under a folder. Prints why it cannot, or that a folder
 * has none: a check of nothing must not look like a success. */
enum tool_exit path_list_add(struct path_list *list, const char *path);

/* In byte order, each once. */
void path_list_sort(struct path_list *list);
void path_list_free(struct path_list *list);

#endif
