/* What is kept for a device and driver in the user's cache folder, a file each: the pipeline cache,
 * which only saves time, so that every failure with it is silent, and the verdict of vkattn tune.
 * SPDX-License-Identifier: MIT */
#ifndef TOOLS_CACHE_FILE_H
#define TOOLS_CACHE_FILE_H

#include <vkattn/vkattn.h>

#define CACHE_PATH 4096 /* bytes of a path with its end */

/* The paths for a device; empty where there is no cache folder. */
struct cache_paths {
    char pipelines[CACHE_PATH], verdict[CACHE_PATH];
};

/* The paths for the device that --device TEXT (NULL: none given) will most likely open; the library
 * leaves aside what is of another device, so a wrong guess costs nothing but time. */
void cache_paths_guess(const char *device, struct cache_paths *paths);

/* The paths for a device, in a folder that is made where it is not there. */
void cache_paths_make(const struct vka_device_properties *device, struct cache_paths *paths);

/* A file's bytes and a NUL after them; NULL where it cannot be read or is larger than any of these
 * files. The caller frees them. */
void *cache_file_load(const char *path, size_t *size);

/* Writes the device's pipelines, if they differ from what was read. */
void cache_file_save(struct vka_device *device, const void *loaded, size_t loaded_size);

#endif
