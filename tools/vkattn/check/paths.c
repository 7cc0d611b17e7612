/* Finds the case files for the arguments of vkattn check. SPDX-License-Identifier: MIT */
#include "paths.h"

#include "core/os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The depth of folders; as links to folders are not followed, only a hostile tree is deeper. */
#define DEPTH_MAX 64

static enum tool_exit no_memory(void)
{
    tool_error("out of memory");
    return TOOL_MEMORY;
}

static enum tool_exit append(struct path_list *list, const char *path)
{
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        char **grown = realloc(list->path, room * sizeof *grown);
        if (!grown)
            return no_memory();
        list->path = grown;
        list->room = room;
    }
    list->path[list->count] = strdup(path);
    if (!list->path[list->count])
        return no_memory();
    list->count++;
    return TOOL_OK;
}

static bool is_case_name(const char *name)
{
    static const char ending[] = ".safetensors";
    size_t length = strlen(name), end = sizeof ending - 1;
    return length > end && !strcmp(name + length - end, ending);
}

static enum tool_exit walk(struct path_list *list, const char *path, int depth);

/* Takes one entry of a folder: adds a case file, walks a folder, ignores anything else. */
static enum tool_exit visit(struct path_list *list, const char *path, const char *name,
                            bool is_folder, int depth)
{
    if (is_folder)
        return walk(list, path, depth + 1);
    return is_case_name(name) ? append(list, path) : TOOL_OK;
}

static enum tool_exit walk(struct path_list *list, const char *path, int depth)
{
    enum tool_exit code = TOOL_OK;
    const char *name;
    bool is_folder;
    struct os_folder *folder = depth < DEPTH_MAX ? os_folder_open(path) : NULL;
    if (!folder) {
        tool_error("%s: cannot read the folder: %s", path,
                   depth < DEPTH_MAX ? strerror(errno) : "too many folders within folders");
        return TOOL_USAGE;
    }
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    while (code == TOOL_OK && (name = os_folder_next(folder, &is_folder))) {
        size_t size = length + strlen(name) + 2;
        char *below = malloc(size);
        if (below) {
            snprintf(below, size, "%.*s/%s", (int)length, path, name);
            code = visit(list, below, name, is_folder, depth);
        } else {
            code = no_memory();
        }
        free(below);
    }
    os_folder_close(&folder);
    return code;
}

enum tool_exit path_list_add(struct path_list *list, const char *path)
{
    const enum os_place place = os_look(path);
    size_t before = list->count;
    if (place == OS_UNKNOWN || place == OS_NOTHING) {
        tool_error("%s: cannot open: %s", path, strerror(errno));
        return TOOL_USAGE;
    }
    if (place != OS_FOLDER)
        return append(list, path);
    enum tool_exit code = walk(list, path, 0);
    if (code == TOOL_OK && list->count == before) {
        tool_error("%s: expected case files, but no *.safetensors is under it", path);
        return TOOL_USAGE;
    }
    return code;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void path_list_sort(struct path_list *list)
{
    size_t kept = 0;
    if (list->count)
        qsort(list->path, list->count, sizeof *list->path, compare_paths);
    for (size_t i = 0; i < list->count; i++) {
        if (kept && !strcmp(list->path[kept - 1], list->path[i]))
            free(list->path[i]);
        else
            list->path[kept++] = list->path[i];
    }
    list->count = kept;
}

void path_list_free(struct path_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->path[i]);
    free(list->path);
    *list = (struct path_list){0};
}
