/* The files that a command reads and writes. SPDX-License-Identifier: MIT */
#ifndef TOOLS_FILES_H
#define TOOLS_FILES_H

#include <stdbool.h>
#include <stddef.h>

struct tool_file {
    const char *option; /* "--query", or "the layer file" */
    const char *path;   /* NULL: not given */
};

/* Call it before any work. Checks that no output is an input or another output, by any spelling or
 * link, and that each can be written; else prints an error line that names the option and the
 * file. */
bool tool_check_files(const struct tool_file *outputs, size_t n_output,
                      const struct tool_file *inputs, size_t n_input);

#endif
