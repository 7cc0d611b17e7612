#include "core/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct os_folder {
    DIR *dir;
};

/* A shell closes a stream by "<&-" or ">&-". The next file that is opened would take its number, and get what
 * is printed. So /dev/null takes it, opened so that the stream still fails. */
void os_program_begin(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    for (int handle = STDIN_FILENO; handle <= STDERR_FILENO; handle++) {
        const int mode = handle == STDIN_FILENO ? O_WRONLY : O_RDONLY;
        if (fcntl(handle, F_GETFD) < 0 && open("/dev/null", mode) < 0)
            return; /* nothing can be opened here, nor by what follows */
    }
}

bool os_memory_open(struct os_memory *memory)
{
    *memory = (struct os_memory){0};
    memory->stream = open_memstream(&memory->text, &memory->size);
    return memory->stream;
}

bool os_memory_close(struct os_memory *memory)
{
    const bool failed = ferror(memory->stream);
    const bool whole = fclose(memory->stream) == 0 && !failed;
    memory->stream = NULL;
    if (!whole) {
        free(memory->text);
        memory->text = NULL;
    }
    return whole;
}

bool os_cache_folder(const char *name, bool make, char folder[OS_PATH_SIZE])
{
    const char *base = getenv("XDG_CACHE_HOME"), *below = "";
    if (!base || *base != '/') {
        base = getenv("HOME");
        below = "/.cache";
    }
    if (!base || *base != '/')
        return false;
    if (strlen(base) + strlen(below) + strlen(name) + 2 > OS_PATH_SIZE)
        return false;
    snprintf(folder, OS_PATH_SIZE, "%s%s/%s", base, below, name);
    /* All folders of $XDG_CACHE_HOME, none above ~/.cache. */
    for (char *end = folder + (*below ? strlen(base) : 0) + 1; make && *end; end++)
        if (*end == '/') {
            *end = '\0';
            mkdir(folder, 0700);
            *end = '/';
        }
    if (make)
        mkdir(folder, 0700);
    return make || access(folder, R_OK) == 0;
}

const char *os_environment(const char *name)
{
    return getenv(name);
}

bool os_is_terminal(FILE *stream)
{
    return isatty(fileno(stream));
}

struct os_folder *os_folder_open(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir)
        return NULL;
    struct os_folder *folder = malloc(sizeof *folder);
    if (!folder) {
        closedir(dir);
        errno = ENOMEM;
        return NULL;
    }
    folder->dir = dir;
    return folder;
}

const char *os_folder_next(struct os_folder *folder, bool *is_folder)
{
    struct dirent *entry;
    struct stat info;
    while ((entry = readdir(folder->dir))) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        /* Passes over what was deleted since. */
        if (fstatat(dirfd(folder->dir), name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        *is_folder = S_ISDIR(info.st_mode);
        return name;
    }
    return NULL;
}

void os_folder_close(struct os_folder **folder)
{
    if (!*folder)
        return;
    closedir((*folder)->dir);
    free(*folder);
    *folder = NULL;
}
