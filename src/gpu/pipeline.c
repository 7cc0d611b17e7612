#include "gpu/pipeline.h"
#include "core/os.h"
#include "gpu/blob.h"
#include "gpu/command.h"
#include "gpu/fold.h"
#include "gpu/kernels_spv.h"
#include "gpu/refusal.h"

#include <stdatomic.h>
#include <stdlib.h>

enum vka_status pipelines_init(struct vka_device *device, const void *blob, size_t size)
{
    struct log *log = &device->log;
    size = blob_read(device, blob, size);
    ENSURE_VK(
        device->vk.vkCreatePipelineCache(device->handle,
                                         &(VkPipelineCacheCreateInfo){
                                             .sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
                                             .initialDataSize = size,
                                             .pInitialData = size ? blob : NULL,
                                         },
                                         NULL, &device->pipelines.cache));
    return VKA_OK;
}

void pipelines_finish(struct vka_device *device)
{
    struct pipelines *p = &device->pipelines;
    const bool forked = device_is_forked(device);
    while (p->list) {
        struct pipeline *pipeline = p->list;
        p->list = pipeline->next;
        if (!forked)
            device->vk.vkDestroyPipeline(device->handle, pipeline->handle, NULL);
        free(pipeline);
    }
    if (forked)
        return;
    for (size_t i = 0; i < KERNEL_COUNT; i++) {
        if (p->modules[i])
            device->vk.vkDestroyShaderModule(device->handle, p->modules[i], NULL);
        if (p->layouts[i])
            device->vk.vkDestroyPipelineLayout(device->handle, p->layouts[i], NULL);
        if (p->set_layouts[i])
            device->vk.vkDestroyDescriptorSetLayout(device->handle, p->set_layouts[i], NULL);
    }
    if (p->cache)
        device->vk.vkDestroyPipelineCache(device->handle, p->cache, NULL);
}

VkDescriptorType kernel_descriptor(enum kernel kernel, uint32_t buffer)
{
    unsigned needs = kernel_table[kernel].needs;
    bool texels = (needs & NEED_TEXELS && buffer < 2) ||
                  (needs & NEED_KV_TEXELS && (buffer == 1 || buffer == 2));
    return texels ? VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER : VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
}

/* Makes the layouts of a kernel when it is first used. */
static enum vka_status prepare(struct vka_device *device, enum kernel kernel)
{
    struct log *log = &device->log;
    struct pipelines *p = &device->pipelines;
    uint32_t n = kernel_table[kernel].buffers;
    if (!p->set_layouts[kernel]) {
        VkDescriptorSetLayoutBinding bindings[MAX_BUFFERS];
        for (uint32_t i = 0; i < n; i++)
            bindings[i] = (VkDescriptorSetLayoutBinding){
                .binding = i,
                .descriptorType = kernel_descriptor(kernel, i),
                .descriptorCount = 1,
                .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
            };
        ENSURE_VK(device->vk.vkCreateDescriptorSetLayout(
            device->handle,
            &(VkDescriptorSetLayoutCreateInfo){
                .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                .bindingCount = n,
                .pBindings = bindings,
            },
            NULL, &p->set_layouts[kernel]));
    }
    if (!p->layouts[kernel])
        ENSURE_VK(device->vk.vkCreatePipelineLayout(
            device->handle,
            &(VkPipelineLayoutCreateInfo){
                .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                .setLayoutCount = 1,
                .pSetLayouts = &p->set_layouts[kernel],
                .pushConstantRangeCount = 1,
                .pPushConstantRanges =
                    &(VkPushConstantRange){VK_SHADER_STAGE_COMPUTE_BIT, 0, PUSH_SIZE},
            },
            NULL, &p->layouts[kernel]));
    return VKA_OK;
}

/* The arguments of a call of the driver's compiler. */
struct job {
    struct pipeline *pipeline; /* whose kernel is prepared */
    VkShaderModule module;     /* with the constants built in; VK_NULL_HANDLE: the kernel's own */
    VkResult result;
    double ms;
};

static VkResult make_module(struct vka_device *device, const uint32_t *words, size_t size,
                            VkShaderModule *module)
{
    return device->vk.vkCreateShaderModule(device->handle,
                                           &(VkShaderModuleCreateInfo){
                                               .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                               .codeSize = size,
                                               .pCode = words,
                                           },
                                           NULL, module);
}

