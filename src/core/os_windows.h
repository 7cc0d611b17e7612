/* What the files os_windows*.c share: UTF-8 and the system's 16-bit characters. */
#ifndef VKA_CORE_OS_WINDOWS_H
#define VKA_CORE_OS_WINDOWS_H

#include <wchar.h>

/* A path as the system takes it: a long one with the prefix that lifts the limit of 260 characters.
 * The caller frees it. NULL, errno: it is not UTF-8, or out of memory. */
wchar_t *os_windows_wide(const char *path);

/* UTF-8 for what the system gave; the caller frees it. NULL, errno: out of memory. */
char *os_windows_utf8(const wchar_t *text);

/* Sets errno to what GetLastError says. */
void os_windows_set_errno(void);

#endif
