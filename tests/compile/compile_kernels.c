/* Compiles the library's pipelines for GPUs that are not there, and shows what they cost.
 *
 *     compile_kernels [--all] [--kernel NAME,...] [FAMILY...]
 *     compile_kernels --here [--kernel NAME,...]
 *     compile_kernels --figures FOLDER [--list] [--kernel NAME,...]
 *     compile_kernels --fold FOLDER
 *
 * The first form takes RADV's null devices, one a family (navi21, gfx1100, ...); --all is every
 * family that RADV of Mesa 22.3 knows, under the name that the RADV here has for it. --here takes
 * the device that the environment gives, a shim's for example. A pipeline that fails to compile is
 * a failure, and so is one of the kernels that tune chooses in float32 that spills to memory.
 * --figures takes that device and the problems that matter, and writes what the driver says of each
 * pipeline to a file in FOLDER, for tests/compile/figures.py to judge; --list compiles none and
 * writes what is known before. --fold takes that device too, compiles nothing and writes the modules of
 * all these pipelines with their specialization constants built in.
 * SPDX-License-Identifier: MIT */
#include "null_device.h"
#include "pipeline_dump.h"
#include "pipeline_fold.h"

#include <getopt.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SKIPPED 77

/* Without names on the command line: one of each generation that compiles differently. */
static const char *const few_families[] = {"polaris10", "vega10", "navi10", "navi21", "gfx1100"};
static const char *const all_families[] = {
    "tahiti",  "hawaii",    "tonga",   "fiji",    "polaris10", "polaris11", "polaris12",
    "vegam",   "vega10",    "vega12",  "vega20",  "raven",     "raven2",    "renoir",
    "navi10",  "navi12",    "navi14",  "navi21",  "navi22",    "navi23",    "navi24",
    "vangogh", "rembrandt", "gfx1036", "gfx1100", "gfx1101",   "gfx1102",   "gfx1103_r1",
};

/* Families that Mesa 22.3 calls by the first name, and a later Mesa by the second. */
static const char *const renamed[][2] = {
    {"gfx1036", "raphael_mendocino"},
    {"gfx1100", "navi31"},
    {"gfx1101", "navi32"},
    {"gfx1102", "navi33"},
    {"gfx1103_r1", "phoenix"},
};

/* A statistic under the names that drivers give it: RADV's first, then NVK's and ANV's. */
static const struct column {
    const char *title, *names[3];
    bool spill; /* to memory; scalar registers spill to vector registers */
} columns[] = {
    {"VGPRs", {"VGPRs", "Number of GPRs", "Max live registers"}, false},
    {"SGPRs", {"SGPRs", "-", "-"}, false},
    {"spilled", {"Spilled VGPRs", "Spills to memory", "Spills"}, true},
    {"filled", {"-", "Fills from memory", "Fills"}, true},
    {"SGPRs sp.", {"Spilled SGPRs", "Spills to reg", "-"}, false},
    {"local", {"Scratch size", "SLM size", "Scratch Memory Size"}, true},
    {"shared", {"LDS size", "Shared memory size", "Workgroup Memory Size"}, false},
    {"waves", {"Subgroups per SIMD", "Max warps/SM", "-"}, false},
    {"instr.", {"Instructions", "Instruction count", "-"}, false},
};
#define COLUMNS COUNTOF(columns)

struct totals {
    long pipelines, failed, spilled; /* spilled: also where that is no failure */
};

static uint64_t statistic_value(const VkPipelineExecutableStatisticKHR *s)
{
    return s->format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR ? s->value.b32
                                                                           : s->value.u64;
}

/* Fills values[]; what the driver does not tell stays UINT64_MAX. */
static enum vka_status read_statistics(struct vka_device *device, VkPipeline pipeline,
                                       uint64_t values[COLUMNS])
{
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    VkPipelineExecutableStatisticKHR list[64];
    uint32_t count = COUNTOF(list);
    for (size_t c = 0; c < COLUMNS; c++)
        values[c] = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++)
        list[i] = (VkPipelineExecutableStatisticKHR){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR};
    VK(device->vk.vkGetPipelineExecutableStatisticsKHR(
        device->handle,
        &(VkPipelineExecutableInfoKHR){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
            .pipeline = pipeline,
        },
        &count, list));
    for (uint32_t i = 0; i < count; i++)
        for (size_t c = 0; c < COLUMNS; c++)
            for (size_t n = 0; n < COUNTOF(columns[c].names); n++)
                if (strcmp(list[i].name, columns[c].names[n]) == 0)
                    values[c] = statistic_value(&list[i]);
fail:
    return status;
}

static void print_head(const struct vka_device *device)
{
    printf("\n%s, %s\n%-20s %-4s", device->caps.properties.name, device->caps.properties.driver,
           "kernel", "type");
    for (size_t c = 0; c < COLUMNS; c++)
        printf(" %9s", columns[c].title);
    printf("\n");
}

