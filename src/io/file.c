/* Files of vkattn_io: mapped for reading, replaced as a whole for writing.
 * SPDX-License-Identifier: MIT */
#include "io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum vka_status vka_io_map_open(struct vka_io_map *map, const char *path, char *error)
{
    enum vka_status status = VKA_OK;
    struct stat info;
    int fd;

    *map = (struct vka_io_map){0};
    /* O_NONBLOCK: opening a pipe must not wait for its writer. */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) != 0) {
        status = vka_io_fail_errno(error, path, "open");
        goto fail;
    }
    if (!S_ISREG(info.st_mode)) {
        status = vka_io_fail(error, VKA_IO, path, "not a regular file");
        goto fail;
    }
    if ((uintmax_t)info.st_size > PTRDIFF_MAX) {
        status = vka_io_fail(error, VKA_IO, path, "the file is larger than the address space");
        goto fail;
    }
    if (info.st_size > 0) {
        void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

        if (data == MAP_FAILED)
            status = vka_io_fail_errno(error, path, "map");
        else
            *map = (struct vka_io_map){data, (size_t)info.st_size};
    }
fail:
    if (fd >= 0)
        close(fd);
    return status;
}

void vka_io_map_close(struct vka_io_map *map)
{
    if (map->data)
        munmap(map->data, map->size);
    *map = (struct vka_io_map){0};
}

size_t vka_io_folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Whether path may be written; *there: whether a file exists there, then *info describes it. */
static enum vka_status look_at(const char *path, struct stat *info, bool *there, char *error)
{
    char target[8];
    size_t folder = vka_io_folder_length(path);
    /* Does not replace an open file that /dev/stdout leads to, even if it is a regular file. */
    bool open_file = readlink(path, target, sizeof target) == (ssize_t)sizeof target &&
                     memcmp(target, "/proc/", 6) == 0;

    *there = stat(path, info) == 0;
    if (!*there && (errno != ENOENT || !path[folder]))
        return vka_io_fail_errno(error, path, "write");
    /* A rename would replace a device by a file. */
    if (open_file || (*there && !S_ISREG(info->st_mode)))
        return vka_io_fail(error, VKA_IO, path, "not a regular file");
    return VKA_OK;
}

/* Makes a new file with these permissions in the folder of path, and its name. The name is short,
 * as that of path may already be the longest that the folder allows. On failure -1, errno and no
 * name. */
static int create_beside(const char *path, mode_t mode, char **name)
{
    static atomic_uint serial; /* two threads of a process never try the same name */
    const size_t folder = vka_io_folder_length(path), size = folder + 48;
    int fd = -1;

    *name = malloc(size);
    if (!*name) {
        errno = ENOMEM;
        return -1;
    }
    memcpy(*name, path, folder);
    /* The name only exists if a process with the same id died while it wrote. */
    for (int attempt = 0; attempt < 1000 && fd < 0; attempt++) {
        snprintf(*name + folder, size - folder, ".vka-%ld-%u.tmp", (long)getpid(),
                 atomic_fetch_add(&serial, 1));
        fd = open(*name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0) {
        int code = errno;

        free(*name);
        *name = NULL;
        errno = code;
    }
    return fd;
}

static bool write_all(int fd, const struct vka_io_chunk *chunk)
{
    const size_t most = (size_t)1 << 30; /* bytes that every system accepts in one call */
    const char *data = chunk->data;

    for (size_t done = 0; done < chunk->size;) {
        size_t left = chunk->size - done;
        ssize_t n = write(fd, data + done, left < most ? left : most);

        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0)
            done += (size_t)n;
    }
    return true;
}

enum vka_status vka_io_replace(const char *path, const struct vka_io_chunk *chunks, size_t count,
                               char *error)
{
    struct stat info;
    char *name = NULL;
    bool replaces;
    enum vka_status status = look_at(path, &info, &replaces, error);
    mode_t mode = replaces ? info.st_mode & 0777 : 0666;
    int fd = -1;

    if (status)
        return status;
    fd = create_beside(path, mode, &name);
    if (fd < 0)
        return vka_io_fail_errno(error, path, "create");
    /* The new file gets the permissions of the old one, whatever the umask is. */
    if (replaces && fchmod(fd, mode) != 0)
        goto fail;
    for (size_t i = 0; i < count; i++) {
        if (!write_all(fd, &chunks[i]))
            goto fail;
    }
    /* After a power cut either the old or the new file exists: the folder is not synced. */
    if (fsync(fd) != 0)
        goto fail;
    if (close(fd) != 0) {
        fd = -1;
        goto fail;
    }
    fd = -1;
    if (rename(name, path) != 0)
        goto fail;
    free(name);
    return VKA_OK;
fail:
    status = vka_io_fail_errno(error, path, "write");
    if (fd >= 0)
        close(fd);
    unlink(name);
    free(name);
    return status;
}

enum vka_status vka_io_check_place(const char *path, char *error)
{
    struct stat info;
    char *name;
    bool replaces;
    enum vka_status status = look_at(path, &info, &replaces, error);
    int fd;

    if (status)
        return status;
    fd = create_beside(path, 0600, &name);
    if (fd < 0)
        return vka_io_fail_errno(error, path, "create");
    close(fd);
    unlink(name);
    free(name);
    return VKA_OK;
}

enum vka_status vka_file_write(const char *path, const void *data, size_t size, char *error)
{
    if (!path || (!data && size > 0))
        return vka_io_fail(error, VKA_INVALID, path, "path or data is NULL");
    return vka_io_replace(path, &(const struct vka_io_chunk){data, size}, 1, error);
}
