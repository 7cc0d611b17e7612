/* The pipeline cache between runs: a file a device and driver in the user's cache folder. It only
 * saves time, so every failure is silent. SPDX-License-Identifier: MIT */
#ifndef TOOLS_CACHE_FILE_H
#define TOOLS_CACHE_FILE_H

#include <vkattn/vkattn.h>

/* Reads the blob for the device that --device TEXT (NULL: none given) will most likely open; the
 * library ignores a blob of another driver, so a wrong guess costs nothing but time. NULL where
 * there is none. The caller frees it. */
void *cache_file_load(const char *device, size_t *size);

/* Writes the device's blob, if it differs from the one that was read. */
void cache_file_save(struct vka_device *device, const void *loaded, size_t loaded_size);

#endif
