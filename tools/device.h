/* The device of a subcommand: opened as its options say, its messages kept, its pipelines cached.
 * SPDX-License-Identifier: MIT */
#ifndef TOOLS_DEVICE_H
#define TOOLS_DEVICE_H

#include "options.h"

struct tool_device {
    struct vka_device *device;
    uint64_t timeout;       /* nanoseconds, for vka_plan_run */
    uint64_t budget;        /* nanoseconds, for vka_plan_info */
    bool validate, caching; /* as the options say */
    bool busy;              /* a wait timed out: the device still works on what it was given */
    unsigned spoken;        /* messages of the validation layer, all printed */
    char sentence[1024];    /* the last error of the library */
    char warning[256];      /* the last warning */
    void *cache;            /* the pipeline cache that was read, and its bytes */
    size_t cache_size;
    char *verdict; /* the verdict that was read, and its bytes */
    size_t verdict_size;
};

/* Opens the device, and names it on stderr unless --device did. Prints why it cannot. */
enum tool_exit tool_device_open(const struct device_options *options, struct tool_device *d);

/* The same without a word: why it cannot is in d->sentence. */
enum vka_status tool_device_try(const struct device_options *options, struct tool_device *d);

/* Prints the library's sentence for a call on this device that failed, and gives the exit code. */
enum tool_exit tool_device_fail(struct tool_device *d, enum vka_status status);

/* Keeps the pipelines for the next time and closes; everything made from the device must have been
 * destroyed. Returns code, or TOOL_FAILED where that was TOOL_OK but the validation layer spoke.
 * A device that is still at work is left to the end of the process, which does not wait for it.
 * Works on a device that was never opened. */
enum tool_exit tool_device_close(struct tool_device *d, enum tool_exit code);

/* All devices in a new array, at least one; prints why not. The caller frees it. */
enum tool_exit tool_device_list(struct vka_device_properties **list, size_t *count);

/* Whether --device TEXT means this device: its index, or a part of its name in any case. NULL means
 * all of them. */
bool tool_device_matches(const struct vka_device_properties *device, const char *text);

#endif
