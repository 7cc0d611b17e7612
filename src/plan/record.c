#include "plan/record.h"
#include "gpu/receipt.h"
#include "plan/hazard.h"
#include "plan/pass.h"
#include "plan/scratch.h"

#include <stdlib.h>
#include <string.h>

static enum vka_status create_pools(struct vka_plan *plan)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    uint32_t n = (uint32_t)plan->n_pass;
    VkDescriptorPoolSize sizes[2] = {{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1},
                                     {VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER, 1}};
    for (size_t i = 0; i < plan->n_pass; i++) {
        enum kernel kernel = plan->passes[i].key.kernel;
        for (uint32_t j = 0; j < kernel_table[kernel].buffers; j++)
            sizes[kernel_descriptor(kernel, j) == sizes[1].type].descriptorCount++;
    }
    ENSURE_VK(device->vk.vkCreateDescriptorPool(
        device->handle,
        &(VkDescriptorPoolCreateInfo){
            .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
            .maxSets = n,
            .poolSizeCount = COUNTOF(sizes),
            .pPoolSizes = sizes,
        },
        NULL, &plan->descriptors));
    ENSURE_VK(
        device->vk.vkCreateCommandPool(device->handle,
                                       &(VkCommandPoolCreateInfo){
                                           .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                           .queueFamilyIndex = device->queue_family,
                                       },
                                       NULL, &plan->pool));
    ENSURE(vk_allocate_commands(log, &device->vk, device->handle, plan->pool,
                                (uint32_t)plan->n_submit, plan->commands));
    if (plan->timestamps) {
        plan->gpu_ms = calloc(plan->n_pass, sizeof *plan->gpu_ms);
        ENSURE_ALLOC(plan->gpu_ms);
        ENSURE_VK(
            device->vk.vkCreateQueryPool(device->handle,
                                         &(VkQueryPoolCreateInfo){
                                             .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                             .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                             .queryCount = n + (uint32_t)plan->n_submit,
                                         },
                                         NULL, &plan->queries));
    }
    return VKA_OK;
}

static enum vka_status create_view(struct vka_device *device, const VkDescriptorBufferInfo *buffer,
                                   VkBufferView *view)
{
    struct log *log = &device->log;
    ENSURE_VK(device->vk.vkCreateBufferView(device->handle,
                                            &(VkBufferViewCreateInfo){
                                                .sType = VK_STRUCTURE_TYPE_BUFFER_VIEW_CREATE_INFO,
                                                .buffer = buffer->buffer,
                                                .format = VK_FORMAT_R32G32B32A32_SFLOAT,
                                                .offset = buffer->offset,
                                                .range = buffer->range,
                                            },
                                            NULL, view));
    return VKA_OK;
}

static enum vka_status write_descriptors(struct vka_plan *plan, struct pass *pass)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    ENSURE_VK(device->vk.vkAllocateDescriptorSets(
        device->handle,
        &(VkDescriptorSetAllocateInfo){
            .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
            .descriptorPool = plan->descriptors,
            .descriptorSetCount = 1,
            .pSetLayouts = &device->pipelines.set_layouts[pass->key.kernel],
        },
        &pass->set));
    VkDescriptorBufferInfo buffers[MAX_BUFFERS];
    VkWriteDescriptorSet writes[MAX_BUFFERS];
    uint32_t n = kernel_table[pass->key.kernel].buffers;
    for (uint32_t i = 0; i < n; i++) {
        const struct binding *b = &pass->bindings[i];
        VkDescriptorType type = kernel_descriptor(pass->key.kernel, i);
        buffers[i] = (VkDescriptorBufferInfo){b->storage->range.block->buffer,
                                              b->storage->range.offset + b->offset, b->size};
        if (type == VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER)
            ENSURE(create_view(device, &buffers[i], &pass->views[i]));
        writes[i] = (VkWriteDescriptorSet){
            .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
            .dstSet = pass->set,
            .dstBinding = i,
            .descriptorCount = 1,
            .descriptorType = type,
            .pBufferInfo = &buffers[i],
            .pTexelBufferView = i < MAX_TEXEL_BUFFERS ? &pass->views[i] : NULL,
        };
    }
    device->vk.vkUpdateDescriptorSets(device->handle, n, writes, 0, NULL);
    return VKA_OK;
}

