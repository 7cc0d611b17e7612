/* Files of a device in the user's cache folder. SPDX-License-Identifier: MIT */
#include "cache_file.h"

#include "options.h"

#include "core/os.h"

#include <vkattn/vkattn_io.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "vkattn" /* in the user's cache folder */
/* A blob holds a few dozen pipelines; a larger file is not ours. */
#define BLOB_MAX ((size_t)64 << 20)

static void fill_paths(const char *folder, const struct vka_device_properties *p,
                       struct cache_paths *paths)
{
    char device[64];
    snprintf(device, sizeof device, "%08x-%08x-%08x", p->vendor_id, p->device_id,
             p->driver_version);
    int a = snprintf(paths->pipelines, OS_PATH_SIZE, "%s/pipelines-%s.bin", folder, device);
    int b =
        snprintf(paths->tuning_profile, OS_PATH_SIZE, "%s/tuning-profile-%s.txt", folder, device);
    if (a >= OS_PATH_SIZE || b >= OS_PATH_SIZE)
        *paths->pipelines = *paths->tuning_profile = '\0';
}

void cache_paths_make(const struct vka_device_properties *device, struct cache_paths *paths)
{
    char folder[OS_PATH_SIZE];
    *paths->pipelines = *paths->tuning_profile = '\0';
    if (os_cache_folder(FOLDER, true, folder))
        fill_paths(folder, device, paths);
}

/* The device that vka_device_create would choose: the most capable of those that match. */
static bool guess_device(const char *device, struct vka_device_properties *guess)
{
    size_t count = 0;
    bool found = false;
    if (vka_device_list(NULL, NULL, &count) != VKA_OK || !count)
        return false;
    struct vka_device_properties *list = calloc(count, sizeof *list);
    size_t room = count;
    if (list && vka_device_list(NULL, list, &count) == VKA_OK) {
        for (size_t i = 0; i < count && i < room; i++) {
            if (!tool_device_matches(&list[i], device) || (found && list[i].type <= guess->type))
                continue;
            *guess = list[i];
            found = true;
        }
    }
    free(list);
    return found;
}

void cache_paths_guess(const char *device, struct cache_paths *paths)
{
    char folder[OS_PATH_SIZE];
    struct vka_device_properties guess = {0};
    *paths->pipelines = *paths->tuning_profile = '\0';
    /* Listing the devices takes a while: skipped if there can be no file. */
    if (os_cache_folder(FOLDER, false, folder) && guess_device(device, &guess))
        fill_paths(folder, &guess, paths);
}

void *cache_file_load(const char *path, size_t *size)
{
    uint64_t bytes;
    FILE *file = os_open_file(path, &bytes);
    char *blob = NULL;
    *size = 0;
    if (!file)
        return NULL;
    if (bytes > 0 && bytes <= BLOB_MAX) /* so not OS_NO_SIZE */
        blob = malloc((size_t)bytes + 1);
    if (blob && fread(blob, 1, (size_t)bytes, file) == (size_t)bytes) {
        *size = (size_t)bytes;
        blob[*size] = '\0';
    } else {
        free(blob);
        blob = NULL;
    }
    fclose(file);
    return blob;
}

void cache_file_save(struct vka_device *device, const void *loaded, size_t loaded_size)
{
    size_t size = 0;
    struct cache_paths paths;
    if (vka_device_pipeline_cache(device, NULL, &size) != VKA_OK || !size || size > BLOB_MAX)
        return;
    void *blob = malloc(size);
    if (blob && vka_device_pipeline_cache(device, blob, &size) == VKA_OK &&
        (size != loaded_size || memcmp(blob, loaded, size))) {
        cache_paths_make(vka_device_properties(device), &paths);
        if (*paths.pipelines)
            vka_file_write(paths.pipelines, blob, size, NULL);
    }
    free(blob);
}
