/* Files of a device in the user's cache folder. SPDX-License-Identifier: MIT */
#include "cache_file.h"

#include "device.h"

#include <vkattn/vkattn_io.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A blob holds a few dozen pipelines; a larger file is not ours. */
#define BLOB_MAX ((size_t)64 << 20)

/* The folder vkattn in the user's cache folder; made if `make` is true. */
static bool cache_folder(char folder[CACHE_PATH], bool make)
{
    const char *base = getenv("XDG_CACHE_HOME");
    const char *below = "";
    if (!base || *base != '/') {
        base = getenv("HOME");
        below = "/.cache";
    }
    if (!base || *base != '/')
        return false;
    int length = snprintf(folder, CACHE_PATH, "%s%s", base, below);
    if (length < 0 || length + 8 >= CACHE_PATH)
        return false;
    if (make)
        mkdir(folder, 0700);
    memcpy(folder + length, "/vkattn", sizeof "/vkattn");
    if (make)
        mkdir(folder, 0700);
    return true;
}

static void fill_paths(const char *folder, const struct vka_device_properties *p,
                       struct cache_paths *paths)
{
    char device[64];
    snprintf(device, sizeof device, "%08x-%08x-%08x", p->vendor_id, p->device_id,
             p->driver_version);
    int a = snprintf(paths->pipelines, CACHE_PATH, "%s/pipelines-%s.bin", folder, device);
    int b = snprintf(paths->verdict, CACHE_PATH, "%s/verdict-%s.txt", folder, device);
    if (a >= CACHE_PATH || b >= CACHE_PATH)
        *paths->pipelines = *paths->verdict = '\0';
}

void cache_paths_make(const struct vka_device_properties *device, struct cache_paths *paths)
{
    char folder[CACHE_PATH];
    *paths->pipelines = *paths->verdict = '\0';
    if (cache_folder(folder, true))
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
    char folder[CACHE_PATH];
    struct vka_device_properties guess = {0};
    *paths->pipelines = *paths->verdict = '\0';
    /* Listing the devices takes a while: skipped if there can be no file. */
    if (cache_folder(folder, false) && !access(folder, R_OK) && guess_device(device, &guess))
        fill_paths(folder, &guess, paths);
}

void *cache_file_load(const char *path, size_t *size)
{
    struct stat info;
    char *blob = NULL;
    *size = 0;
    /* O_NONBLOCK: opening a pipe must not wait for its writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "rb");
    if (!file) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    if (!fstat(fileno(file), &info) && S_ISREG(info.st_mode) && info.st_size > 0 &&
        (uint64_t)info.st_size <= BLOB_MAX)
        blob = malloc((size_t)info.st_size + 1);
    if (blob && fread(blob, 1, (size_t)info.st_size, file) == (size_t)info.st_size) {
        *size = (size_t)info.st_size;
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
