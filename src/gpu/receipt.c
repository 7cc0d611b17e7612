#include "gpu/receipt.h"
#include "gpu/device.h"

#include <stdlib.h>

#define WRITTEN 0x600D600Du /* nothing that memory holds by chance */

static uint32_t *word_of(const struct receipt_page *page, uint64_t at)
{
    return (uint32_t *)memory_mapped(&page->words) + at;
}

/* Fills the word once all kernels and copies submitted before are done. */
static enum vka_status record(struct vka_device *device, const struct receipt_page *page,
                              uint64_t at)
{
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    const struct memory_range *words = &page->words;
    VkCommandBuffer commands = page->commands[at];
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

enum vka_status receipts_grow(struct vka_device *device)
{
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    struct receipt_page *page = calloc(1, sizeof *page);
    CHECK_ALLOC(page);
    TRY(memory_allocate(device, MEMORY_STAGING, PAGE_RECEIPTS * 4, &page->words));
    VK(device->vk.vkAllocateCommandBuffers(
        device->handle,
        &(VkCommandBufferAllocateInfo){
            .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
            .commandPool = device->queue.pool,
            .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
            .commandBufferCount = PAGE_RECEIPTS,
        },
        page->commands));
    for (uint64_t i = 0; i < PAGE_RECEIPTS; i++)
        TRY(record(device, page, i));
    page->next = device->queue.receipts;
    device->queue.receipts = page;
    return VKA_OK;
fail:
    if (page && page->commands[0])
        device->vk.vkFreeCommandBuffers(device->handle, device->queue.pool, PAGE_RECEIPTS,
                                        page->commands);
    if (page)
        memory_free(device, &page->words);
    free(page);
    return status;
}

void receipts_finish(struct vka_device *device)
{
    while (device->queue.receipts) {
        struct receipt_page *page = device->queue.receipts;
        device->queue.receipts = page->next;
        memory_free(device, &page->words);
        free(page);
    }
}

VkCommandBuffer receipt_take(struct vka_device *device, uint64_t ticket)
{
    for (struct receipt_page *page = device->queue.receipts; page; page = page->next)
        for (uint64_t i = 0; i < PAGE_RECEIPTS; i++)
            if (!page->ticket[i]) {
                page->ticket[i] = ticket;
                *word_of(page, i) = 0;
                return page->commands[i];
            }
    return VK_NULL_HANDLE;
}

void receipt_drop(struct vka_device *device, uint64_t ticket)
{
    for (struct receipt_page *page = device->queue.receipts; page; page = page->next)
        for (uint64_t i = 0; i < PAGE_RECEIPTS; i++)
            if (page->ticket[i] == ticket)
                page->ticket[i] = 0;
}

static enum vka_status check_word(struct vka_device *device, struct receipt_page *page, uint64_t at)
{
    if (*(volatile uint32_t *)word_of(page, at) != WRITTEN)
        return log_error(&device->log, VKA_DEVICE_LOST,
                         "the driver reports submit %llu as done, but did not do it",
                         (unsigned long long)page->ticket[at]);
    page->ticket[at] = 0;
    return VKA_OK;
}

enum vka_status receipts_check(struct vka_device *device, uint64_t ticket)
{
    enum vka_status status = VKA_OK;
    for (struct receipt_page *page = device->queue.receipts; page; page = page->next)
        for (uint64_t i = 0; i < PAGE_RECEIPTS; i++)
            if (page->ticket[i] && page->ticket[i] <= ticket)
                TRY(check_word(device, page, i));
fail:
    return status;
}
