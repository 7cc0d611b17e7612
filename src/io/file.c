/* Files of vkattn_io: mapped for reading, replaced as a whole for writing.
 * SPDX-License-Identifier: MIT */
#include "io/file.h"
#include "core/os.h"

#include <string.h>

enum vka_status vka_io_map_open(struct vka_io_map *map, const char *path, const void *file,
                                char *error)
{
    static const char lfs[] = "version https://git-lfs"; /* in place of a file that is elsewhere */
    enum vka_status status = VKA_OK;
    uint64_t size;
    FILE *stream;

    *map = (struct vka_io_map){0};
    if (!file || !path)
        return vka_io_fail(error, VKA_INVALID, path, "path or the out-parameter file is NULL");
    stream = os_open_file(path, &size);
    if (!stream)
        return vka_io_fail_errno(error, path, "open");
    if (size == OS_NO_SIZE) {
        status = vka_io_fail(error, VKA_IO, path, "not a regular file");
    } else if (size > PTRDIFF_MAX) {
        status = vka_io_fail(error, VKA_IO, path, "the file is larger than the address space");
    } else if (size > 0) {
        void *data = os_map_file(stream, (size_t)size);

        if (data)
            *map = (struct vka_io_map){data, (size_t)size};
        else
            status = vka_io_fail_errno(error, path, "map");
    }
    fclose(stream);
    if (size >= sizeof lfs - 1 && map->data && memcmp(map->data, lfs, sizeof lfs - 1) == 0) {
        vka_io_map_close(map);
        status = vka_io_fail(error, VKA_IO, path,
                             "a pointer of Git LFS, not the file itself: `git lfs pull` gets it");
    }
    return status;
}

void vka_io_map_close(struct vka_io_map *map)
{
    if (map->data)
        os_unmap_file(map->data, map->size);
    *map = (struct vka_io_map){0};
}

/* Whether path may be written. */
static enum vka_status check_path(const char *path, char *error)
{
    const enum os_place place = os_look(path);

    if (place == OS_UNKNOWN || (place == OS_NOTHING && !path[os_folder_length(path)]))
        return vka_io_fail_errno(error, path, "write");
    /* A device would be replaced by a file, and an open file by another that nobody reads. */
    if (place != OS_FILE && place != OS_NOTHING)
        return vka_io_fail(error, VKA_IO, path, "not a regular file");
    return VKA_OK;
}

enum vka_status vka_io_replace(const char *path, const struct vka_io_extent *extents, size_t count,
                               char *error)
{
    struct os_draft draft;
    bool good = true;
    enum vka_status status = check_path(path, error);

    if (status)
        return status;
    if (!os_draft_create(&draft, path))
        return vka_io_fail_errno(error, path, "create");
    for (size_t i = 0; i < count && good; i++)
        good = os_draft_write(&draft, extents[i].data, extents[i].size);
    if (!good || !os_draft_keep(&draft))
        status = vka_io_fail_errno(error, path, "write");
    os_draft_discard(&draft);
    return status;
}

enum vka_status vka_io_check_place(const char *path, char *error)
{
    struct os_draft draft;
    enum vka_status status = check_path(path, error);

    if (status)
        return status;
    if (!os_draft_create(&draft, path))
        return vka_io_fail_errno(error, path, "create");
    os_draft_discard(&draft);
    return VKA_OK;
}

enum vka_status vka_file_write(const char *path, const void *data, size_t size, char *error)
{
    if (!path || (!data && size > 0))
        return vka_io_fail(error, VKA_INVALID, path, "path or data is NULL");
    return vka_io_replace(path, &(const struct vka_io_extent){data, size}, 1, error);
}
