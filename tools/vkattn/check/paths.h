/* Finds the case files for the arguments of vkattn check. SPDX-License-Identifier: MIT */
#ifndef TOOLS_CHECK_PATHS_H
#define TOOLS_CHECK_PATHS_H

#include "common/options.h"

struct path_list {
    char **path;
    size_t count, room;
};

/* Adds a file, or every *.safetensors file under a folder. Prints why it fails. A folder without
 * such files is a failure: a check of nothing must not look like success. */
enum tool_exit path_list_add(struct path_list *list, const char *path);

/* Sorts the paths in byte order and removes duplicates. */
void path_list_sort(struct path_list *list);
void path_list_free(struct path_list *list);

#endif
