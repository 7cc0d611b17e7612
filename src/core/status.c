#include "core/status.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *vka_status_name(enum vka_status status)
{
    static const char *const names[] = {
        "VKA_OK",
        "VKA_INVALID",
        "VKA_UNSUPPORTED",
        "VKA_NO_DEVICE",
        "VKA_OUT_OF_HOST_MEMORY",
        "VKA_OUT_OF_DEVICE_MEMORY",
        "VKA_TIMEOUT",
        "VKA_DEVICE_LOST",
        "VKA_IO",
        "VKA_INTERNAL",
    };
    static_assert(COUNTOF(names) == VKA_STATUS_COUNT, "a name for each status");
    return (unsigned)status < COUNTOF(names) ? names[status] : "unknown status";
}

void log_message(struct log *log, enum vka_log_level level, const char *format, ...)
{
    if (!log->callback)
        return;
    char text[sizeof log->error];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    log->callback(log->user, level, text);
}

enum vka_status log_error(struct log *log, enum vka_status status, const char *format, ...)
{
    char text[sizeof log->error]; /* the arguments may point into log->error */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    memcpy(log->error, text, sizeof text);
    if (log->callback)
        log->callback(log->user, VKA_LOG_ERROR, log->error);
    return status;
}