/* Makes the module of a kernel when it is first used; on devices of the portability subset one for
 * this job alone, with the constants built in. *why: set where that is refused. */
static VkResult prepare_module(struct vka_device *device, const struct pipeline_key *key,
                               struct job *job, const char **why)
{
    const struct kernel_spv *spv = kernel_spv_table[key->kernel];
    VkShaderModule *kept = &device->pipelines.modules[key->kernel];
    struct folded folded;
    if (!device->caps.portability)
        return *kept ? VK_SUCCESS : make_module(device, spv->words, spv->size, kept);
    enum vka_status status =
        fold_module(spv->words, spv->size / sizeof *spv->words, key->spec, key->n_spec, &folded);
    *why = status == VKA_UNSUPPORTED ? folded.why : NULL;
    if (status != VKA_OK)
        return *why ? VK_ERROR_FEATURE_NOT_PRESENT : VK_ERROR_OUT_OF_HOST_MEMORY;
    VkResult result =
        make_module(device, folded.words, folded.n_word * sizeof *folded.words, &job->module);
    free(folded.words);
    return result;
}

/* Milliseconds of a compilation that the log tells of. */
#define SLOW_MS 10000.0

/* Different jobs may run in several threads: Vulkan synchronises the pipeline cache itself. */
static void compile(const struct vka_device *device, struct job *job)
{
    const struct pipeline_key *key = &job->pipeline->key;
    const uint32_t needs = kernel_table[key->kernel].needs;
    VkSpecializationMapEntry entries[MAX_SPECS];
    for (uint32_t i = 0; i < key->n_spec; i++)
        entries[i] = (VkSpecializationMapEntry){i, i * 4, 4};
    const VkSpecializationInfo specialization = {
        .mapEntryCount = key->n_spec,
        .pMapEntries = entries,
        .dataSize = key->n_spec * 4,
        .pData = key->spec,
    };
    const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
        .requiredSubgroupSize = needs & NEED_LEAST_SUBGROUP ? device->caps.least_subgroup
                                                            : device->caps.properties.subgroup_size,
    };
    bool fixed = needs & NEED_FULL_SUBGROUPS, sizes = device->caps.subgroup_size_varies;
    bool any = sizes && device->caps.subgroup_size_control && (needs & NEED_REDUCTIONS);
    const double begin = os_now_ms();
    job->result = device->vk.vkCreateComputePipelines(
        device->handle, device->pipelines.cache, 1,
        &(VkComputePipelineCreateInfo){
            .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
            .flags = device->pipelines.flags,
            .stage =
                {
                    .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                    .pNext = fixed && sizes ? &size : NULL,
                    .flags =
                        fixed ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT_EXT
                        : any ? VK_PIPELINE_SHADER_STAGE_CREATE_ALLOW_VARYING_SUBGROUP_SIZE_BIT_EXT
                              : 0,
                    .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                    .module = job->module ? job->module : device->pipelines.modules[key->kernel],
                    .pName = "main",
                    .pSpecializationInfo = job->module ? NULL : &specialization,
                },
            .layout = device->pipelines.layouts[key->kernel],
        },
        NULL, &job->pipeline->handle);
    job->ms = os_now_ms() - begin;
}

/* Jobs, which threads take one by one. */
struct jobs {
    const struct vka_device *device;
    struct job *list;
    size_t n;
    atomic_size_t next;
};

static void work(void *argument)
{
    struct jobs *jobs = argument;
    for (size_t i; (i = atomic_fetch_add(&jobs->next, 1)) < jobs->n;)
        compile(jobs->device, &jobs->list[i]);
}

/* Runs the jobs on this thread and on others; if no thread can be started, this one does all. With
 * validation it uses only this thread: the layer reports on the thread that calls the driver, and
 * the log must only be called on this one. */
static void compile_all(struct jobs *jobs)
{
    size_t most = jobs->device->instance.messenger ? 1 : os_n_core();
    os_run_threads(most < jobs->n ? most : jobs->n, work, jobs);
}

static struct pipeline *find(const struct vka_device *device, const struct pipeline_key *key)
{
    struct pipeline *p = device->pipelines.list;
    while (p && !pipeline_same_key(&p->key, key))
        p = p->next;
    return p;
}

static void destroy_module(const struct vka_device *device, const struct job *job)
{
    if (job->module)
        device->vk.vkDestroyShaderModule(device->handle, job->module, NULL);
}

/* Adds a job for the key, unless its pipeline exists or another job makes it, or the driver refuses
 * its module. */
