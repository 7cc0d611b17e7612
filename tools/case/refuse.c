#include "refuse.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

enum vka_status case_refuse(const struct case_where *at, const char *format, ...)
{
    if (!at->error)
        return VKA_IO;
    int length = snprintf(at->error, VKA_IO_ERROR_SIZE, "%s: ", at->path);
    if (length >= 0 && length < VKA_IO_ERROR_SIZE) {
        va_list args;
        va_start(args, format);
        vsnprintf(at->error + length, VKA_IO_ERROR_SIZE - (size_t)length, format, args);
        va_end(args);
    }
    for (char *c = at->error; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = '?';
    return VKA_IO;
}

enum vka_status case_no_memory(const struct case_where *at)
{
    case_refuse(at, "out of memory");
    return VKA_OUT_OF_HOST_MEMORY;
}
