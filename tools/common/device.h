/* The device of a subcommand: opens it by the options, keeps its messages, caches its pipelines.
 * SPDX-License-Identifier: MIT */
#ifndef TOOLS_DEVICE_H
#define TOOLS_DEVICE_H

#include "options.h"

struct tool_device {
    struct vka_device *device;
    uint64_t timeout;       /* nanoseconds, for vka_plan_run */
    uint64_t budget;        /* nanoseconds, for vka_plan_info */
    bool validate, caching; /* from the options */
    bool busy;              /* a wait timed out: the device is still working */
    unsigned spoken;        /* messages of the validation layer, all printed */
    char sentence[1024];    /* the last error of the library */
    char warning[256];      /* the last warning */
    void *cache;            /* the pipeline cache that was read, and its size in bytes */
    size_t cache_size;
    char *tuning_profile; /* the text that was read, and its size in bytes */
    size_t tuning_profile_size;
};

/* Opens the device, and names it on stderr unless --device is given. Prints why it fails. */
enum tool_exit tool_device_open(const struct device_options *options, struct tool_device *d);

/* Opens the device and prints nothing: the reason of a failure is in d->sentence. */
enum vka_status tool_device_try(const struct device_options *options, struct tool_device *d);

/* Prints the library's sentence for a failed call on this device, and returns the exit code. */
enum tool_exit tool_device_fail(struct tool_device *d, enum vka_status status);

/* Prints why a status is not VKA_OK, and returns its exit code: `why` where that is not empty, else
 * the library's sentence. */
enum tool_exit tool_device_result(struct tool_device *d, enum vka_status status, const char *why);

/* Saves the pipelines and closes the device; everything made from it must have been destroyed.
 * Returns code, or TOOL_FAILED if code is TOOL_OK but the validation layer reported something. A
 * device that is still working is left until the process ends, which does not wait for it. Also
 * works if the device was never opened. */
enum tool_exit tool_device_close(struct tool_device *d, enum tool_exit code);

/* Lists all devices in a new array, at least one; prints why it fails. The caller frees it. */
enum tool_exit tool_device_list(struct vka_device_properties **list, size_t *count);

#endif
