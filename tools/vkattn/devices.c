/* vkattn devices: lists the devices, what they can do and which kernels they can run.
 * SPDX-License-Identifier: MIT */
#include "commands.h"
#include "common/device.h"
#include "common/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNTOF(array) (sizeof(array) / sizeof(array)[0])

static const char *type_name(enum vka_device_type type)
{
    switch (type) {
    case VKA_DEVICE_CPU:
        return "cpu";
    case VKA_DEVICE_VIRTUAL:
        return "virtual";
    case VKA_DEVICE_INTEGRATED:
        return "integrated";
    case VKA_DEVICE_DISCRETE:
        return "discrete";
    case VKA_DEVICE_OTHER:
    case VKA_DEVICE_TYPE_COUNT:
        break;
    }
    return "other";
}

/* The features, by the names that both outputs use. */
struct feature {
    const char *name;
    size_t offset; /* of a bool in struct vka_device_properties */
};

static const struct feature features[] = {
    {"storage16", offsetof(struct vka_device_properties, storage16)},
    {"float16", offsetof(struct vka_device_properties, float16)},
    {"bfloat16", offsetof(struct vka_device_properties, bfloat16)},
    {"subgroup_arithmetic", offsetof(struct vka_device_properties, subgroup_arithmetic)},
    {"subgroup_ballot", offsetof(struct vka_device_properties, subgroup_ballot)},
    {"timeline", offsetof(struct vka_device_properties, timeline)},
    {"timestamps", offsetof(struct vka_device_properties, timestamps)},
    {"mapped_memory", offsetof(struct vka_device_properties, mapped_memory)},
};

static bool has_feature(const struct vka_device_properties *p, const struct feature *feature)
{
    return *(const bool *)((const char *)p + feature->offset);
}

static void print_features(const struct vka_device_properties *p, bool present)
{
    const char *gap = "";
    printf("  %-10s ", present ? "has" : "lacks");
    for (size_t i = 0; i < COUNTOF(features); i++) {
        if (has_feature(p, &features[i]) != present)
            continue;
        printf("%s%s", gap, features[i].name);
        gap = ", ";
    }
    if (!present && !p->cooperative_matrix_count)
        printf("%scooperative_matrix", gap);
    else if (!*gap)
        printf("nothing");
    putchar('\n');
}