static enum vka_status add_job(struct vka_device *device, const struct pipeline_key *key,
                               struct jobs *jobs, struct kernel_set *refused)
{
    struct log *log = &device->log;
    struct job *job = &jobs->list[jobs->n];
    for (size_t i = 0; i < jobs->n; i++)
        if (pipeline_same_key(&jobs->list[i].pipeline->key, key))
            return VKA_OK;
    if (find(device, key))
        return VKA_OK;
    ENSURE(prepare(device, key->kernel));
    const char *why = NULL;
    VkResult result = prepare_module(device, key, job, &why);
    if (refusal_is(result)) {
        set_add(refused, key->kernel);
        return why ? refusal_add_why(device, key, result, why)
                   : refusal_add(device, key, result, "vkCreateShaderModule");
    }
    if (result != VK_SUCCESS)
        return vk_error(log, result, "vkCreateShaderModule");
    job->pipeline = calloc(1, sizeof *job->pipeline);
    if (!job->pipeline)
        destroy_module(device, job);
    ENSURE_ALLOC(job->pipeline);
    job->pipeline->key = *key;
    jobs->n++;
    return VKA_OK;
}

/* Takes over what a job made, or notes why it made nothing. */
static enum vka_status end_job(struct vka_device *device, const struct job *job,
                               struct kernel_set *refused)
{
    struct pipeline *made = job->pipeline;
    const struct pipeline_key key = made->key;
    if (job->ms >= SLOW_MS)
        log_message(&device->log, VKA_LOG_WARNING,
                    "the driver compiled a pipeline of the kernel %s for %.1f s",
                    kernel_table[key.kernel].name, job->ms / 1e3);
    if (made->handle) {
        device->pipelines.n_made++;
        device->pipelines.code += kernel_spv_table[key.kernel]->size;
        made->next = device->pipelines.list;
        device->pipelines.list = made;
        return VKA_OK;
    }
    free(made);
    if (!refusal_is(job->result))
        return vk_error(&device->log, job->result, "vkCreateComputePipelines");
    set_add(refused, key.kernel);
    return refusal_add(device, &key, job->result, "vkCreateComputePipelines");
}

enum vka_status pipelines_make(struct vka_device *device, const struct pipeline_key *const *keys,
                               size_t count, struct kernel_set *refused)
{
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    struct jobs jobs = {.device = device, .list = calloc(count, sizeof *jobs.list)};
    CHECK_ALLOC(jobs.list);
    for (size_t i = 0; i < count && status == VKA_OK; i++)
        status = add_job(device, keys[i], &jobs, refused);
    if (status == VKA_OK)
        compile_all(&jobs);
    for (size_t i = 0; i < jobs.n; i++) {
        destroy_module(device, &jobs.list[i]);
        if (status != VKA_OK && !jobs.list[i].pipeline->handle) {
            free(jobs.list[i].pipeline);
            continue;
        }
        enum vka_status ended = end_job(device, &jobs.list[i], refused);
        status = status == VKA_OK ? ended : status;
    }
fail:
    free(jobs.list);
    return queue_check_lost(device, status);
}

struct pipeline *pipeline_get(const struct vka_device *device, const struct pipeline_key *key)
{
    return find(device, key);
}

enum vka_status vka_device_pipeline_cache(struct vka_device *device, void *data, size_t *size)
{
    if (!device)
        return VKA_INVALID;
    struct log *log = &device->log;
    ENSURE_ARG(size, "%s: size is NULL", __func__);
    size_t whole = 0;
    ENSURE(device_check(device));
    ENSURE_VK(
        device->vk.vkGetPipelineCacheData(device->handle, device->pipelines.cache, &whole, NULL));
    if (data) {
        ENSURE_ARG(*size >= whole + BLOB_TAIL,
                   "%s: the pipeline cache has %zu bytes, but *size is %zu", __func__,
                   whole + BLOB_TAIL, *size);
        whole = *size - BLOB_TAIL;
        const VkResult result = device->vk.vkGetPipelineCacheData(
            device->handle, device->pipelines.cache, &whole, data);
        /* It may have grown meanwhile: what there was room for is valid. */
        if (result != VK_SUCCESS && result != VK_INCOMPLETE)
            return vk_error(log, result, "vkGetPipelineCacheData");
        blob_write_tail(device, data, whole);
    }
    *size = whole + BLOB_TAIL;
    return VKA_OK;
}
