/* Files that the readers map and the writers replace. */
#ifndef VKA_IO_FILE_H
#define VKA_IO_FILE_H

#include "io/io.h"

struct vka_io_map {
    void *data; /* NULL: nothing is mapped */
    size_t size;
};

/* Maps a regular file, read-only. An empty file leaves map empty. INVALID where path or file, the
 * out-parameter of the reader that asks, is NULL. */
enum vka_status vka_io_map_open(struct vka_io_map *map, const char *path, const void *file,
                                char *error);
void vka_io_map_close(struct vka_io_map *map);

struct vka_io_extent {
    const void *data;
    size_t size;
};

/* Whether vka_io_replace could write path; tries it with an empty file beside path. */
enum vka_status vka_io_check_place(const char *path, char *error);

/* Writes the extents one after the other to path, all or nothing: they are written and synced to a
 * new file beside path, which is then renamed. */
enum vka_status vka_io_replace(const char *path, const struct vka_io_extent *extents, size_t count,
                               char *error);

#endif