void pass_record(const struct vka_device *device, VkCommandBuffer commands, const struct pass *pass,
                 const uint32_t groups[3])
{
    VkPipelineLayout layout = device->pipelines.layouts[pass->key.kernel];
    if (device->begin_label)
        device->begin_label(
            commands, &(VkDebugUtilsLabelEXT){.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_LABEL_EXT,
                                              .pLabelName = pass->name});
    device->vk.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE,
                                 pipeline_get(device, &pass->key)->handle);
    device->vk.vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, 1,
                                       &pass->set, 0, NULL);
    unsigned char push[PUSH_SIZE];
    memcpy(push, pass->push, sizeof push);
    for (uint32_t i = 0; i < pass->n_address; i++) {
        const struct binding *b = &pass->bindings[i];
        const struct memory_range *range = &b->storage->range;
        uint64_t address = range->block->address + range->offset + b->offset;
        memcpy(push + i * sizeof address, &address, sizeof address);
    }
    device->vk.vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, PUSH_SIZE,
                                  push);
    device->vk.vkCmdDispatch(commands, groups[0], groups[1], groups[2]);
    if (device->end_label)
        device->end_label(commands);
}

/* Records passes begin .. end - 1. Timestamps, if queries are given, go to `query` (before the
 * first pass) and the following queries. */
static void record_passes(struct vka_plan *plan, size_t begin, size_t end, VkCommandBuffer commands,
                          VkQueryPool queries, uint32_t query)
{
    struct vka_device *device = plan->device;
    const VkAccessFlags shader = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT;
    const VkPipelineStageFlags compute = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
    /* Earlier submits may still run: other passes of this run, or plans with the same tensors. */
    vk_barrier(&device->vk, commands, compute | VK_PIPELINE_STAGE_TRANSFER_BIT, compute,
               VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT, shader);
    if (queries) {
        device->vk.vkCmdResetQueryPool(commands, queries, query, (uint32_t)(end - begin) + 1);
        device->vk.vkCmdWriteTimestamp(commands, compute, queries, query);
    }
    struct hazards hazards = {0};
    for (size_t i = begin; i < end; i++) {
        const struct binding *bindings = plan->passes[i].bindings;
        const uint32_t n = kernel_table[plan->passes[i].key.kernel].buffers;
        if (hazards_meet(&hazards, bindings, n)) {
            vk_barrier(&device->vk, commands, compute, compute, VK_ACCESS_SHADER_WRITE_BIT, shader);
            hazards_clear(&hazards);
        }
        hazards_add(&hazards, bindings, n);
        pass_record(device, commands, &plan->passes[i], plan->passes[i].groups);
        if (queries)
            device->vk.vkCmdWriteTimestamp(commands, compute, queries,
                                           query + (uint32_t)(i - begin) + 1);
    }
    hazards_free(&hazards);
    if (end == plan->n_pass)
        vk_barrier(&device->vk, commands, compute, VK_PIPELINE_STAGE_HOST_BIT,
                   VK_ACCESS_SHADER_WRITE_BIT, VK_ACCESS_HOST_READ_BIT);
}

enum vka_status plan_make_pipelines(struct vka_plan *plan, size_t first)
{
    struct log *log = &plan->device->log;
    enum vka_status status = VKA_OK;
    const size_t n = plan->n_pass - first;
    const struct pipeline_key **keys = calloc(n ? n : 1, sizeof *keys);
    CHECK_ALLOC(keys);
    for (size_t i = 0; i < n; i++)
        keys[i] = &plan->passes[first + i].key;
    TRY(pipelines_make(plan->device, keys, n, &plan->refused));
fail:
    free(keys);
    return status;
}

