/* What callers of functions that return a status write: a check, a call or an allocation, in a line. */
#ifndef VKA_CORE_STATUS_H
#define VKA_CORE_STATUS_H

#include "core/log.h"

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

/* These are for functions that have nothing to release: they return at once, and need `log` alone. */
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
