#include "pipeline_dump.h"

#include <gpu/kernels_spv.h>
#include <gpu/tuning_profile.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PROGRAMS 8 /* of a pipeline: Intel has one a subgroup size */

static enum vka_status open_file(struct vka_device *device, const char *folder, const char *name,
                                 FILE **out)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    *out = fopen(path, "w");
    return *out ? VKA_OK : log_error(&device->log, VKA_IO, "cannot write %s", path);
}

static enum vka_status close_file(struct vka_device *device, FILE *file, enum vka_status status)
{
    bool failed = file && (ferror(file) | fclose(file));
    return failed && status == VKA_OK ? log_error(&device->log, VKA_IO, "cannot write") : status;
}

/* Whether an instruction of a module is there for readers alone: OpSource ... OpLine. */
static bool is_debug(uint32_t opcode)
{
    return opcode >= 2 && opcode <= 8;
}

/* A hash of what a driver compiles: not of the names in a module. */
static uint64_t hash_sources(const struct pipeline_key *key)
{
    const struct kernel_info *info = &kernel_table[key->kernel];
    const struct kernel_spv *module = kernel_spv_table[key->kernel];
    const uint32_t *words = module->words;
    uint64_t h = HASH_START;
    for (size_t i = 5, n = module->size / sizeof *words; i < n && words[i] >> 16;
         i += words[i] >> 16)
        if (!is_debug(words[i] & 0xffff))
            h = hash_bytes(h, words + i, (words[i] >> 16) * sizeof *words);
    h = hash_bytes(h, key->spec, key->n_spec * sizeof *key->spec);
    h = hash_bytes(h, &info->buffers, sizeof info->buffers);
    return hash_bytes(h, &info->needs, sizeof info->needs);
}

enum vka_status pipeline_dump_device(struct vka_device *device, const struct pipeline_list *list,
                                     const char *folder)
{
    FILE *file;
    enum vka_status status = open_file(device, folder, "device.txt", &file);
    if (status == VKA_OK)
        fprintf(file, "%s\n%s\n", device->caps.properties.name, device->caps.properties.driver);
    for (int k = 0; status == VKA_OK && k < KERNEL_COUNT; k++)
        if (kernel_missing((enum kernel)k, &device->caps))
            fprintf(file, "refused %s: it %s\n", kernel_table[k].name,
                    kernel_missing((enum kernel)k, &device->caps));
    for (const char *line = list->unsupported; status == VKA_OK && *line;) {
        const size_t length = strcspn(line, "\n") + 1;
        fprintf(file, "unsupported %.*s", (int)length, line);
        line += length;
    }
    return close_file(device, file, status);
}

static void write_row(FILE *file, const struct listed_pipeline *row)
{
    fprintf(file, "kernel %s\ndtype %s\nspec", kernel_table[row->key.kernel].name,
            vka_dtype_name(row->dtype));
    for (uint32_t i = 0; i < row->key.n_spec; i++)
        fprintf(file, " %" PRIu32, row->key.spec[i]);
    fprintf(file, "\nsources %016" PRIx64 "\n", hash_sources(&row->key));
    for (const char *p = row->problems; *p; p += strcspn(p, "\t")) {
        p++;
        fprintf(file, "problem %.*s\n", (int)strcspn(p, "\t"), p);
    }
}

static enum vka_status write_statistics(struct vka_device *device, FILE *file,
                                        const VkPipelineExecutableInfoKHR *info)
{
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    VkPipelineExecutableStatisticKHR list[64];
    uint32_t count = COUNTOF(list);
    for (uint32_t i = 0; i < count; i++)
        list[i] = (VkPipelineExecutableStatisticKHR){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR};
    VK(device->vk.vkGetPipelineExecutableStatisticsKHR(device->handle, info, &count, list));
    for (uint32_t i = 0; i < count; i++)
        if (list[i].format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_FLOAT64_KHR)
            fprintf(file, "statistic %s = %g\n", list[i].name, list[i].value.f64);
        else if (list[i].format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR)
            fprintf(file, "statistic %s = %d\n", list[i].name, list[i].value.b32 != 0);
        else
            fprintf(file, "statistic %s = %" PRId64 "\n", list[i].name, list[i].value.i64);
fail:
    return status;
}

/* The assembly, or shared memory alone from NIR: NVK has no statistic of it. */
static void write_text(FILE *file, const VkPipelineExecutableInternalRepresentationKHR *r)
{
    const char *text = r->pData;
    const char *shared = r->isText ? strstr(text, "shared_size: ") : NULL;
    const char *kind = strstr(r->name, "ssembly");
    if (shared)
        fprintf(file, "statistic NIR shared_size = %d\n", atoi(shared + strlen("shared_size: ")));
    if (r->isText && kind)
        fprintf(file, "assembly %s\n%s\nend\n", r->name, text);
}

static enum vka_status write_assembly(struct vka_device *device, FILE *file,
                                      const VkPipelineExecutableInfoKHR *info)
{
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    VkPipelineExecutableInternalRepresentationKHR list[64];
    uint32_t count = COUNTOF(list);
    for (uint32_t i = 0; i < count; i++)
        list[i] = (VkPipelineExecutableInternalRepresentationKHR){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR};
    VK(device->vk.vkGetPipelineExecutableInternalRepresentationsKHR(device->handle, info, &count,
                                                                    list)); /* sizes */
    for (uint32_t i = 0; i < count; i++) {
        list[i].pData = calloc(1, list[i].dataSize + 1);
        CHECK_ALLOC(list[i].pData);
    }
    VK(device->vk.vkGetPipelineExecutableInternalRepresentationsKHR(device->handle, info, &count,
                                                                    list));
    for (uint32_t i = 0; i < count; i++)
        write_text(file, &list[i]);
fail:
    for (uint32_t i = 0; i < COUNTOF(list); i++)
        free(list[i].pData);
    return status;
}

static enum vka_status write_programs(struct vka_device *device, FILE *file, VkPipeline pipeline)
{
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    VkPipelineExecutablePropertiesKHR list[MOST_PROGRAMS];
    uint32_t count = COUNTOF(list);
    for (uint32_t i = 0; i < count; i++)
        list[i] = (VkPipelineExecutablePropertiesKHR){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR};
    VK(device->vk.vkGetPipelineExecutablePropertiesKHR(
        device->handle,
        &(VkPipelineInfoKHR){.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, .pipeline = pipeline},
        &count, list));
    for (uint32_t i = 0; i < count; i++) {
        const VkPipelineExecutableInfoKHR info = {
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
            .pipeline = pipeline,
            .executableIndex = i};
        fprintf(file, "program %" PRIu32 " %s\n", list[i].subgroupSize, list[i].name);
        TRY(write_statistics(device, file, &info));
        TRY(write_assembly(device, file, &info));
    }
fail:
    return status;
}

enum vka_status pipeline_dump(struct vka_device *device, const struct listed_pipeline *row,
                              bool compiled, const char *folder, size_t index)
{
    FILE *file;
    char name[32];
    snprintf(name, sizeof name, "%03zu.txt", index);
    enum vka_status status = open_file(device, folder, name, &file);
    if (status == VKA_OK) {
        write_row(file, row);
        if (compiled)
            status = write_programs(device, file, pipeline_get(device, &row->key)->handle);
    }
    return close_file(device, file, status);
}
