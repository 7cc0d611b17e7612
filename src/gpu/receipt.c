#include "gpu/receipt.h"
#include "gpu/memory.h"

#include <stdlib.h>

#define WRITTEN 0x600D600Du /* a value that memory does not hold by chance */
#define WORK (VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT)
#define WORK (VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT)

static uint32_t *words_of(const struct receipt_page *page, uint64_t at)
{
    return (uint32_t *)memory_mapped(&page->words) + at * RECEIPT_WORDS;
}

static VkDeviceSize place_of(const struct receipt_page *page, uint64_t at)
{
    return page->words.offset + at * RECEIPT_WORDS * 4;
}

/* Records a barrier after which device->running may be written: earlier kernels have read it. */
static void wait_for_running(struct vka_device *device, VkCommandBuffer commands)
{
    vk_barrier(&device->vk, commands, WORK, VK_PIPELINE_STAGE_TRANSFER_BIT,
               VK_ACCESS_TRANSFER_WRITE_BIT, VK_ACCESS_TRANSFER_WRITE_BIT);
}

void receipt_clear_running(struct vka_device *device, VkCommandBuffer commands)
{
    const struct memory_range *to = &device->running->range;
    wait_for_running(device, commands);
    device->vk.vkCmdFillBuffer(commands, to->block->buffer, to->offset, 8, 0);
}

/* Records the write of device->running. The work that follows begins with a barrier from copies to
 * kernels. */
static enum vka_status record_before(struct vka_device *device, const struct receipt_page *page,
                                     uint64_t at)
{
    struct log *log = &device->log;
    const struct memory_range *to = &device->running->range;
    VkCommandBuffer commands = page->commands[at];
    ENSURE(vk_begin(log, &device->vk, commands, 0));
    wait_for_running(device, commands);
    device->vk.vkCmdCopyBuffer(commands, page->words.block->buffer, to->block->buffer, 1,
                               &(VkBufferCopy){place_of(page, at) + 4, to->offset, 8});
    ENSURE_VK(device->vk.vkEndCommandBuffer(commands));
    return VKA_OK;
}

/* Records the write of the word, after all kernels and copies submitted before. */
static enum vka_status record_behind(struct vka_device *device, const struct receipt_page *page,
                                     uint64_t at)
{
    struct log *log = &device->log;
    VkCommandBuffer commands = page->commands[PAGE_RECEIPTS + at];
    ENSURE(vk_begin(log, &device->vk, commands, 0));
    vk_barrier(&device->vk, commands, WORK, VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 0);
    device->vk.vkCmdFillBuffer(commands, page->words.block->buffer, place_of(page, at), 4, WRITTEN);
    vk_barrier(&device->vk, commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT,
               VK_ACCESS_TRANSFER_WRITE_BIT, VK_ACCESS_HOST_READ_BIT);
    ENSURE_VK(device->vk.vkEndCommandBuffer(commands));
    return VKA_OK;
}

enum vka_status receipts_grow(struct vka_device *device)
{
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    struct receipt_page *page = calloc(1, sizeof *page);
    CHECK_ALLOC(page);
    TRY(memory_allocate(device, MEMORY_STAGING, PAGE_RECEIPTS * RECEIPT_WORDS * 4, &page->words));
    TRY(vk_allocate_commands(log, &device->vk, device->handle, device->queue.pool,
                             COUNTOF(page->commands), page->commands));
    for (uint64_t i = 0; i < PAGE_RECEIPTS; i++) {
        TRY(record_before(device, page, i));
        TRY(record_behind(device, page, i));
    }
    page->next = device->queue.receipts;
    device->queue.receipts = page;
    return VKA_OK;
fail:
    if (page && page->commands[0])
        device->vk.vkFreeCommandBuffers(device->handle, device->queue.pool, COUNTOF(page->commands),
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

bool receipt_take(struct vka_device *device, uint64_t ticket, struct receipt *receipt)
{
    for (struct receipt_page *page = device->queue.receipts; page; page = page->next)
        for (uint64_t i = 0; i < PAGE_RECEIPTS; i++)
            if (!page->ticket[i]) {
                page->ticket[i] = ticket;
                *words_of(page, i) = 0;
                ticket_to_words(ticket, words_of(page, i) + 1);
                *receipt = (struct receipt){page->commands[i], page->commands[PAGE_RECEIPTS + i]};
                return true;
            }
    return false;
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
    if (*(volatile uint32_t *)words_of(page, at) != WRITTEN)
        return log_error(&device->log, VKA_DEVICE_LOST,
                         "the driver reports submit %llu as done, but did not do it",
                         (unsigned long long)page->ticket[at]);
    page->ticket[at] = 0;
    return VKA_OK;
}

enum vka_status receipts_check(struct vka_device *device, uint64_t ticket)
{
    for (struct receipt_page *page = device->queue.receipts; page; page = page->next)
        for (uint64_t i = 0; i < PAGE_RECEIPTS; i++)
            if (page->ticket[i] && page->ticket[i] <= ticket)
                ENSURE(check_word(device, page, i));
    return VKA_OK;
}