static void print_row(const struct listed_pipeline *row, const uint64_t values[COLUMNS],
                      const char *remark)
{
    printf("%-20s %-4s", kernel_table[row->key.kernel].name, vka_dtype_name(row->dtype));
    for (size_t c = 0; c < COLUMNS; c++)
        if (values[c] == UINT64_MAX)
            printf(" %9s", "-");
        else
            printf(" %9" PRIu64, values[c]);
    printf("  %s%s%s\n", row->detail, row->forced ? ", not tune's choice" : "", remark);
}

static enum vka_status make_pipeline(struct vka_device *device, const struct pipeline_key *key)
{
    struct kernel_set refused = NO_KERNELS;
    enum vka_status status = pipelines_make(device, &key, 1, &refused);
    if (status == VKA_OK && !set_is_empty(refused))
        status = vk_error(&device->log, device->refusals.result[key->kernel],
                          "vkCreateComputePipelines");
    return status;
}

static void compile_one(struct vka_device *device, const struct listed_pipeline *row,
                        struct totals *totals)
{
    uint64_t values[COLUMNS];
    bool spills = false;
    enum vka_status status = make_pipeline(device, &row->key);
    if (status == VKA_OK)
        status = read_statistics(device, pipeline_get(device, &row->key)->handle, values);
    totals->pipelines++;
    if (status != VKA_OK) {
        printf("%-20s %-4s FAIL: %s\n", kernel_table[row->key.kernel].name,
               vka_dtype_name(row->dtype), vka_device_error(device));
        totals->failed++;
    } else {
        for (size_t c = 0; c < COLUMNS; c++)
            spills |= columns[c].spill && values[c] != 0 && values[c] != UINT64_MAX;
        bool forbidden = spills && row->dtype == VKA_F32 && !row->forced;
        totals->spilled += spills;
        totals->failed += forbidden;
        print_row(row, values, forbidden ? ", FAIL: spills" : spills ? ", spills" : "");
    }
}

/* Whether a list of names, with commas between, has the kernel's. NULL has all. */
static bool is_wanted(const char *only, enum kernel kernel)
{
    const char *name = kernel_table[kernel].name;
    const size_t length = strlen(name);
    for (const char *p = only; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == length && memcmp(p, name, length) == 0)
            return true;
    return !only;
}

/* To FOLDER/INDEX.txt. */
static void dump_one(struct vka_device *device, const struct listed_pipeline *row, bool compiled,
                     const char *folder, size_t index, struct totals *totals)
{
    enum vka_status status = compiled ? make_pipeline(device, &row->key) : VKA_OK;
    if (status == VKA_OK)
        status = pipeline_dump(device, row, compiled, folder, index);
    totals->pipelines++;
    if (status != VKA_OK) {
        printf("%-20s %-4s FAIL: %s\n", kernel_table[row->key.kernel].name,
               vka_dtype_name(row->dtype), vka_device_error(device));
        totals->failed++;
    }
}

/* The pipelines of the problems that matter; `compiled`: not what is known before alone. */
static enum vka_status dump_device(const char *folder, bool compiled, const char *only,
                                   struct totals *totals)
{
    struct vka_device *device = NULL;
    enum vka_status status = VKA_OUT_OF_HOST_MEMORY;
    struct pipeline_list *list = calloc(1, sizeof *list);
    if (list)
        status = null_device_open(true, &device);
    if (status == VKA_OK) {
        device->pipelines.flags |= VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
        totals->failed += !pipeline_list_problems(device, list);
        status = pipeline_dump_device(device, list, folder);
    }
    for (size_t i = 0; status == VKA_OK && i < list->n; i++)
        if (is_wanted(only, list->rows[i].key.kernel))
            dump_one(device, &list->rows[i], compiled, folder, i, totals);
    null_device_close(&device);
    free(list);
    return status;
}

static enum vka_status compile_device(const char *only, struct totals *totals)
{
    struct vka_device *device;
    struct pipeline_list *list = calloc(1, sizeof *list);
    enum vka_status status = list ? null_device_open(true, &device) : VKA_OUT_OF_HOST_MEMORY;
    if (status != VKA_OK) {
        free(list);
        return status;
    }
    print_head(device);
    if (!pipeline_list_fill(device, list)) {
        printf("FAIL: not every kernel is listed\n");
        totals->failed++;
    }
    for (size_t i = 0; i < list->n; i++)
        if (is_wanted(only, list->rows[i].key.kernel))
            compile_one(device, &list->rows[i], totals);
    for (int k = 0; k < KERNEL_COUNT; k++) {
        const char *missing = kernel_missing((enum kernel)k, &device->caps);
        if (missing)
            printf("%-20s not compiled: it %s\n", kernel_table[k].name, missing);
    }
    null_device_close(&device);
    free(list);
    return VKA_OK;
}

