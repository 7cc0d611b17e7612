/* The log and the last error of a device. */
#ifndef VKA_CORE_LOG_H
#define VKA_CORE_LOG_H

#include "core/format.h"

#include <vkattn/vkattn.h>

/* Receives sentences: passes them to the application's callback and keeps the last error for
 * vka_device_error. */
struct log {
    vka_log_callback *callback;
    void *user;
    char error[512];
    bool testing; /* a self-test runs: what it finds unsupported is no error of the caller's */
};

/* Formats a sentence and passes it to the callback. */
FORMAT_PRINTF(3, 4)
void log_message(struct log *log, enum vka_log_level level, const char *format, ...);

/* Keeps the sentence as the last error, logs it and returns status, so that a failure is one line:
 *     return log_error(log, VKA_INVALID, "%s: rank is %u, not 1 to 4", __func__, rank); */
FORMAT_PRINTF(3, 4)
enum vka_status log_error(struct log *log, enum vka_status status, const char *format, ...);

/* Keeps the last error of a log for this thread, where there is no device to ask. */
void log_keep(const struct log *log);

/* What this thread kept last, or "". */
const char *log_kept(void);

#endif
