/* The device of a subcommand. SPDX-License-Identifier: MIT */
#include "device.h"

#include "cache_file.h"

#include "core/os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keeps the sentence until the command decides what the failure means: `check` skips a case where
 * other commands report an error. */
static void keep_message(void *user, enum vka_log_level level, const char *message)
{
    struct tool_device *d = user;
    /* A failed self-test of a kernel is printed at once, whatever the command does. */
    if (level == VKA_LOG_WARNING && !strncmp(message, "kernel ", strlen("kernel ")))
        fprintf(stderr, "device: %s\n", message);
    else if (level == VKA_LOG_WARNING)
        snprintf(d->warning, sizeof d->warning, "%s", message);
    if (level != VKA_LOG_ERROR)
        return;
    if (d->validate && !strncmp(message, "validation: ", strlen("validation: "))) {
        d->spoken++;
        fprintf(stderr, "%s\n", message);
        return;
    }
    snprintf(d->sentence, sizeof d->sentence, "%s", message);
}

enum tool_exit tool_device_fail(struct tool_device *d, enum vka_status status)
{
    d->busy = d->busy || status == VKA_TIMEOUT;
    tool_error("%s", *d->sentence ? d->sentence : vka_status_name(status));
    return tool_exit_of(status);
}

enum tool_exit tool_device_result(struct tool_device *d, enum vka_status status, const char *why)
{
    if (status == VKA_OK)
        return TOOL_OK;
    if (*why == '\0')
        return tool_device_fail(d, status);
    tool_error("%s", why);
    return tool_exit_of(status);
}

/* Reads the files of the device: its pipelines, and its tuning profile unless the options name
 * another. False if the file that they name cannot be read. */
static bool load_files(const struct device_options *options, struct tool_device *d)
{
    struct cache_paths paths = {"", ""};
    const char *profile = options->tuning_profile ? options->tuning_profile : paths.tuning_profile;
    bool none = options->profile_text || !strcmp(profile, "none");
    char why[96] = "not a regular file, empty, or larger than a profile";
    if (d->caching || (!options->tuning_profile && !none))
        cache_paths_guess(options->device, &paths);
    if (d->caching)
        d->cache = cache_file_load(paths.pipelines, &d->cache_size);
    errno = 0;
    if (!none)
        d->tuning_profile = cache_file_load(profile, &d->tuning_profile_size);
    if (!options->tuning_profile || none || d->tuning_profile)
        return true;
    if (errno)
        os_error_text(errno, why, sizeof why);
    snprintf(d->sentence, sizeof d->sentence, "--tuning-profile: %.800s: cannot be read: %s",
             profile, why);
    return false;
}

enum vka_status tool_device_try(const struct device_options *options, struct tool_device *d)
{
    *d = (struct tool_device){
        .timeout = options->timeout_s * 1000000000ull,
        .budget = options->budget_ms ? options->budget_ms * 1000000ull : VKA_NO_BUDGET,
        .validate = options->validate,
        .caching = !options->no_cache,
    };
    const char *text = options->profile_text;
    if (!load_files(options, d))
        return VKA_IO;
    return vka_device_create(
        VKA_INFO(vka_device_info, .device = options->device, .log = keep_message, .log_user = d,
                 .pipeline_cache = d->cache, .pipeline_cache_size = d->cache_size,
                 .tuning_profile = text ? text : d->tuning_profile,
                 .tuning_profile_size = text ? strlen(text) : d->tuning_profile_size,
                 .validation = options->validate, .labels = options->validate,
                 .skip_self_test = options->no_self_test,
                 .max_buffer_range = (uint64_t)options->limits[0],
                 .max_allocation = (uint64_t)options->limits[1]),
        &d->device);
}

enum tool_exit tool_device_open(const struct device_options *options, struct tool_device *d)
{
    enum vka_status status = tool_device_try(options, d);
    if (status != VKA_OK)
        return tool_device_fail(d, status);
    if (!options->device) {
        const struct vka_device_properties *p = vka_device_properties(d->device);
        fprintf(stderr, "device: %s (%s)\n", p->name, p->driver);
    }
    if (*d->warning && options->tuning_profile) {
        tool_error("--tuning-profile: %.200s: %s", options->tuning_profile, d->warning);
        return TOOL_USAGE;
    }
    if (*d->warning)
        fprintf(stderr, "device: %s\n", d->warning);
    return TOOL_OK;
}

enum tool_exit tool_device_close(struct tool_device *d, enum tool_exit code)
{
    if (d->busy) {
        /* Drivers crash if the objects that they work on are destroyed, or wait for the work in
         * their exit handlers, which may take hours. */
        fflush(stdout);
        _Exit(code);
    }
    if (d->device && d->caching)
        cache_file_save(d->device, d->cache, d->cache_size);
    vka_device_destroy(&d->device);
    free(d->cache);
    free(d->tuning_profile);
    d->cache = NULL;
    d->tuning_profile = NULL;
    if (code == TOOL_OK && d->spoken) {
        tool_error("the validation layer reported %u messages", d->spoken);
        return TOOL_FAILED;
    }
    return code;
}

enum tool_exit tool_device_list(struct vka_device_properties **list, size_t *count)
{
    struct tool_device d = {0};
    const struct vka_device_info *info =
        VKA_INFO(vka_device_info, .log = keep_message, .log_user = &d);
    *list = NULL;
    *count = 0;
    enum vka_status status = vka_device_list(info, NULL, count);
    if (status != VKA_OK)
        return tool_device_fail(&d, status);
    size_t room = *count;
    *list = calloc(room ? room : 1, sizeof **list);
    if (!*list) {
        tool_error("out of memory");
        return TOOL_MEMORY;
    }
    status = vka_device_list(info, *list, count);
    if (status != VKA_OK) {
        free(*list);
        *list = NULL;
        return tool_device_fail(&d, status);
    }
    if (*count > room)
        *count = room;
    return TOOL_OK;
}
