/* What a host does, step by step, with the mistake that it is asked for. SPDX-License-Identifier: MIT */
#include "mistaken_host.h"

#include <gpu/kernels_spv.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

struct rig {
    const struct host *h;
    VkInstance instance;
    VkDevice device;
    VkQueue queue;
    VkBuffer buffer, target;
    VkDeviceMemory memory, target_memory;
    VkDescriptorSetLayout set_layout;
    VkPipelineLayout layout;
    VkShaderModule module;
    VkPipeline pipeline;
    VkDescriptorPool pool;
    VkDescriptorSet set;
    VkCommandPool commands_pool;
    VkCommandBuffer commands;
    VkSemaphore timeline;
    VkQueryPool queries;
};

#define DO(call)                                               \
    do {                                                       \
        if ((call) != VK_SUCCESS) {                            \
            fprintf(stderr, "line %d: " #call "\n", __LINE__); \
            exit(3);                                           \
        }                                                      \
    } while (0)

/* An empty shader of 8 invocations along x (constant 0) with 4 * 16 words of shared memory (16:
 * constant 1), and one capability. Rows: header and memory model; OpEntryPoint, OpExecutionMode; ids of
 * constants, the size of the workgroup; types; constants; 4 * 16; the array; main. */
#define CODE_CAPABILITY 6
#define OP(length, opcode) ((uint32_t)(length) << 16 | (opcode))
// clang-format off
static const uint32_t code[] = {
    0x07230203, 0x10300, 0, 16, 0, OP(2, 17), 1, OP(3, 14), 0, 1,
    OP(5, 15), 5, 1, 0x6e69616d, 0, OP(6, 16), 1, 17, 1, 1, 1,
    OP(4, 71), 4, 1, 0, OP(4, 71), 5, 1, 1, OP(4, 71), 6, 11, 25,
    OP(2, 19), 2, OP(3, 33), 3, 2, OP(4, 21), 7, 32, 0, OP(4, 23), 8, 7, 3,
    OP(4, 50), 7, 4, 8, OP(4, 50), 7, 5, 16, OP(4, 43), 7, 9, 1, OP(4, 43), 7, 11, 4,
    OP(6, 51), 8, 6, 4, 9, 9, OP(6, 52), 7, 10, 132, 5, 11,
    OP(4, 28), 12, 7, 10, OP(4, 32), 13, 4, 12, OP(4, 59), 13, 14, 4,
    OP(5, 54), 2, 1, 0, 3, OP(2, 248), 15, OP(1, 253), OP(1, 56)};
// clang-format on

static bool has_code(const struct host *h)
{
    return h->capability || h->width || h->shared || h->stage_flags || h->required;
}

static uint64_t either(uint64_t given, uint64_t usual)
{
    return given ? given : usual;
}

static void open_device(struct rig *r)
{
    VkPhysicalDevice physical;
    uint32_t n = 1;
    setenv("VKATTN_STUB", r->h->device ? r->h->device : "cpu", 1);
    DO(volkInitialize());
    DO(vkCreateInstance(
        &(VkInstanceCreateInfo){
            .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
            .pApplicationInfo = &(VkApplicationInfo){.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                                     .apiVersion = VK_API_VERSION_1_3}},
        NULL, &r->instance));
    volkLoadInstance(r->instance);
    DO(vkEnumeratePhysicalDevices(r->instance, &n, &physical));
    VkPhysicalDeviceTimelineSemaphoreFeatures timeline = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES,
        .timelineSemaphore = VK_TRUE};
    VkPhysicalDeviceProperties properties;
    vkGetPhysicalDeviceProperties(physical, &properties);
    const bool has = properties.apiVersion >= VK_API_VERSION_1_2 || r->h->feature;
    VkPhysicalDeviceSubgroupSizeControlFeatures subgroups = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES,
        .subgroupSizeControl = VK_TRUE};
    if (r->h->subgroups)
        timeline.pNext = &subgroups;
    DO(vkCreateDevice(
        physical,
        &(VkDeviceCreateInfo){
            .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
            .pNext = has ? &timeline : NULL,
            .queueCreateInfoCount = 1,
            .pQueueCreateInfos =
                &(VkDeviceQueueCreateInfo){.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                           .queueCount = 1,
                                           .pQueuePriorities = &(const float){1}}},
        NULL, &r->device));
    volkLoadDevice(r->device);
    vkGetDeviceQueue(r->device, 0, 0, &r->queue);
}

