/* Command buffers: what is recorded is judged then, and kept to be run. */
#include "stub.h"

#include <vulkan/vk_icd.h>

#include <stdlib.h>
#include <string.h>

/* ---- Pools and states ------------------------------------------------------------------------ */

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkCreateCommandPool(VkDevice handle,
                                                               const VkCommandPoolCreateInfo *info,
                                                               const VkAllocationCallbacks *a,
                                                               VkCommandPool *out)
{
    (void)a;
    STUB_CHECK(info->queueFamilyIndex == 0, "family %u", info->queueFamilyIndex);
    struct stub_command_pool *pool =
        stub_create((struct stub_device *)handle, STUB_COMMAND_POOL, sizeof *pool);
    *out = (VkCommandPool)pool->object.handle;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkAllocateCommandBuffers(
    VkDevice handle, const VkCommandBufferAllocateInfo *info, VkCommandBuffer *out)
{
    struct stub_device *device = (struct stub_device *)handle;
    struct stub_command_pool *pool = STUB_GET(device, STUB_COMMAND_POOL, info->commandPool);
    STUB_CHECK(info->commandBufferCount > 0, "no command buffers");
    for (uint32_t i = 0; i < info->commandBufferCount; i++) {
        struct stub_command_buffer *commands = calloc(1, sizeof *commands);
        if (!commands)
            abort();
        set_loader_magic_value(commands);
        commands->device = device;
        commands->next = pool->list;
        pool->list = commands;
        out[i] = (VkCommandBuffer)commands;
    }
    return VK_SUCCESS;
}

/* It is kept, empty, until the device is destroyed. */
static void give_up(struct stub_device *device, struct stub_command_buffer *commands,
                    const char *function)
{
    if (commands->pending)
        stub_mistake(function, "a command buffer of a submit that is pending");
    free(commands->commands);
    commands->commands = NULL;
    commands->state = STUB_FREED;
    commands->next = device->freed;
    device->freed = commands;
}

static VKAPI_ATTR void VKAPI_CALL stub_vkFreeCommandBuffers(VkDevice handle, VkCommandPool object,
                                                            uint32_t n, const VkCommandBuffer *list)
{
    struct stub_device *device = (struct stub_device *)handle;
    struct stub_command_pool *pool = STUB_GET(device, STUB_COMMAND_POOL, object);
    for (uint32_t i = 0; i < n; i++) {
        struct stub_command_buffer *commands = (struct stub_command_buffer *)list[i];
        if (!commands)
            continue;
        STUB_CHECK(commands->state != STUB_FREED, "a command buffer that is free already");
        struct stub_command_buffer **link = &pool->list;
        while (*link && *link != commands)
            link = &(*link)->next;
        STUB_CHECK(*link, "a command buffer of another pool");
        *link = commands->next;
        give_up(device, commands, "vkFreeCommandBuffers");
    }
}

static VKAPI_ATTR void VKAPI_CALL stub_vkDestroyCommandPool(VkDevice handle, VkCommandPool object,
                                                            const VkAllocationCallbacks *a)
{
    (void)a;
    struct stub_device *device = (struct stub_device *)handle;
    struct stub_command_pool *pool = STUB_REMOVE(device, STUB_COMMAND_POOL, object);
    while (pool && pool->list) {
        struct stub_command_buffer *commands = pool->list;
        pool->list = commands->next;
        give_up(device, commands, "vkDestroyCommandPool");
    }
    free(pool);
}

static VKAPI_ATTR VkResult VKAPI_CALL
stub_vkBeginCommandBuffer(VkCommandBuffer handle, const VkCommandBufferBeginInfo *info)
{
    struct stub_command_buffer *commands = (struct stub_command_buffer *)handle;
    STUB_CHECK(commands->state == STUB_INITIAL, "a command buffer in state %d",
               (int)commands->state);
    commands->state = STUB_RECORDING;
    commands->usage = info->flags;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkEndCommandBuffer(VkCommandBuffer handle)
{
    struct stub_command_buffer *commands = (struct stub_command_buffer *)handle;
    STUB_CHECK(commands->state == STUB_RECORDING, "a command buffer in state %d",
               (int)commands->state);
    commands->state = STUB_EXECUTABLE;
    return VK_SUCCESS;
}

/* A new command of a buffer that is being recorded. */
static struct stub_command *add(VkCommandBuffer handle, enum stub_command_kind kind)
{
    struct stub_command_buffer *commands = (struct stub_command_buffer *)handle;
    if (commands->n == commands->room) {
        commands->room = commands->room ? 2 * commands->room : 4;
        commands->commands =
            realloc(commands->commands, commands->room * sizeof *commands->commands);
        if (!commands->commands)
            abort();
    }
    struct stub_command *command = &commands->commands[commands->n++];
    *command = (struct stub_command){.kind = kind};
    return command;
}

static struct stub_command_buffer *recording(VkCommandBuffer handle, const char *function)
{
    struct stub_command_buffer *commands = (struct stub_command_buffer *)handle;
    if (commands->state != STUB_RECORDING)
        stub_mistake(function, "a command buffer in state %d, which is not being recorded",
                     (int)commands->state);
    return commands;
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static void check_usage(struct stub_device *device, VkBuffer handle, VkBufferUsageFlags usage,
                        const char *function)
{
    const struct stub_buffer *buffer = stub_get(device, STUB_BUFFER, (uint64_t)handle, function);
    if (!(buffer->usage & usage))
        stub_mistake(function, "a buffer without usage of transfer");
}

static bool overlap(uint64_t a, uint64_t b, uint64_t a_size, uint64_t b_size)
{
    return a < b + b_size && b < a + a_size;
}

static VKAPI_ATTR void VKAPI_CALL stub_vkCmdCopyBuffer(VkCommandBuffer handle, VkBuffer from,
                                                       VkBuffer to, uint32_t n,
                                                       const VkBufferCopy *regions)
{
    struct stub_command_buffer *commands = recording(handle, __func__);
    check_usage(commands->device, from, VK_BUFFER_USAGE_TRANSFER_SRC_BIT, __func__);
    check_usage(commands->device, to, VK_BUFFER_USAGE_TRANSFER_DST_BIT, __func__);
    STUB_CHECK(n > 0, "no regions");
    for (uint32_t i = 0; i < n; i++) {
        const VkBufferCopy *r = &regions[i];
        stub_bytes(commands->device, (uint64_t)from, r->srcOffset, r->size, __func__);
        stub_bytes(commands->device, (uint64_t)to, r->dstOffset, r->size, __func__);
        for (uint32_t j = 0; j < n; j++) {
            STUB_CHECK(from != to ||
                           !overlap(regions[j].srcOffset, r->dstOffset, regions[j].size, r->size),
                       "source %u overlaps target %u", j, i);
            STUB_CHECK(j == i ||
                           !overlap(regions[j].dstOffset, r->dstOffset, regions[j].size, r->size),
                       "targets %u and %u overlap", j, i);
        }
        struct stub_command *c = add(handle, STUB_COPY);
        c->from = (uint64_t)from;
        c->to = (uint64_t)to;
        c->from_offset = r->srcOffset;
        c->offset = r->dstOffset;
        c->size = r->size;
    }
}

static VKAPI_ATTR void VKAPI_CALL stub_vkCmdFillBuffer(VkCommandBuffer handle, VkBuffer to,
                                                       VkDeviceSize offset, VkDeviceSize size,
                                                       uint32_t value)
{
    struct stub_command_buffer *commands = recording(handle, __func__);
    check_usage(commands->device, to, VK_BUFFER_USAGE_TRANSFER_DST_BIT, __func__);
    STUB_CHECK(offset % 4 == 0 && size % 4 == 0, "%llu bytes at %llu", (unsigned long long)size,
               (unsigned long long)offset);
    stub_bytes(commands->device, (uint64_t)to, offset, size, __func__);
    struct stub_command *c = add(handle, STUB_FILL);
    c->to = (uint64_t)to;
    c->offset = offset;
    c->size = size;
    c->value = value;
}

/* ---- Barriers -------------------------------------------------------------------------------- */

/* Accesses that no stage of these makes. */
static VkAccessFlags foreign(VkPipelineStageFlags stages, VkAccessFlags access)
{
    VkAccessFlags made = 0;
    if (stages & VK_PIPELINE_STAGE_ALL_COMMANDS_BIT)
        made = ~(VkAccessFlags)(VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT);
    if (stages & VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT)
        made |= VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_UNIFORM_READ_BIT;
    if (stages & VK_PIPELINE_STAGE_TRANSFER_BIT)
        made |= VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
    if (stages & VK_PIPELINE_STAGE_HOST_BIT)
        made |= VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT;
    return access & ~(made | VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT);
}

static VKAPI_ATTR void VKAPI_CALL stub_vkCmdPipelineBarrier(
    VkCommandBuffer handle, VkPipelineStageFlags from, VkPipelineStageFlags to,
    VkDependencyFlags flags, uint32_t n_memory, const VkMemoryBarrier *memory, uint32_t n_buffer,
    const VkBufferMemoryBarrier *buffers, uint32_t n_image, const VkImageMemoryBarrier *images)
{
    (void)flags, (void)images;
    const VkPipelineStageFlags known =
        VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT |
        VK_PIPELINE_STAGE_HOST_BIT | VK_PIPELINE_STAGE_ALL_COMMANDS_BIT |
        VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT | VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT;
    struct stub_command_buffer *commands = recording(handle, __func__);
    STUB_CHECK(from && to && !((from | to) & ~known) && n_image == 0,
               "stages %#x and %#x, which a compute queue has not", from, to);
    for (uint32_t i = 0; i < n_memory; i++)
        STUB_CHECK(!foreign(from, memory[i].srcAccessMask) && !foreign(to, memory[i].dstAccessMask),
                   "accesses %#x and %#x of other stages than %#x and %#x", memory[i].srcAccessMask,
                   memory[i].dstAccessMask, from, to);
    for (uint32_t i = 0; i < n_buffer; i++) {
        STUB_CHECK(!foreign(from, buffers[i].srcAccessMask) &&
                       !foreign(to, buffers[i].dstAccessMask),
                   "accesses of other stages");
        stub_bytes(commands->device, (uint64_t)buffers[i].buffer, buffers[i].offset,
                   buffers[i].size == VK_WHOLE_SIZE ? 1 : buffers[i].size, __func__);
    }
}

/* ---- Dispatches ------------------------------------------------------------------------------ */

static VKAPI_ATTR void VKAPI_CALL stub_vkCmdBindPipeline(VkCommandBuffer handle,
                                                         VkPipelineBindPoint point,
                                                         VkPipeline pipeline)
{
    struct stub_command_buffer *commands = recording(handle, __func__);
    STUB_CHECK(point == VK_PIPELINE_BIND_POINT_COMPUTE, "bind point %d", (int)point);
    STUB_GET(commands->device, STUB_PIPELINE, pipeline);
    commands->pipeline = (uint64_t)pipeline;
}

static VKAPI_ATTR void VKAPI_CALL stub_vkCmdBindDescriptorSets(
    VkCommandBuffer handle, VkPipelineBindPoint point, VkPipelineLayout layout, uint32_t first,
    uint32_t n, const VkDescriptorSet *sets, uint32_t n_dynamic, const uint32_t *dynamic)
{
    (void)dynamic;
    struct stub_command_buffer *commands = recording(handle, __func__);
    STUB_CHECK(point == VK_PIPELINE_BIND_POINT_COMPUTE && first == 0 && n == 1 && n_dynamic == 0,
               "sets %u + %u", first, n);
    const struct stub_pipeline_layout *l = STUB_GET(commands->device, STUB_PIPELINE_LAYOUT, layout);
    const struct stub_descriptor_set *set =
        STUB_GET(commands->device, STUB_DESCRIPTOR_SET, sets[0]);
    STUB_CHECK(l->count == set->count && memcmp(l->types, set->types, sizeof set->types) == 0,
               "the set has another layout");
    commands->set = (uint64_t)sets[0];
}

static VKAPI_ATTR void VKAPI_CALL stub_vkCmdPushConstants(VkCommandBuffer handle,
                                                          VkPipelineLayout layout,
                                                          VkShaderStageFlags stages,
                                                          uint32_t offset, uint32_t size,
                                                          const void *values)
{
    (void)stages;
    struct stub_command_buffer *commands = recording(handle, __func__);
    const struct stub_pipeline_layout *l = STUB_GET(commands->device, STUB_PIPELINE_LAYOUT, layout);
    STUB_CHECK(size > 0 && offset % 4 == 0 && size % 4 == 0 && offset <= l->push &&
                   size <= l->push - offset,
               "%u bytes at %u of push constants of %u", size, offset, l->push);
    unsigned char sum = 0; /* read all, so that sanitizers see what is not the host's */
    for (uint32_t i = 0; i < size; i++)
        sum ^= ((const volatile unsigned char *)values)[i];
    (void)sum;
    memset(commands->push + offset, 1, size);
}

static VKAPI_ATTR void VKAPI_CALL stub_vkCmdDispatch(VkCommandBuffer handle, uint32_t x, uint32_t y,
                                                     uint32_t z)
{
    struct stub_command_buffer *commands = recording(handle, __func__);
    const struct stub_kind *kind = commands->device->kind;
    STUB_CHECK(commands->pipeline, "no pipeline is bound");
    STUB_CHECK(commands->set, "no set is bound");
    /* Without workgroups on all axes a CPU driver is asked to compile. */
    STUB_CHECK((x && y && z) || (!x && !y && !z), "%u x %u x %u workgroups do nothing", x, y, z);
    STUB_CHECK(x <= kind->groups_x && y <= kind->groups_yz && z <= kind->groups_yz,
               "%u x %u x %u workgroups exceed maxComputeWorkGroupCount", x, y, z);
    const struct stub_pipeline *pipeline =
        STUB_GET(commands->device, STUB_PIPELINE, commands->pipeline);
    for (uint32_t i = 0; i < pipeline->push; i++)
        STUB_CHECK(commands->push[i], "byte %u of the push constants is not set", i);
    stub_check_set(commands->device, pipeline,
                   STUB_GET(commands->device, STUB_DESCRIPTOR_SET, commands->set), __func__);
    struct stub_command *c = add(handle, STUB_DISPATCH);
    c->pipeline = commands->pipeline;
    c->set = commands->set;
    c->groups = (uint64_t)x * y * z;
}

/* ---- Queries --------------------------------------------------------------------------------- */

static VKAPI_ATTR void VKAPI_CALL stub_vkCmdResetQueryPool(VkCommandBuffer handle,
                                                           VkQueryPool object, uint32_t first,
                                                           uint32_t n)
{
    struct stub_command_buffer *commands = recording(handle, __func__);
    const struct stub_query_pool *pool = STUB_GET(commands->device, STUB_QUERY_POOL, object);
    STUB_CHECK(n > 0 && first < pool->count && n <= pool->count - first, "queries %u + %u of %u",
               first, n, pool->count);
    struct stub_command *c = add(handle, STUB_RESET);
    c->to = (uint64_t)object;
    c->first = first;
    c->count = n;
}

static VKAPI_ATTR void VKAPI_CALL stub_vkCmdWriteTimestamp(VkCommandBuffer handle,
                                                           VkPipelineStageFlagBits stage,
                                                           VkQueryPool object, uint32_t query)
{
    (void)stage;
    struct stub_command_buffer *commands = recording(handle, __func__);
    const struct stub_query_pool *pool = STUB_GET(commands->device, STUB_QUERY_POOL, object);
    STUB_CHECK(query < pool->count, "query %u of %u", query, pool->count);
    STUB_CHECK(!commands->device->kind->no_timestamps, "a timestamp, which the queue has not");
    struct stub_command *c = add(handle, STUB_STAMP);
    c->to = (uint64_t)object;
    c->first = query;
}

const struct stub_function stub_command_functions[] = {
    STUB_FUNCTION(vkCreateCommandPool),     STUB_FUNCTION(vkAllocateCommandBuffers),
    STUB_FUNCTION(vkFreeCommandBuffers),    STUB_FUNCTION(vkDestroyCommandPool),
    STUB_FUNCTION(vkBeginCommandBuffer),    STUB_FUNCTION(vkEndCommandBuffer),
    STUB_FUNCTION(vkCmdCopyBuffer),         STUB_FUNCTION(vkCmdFillBuffer),
    STUB_FUNCTION(vkCmdPipelineBarrier),    STUB_FUNCTION(vkCmdBindPipeline),
    STUB_FUNCTION(vkCmdBindDescriptorSets), STUB_FUNCTION(vkCmdPushConstants),
    STUB_FUNCTION(vkCmdDispatch),           STUB_FUNCTION(vkCmdResetQueryPool),
    STUB_FUNCTION(vkCmdWriteTimestamp),     {0},
};
