/* The files that a command reads and writes. SPDX-License-Identifier: MIT */
#include "files.h"

#include "options.h"

#include "core/os.h"
#include "io/file.h"

#include <string.h>

/* Whether both are the same name in the same folder; the file need not exist. */
static bool is_one_name(const char *a, const char *b)
{
    const char *const paths[] = {a, b};
    char folders[2][OS_PATH_SIZE + 1];
    size_t length[2];
    for (int i = 0; i < 2; i++) {
        length[i] = os_folder_length(paths[i]);
        if (length[i] >= OS_PATH_SIZE)
            return false;
        memcpy(folders[i], paths[i], length[i]);
        memcpy(folders[i] + length[i], ".", 2);
    }
    return !strcmp(a + length[0], b + length[1]) && os_same_file(folders[0], folders[1]);
}

/* Whether no file of a list is the one at path. */
static bool is_none_of(const struct tool_file *output, const struct tool_file *others, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!others[i].path || !(os_same_file(output->path, others[i].path) ||
                                 is_one_name(output->path, others[i].path)))
            continue;
        tool_error("%s: expected another file than %s, got '%s' for both", output->option,
                   others[i].option, output->path);
        return false;
    }
    return true;
}

bool tool_check_files(const struct tool_file *outputs, size_t n_output,
                      const struct tool_file *inputs, size_t n_input)
{
    char error[VKA_IO_ERROR_SIZE];
    for (size_t i = 0; i < n_output; i++) {
        if (!outputs[i].path)
            continue;
        if (!is_none_of(&outputs[i], inputs, n_input) || !is_none_of(&outputs[i], outputs, i))
            return false;
        if (vka_io_check_place(outputs[i].path, error)) {
            tool_error("%s: %s", outputs[i].option, error);
            return false;
        }
    }
    return true;
}
