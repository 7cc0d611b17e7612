/* The files for a device and driver in the user's cache folder: the pipeline cache, which only
 * saves time, so failures with it are silent, and the tuning profile of vkattn tune.
 * SPDX-License-Identifier: MIT */
#ifndef TOOLS_CACHE_FILE_H
#define TOOLS_CACHE_FILE_H

#include <vkattn/vkattn.h>

#include "core/os.h"

/* The paths for a device; empty if there is no cache folder. */
struct cache_paths {
    char pipelines[OS_PATH_SIZE], tuning_profile[OS_PATH_SIZE];
};

/* The paths for the device that --device TEXT (NULL: none given) will most likely open. The library
 * ignores files of another device, so a wrong guess only costs time. */
void cache_paths_guess(const char *device, struct cache_paths *paths);

/* The paths for a device, in a folder that is made if it does not exist. */
void cache_paths_make(const struct vka_device_properties *device, struct cache_paths *paths);

/* Reads a file and adds a NUL; NULL if it cannot be read or is larger than any of these files. The
 * caller frees the bytes. */
void *cache_file_load(const char *path, size_t *size);

/* Writes the pipeline cache of the device, if it differs from what was read. */
void cache_file_save(struct vka_device *device, const void *loaded, size_t loaded_size);

#endif
