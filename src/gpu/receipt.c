#include "gpu/receipt.h"
#include "gpu/device.h"

#define WRITTEN 0x600D600Du /* nothing that memory holds by chance */

static uint32_t *word_of(struct vka_device *device, uint64_t at)
{
    return (uint32_t *)memory_mapped(&device->queue.receipts.words) + at;
}

/* Fills the word once all kernels and copies submitted before are done. */
static enum vka_status record(struct vka_device *device, VkCommandBuffer commands, uint64_t at)
{
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    const struct memory_range *words = &device->queue.receipts.words;
    VK(device->vk.vkBeginCommandBuffer(
        commands,
        &(VkCommandBufferBeginInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO}));
    device->vk.vkCmdPipelineBarrier(
        commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
        VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 0, NULL, 0, NULL, 0, NULL);
    device->vk.vkCmdFillBuffer(commands, words->block->buffer, words->offset + at * 4, 4, WRITTEN);
    const VkMemoryBarrier after = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_HOST_READ_BIT,
    };
    device->vk.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
                                    VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &after, 0, NULL, 0, NULL);
    VK(device->vk.vkEndCommandBuffer(commands));
fail:
    return status;
}

enum vka_status receipts_init(struct vka_device *device)
{
    struct receipts *r = &device->queue.receipts;
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    TRY(memory_allocate(device, MEMORY_STAGING, MAX_RECEIPTS * 4, &r->words));
    VK(device->vk.vkAllocateCommandBuffers(
        device->handle,
        &(VkCommandBufferAllocateInfo){
            .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
            .commandPool = device->queue.pool,
            .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
            .commandBufferCount = MAX_RECEIPTS,
        },
        r->commands));
    for (uint64_t i = 0; i < MAX_RECEIPTS; i++)
        TRY(record(device, r->commands[i], i));
fail:
    return status;
}

VkCommandBuffer receipt_take(struct vka_device *device, uint64_t ticket, bool last)
{
    struct receipts *r = &device->queue.receipts;
    uint64_t at = 0, n_free = 0;
    for (uint64_t i = 0; i < MAX_RECEIPTS; i++)
        if (!r->ticket[i]) {
            at = i;
            n_free++;
        }
    if (n_free < (last ? 1 : 2))
        return VK_NULL_HANDLE;
    r->ticket[at] = ticket;
    *word_of(device, at) = 0;
    return r->commands[at];
}

void receipt_drop(struct vka_device *device, uint64_t ticket)
{
    uint64_t *tickets = device->queue.receipts.ticket;
    for (uint64_t i = 0; i < MAX_RECEIPTS; i++)
        if (tickets[i] == ticket)
            tickets[i] = 0;
}

enum vka_status receipts_check(struct vka_device *device, uint64_t ticket)
{
    struct receipts *r = &device->queue.receipts;
    for (uint64_t i = 0; i < MAX_RECEIPTS; i++) {
        if (!r->ticket[i] || r->ticket[i] > ticket)
            continue;
        if (*(volatile uint32_t *)word_of(device, i) != WRITTEN)
            return log_error(&device->log, VKA_DEVICE_LOST,
                             "the driver reports submit %llu as done, but did not do it",
                             (unsigned long long)r->ticket[i]);
        r->ticket[i] = 0;
    }
    return VKA_OK;
}
