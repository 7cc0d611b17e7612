/* What the system gives: process, time, threads, files, and for programs the user's folders. Each
 * system implements this header in files os_<system>*.c; no other file asks a system.
 *
 * A function that can fail returns false or NULL and sets errno; os_error_text has the words for
 * it. Any thread may call any function; a stream, draft or folder belongs to one thread at a time.
 * A path is UTF-8 on Windows and any bytes elsewhere. */
#ifndef VKA_CORE_OS_H
#define VKA_CORE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#ifndef _WIN32
#include <pthread.h>
#endif

/* ---- Process, time, threads (os_posix.c) ------------------------------------------------------ */

/* Identifies the process: a forked child has another number. */
long os_process(void);

/* The time on a clock that nobody sets, from an unknown start: in nanoseconds, and for measuring in
 * milliseconds. */
uint64_t os_now(void);
double os_now_ms(void);

/* Sleeps for so many nanoseconds, or until a signal. */
void os_sleep(uint64_t ns);

/* Lets another thread have the core. */
void os_yield(void);

/* Cores in use on this machine, at least 1. */
unsigned os_n_core(void);

/* Runs function(context) on this thread and on up to n - 1 others, and returns when all are done.
 * There are fewer others, or none, if the system starts no more; OS_MAX_THREADS in all. So the
 * function takes its work from context item by item, until nothing is left. */
#define OS_MAX_THREADS 16
void os_run_threads(size_t n, void (*function)(void *context), void *context);

/* A lock that one thread holds, and does not take twice. A static one is initialised by
 * OS_MUTEX_INIT and never destroyed. */
#ifdef _WIN32
struct os_mutex {
    void *lock; /* an SRWLOCK, which is one pointer */
};
#define OS_MUTEX_INIT \
    {                 \
        NULL          \
    }
#else
struct os_mutex {
    pthread_mutex_t lock; /* the system's own type */
};
#define OS_MUTEX_INIT             \
    {                             \
        PTHREAD_MUTEX_INITIALIZER \
    }
#endif
void os_mutex_lock(struct os_mutex *mutex);
void os_mutex_unlock(struct os_mutex *mutex);

/* ---- Files (os_posix_file.c) ------------------------------------------------------------------ */

/* Writes the words for a value of errno to text[size], cut if need be. */
void os_error_text(int code, char *text, size_t size);

/* Bytes of path before the name of the file; 0: path names no folder. */
size_t os_folder_length(const char *path);

/* What a path leads to, links followed. */
enum os_place {
    OS_UNKNOWN, /* it cannot be told; errno says why */
    OS_NOTHING, /* no such file or folder; errno says so */
    OS_FILE,    /* a regular file */
    OS_FOLDER,
    OS_OTHER /* a device, a pipe, or a name for a file that is open, as /dev/stdout is */
};
enum os_place os_look(const char *path);

/* Whether both paths lead to the same existing file or folder. */
bool os_same_file(const char *a, const char *b);

/* Opens a file for reading; the caller closes it by fclose. Does not wait for the writer of a pipe.
 * *size: its bytes, OS_NO_SIZE for anything but a regular file. */
#define OS_NO_SIZE UINT64_MAX
FILE *os_open_file(const char *path, uint64_t *size);

/* Maps the first size bytes, at least 1, of an open file to read them, and keeps them when the file
 * is closed. The mapping begins at a page. A program that shortens the file makes reads crash. */
void *os_map_file(FILE *file, size_t size);
void os_unmap_file(void *data, size_t size);

/* A file that is written under a name of its own beside path, and takes the place of path when it
 * is whole. Programs that have the old file open keep it; on Windows, where one has it mapped, the
 * draft cannot be kept (EACCES). Every draft that was created is
 * discarded, at any time:
 *
 *     bool done = os_draft_write(&draft, data, size) && os_draft_keep(&draft);
 *     os_draft_discard(&draft);
 */
struct os_draft {
    const char *path;
    char *name;      /* NULL: there is no such file any more */
    int handle;      /* -1: closed */
    int permissions; /* of the file at path, which the new one gets; -1: there is none */
};

/* path: as long as the draft is used. On failure there is nothing to discard. */
bool os_draft_create(struct os_draft *draft, const char *path);
bool os_draft_write(struct os_draft *draft, const void *data, size_t size);

/* Ends writing: after a power cut, path is either the old file or the whole new one. */
bool os_draft_keep(struct os_draft *draft);

/* Deletes the file unless it was kept. Leaves errno alone. */
void os_draft_discard(struct os_draft *draft);

/* ---- Programs alone: the library does not contain these (os_posix_program.c) ------------------ */

#define OS_PATH_SIZE 4096 /* bytes of a path with its NUL */

/* The first thing that a program does: its arguments become UTF-8, and what it prints is neither
 * converted nor given other ends of lines. No file that is opened later takes the place of a standard
 * stream that is closed, which goes on failing. Changes nothing where that is so anyway. */
void os_program_begin(int *argc, char ***argv);

/* What is written to stream, as one text with a NUL after its size bytes. The struct stays in its
 * place until it is closed. */
struct os_memory {
    FILE *stream;
    char *text; /* the caller frees it */
    size_t size;
};
bool os_memory_open(struct os_memory *memory);

/* Ends the stream. False: not all was kept, and text is NULL. */
bool os_memory_close(struct os_memory *memory);

/* The folder `name` in the user's cache folder. False, errno unset: the user has none or, unless it
 * is made, it cannot be read. One that cannot be made fails when a file is written there. */
bool os_cache_folder(const char *name, bool make, char folder[OS_PATH_SIZE]);

/* A variable of the environment, until a thread sets it or asks again; NULL: there is none. */
const char *os_environment(const char *name);

/* Whether a stream writes to a terminal. */
bool os_is_terminal(FILE *stream);

/* The names in a folder, in any order, without "." and "..". */
struct os_folder;
struct os_folder *os_folder_open(const char *path);

/* The next name, which stays until the next call; NULL: no more. *is_folder: false for a link to a
 * folder. */
const char *os_folder_next(struct os_folder *folder, bool *is_folder);
void os_folder_close(struct os_folder **folder);

#endif