/* The choices stand: no other kernel takes the place of one that is refused now, and it may be tried
 * again. */
static enum vka_status make_all_pipelines(struct vka_plan *plan)
{
    struct vka_device *device = plan->device;
    const uint64_t serial = device->refusals.serial;
    plan->refused = NO_KERNELS;
    ENSURE(plan_make_pipelines(plan, 0));
    if (set_is_empty(plan->refused))
        return VKA_OK;
    const enum kernel kernel = device->refusals.last->key.kernel;
    ENSURE(refusals_forget(device, serial, true));
    return log_error(&device->log, VKA_UNSUPPORTED, "the kernel %s %s", kernel_table[kernel].name,
                     device->refusals.why[kernel]);
}

void plan_record_into(struct vka_plan *plan, VkCommandBuffer commands)
{
    if (plan_notes_tickets(plan))
        receipt_clear_running(plan->device, commands);
    record_passes(plan, 0, plan->n_pass, commands, VK_NULL_HANDLE, 0);
}

/* Groups passes into submits. */
static enum vka_status group_passes(struct vka_plan *plan)
{
    struct log *log = &plan->device->log;
    enum vka_status status = VKA_OK;
    double *time = calloc(plan->n_pass, sizeof *time);
    plan->first = calloc(plan->n_pass + 1, sizeof *plan->first);
    CHECK_ALLOC(time);
    CHECK_ALLOC(plan->first);
    for (size_t i = 0; i < plan->n_pass; i++)
        time[i] = plan_time(plan, plan->passes[i].key.kernel, &plan->passes[i].work);
    plan->n_submit = budget_group(time, plan->n_pass, plan->budget, plan->first);
    plan->first[plan->n_submit] = plan->n_pass;
    plan->commands = calloc(plan->n_submit, sizeof(VkCommandBuffer));
    CHECK_ALLOC(plan->commands);
fail:
    free(time);
    return status;
}

static enum vka_status record_submits(struct vka_plan *plan)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    for (size_t i = 0; i < plan->n_submit; i++) {
        size_t begin = plan->first[i], end = plan->first[i + 1];
        ENSURE(vk_begin(log, &device->vk, plan->commands[i],
                        VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT));
        record_passes(plan, begin, end, plan->commands[i], plan->queries, (uint32_t)(begin + i));
        ENSURE_VK(device->vk.vkEndCommandBuffer(plan->commands[i]));
    }
    return VKA_OK;
}

enum vka_status plan_record(struct vka_plan *plan)
{
    ENSURE(make_all_pipelines(plan));
    ENSURE(group_passes(plan));
    ENSURE(create_pools(plan));
    for (size_t i = 0; i < plan->n_pass; i++)
        ENSURE(write_descriptors(plan, &plan->passes[i]));
    ENSURE(record_submits(plan));
    plan->is_recorded = true;
    return VKA_OK;
}

enum vka_status plan_read_timestamps(struct vka_plan *plan)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    size_t n = plan->n_pass + plan->n_submit; /* one before each submit, one after each pass */
    uint64_t *ticks = calloc(n, sizeof *ticks);
    CHECK_ALLOC(ticks);
    const VkResult result = device->vk.vkGetQueryPoolResults(device->handle, plan->queries, 0,
                                                             (uint32_t)n, n * sizeof *ticks, ticks,
                                                             sizeof *ticks, VK_QUERY_RESULT_64_BIT);
    if (result != VK_SUCCESS && result != VK_NOT_READY)
        status = vk_error(log, result, "vkGetQueryPoolResults");
    TRY(status);
    for (size_t i = 0, submit = 0; i < plan->n_pass; i++) {
        submit += i == plan->first[submit + 1];
        const uint64_t *at = &ticks[i + submit];
        uint64_t passed = (at[1] - at[0]) & device->caps.timestamp_mask;
        plan->gpu_ms[i] =
            result == VK_SUCCESS ? (double)passed * device->caps.timestamp_ns * 1e-6 : -1;
    }
fail:
    free(ticks);
    return queue_check_lost(device, status);
}
