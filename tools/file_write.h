/* Files that are whole or not there. SPDX-License-Identifier: MIT */
#ifndef TOOLS_FILE_WRITE_H
#define TOOLS_FILE_WRITE_H

#include <stdbool.h>
#include <stddef.h>

/* Writes a new file beside path and renames it, so that who reads at this moment sees the old file
 * or all of the new one. False with errno set, and nothing left behind; a path that is there and no
 * regular file (a device, a folder) is refused. */
bool file_replace(const char *path, const void *data, size_t size);

#endif
