/* Statuses, the log and the last error of a device. */
#ifndef VKA_CORE_STATUS_H
#define VKA_CORE_STATUS_H

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

/* For functions with `status`, `log` and a label `fail`. CHECK_ARG checks an argument; TRY calls a
 * function that has already logged why it fails. */
#define CHECK_ARG(expr, ...)                                   \
    do {                                                       \
        if (!(expr)) {                                         \
            status = log_error(log, VKA_INVALID, __VA_ARGS__); \
            goto fail;                                         \
        }                                                      \
    } while (0)
#define TRY(call)             \
    do {                      \
        status = (call);      \
        if (status != VKA_OK) \
            goto fail;        \
    } while (0)
#define CHECK_ALLOC(pointer)                                                                     \
    do {                                                                                         \
        if (!(pointer)) {                                                                        \
            status = log_error(log, VKA_OUT_OF_HOST_MEMORY, "%s: out of host memory", __func__); \
            goto fail;                                                                           \
        }                                                                                        \
    } while (0)

/* The same for functions that have nothing to release: they return at once, and need `log` alone. */
#define ENSURE_ARG(expr, ...)                                \
    do {                                                     \
        if (!(expr))                                         \
            return log_error(log, VKA_INVALID, __VA_ARGS__); \
    } while (0)
#define ENSURE(call)                      \
    do {                                  \
        enum vka_status ensured = (call); \
        if (ensured != VKA_OK)            \
            return ensured;               \
    } while (0)
#define ENSURE_ALLOC(pointer)                                                                  \
    do {                                                                                       \
        if (!(pointer))                                                                        \
            return log_error(log, VKA_OUT_OF_HOST_MEMORY, "%s: out of host memory", __func__); \
    } while (0)

#define COUNTOF(array) (sizeof(array) / sizeof((array)[0]))

#endif
