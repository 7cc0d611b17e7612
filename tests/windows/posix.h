/* What tests use of POSIX, for Windows: put before every source of a test there, by the compiler's
 * -include. What has no counterpart is not here; such tests say so, and are skipped. */
#ifndef TESTS_WINDOWS_POSIX_H
#define TESTS_WINDOWS_POSIX_H

#include <direct.h>
#include <io.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#ifndef TIME_UTC
#define TIME_UTC 1
static inline int timespec_get(struct timespec *now, int base)
{
    return clock_gettime(CLOCK_REALTIME, now) == 0 ? base : 0;
}
#endif

/* Most bytes in the name of a file in a folder: longer ones are refused. */
#ifdef NAME_MAX
#undef NAME_MAX
#endif
#define NAME_MAX 255

#define mkdir(path, mode) _mkdir(path)
#define unlink(path) windows_unlink(path)
#define geteuid() 0 /* a folder's mode keeps nobody out */

/* Removes a file, whose path may have any length. */
int windows_unlink(const char *path);

/* For the process and its C library. */
int setenv(const char *name, const char *value, int replace);
int unsetenv(const char *name);

/* Makes a folder; fills in the six X at the end of its name. */
char *mkdtemp(char *name);

#endif