static void open_buffer(const struct rig *r, uint64_t size, uint64_t memory_size, uint32_t type,
                        VkBuffer *buffer, VkDeviceMemory *memory)
{
    DO(vkCreateBuffer(r->device,
                      &(VkBufferCreateInfo){.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                            .size = size,
                                            .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                                     VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                                     VK_BUFFER_USAGE_TRANSFER_DST_BIT},
                      NULL, buffer));
    DO(vkAllocateMemory(r->device,
                        &(VkMemoryAllocateInfo){.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                                .allocationSize = memory_size,
                                                .memoryTypeIndex = type},
                        NULL, memory));
    if (!r->h->no_memory)
        DO(vkBindBufferMemory(r->device, *buffer, *memory, 0));
}

static void open_buffers(struct rig *r)
{
    const uint64_t size = either(r->h->buffer, SIZE);
    open_buffer(r, size, either(r->h->memory, size), 0, &r->buffer, &r->memory);
    open_buffer(r, SIZE, SIZE, 1, &r->target, &r->target_memory);
    void *bytes = NULL;
    DO(vkMapMemory(r->device, r->h->map_device ? r->memory : r->target_memory, 0, VK_WHOLE_SIZE, 0,
                   &bytes));
    memset(bytes, 1, SIZE);
}

static void open_module(struct rig *r)
{
    const struct kernel_spv *kernel = kernel_spv_table[KERNEL_copy];
    uint32_t own[COUNT(code)];
    memcpy(own, code, sizeof own);
    own[CODE_CAPABILITY] = (uint32_t)either(r->h->capability, 1);
    const bool other = has_code(r->h);
    DO(vkCreateShaderModule(
        r->device,
        &(VkShaderModuleCreateInfo){.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                    .codeSize = other ? sizeof own : kernel->size,
                                    .pCode = other ? own : kernel->words},
        NULL, &r->module));
}

static void open_stage(struct rig *r)
{
    const struct host *h = r->h;
    const uint32_t values[] = {(uint32_t)either(h->width, 8), (uint32_t)either(h->shared, 16)};
    const VkSpecializationMapEntry entries[] = {{0, 0, 4}, {1, 4, 4}};
    const VkSpecializationInfo constants = {2, entries, sizeof values, values};
    const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
        .requiredSubgroupSize = h->required};
    open_module(r);
    DO(vkCreateComputePipelines(
        r->device, VK_NULL_HANDLE, 1,
        &(VkComputePipelineCreateInfo){
            .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
            .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                      .pNext = h->required ? &size : NULL,
                      .flags = h->stage_flags,
                      .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                      .module = h->wrong ? (VkShaderModule)r->buffer : r->module,
                      .pName = "main",
                      .pSpecializationInfo = has_code(h) ? &constants : NULL},
            .layout = r->layout},
        NULL, &r->pipeline));
}

static void open_pipeline(struct rig *r)
{
    VkDescriptorSetLayoutBinding bindings[14];
    const uint32_t n = r->h->few_bindings ? 1 : kernel_table[KERNEL_copy].buffers;
    for (uint32_t i = 0; i < n; i++)
        bindings[i] = (VkDescriptorSetLayoutBinding){i, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1,
                                                     VK_SHADER_STAGE_COMPUTE_BIT, NULL};
    DO(vkCreateDescriptorSetLayout(r->device,
                                   &(VkDescriptorSetLayoutCreateInfo){
                                       .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                                       .bindingCount = n,
                                       .pBindings = bindings},
                                   NULL, &r->set_layout));
    DO(vkCreatePipelineLayout(
        r->device,
        &(VkPipelineLayoutCreateInfo){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
            .setLayoutCount = 1,
            .pSetLayouts = &r->set_layout,
            .pushConstantRangeCount = 1,
            .pPushConstantRanges = &(VkPushConstantRange){VK_SHADER_STAGE_COMPUTE_BIT, 0,
                                                          (uint32_t)either(r->h->push, PUSH)}},
        NULL, &r->layout));
    open_stage(r);
}

