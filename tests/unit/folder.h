/* A folder of a test's own, in the working directory. SPDX-License-Identifier: MIT */
#ifndef TESTS_FOLDER_H
#define TESTS_FOLDER_H

#include <limits.h>

/* A device that is no regular file. */
#ifdef _WIN32
#define NOWHERE "NUL"
#else
#define NOWHERE "/dev/null"
#endif

/* Letters of several scripts, in the names of files and folders and in variables. */
#define LETTERS "\xc3\xa9\xd0\x96\xe6\xbc\xa2"

extern char folder[PATH_MAX]; /* its path, with nothing in it between tests */

/* For cmocka, around all tests: the path is relative, or absolute. The last one fails where something
 * is left in the folder. */
int folder_set_up(void **state);
int folder_set_up_absolute(void **state);
int folder_tear_down(void **state);

/* The path of a name in the folder, for 15 more calls. */
const char *in_folder(const char *name);

/* What stands in the folder, beside . and .. */
unsigned count_files(void);

#endif