/* The modules of every pipeline of both lists, with the constants built in. */
static enum vka_status fold_device(const char *folder, struct totals *totals)
{
    struct vka_device *device = NULL;
    enum vka_status status = VKA_OUT_OF_HOST_MEMORY;
    struct pipeline_list *list = calloc(1, sizeof *list);
    if (list)
        status = null_device_open(false, &device);
    if (status == VKA_OK) {
        totals->failed += !pipeline_list_fill(device, list);
        totals->failed += !pipeline_list_problems(device, list);
        const long n = pipeline_fold(list, folder);
        totals->failed += n < 0;
        totals->pipelines += n < 0 ? 0 : n;
    }
    null_device_close(&device);
    free(list);
    return status;
}

/* Makes the loader take RADV alone. False where it is not installed. */
static bool use_radv(void)
{
    glob_t found;
    bool ok = glob("/usr/share/vulkan/icd.d/radeon_icd*.json", 0, NULL, &found) == 0;
    if (ok) {
        setenv("VK_ICD_FILENAMES", found.gl_pathv[0], 1);
        setenv("VK_DRIVER_FILES", found.gl_pathv[0], 1);
        setenv("NODEVICE_SELECT", "1", 1); /* a layer that sorts devices fails on null ones */
        globfree(&found);
    }
    return ok;
}

static int skip(const char *why)
{
    fprintf(stderr, "compile_kernels: SKIPPED, %s: NOTHING WAS COMPILED FOR A GPU\n", why);
    return SKIPPED;
}

static int report(const struct totals *t)
{
    printf("\n%ld pipelines, %ld failed, %ld spill\n", t->pipelines, t->failed, t->spilled);
    return t->failed == 0 && t->pipelines > 0 ? 0 : 1;
}

/* Whether RADV knows the name: of one that it does not know, it ends the process. */
static bool is_known(const char *name)
{
    int ended = 0;
    pid_t child = fork();
    if (child == 0) {
        struct vka_device *device;
        setenv("RADV_FORCE_FAMILY", name, 1);
        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        _exit(null_device_open(true, &device) != VKA_OK);
    }
    return child > 0 && waitpid(child, &ended, 0) == child && WIFEXITED(ended) &&
           WEXITSTATUS(ended) == 0;
}

/* The name that RADV has for a family; NULL where it has none. */
static const char *name_here(const char *family)
{
    if (is_known(family))
        return family;
    for (size_t i = 0; i < COUNTOF(renamed); i++)
        for (int j = 0; j < 2; j++)
            if (strcmp(family, renamed[i][j]) == 0 && is_known(renamed[i][!j]))
                return renamed[i][!j];
    return NULL;
}

static int compile_families(const char *const *families, size_t n, const char *only)
{
    struct totals totals = {0};
    bool any = false;
    if (!use_radv())
        return skip("RADV is not installed");
    for (size_t i = 0; i < n; i++) {
        const char *name = name_here(families[i]);
        if (!name) {
            printf("%s: FAIL: RADV knows no such family\n", families[i]);
            totals.failed++;
            continue;
        }
        any = true;
        setenv("RADV_FORCE_FAMILY", name, 1);
        enum vka_status status = compile_device(only, &totals);
        if (status != VKA_OK) {
            printf("%s: FAIL: %s\n", families[i], vka_status_name(status));
            totals.failed++;
        }
    }
    return any || is_known("navi21") ? report(&totals) : skip("RADV makes no null device");
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"all", no_argument, NULL, 'a'},
                                            {"here", no_argument, NULL, 'h'},
                                            {"kernel", required_argument, NULL, 'k'},
                                            {"figures", required_argument, NULL, 'f'},
                                            {"list", no_argument, NULL, 'l'},
                                            {"fold", required_argument, NULL, 'F'},
                                            {NULL, 0, NULL, 0}};
    bool all = false, here = false, list = false;
    const char *only = NULL, *folder = NULL, *folded = NULL;
    struct totals totals = {0};
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        all |= o == 'a';
        here |= o == 'h';
        list |= o == 'l';
        if (o == 'k')
            only = optarg;
        if (o == 'f')
            folder = optarg;
        if (o == 'F')
            folded = optarg;
        if (o == '?') {
            fprintf(stderr,
                    "usage: compile_kernels [--kernel NAME,...] [--all | --here | FAMILY...]\n"
                    "       compile_kernels --figures FOLDER [--list] [--kernel NAME,...]\n"
                    "       compile_kernels --fold FOLDER\n");
            return 2;
        }
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (here || folder || folded) {
        enum vka_status status = folded   ? fold_device(folded, &totals)
                                 : folder ? dump_device(folder, !list, only, &totals)
                                          : compile_device(only, &totals);
        return status == VKA_OK ? report(&totals) : skip(vka_status_name(status));
    }
    if (optind < argc)
        return compile_families((const char *const *)argv + optind, (size_t)(argc - optind), only);
    return all ? compile_families(all_families, COUNTOF(all_families), only)
               : compile_families(few_families, COUNTOF(few_families), only);
}