static void open_set(struct rig *r)
{
    const uint32_t n = kernel_table[KERNEL_copy].buffers;
    DO(vkCreateDescriptorPool(
        r->device,
        &(VkDescriptorPoolCreateInfo){
            .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
            .maxSets = 1,
            .poolSizeCount = 1,
            .pPoolSizes = &(VkDescriptorPoolSize){VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, n}},
        NULL, &r->pool));
    DO(vkAllocateDescriptorSets(
        r->device,
        &(VkDescriptorSetAllocateInfo){.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                       .descriptorPool = r->pool,
                                       .descriptorSetCount = 1,
                                       .pSetLayouts = &r->set_layout},
        &r->set));
    for (uint32_t i = 0; i < either(r->h->bindings, n); i++)
        vkUpdateDescriptorSets(
            r->device, 1,
            &(VkWriteDescriptorSet){
                .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                .dstSet = r->set,
                .dstBinding = i,
                .descriptorCount = 1,
                .descriptorType = r->h->texel ? VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER
                                              : VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                .pBufferInfo =
                    &(VkDescriptorBufferInfo){r->buffer, r->h->offset, either(r->h->range, SIZE)}},
            0, NULL);
}

static void record_transfers(struct rig *r)
{
    const struct host *h = r->h;
    vkCmdFillBuffer(r->commands, r->target, h->fill_at, 16, 7);
    vkCmdCopyBuffer(r->commands, r->target, r->buffer, 1,
                    &(VkBufferCopy){h->copy_at, 0, either(h->copy_size, 256)});
    if (h->copy_within)
        vkCmdCopyBuffer(r->commands, r->target, r->target, 1, &(VkBufferCopy){0, 128, 256});
    vkCmdPipelineBarrier(r->commands, h->bad_stage ? 0 : VK_PIPELINE_STAGE_TRANSFER_BIT,
                         VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1,
                         &(VkMemoryBarrier){.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                            .srcAccessMask = h->bad_access
                                                                 ? VK_ACCESS_SHADER_WRITE_BIT
                                                                 : VK_ACCESS_TRANSFER_WRITE_BIT,
                                            .dstAccessMask = VK_ACCESS_SHADER_READ_BIT},
                         0, NULL, 0, NULL);
}

static void record(struct rig *r)
{
    const struct host *h = r->h;
    static const unsigned char push[256];
    DO(vkCreateCommandPool(
        r->device, &(VkCommandPoolCreateInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO},
        NULL, &r->commands_pool));
    DO(vkAllocateCommandBuffers(
        r->device,
        &(VkCommandBufferAllocateInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                       .commandPool = r->commands_pool,
                                       .commandBufferCount = 1},
        &r->commands));
    DO(vkBeginCommandBuffer(
        r->commands,
        &(VkCommandBufferBeginInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                    .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT}));
    record_transfers(r);
    if (!h->no_reset)
        vkCmdResetQueryPool(r->commands, r->queries, 0, 1);
    vkCmdBindPipeline(r->commands, VK_PIPELINE_BIND_POINT_COMPUTE, r->pipeline);
    if (!h->unbound)
        vkCmdBindDescriptorSets(r->commands, VK_PIPELINE_BIND_POINT_COMPUTE, r->layout, 0, 1,
                                &r->set, 0, NULL);
    vkCmdPushConstants(r->commands, r->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                       (uint32_t)either(h->push_set, PUSH), push);
    vkCmdDispatch(r->commands, h->no_groups ? 0 : (uint32_t)either(h->groups, 1), 1, 1);
    vkCmdWriteTimestamp(r->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, r->queries, 0);
    if (!h->no_end)
        DO(vkEndCommandBuffer(r->commands));
    if (h->begin_again)
        vkBeginCommandBuffer(
            r->commands,
            &(VkCommandBufferBeginInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO});
}

