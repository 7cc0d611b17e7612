#include "posix.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <windows.h>

int setenv(const char *name, const char *value, int replace)
{
    if (!replace && getenv(name))
        return 0;
    /* _putenv_s takes an empty value for none, and Windows knows no other. */
    return _putenv_s(name, value) == 0 ? 0 : -1;
}

int windows_unlink(const char *path)
{
    wchar_t wide[2048], whole[4096] = L"\\\\?\\";
    if (!MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, 2048) ||
        !GetFullPathNameW(wide, 4000, whole + 4, NULL) || !DeleteFileW(whole)) {
        errno = ENOENT;
        return -1;
    }
    return 0;
}

int unsetenv(const char *name)
{
    return _putenv_s(name, "") == 0 ? 0 : -1;
}

char *mkdtemp(char *name)
{
    static unsigned serial;
    const size_t length = strlen(name);
    if (length < 6 || strcmp(name + length - 6, "XXXXXX") != 0)
        return NULL;
    for (int attempt = 0; attempt < 100; attempt++) {
        const unsigned n = (unsigned)GetCurrentProcessId() * 31 + serial++;
        snprintf(name + length - 6, 7, "%06u", n % 1000000);
        if (_mkdir(name) == 0)
            return name;
        if (errno != EEXIST)
            return NULL;
    }
    return NULL;
}
