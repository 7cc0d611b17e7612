/* Receipts: a word for each submit that the device writes at its end and that the host reads after
 * the wait, so that a driver that dropped the work and said success is found out. */
#ifndef VKA_GPU_RECEIPT_H
#define VKA_GPU_RECEIPT_H

#include "gpu/memory.h"
#include "gpu/vk.h"

#define PAGE_RECEIPTS 4

/* Recorded once, used again once checked. */
struct receipt_page {
    struct receipt_page *next;
    struct memory_range words;               /* u32 [PAGE_RECEIPTS], host-visible */
    VkCommandBuffer commands[PAGE_RECEIPTS]; /* each writes its word; of the queue's pool */
    uint64_t ticket[PAGE_RECEIPTS];          /* that the word is written for; 0: free */
};

/* Makes room for so many more. */
enum vka_status receipts_grow(struct vka_device *device);

/* Gives everything back but the command buffers, which go with their pool. */
void receipts_finish(struct vka_device *device);

/* What to submit behind the work of a ticket; NULL where no receipt is free. */
VkCommandBuffer receipt_take(struct vka_device *device, uint64_t ticket);

/* The ticket was not submitted after all. */
void receipt_drop(struct vka_device *device, uint64_t ticket);

/* Checks the words of all tickets up to this one, which is done; DEVICE_LOST where one was not
 * written. */
enum vka_status receipts_check(struct vka_device *device, uint64_t ticket);

#endif
