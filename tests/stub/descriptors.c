/* Code, pipelines and what they bind. */
#include "stub.h"

#include <stdlib.h>
#include <string.h>

#define SPIRV_MAGIC 0x07230203u
#define OP_DECORATE 71
#define OP_FUNCTION 54
#define DECORATION_BINDING 33
#define DECORATION_SET 34

/* ---- Code ------------------------------------------------------------------------------------ */

/* Notes the bindings that SPIR-V declares; it does so before its first function, where the code that
 * is kept ends. */
static void read_code(struct stub_shader_module *module, const uint32_t *words, size_t n)
{
    size_t i = 5;
    while (i < n && (words[i] & 0xffff) != OP_FUNCTION) {
        const uint32_t op = words[i] & 0xffff, length = words[i] >> 16;
        if (!length || length > n - i)
            stub_mistake("vkCreateShaderModule", "an instruction of %u words at %zu", length, i);
        if (op == OP_DECORATE && length == 4 && words[i + 2] == DECORATION_BINDING) {
            if (words[i + 3] >= STUB_BINDINGS)
                stub_mistake("vkCreateShaderModule", "binding %u", words[i + 3]);
            module->bindings |= 1u << words[i + 3];
        }
        if (op == OP_DECORATE && length == 4 && words[i + 2] == DECORATION_SET)
            module->sets |= words[i + 3] != 0;
        i += length;
    }
    module->n = i;
    module->words = malloc(i * sizeof *words);
    if (!module->words)
        abort();
    memcpy(module->words, words, i * sizeof *words);
}

