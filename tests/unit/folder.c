#include "folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char folder[PATH_MAX];

int folder_set_up(void **state)
{
    (void)state;
    strcpy(folder, "test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

int folder_set_up_absolute(void **state)
{
    char name[] = "test-XXXXXX";
    (void)state;
    if (!mkdtemp(name) || !getcwd(folder, sizeof folder - sizeof name - 1))
        return -1;
    strcat(folder, "/");
    strcat(folder, name);
    return 0;
}

int folder_tear_down(void **state)
{
    (void)state;
    return rmdir(folder);
}

const char *in_folder(const char *name)
{
    static char paths[16][PATH_MAX + 512];
    static unsigned turn;
    char *path = paths[turn++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

unsigned count_files(void)
{
    DIR *dir = opendir(folder);
    unsigned count = 0;
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count - 2;
}
