/* Receipts detect a driver that drops work and reports success: the device writes a word at the end
 * of each submit, which the host reads after the wait. On request the device also writes the ticket
 * of the submit at its beginning, for the kernels to read. */
#ifndef VKA_GPU_RECEIPT_H
#define VKA_GPU_RECEIPT_H

#include "gpu/state.h"

/* The command buffers to submit before and after the work of a ticket. */
struct receipt {
    VkCommandBuffer before; /* writes the ticket to device->running; may be left out */
    VkCommandBuffer behind;
};

/* A ticket as two words of 31 bits, each with the top bit set. If the host reads them while the
 * device writes, it sees that one is still 0: there is no ticket yet. */
static inline void ticket_to_words(uint64_t ticket, uint32_t words[2])
{
    words[0] = (uint32_t)ticket | 1u << 31;
    words[1] = (uint32_t)(ticket >> 31) | 1u << 31;
}

/* The ticket of two words; 0: there is none yet. */
static inline uint64_t ticket_of_words(const volatile uint32_t words[2])
{
    const uint32_t low = words[0], high = words[1];
    return low && high ? (uint64_t)(high & INT32_MAX) << 31 | (low & INT32_MAX) : 0;
}

/* Makes a page of receipts. */
enum vka_status receipts_grow(struct vka_device *device);

/* Frees everything except the command buffers, which are freed with their pool. */
void receipts_finish(struct vka_device *device);

/* Takes a receipt for a ticket; false if none is free. */
bool receipt_take(struct vka_device *device, uint64_t ticket, struct receipt *receipt);

/* Records that the commands that follow have no ticket, as the application submits them. */
void receipt_clear_running(struct vka_device *device, VkCommandBuffer commands);

/* Gives back the receipt of a ticket that was not submitted. */
void receipt_drop(struct vka_device *device, uint64_t ticket);

/* Checks the words of all tickets up to this one, which is done; DEVICE_LOST if one was not
 * written. */
enum vka_status receipts_check(struct vka_device *device, uint64_t ticket);

#endif