/* 1536 -> "1.5 KiB" */
static void print_bytes(uint64_t bytes, const char *after)
{
    static const char *const suffixes[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double x = (double)bytes;
    size_t suffix = 0;
    while (x >= 1024 && suffix + 1 < COUNTOF(suffixes)) {
        x /= 1024;
        suffix++;
    }
    printf("%.*f %s%s", x < 10 && suffix ? 1 : 0, x, suffixes[suffix], after);
}

static size_t matrices_listed(const struct vka_device_properties *p)
{
    size_t room = COUNTOF(p->cooperative_matrix);
    return p->cooperative_matrix_count < room ? p->cooperative_matrix_count : room;
}

/* Whether GPUs have run vkattn by this driver: docs/gpus.md. Tests run on CPU drivers. */
static const char *experience(const struct vka_device_properties *p)
{
    if (p->type == VKA_DEVICE_CPU)
        return "by the tests, as a CPU driver";
    return strncmp(p->driver, "NVIDIA ", 7) == 0
               ? "by NVIDIA's driver on an H100 and an H200"
               : "never by this driver: try vkattn devices --self-test first";
}

static void print_matrices(const struct vka_device_properties *p)
{
    for (size_t i = 0; i < matrices_listed(p); i++)
        printf("  %-10s %ux%ux%u %s\n", i ? "" : "matrices", p->cooperative_matrix[i].m,
               p->cooperative_matrix[i].n, p->cooperative_matrix[i].k,
               p->cooperative_matrix[i].types);
    if (p->cooperative_matrix_count > matrices_listed(p))
        printf("  %-10s and %zu more\n", "", p->cooperative_matrix_count - matrices_listed(p));
}

/* Prints six lines. */
static void print_properties(const struct vka_device_properties *p)
{
    printf("%" PRIu32 ": %s (%s)\n", p->index, p->name, type_name(p->type));
    printf("  %-10s %s, Vulkan %u.%u.%u\n", "driver", p->driver, p->api_version >> 22 & 127,
           p->api_version >> 12 & 1023, p->api_version & 4095);
    printf("  %-10s ", "memory");
    print_bytes(p->memory, ", ");
    print_bytes(p->max_allocation, " an allocation, ");
    print_bytes(p->max_buffer_range, " a binding\n");
    printf("  %-10s %" PRIu32 " invocations in subgroups of %" PRIu32 ", ", "workgroup",
           p->max_workgroup, p->subgroup_size);
    print_bytes(p->max_shared_memory, " shared\n");
    print_features(p, true);
    print_features(p, false);
}

/* Prints a line for each kernel; `why` is the sentence of a device that cannot be made. */
static void print_kernels(struct vka_device *device, const char *why)
{
    struct vka_kernel_info kernel;
    if (!device) {
        printf("  %-10s none: %s\n", "kernels", why);
        return;
    }
    for (size_t i = 0; i < vka_kernel_count(); i++) {
        if (vka_device_kernel(device, i, &kernel) != VKA_OK)
            continue;
        const char *refused = kernel.missing ? NULL : kernel.refused;
        const char *state = kernel.tested ? "usable, right in its self-test" : "usable";
        printf("  %-10s %-28s %s%s%s\n", i ? "" : "kernels", kernel.name,
               kernel.missing ? kernel.missing : state, refused ? "; a pipeline of it " : "",
               refused ? refused : "");
    }
}

static json_t *properties_json(const struct vka_device_properties *p)
{
    char api[32];
    snprintf(api, sizeof api, "%u.%u.%u", p->api_version >> 22 & 127, p->api_version >> 12 & 1023,
             p->api_version & 4095);
    json_t *o = json_object();
    json_object_set_new(o, "index", json_integer(p->index));
    json_object_set_new(o, "name", json_text(p->name));
    json_object_set_new(o, "type", json_text(type_name(p->type)));
    json_object_set_new(o, "driver", json_text(p->driver));
    json_object_set_new(o, "vulkan", json_text(api));
    json_object_set_new(o, "vendor_id", json_integer(p->vendor_id));
    json_object_set_new(o, "device_id", json_integer(p->device_id));
    json_object_set_new(o, "driver_version", json_integer(p->driver_version));
    json_object_set_new(o, "memory", json_integer((json_int_t)p->memory));
    json_object_set_new(o, "max_allocation", json_integer((json_int_t)p->max_allocation));
    json_object_set_new(o, "max_buffer_range", json_integer((json_int_t)p->max_buffer_range));
    json_object_set_new(o, "max_workgroup", json_integer(p->max_workgroup));
    json_object_set_new(o, "max_shared_memory", json_integer(p->max_shared_memory));
    json_object_set_new(o, "subgroup_size", json_integer(p->subgroup_size));
    for (size_t i = 0; i < COUNTOF(features); i++)
        json_object_set_new(o, features[i].name, json_boolean(has_feature(p, &features[i])));
    json_t *matrices = json_array();
    for (size_t i = 0; i < matrices_listed(p); i++)
        json_array_append_new(matrices,
                              json_pack("{si si si ss}", "m", p->cooperative_matrix[i].m, "n",
                                        p->cooperative_matrix[i].n, "k", p->cooperative_matrix[i].k,
                                        "types", p->cooperative_matrix[i].types));
    json_object_set_new(o, "cooperative_matrix", matrices);
    return o;
}

static json_t *kernels_json(struct vka_device *device, const char *why)
{
    struct vka_kernel_info kernel;
    json_t *kernels = json_array();
    for (size_t i = 0; device && i < vka_kernel_count(); i++) {
        if (vka_device_kernel(device, i, &kernel) == VKA_OK)
            json_array_append_new(kernels, json_pack("{ss sb ss? sb}", "name", kernel.name,
                                                     "usable", !kernel.missing, "missing",
                                                     kernel.missing, "tested", kernel.tested));
    }
    return json_pack("{so so}", "kernels", kernels, "error", json_text(device ? NULL : why));
}

struct devices_options {
    bool json, kernels, test;
};

/* Counts the device in *usable if it can be made. */
static enum tool_exit show_device(const struct vka_device_properties *p,
                                  const struct device_options *common,
                                  const struct devices_options *o, size_t *usable)
{
    char index[16];
    struct device_options options = *common;
    struct tool_device d;
    snprintf(index, sizeof index, "%" PRIu32, p->index);
    options.device = index;
    enum vka_status status = tool_device_try(&options, &d);
    if (status == VKA_IO) /* the file of --tuning-profile */
        return tool_device_close(&d, tool_device_fail(&d, status));
    if (status == VKA_OK && o->test)
        status = vka_device_self_test(d.device);
    d.caching = d.caching && o->test; /* keeps the results of tests; nothing else is new */
    if (d.device)
        p = vka_device_properties(d.device); /* some are only known, or lowered, once it is made */
    if (o->json) {
        json_t *object = properties_json(p), *kernels = kernels_json(d.device, d.sentence);
        json_object_update(object, kernels);
        json_decref(kernels);
        if (!json_print_line(object))
            status = VKA_OUT_OF_HOST_MEMORY;
    } else {
        print_properties(p);
        if (o->kernels) {
            printf("  %-10s %s\n", "was run", experience(p));
            print_matrices(p);
        }
        if (o->kernels || !d.device)
            print_kernels(d.device, d.sentence);
    }
    *usable += status == VKA_OK;
    /* A device that is too old or fails to start is listed as such; others may work. */
    bool memory = status == VKA_OUT_OF_HOST_MEMORY || status == VKA_OUT_OF_DEVICE_MEMORY;
    return tool_device_close(&d, memory ? TOOL_MEMORY : TOOL_OK);
}

int cmd_devices(int argc, char **argv)
{
    struct devices_options o = {0};
    struct device_options common = DEVICE_OPTIONS_DEFAULT;
    const struct option_spec specs[] = {
        {"json", OPTION_FLAG, &o.json, 0, 0, NULL},
        {"kernels", OPTION_FLAG, &o.kernels, 0, 0, NULL},
        {"self-test", OPTION_FLAG, &o.test, 0, 0, NULL},
        DEVICE_OPTION_SPECS(&common),
        {0},
    };
    struct vka_device_properties *list;
    size_t count, shown = 0, usable = 0;

    tool_set_command("devices");
    if (!options_parse_only(argc, argv, specs))
        return TOOL_USAGE;
    enum tool_exit code = tool_device_list(&list, &count);
    for (size_t i = 0; code == TOOL_OK && i < count; i++) {
        if (!tool_device_matches(&list[i], common.device))
            continue;
        if (shown++ && !o.json)
            putchar('\n');
        code = show_device(&list[i], &common, &o, &usable);
    }
    if (code == TOOL_OK && !shown) {
        tool_error("--device: no device has the index or name '%s': 'vkattn devices' lists them",
                   common.device);
        code = TOOL_NO_DEVICE;
    }
    if (code == TOOL_OK && !usable) {
        tool_error("no device is usable");
        code = TOOL_NO_DEVICE;
    }
    free(list);
    return code;
}
