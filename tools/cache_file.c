/* The pipeline cache between runs. SPDX-License-Identifier: MIT */
#include "cache_file.h"

#include "device.h"
#include "file_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A blob holds some dozen pipelines; a file beyond this is not ours. */
#define BLOB_MAX ((size_t)64 << 20)

#define PATH_ROOM 4096

/* The vkattn folder in the user's cache folder, made if `make`. */
static bool cache_folder(char folder[PATH_ROOM], bool make)
{
    const char *base = getenv("XDG_CACHE_HOME");
    const char *below = "";
    if (!base || *base != '/') {
        base = getenv("HOME");
        below = "/.cache";
    }
    if (!base || *base != '/')
        return false;
    int length = snprintf(folder, PATH_ROOM, "%s%s", base, below);
    if (length < 0 || length + 8 >= PATH_ROOM)
        return false;
    if (make)
        mkdir(folder, 0700);
    memcpy(folder + length, "/vkattn", sizeof "/vkattn");
    if (make)
        mkdir(folder, 0700);
    return true;
}

static bool cache_path(const struct vka_device_properties *p, bool make, char path[PATH_ROOM])
{
    char folder[PATH_ROOM];
    if (!cache_folder(folder, make))
        return false;
    int length = snprintf(path, PATH_ROOM, "%s/pipelines-%08x-%08x-%08x.bin", folder, p->vendor_id,
                          p->device_id, p->driver_version);
    return length > 0 && length < PATH_ROOM;
}

/* The device that vka_device_create promises to choose: the most capable kind among those meant. */
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

void *cache_file_load(const char *device, size_t *size)
{
    struct vka_device_properties guess;
    char path[PATH_ROOM];
    struct stat info;
    void *blob = NULL;
    *size = 0;
    if (!guess_device(device, &guess) || !cache_path(&guess, false, path))
        return NULL;
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    if (!fstat(fileno(file), &info) && S_ISREG(info.st_mode) && info.st_size > 0 &&
        (uint64_t)info.st_size <= BLOB_MAX)
        blob = malloc((size_t)info.st_size);
    if (blob && fread(blob, 1, (size_t)info.st_size, file) == (size_t)info.st_size) {
        *size = (size_t)info.st_size;
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
    char path[PATH_ROOM];
    if (vka_device_pipeline_cache(device, NULL, &size) != VKA_OK || !size || size > BLOB_MAX)
        return;
    void *blob = malloc(size);
    if (blob && vka_device_pipeline_cache(device, blob, &size) == VKA_OK &&
        (size != loaded_size || memcmp(blob, loaded, size)) &&
        cache_path(vka_device_properties(device), true, path))
        file_replace(path, blob, size);
    free(blob);
}
