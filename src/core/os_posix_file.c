#define _FILE_OFFSET_BITS 64 /* files of 2 GiB and more where off_t would have 32 bits */

#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PERMISSIONS 0777

void os_error_text(int code, char *text, size_t size)
{
    if (strerror_r(code, text, size) != 0)
        snprintf(text, size, "error %d", code);
}

size_t os_folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Whether path is a link into the table of open files. */
static bool is_open_file(const char *path)
{
    char target[6];
    return readlink(path, target, sizeof target) == (ssize_t)sizeof target &&
           memcmp(target, "/proc/", sizeof target) == 0;
}

enum os_place os_look(const char *path)
{
    struct stat info;
    bool there = stat(path, &info) == 0;
    if (!there && errno != ENOENT)
        return OS_UNKNOWN;
    if (there && S_ISDIR(info.st_mode))
        return OS_FOLDER;
    if (is_open_file(path) || (there && !S_ISREG(info.st_mode)))
        return OS_OTHER;
    errno = ENOENT; /* is_open_file has another reason */
    return there ? OS_FILE : OS_NOTHING;
}

bool os_same_file(const char *a, const char *b)
{
    struct stat info[2];
    return stat(a, &info[0]) == 0 && stat(b, &info[1]) == 0 && info[0].st_dev == info[1].st_dev &&
           info[0].st_ino == info[1].st_ino;
}

/* Closes without a word: errno tells of what failed before. */
static void close_quietly(int handle)
{
    int code = errno;
    close(handle);
    errno = code;
}

FILE *os_open_file(const char *path, uint64_t *size)
{
    struct stat info;
    FILE *file = NULL;
    /* O_NONBLOCK: opening a pipe must not wait for its writer. */
    int handle = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (handle < 0)
        return NULL;
    if (fstat(handle, &info) == 0)
        file = fdopen(handle, "rb");
    if (file)
        *size = S_ISREG(info.st_mode) ? (uint64_t)info.st_size : OS_NO_SIZE;
    else
        close_quietly(handle);
    return file;
}

void *os_map_file(FILE *file, size_t size)
{
    void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fileno(file), 0);
    return data == MAP_FAILED ? NULL : data;
}

void os_unmap_file(void *data, size_t size)
{
    munmap(data, size);
}

/* The name is short, as that of path may already be the longest that the folder allows. */
bool os_draft_create(struct os_draft *draft, const char *path)
{
    static atomic_uint serial; /* two threads of a process never try the same name */
    const size_t folder = os_folder_length(path), size = folder + 48;
    struct stat info;
    *draft = (struct os_draft){.path = path, .handle = -1, .permissions = -1};
    if (stat(path, &info) == 0)
        draft->permissions = (int)(info.st_mode & PERMISSIONS);
    mode_t mode = draft->permissions < 0 ? 0666 : (mode_t)draft->permissions;
    draft->name = malloc(size);
    if (!draft->name) {
        errno = ENOMEM;
        return false;
    }
    memcpy(draft->name, path, folder);
    /* The name only exists if a process with the same id died while it wrote. */
    for (int attempt = 0; attempt < 1000 && draft->handle < 0; attempt++) {
        snprintf(draft->name + folder, size - folder, ".vka-%ld-%u.tmp", (long)getpid(),
                 atomic_fetch_add(&serial, 1));
        draft->handle = open(draft->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (draft->handle < 0 && errno != EEXIST)
            break;
    }
    if (draft->handle >= 0)
        return true;
    int code = errno;
    free(draft->name);
    draft->name = NULL;
    errno = code;
    return false;
}

bool os_draft_write(struct os_draft *draft, const void *data, size_t size)
{
    const size_t most = (size_t)1 << 30; /* bytes that every system accepts in one call */
    for (size_t done = 0; done < size;) {
        size_t left = size - done;
        ssize_t n = write(draft->handle, (const char *)data + done, left < most ? left : most);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0)
            done += (size_t)n;
    }
    return true;
}

bool os_draft_keep(struct os_draft *draft)
{
    int handle = draft->handle;
    /* The new file gets the permissions of the old one, whatever the umask is. */
    if (draft->permissions >= 0 && fchmod(handle, (mode_t)draft->permissions) != 0)
        return false;
    if (fsync(handle) != 0) /* the folder is not synced: the old file may come back */
        return false;
    draft->handle = -1;
    if (close(handle) != 0 || rename(draft->name, draft->path) != 0)
        return false;
    free(draft->name);
    draft->name = NULL;
    return true;
}

void os_draft_discard(struct os_draft *draft)
{
    int code = errno;
    if (draft->handle >= 0)
        close(draft->handle);
    if (draft->name)
        unlink(draft->name);
    free(draft->name);
    *draft = (struct os_draft){.handle = -1};
    errno = code;
}
