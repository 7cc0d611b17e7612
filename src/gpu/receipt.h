/* Receipts: a word that the device writes at the end of each submit and that the host reads after
 * the wait, so that a driver that dropped the work and said success is found out. */
#ifndef VKA_GPU_RECEIPT_H
#define VKA_GPU_RECEIPT_H

#include "gpu/memory.h"
#include "gpu/vk.h"

/* Submits in flight that are looked after; those beyond have none. */
#define MAX_RECEIPTS 8

struct receipts {
    struct memory_range words;              /* u32 [MAX_RECEIPTS], host-visible */
    VkCommandBuffer commands[MAX_RECEIPTS]; /* each writes its word */
    uint64_t ticket[MAX_RECEIPTS];          /* that the word is written for; 0: free */
};

/* Records the command buffers, from the queue's pool, with which they go. */
enum vka_status receipts_init(struct vka_device *device);

/* What to submit behind the work of a ticket; NULL where all words still wait for others. The last
 * free one is kept for the `last` submit of a run. */
VkCommandBuffer receipt_take(struct vka_device *device, uint64_t ticket, bool last);

/* The ticket was not submitted after all. */
void receipt_drop(struct vka_device *device, uint64_t ticket);

/* Checks the words of all tickets up to this one, which is done; DEVICE_LOST where one was not
 * written. */
enum vka_status receipts_check(struct vka_device *device, uint64_t ticket);

#endif
