/* Receipts: a word for each submit that the device writes at its end and that the host reads after
 * the wait, so that a driver that dropped the work and said success is found out. At its beginning,
 * where asked to, the device writes the submit's ticket for the kernels to read. */
#ifndef VKA_GPU_RECEIPT_H
#define VKA_GPU_RECEIPT_H

#include "gpu/memory.h"
#include "gpu/vk.h"

#define PAGE_RECEIPTS 4
#define RECEIPT_WORDS 3 /* the one that is written, and the ticket's two */

/* What to submit before and behind the work of a ticket. */
struct receipt {
    VkCommandBuffer before; /* makes device->running the ticket; may be left out */
    VkCommandBuffer behind;
};

/* Recorded once, used again once checked. */
struct receipt_page {
    struct receipt_page *next;
    struct memory_range words; /* u32 [PAGE_RECEIPTS][RECEIPT_WORDS], host-visible */
    VkCommandBuffer commands[2 * PAGE_RECEIPTS]; /* before, then behind; of the queue's pool */
    uint64_t ticket[PAGE_RECEIPTS];              /* that the word is written for; 0: free */
};

/* A ticket as two words of 31 bits with the top bit set: where the device is about to write them,
 * the host sees both, or that one is still 0 and there is no ticket yet. */
static inline void ticket_to_words(uint64_t ticket, uint32_t words[2])
{
    words[0] = (uint32_t)ticket | 1u << 31;
    words[1] = (uint32_t)(ticket >> 31) | 1u << 31;
}

/* 0: none. */
static inline uint64_t ticket_of_words(const volatile uint32_t words[2])
{
    const uint32_t low = words[0], high = words[1];
    return low && high ? (uint64_t)(high & INT32_MAX) << 31 | (low & INT32_MAX) : 0;
}

/* Makes room for so many more. */
enum vka_status receipts_grow(struct vka_device *device);

/* Gives everything back but the command buffers, which go with their pool. */
void receipts_finish(struct vka_device *device);

/* A receipt for a ticket; false where none is free. */
bool receipt_take(struct vka_device *device, uint64_t ticket, struct receipt *receipt);

/* Records that what follows runs under no ticket: commands that the application submits. */
void receipt_clear_running(struct vka_device *device, VkCommandBuffer commands);

/* The ticket was not submitted after all. */
void receipt_drop(struct vka_device *device, uint64_t ticket);

/* Checks the words of all tickets up to this one, which is done; DEVICE_LOST where one was not
 * written. */
enum vka_status receipts_check(struct vka_device *device, uint64_t ticket);

#endif