static VKAPI_ATTR VkResult VKAPI_CALL
stub_vkCreateShaderModule(VkDevice handle, const VkShaderModuleCreateInfo *info,
                          const VkAllocationCallbacks *a, VkShaderModule *out)
{
    (void)a;
    STUB_CHECK(info->codeSize >= 20 && info->codeSize % 4 == 0 && info->pCode[0] == SPIRV_MAGIC,
               "%zu bytes that are no SPIR-V", info->codeSize);
    struct stub_device *device = (struct stub_device *)handle;
    struct stub_shader_module *module = stub_create(device, STUB_SHADER_MODULE, sizeof *module);
    read_code(module, info->pCode, info->codeSize / 4);
    stub_check_code(device, module->words, module->n);
    *out = (VkShaderModule)module->object.handle;
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL stub_vkDestroyShaderModule(VkDevice device, VkShaderModule object,
                                                             const VkAllocationCallbacks *a)
{
    (void)a;
    struct stub_shader_module *module =
        STUB_REMOVE((struct stub_device *)device, STUB_SHADER_MODULE, object);
    if (module)
        free(module->words);
    free(module);
}

/* ---- Layouts --------------------------------------------------------------------------------- */

static VKAPI_ATTR VkResult VKAPI_CALL
stub_vkCreateDescriptorSetLayout(VkDevice handle, const VkDescriptorSetLayoutCreateInfo *info,
                                 const VkAllocationCallbacks *a, VkDescriptorSetLayout *out)
{
    (void)a;
    struct stub_device *device = (struct stub_device *)handle;
    uint32_t storage = 0;
    STUB_CHECK(info->bindingCount <= STUB_BINDINGS, "%u bindings", info->bindingCount);
    struct stub_set_layout *layout = stub_create(device, STUB_SET_LAYOUT, sizeof *layout);
    layout->count = info->bindingCount;
    for (uint32_t i = 0; i < info->bindingCount; i++) {
        const VkDescriptorSetLayoutBinding *b = &info->pBindings[i];
        STUB_CHECK(b->binding == i && b->descriptorCount == 1 &&
                       b->stageFlags & VK_SHADER_STAGE_COMPUTE_BIT,
                   "binding %u in place %u", b->binding, i);
        STUB_CHECK(b->descriptorType == VK_DESCRIPTOR_TYPE_STORAGE_BUFFER ||
                       b->descriptorType == VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER,
                   "a descriptor of type %d", (int)b->descriptorType);
        layout->types[i] = b->descriptorType;
        storage += b->descriptorType == VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    }
    STUB_CHECK(storage <= device->kind->storage_buffers,
               "%u storage buffers exceed maxPerStageDescriptorStorageBuffers", storage);
    *out = (VkDescriptorSetLayout)layout->object.handle;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL
stub_vkCreatePipelineLayout(VkDevice handle, const VkPipelineLayoutCreateInfo *info,
                            const VkAllocationCallbacks *a, VkPipelineLayout *out)
{
    (void)a;
    struct stub_device *device = (struct stub_device *)handle;
    STUB_CHECK(info->setLayoutCount == 1 && info->pushConstantRangeCount <= 1,
               "%u sets, %u ranges of push constants", info->setLayoutCount,
               info->pushConstantRangeCount);
    const struct stub_set_layout *set = STUB_GET(device, STUB_SET_LAYOUT, info->pSetLayouts[0]);
    struct stub_pipeline_layout *layout = stub_create(device, STUB_PIPELINE_LAYOUT, sizeof *layout);
    layout->count = set->count;
    memcpy(layout->types, set->types, sizeof layout->types);
    if (info->pushConstantRangeCount) {
        const VkPushConstantRange *range = info->pPushConstantRanges;
        STUB_CHECK(range->offset == 0 && range->size % 4 == 0 && range->size <= STUB_PUSH,
                   "%u bytes of push constants at %u exceed maxPushConstantsSize", range->size,
                   range->offset);
        layout->push = range->size;
    }
    *out = (VkPipelineLayout)layout->object.handle;
    return VK_SUCCESS;
}

/* ---- Pipelines ------------------------------------------------------------------------------- */

static void check_specialization(const VkSpecializationInfo *info)
{
    static const char *const function = "vkCreateComputePipelines";
    for (uint32_t i = 0; info && i < info->mapEntryCount; i++) {
        const VkSpecializationMapEntry *e = &info->pMapEntries[i];
        if (e->offset >= info->dataSize || e->size > info->dataSize - e->offset)
            stub_mistake(function, "specialization constant %u past the data", e->constantID);
        for (uint32_t j = 0; j < i; j++)
            if (info->pMapEntries[j].constantID == e->constantID)
                stub_mistake(function, "specialization constant %u twice", e->constantID);
    }
}

static VkPipeline create_pipeline(struct stub_device *device,
                                  const VkComputePipelineCreateInfo *info)
{
    static const char *const function = "vkCreateComputePipelines";
    const struct stub_shader_module *module =
        stub_get(device, STUB_SHADER_MODULE, (uint64_t)info->stage.module, function);
    const struct stub_pipeline_layout *layout =
        stub_get(device, STUB_PIPELINE_LAYOUT, (uint64_t)info->layout, function);
    check_specialization(info->stage.pSpecializationInfo);
    if (info->stage.stage != VK_SHADER_STAGE_COMPUTE_BIT || strcmp(info->stage.pName, "main") != 0)
        stub_mistake(function, "stage %d, entrance %s", (int)info->stage.stage, info->stage.pName);
    if ((layout->count < 32 && module->bindings >> layout->count) || module->sets)
        stub_mistake(function, "the code has a binding that its layout of %u has not",
                     layout->count);
    stub_check_stage(device, module, &info->stage);
    struct stub_pipeline *pipeline = stub_create(device, STUB_PIPELINE, sizeof *pipeline);
    pipeline->count = layout->count;
    pipeline->push = layout->push;
    memcpy(pipeline->types, layout->types, sizeof pipeline->types);
    return (VkPipeline)pipeline->object.handle;
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkCreateComputePipelines(
    VkDevice handle, VkPipelineCache cache, uint32_t n, const VkComputePipelineCreateInfo *info,
    const VkAllocationCallbacks *a, VkPipeline *out)
{
    (void)a;
    struct stub_device *device = (struct stub_device *)handle;
    if (cache)
        STUB_GET(device, STUB_PIPELINE_CACHE, cache);
    for (uint32_t i = 0; i < n; i++)
        out[i] = create_pipeline(device, &info[i]);
    return VK_SUCCESS;
}

/* ---- Descriptors ----------------------------------------------------------------------------- */

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkCreateBufferView(VkDevice handle,
                                                              const VkBufferViewCreateInfo *info,
                                                              const VkAllocationCallbacks *a,
                                                              VkBufferView *out)
{
    (void)a;
    struct stub_device *device = (struct stub_device *)handle;
    const struct stub_buffer *buffer = STUB_GET(device, STUB_BUFFER, info->buffer);
    STUB_CHECK(buffer->usage & VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT,
               "a buffer without that usage");
    STUB_CHECK(info->offset % device->kind->alignment == 0,
               "offset %llu is no multiple of minTexelBufferOffsetAlignment",
               (unsigned long long)info->offset);
    STUB_CHECK(info->range % 16 == 0 && info->range / 16 <= device->kind->texels,
               "%llu bytes of texels exceed maxTexelBufferElements",
               (unsigned long long)info->range);
    stub_bytes(device, buffer->object.handle, info->offset, info->range, __func__);
    struct stub_buffer_view *view = stub_create(device, STUB_BUFFER_VIEW, sizeof *view);
    view->buffer = buffer->object.handle;
    view->offset = info->offset;
    view->range = info->range;
    *out = (VkBufferView)view->object.handle;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL
stub_vkCreateDescriptorPool(VkDevice handle, const VkDescriptorPoolCreateInfo *info,
                            const VkAllocationCallbacks *a, VkDescriptorPool *out)
{
    (void)a;
    struct stub_descriptor_pool *pool =
        stub_create((struct stub_device *)handle, STUB_DESCRIPTOR_POOL, sizeof *pool);
    pool->sets = info->maxSets;
    for (uint32_t i = 0; i < info->poolSizeCount; i++)
        if (info->pPoolSizes[i].type == VK_DESCRIPTOR_TYPE_STORAGE_BUFFER)
            pool->storage += info->pPoolSizes[i].descriptorCount;
        else
            pool->texels += info->pPoolSizes[i].descriptorCount;
    *out = (VkDescriptorPool)pool->object.handle;
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL stub_vkDestroyDescriptorPool(VkDevice handle,
                                                               VkDescriptorPool object,
                                                               const VkAllocationCallbacks *a)
{
    (void)a;
    struct stub_device *device = (struct stub_device *)handle;
    struct stub_descriptor_pool *pool = STUB_REMOVE(device, STUB_DESCRIPTOR_POOL, object);
    while (pool && pool->list) {
        struct stub_descriptor_set *set = pool->list;
        pool->list = set->next;
        free(STUB_REMOVE(device, STUB_DESCRIPTOR_SET, set->object.handle));
    }
    free(pool);
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkAllocateDescriptorSets(
    VkDevice handle, const VkDescriptorSetAllocateInfo *info, VkDescriptorSet *out)
{
    struct stub_device *device = (struct stub_device *)handle;
    struct stub_descriptor_pool *pool =
        STUB_GET(device, STUB_DESCRIPTOR_POOL, info->descriptorPool);
    for (uint32_t i = 0; i < info->descriptorSetCount; i++) {
        const struct stub_set_layout *layout =
            STUB_GET(device, STUB_SET_LAYOUT, info->pSetLayouts[i]);
        struct stub_descriptor_set *set = stub_create(device, STUB_DESCRIPTOR_SET, sizeof *set);
        set->pool = pool->object.handle;
        set->count = layout->count;
        memcpy(set->types, layout->types, sizeof set->types);
        STUB_CHECK(pool->sets-- > 0, "more sets than the pool has");
        for (uint32_t j = 0; j < layout->count; j++) {
            const bool storage = layout->types[j] == VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
            uint32_t *left = storage ? &pool->storage : &pool->texels;
            STUB_CHECK(*left > 0, "more descriptors than the pool has");
            --*left;
        }
        set->next = pool->list;
        pool->list = set;
        out[i] = (VkDescriptorSet)set->object.handle;
    }
    return VK_SUCCESS;
}

/* A buffer as a storage buffer. */
static void check_storage(struct stub_device *device, const struct stub_descriptor *d,
                          const char *function)
{
    const struct stub_buffer *buffer = stub_get(device, STUB_BUFFER, d->buffer, function);
    if (!(buffer->usage & VK_BUFFER_USAGE_STORAGE_BUFFER_BIT))
        stub_mistake(function, "a buffer without usage of storage");
    if (d->offset % device->kind->alignment)
        stub_mistake(function, "offset %llu is no multiple of minStorageBufferOffsetAlignment",
                     (unsigned long long)d->offset);
    if (d->range > device->kind->range)
        stub_mistake(function, "%llu bytes exceed maxStorageBufferRange",
                     (unsigned long long)d->range);
    stub_bytes(device, d->buffer, d->offset, d->range, function);
}

static void write_descriptor(struct stub_device *device, const VkWriteDescriptorSet *write)
{
    static const char *const function = "vkUpdateDescriptorSets";
    struct stub_descriptor_set *set =
        stub_get(device, STUB_DESCRIPTOR_SET, (uint64_t)write->dstSet, function);
    if (write->dstBinding >= set->count || write->descriptorCount != 1 || write->dstArrayElement)
        stub_mistake(function, "binding %u of a set of %u", write->dstBinding, set->count);
    if (write->descriptorType != set->types[write->dstBinding])
        stub_mistake(function, "a descriptor of type %d where the layout has %d",
                     (int)write->descriptorType, (int)set->types[write->dstBinding]);
    struct stub_descriptor *d = &set->descriptors[write->dstBinding];
    *d = (struct stub_descriptor){0};
    if (write->descriptorType == VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER) {
        d->view = (uint64_t)write->pTexelBufferView[0];
        stub_get(device, STUB_BUFFER_VIEW, d->view, function);
        return;
    }
    const VkDescriptorBufferInfo *info = write->pBufferInfo;
    d->buffer = (uint64_t)info->buffer;
    d->offset = info->offset;
    const struct stub_buffer *buffer = stub_get(device, STUB_BUFFER, d->buffer, function);
    d->range = info->range;
    if (info->range == VK_WHOLE_SIZE && info->offset < buffer->size)
        d->range = buffer->size - info->offset;
    check_storage(device, d, function);
}

static VKAPI_ATTR void VKAPI_CALL stub_vkUpdateDescriptorSets(VkDevice handle, uint32_t n,
                                                              const VkWriteDescriptorSet *writes,
                                                              uint32_t n_copy,
                                                              const VkCopyDescriptorSet *copies)
{
    (void)copies;
    STUB_CHECK(n_copy == 0, "copies of descriptors");
    for (uint32_t i = 0; i < n; i++)
        write_descriptor((struct stub_device *)handle, &writes[i]);
}

void stub_check_set(struct stub_device *device, const struct stub_pipeline *pipeline,
                    const struct stub_descriptor_set *set, const char *function)
{
    if (set->count != pipeline->count ||
        memcmp(set->types, pipeline->types, sizeof set->types) != 0)
        stub_mistake(function, "the set has another layout than the pipeline");
    for (uint32_t i = 0; i < set->count; i++) {
        const struct stub_descriptor *d = &set->descriptors[i];
        if (!d->buffer && !d->view)
            stub_mistake(function, "binding %u is not set", i);
        if (d->buffer) {
            check_storage(device, d, function);
            continue;
        }
        const struct stub_buffer_view *view = stub_get(device, STUB_BUFFER_VIEW, d->view, function);
        stub_bytes(device, view->buffer, view->offset, view->range, function);
    }
}

const struct stub_function stub_descriptor_functions[] = {
    STUB_FUNCTION(vkCreateShaderModule),
    STUB_FUNCTION(vkDestroyShaderModule),
    STUB_FUNCTION(vkCreateDescriptorSetLayout),
    STUB_FUNCTION(vkCreatePipelineLayout),
    STUB_FUNCTION(vkCreateComputePipelines),
    STUB_FUNCTION(vkCreateBufferView),
    STUB_FUNCTION(vkCreateDescriptorPool),
    STUB_FUNCTION(vkDestroyDescriptorPool),
    STUB_FUNCTION(vkAllocateDescriptorSets),
    STUB_FUNCTION(vkUpdateDescriptorSets),
    {0},
};
