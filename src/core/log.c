#include "core/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local struct log kept; /* its error alone */

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
    const bool info = log->testing && status == VKA_UNSUPPORTED;
    if (log->callback)
        log->callback(log->user, info ? VKA_LOG_INFO : VKA_LOG_ERROR, log->error);
    return status;
}

void log_keep(const struct log *log)
{
    memcpy(kept.error, log->error, sizeof kept.error);
}

const char *log_kept(void)
{
    return kept.error;
}