static void submit(const struct rig *r, uint64_t value)
{
    DO(vkQueueSubmit(
        r->queue, 1,
        &(VkSubmitInfo){.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                        .pNext =
                            &(VkTimelineSemaphoreSubmitInfo){
                                .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                .signalSemaphoreValueCount = 1,
                                .pSignalSemaphoreValues = &value},
                        .commandBufferCount = 1,
                        .pCommandBuffers = &r->commands,
                        .signalSemaphoreCount = 1,
                        .pSignalSemaphores = &r->timeline},
        VK_NULL_HANDLE));
}

static void wait_for(const struct rig *r, uint64_t value)
{
    DO(vkWaitSemaphores(r->device,
                        &(VkSemaphoreWaitInfo){.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                               .semaphoreCount = 1,
                                               .pSemaphores = &r->timeline,
                                               .pValues = &value},
                        1));
}

static void run(struct rig *r)
{
    const struct host *h = r->h;
    uint64_t ticks = 0;
    submit(r, h->falls ? 5 : 6);
    if (h->twice)
        submit(r, 7);
    if (h->free_buffer)
        vkDestroyBuffer(r->device, r->buffer, NULL);
    if (h->free_set)
        vkDestroyDescriptorPool(r->device, r->pool, NULL);
    if (h->free_pipeline)
        vkDestroyPipeline(r->device, r->pipeline, NULL);
    if (h->free_commands)
        vkFreeCommandBuffers(r->device, r->commands_pool, 1, &r->commands);
    if (!h->no_wait)
        wait_for(r, h->never_signaled ? 8 : 6);
    if (h->submit_again)
        submit(r, 7);
    if (!h->no_wait)
        DO(vkGetQueryPoolResults(r->device, r->queries, 0, 1, sizeof ticks, &ticks, sizeof ticks,
                                 VK_QUERY_RESULT_64_BIT));
}

static void close_all(struct rig *r)
{
    const struct host *h = r->h;
    if (!h->leak_buffer)
        vkDestroyBuffer(r->device, r->buffer, NULL);
    if (h->destroy_twice)
        vkDestroyBuffer(r->device, r->buffer, NULL);
    vkDestroyBuffer(r->device, r->target, NULL);
    if (!h->leak_memory)
        vkFreeMemory(r->device, r->memory, NULL);
    vkFreeMemory(r->device, r->target_memory, NULL);
    if (!h->leak_pipeline)
        vkDestroyPipeline(r->device, r->pipeline, NULL);
    vkDestroyShaderModule(r->device, r->module, NULL);
    vkDestroyPipelineLayout(r->device, r->layout, NULL);
    vkDestroyDescriptorSetLayout(r->device, r->set_layout, NULL);
    vkDestroyDescriptorPool(r->device, r->pool, NULL);
    if (!h->no_wait)
        vkDestroyCommandPool(r->device, r->commands_pool, NULL);
    vkDestroySemaphore(r->device, r->timeline, NULL);
    vkDestroyQueryPool(r->device, r->queries, NULL);
    if (!h->leak_device)
        vkDestroyDevice(r->device, NULL);
    vkDestroyInstance(r->instance, NULL);
}

void host_play(const struct host *h)
{
    struct rig r = {.h = h};
    open_device(&r);
    open_buffers(&r);
    open_pipeline(&r);
    open_set(&r);
    DO(vkCreateSemaphore(
        r.device,
        &(VkSemaphoreCreateInfo){
            .sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
            .pNext =
                &(VkSemaphoreTypeCreateInfo){.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                             .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE,
                                             .initialValue = 5}},
        NULL, &r.timeline));
    DO(vkCreateQueryPool(r.device,
                         &(VkQueryPoolCreateInfo){.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                                  .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                                  .queryCount = 1},
                         NULL, &r.queries));
    record(&r);
    run(&r);
    close_all(&r);
}
