/* Files that are whole or not there. SPDX-License-Identifier: MIT */
#include "file_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool write_all(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0) {
            data += n;
            size -= (size_t)n;
        }
    }
    return true;
}

bool file_replace(const char *path, const void *data, size_t size)
{
    const size_t room = strlen(path) + 32;
    char *beside = malloc(room);
    struct stat info;
    if (!beside)
        return false;
    if (!stat(path, &info) && !S_ISREG(info.st_mode)) {
        free(beside);
        errno = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
        return false;
    }
    snprintf(beside, room, "%s.%ld.tmp", path, (long)getpid());
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool ok = fd >= 0 && write_all(fd, data, size) && !fsync(fd);
    int why = errno;
    if (fd >= 0 && close(fd) && ok) {
        ok = false;
        why = errno;
    }
    if (ok && rename(beside, path)) {
        ok = false;
        why = errno;
    }
    if (!ok && fd >= 0)
        unlink(beside);
    free(beside);
    errno = why;
    return ok;
}
