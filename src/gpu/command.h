/* The compute queue: submits numbered from 1, bounded waits, copies through staging. */
#ifndef VKA_GPU_COMMAND_H
#define VKA_GPU_COMMAND_H

#include "gpu/memory.h"
#include "gpu/vk.h"

#define MAX_IN_FLIGHT 16 /* submits, when fences replace timeline semaphores */

/* An object that is released when the submit `ticket` is done. */
struct retired {
    struct retired *next;
    uint64_t ticket;
    void (*release)(struct vka_device *device, struct retired *self);
};

struct queue {
    VkQueue handle;
    vka_queue_callback *lock, *unlock; /* around submits; NULL: none */
    void *lock_user;
    uint64_t submitted, completed; /* tickets */
    uint64_t abandoned;            /* of the last copy whose wait timed out; 0: none */
    VkSemaphore timeline;          /* or, without timeline semaphores, the fences: */
    VkFence fence[MAX_IN_FLIGHT];  /* of ticket t at t % MAX_IN_FLIGHT */
    VkCommandPool pool;            /* of the copies below and the receipts */
    struct receipt_page *receipts;
    struct retired *retired;
};

/* Makes what belongs to the queue; queue->handle is set already. */
enum vka_status queue_init(struct vka_device *device, bool timeline);

/* Waits for all work in flight, up to ten seconds. False if the device is still working then. */
bool queue_drain(struct vka_device *device);

/* queue_drain, then releases everything; releases nothing if the device is still working. */
bool queue_finish(struct vka_device *device);

/* Submits n command buffers one after the other, without waiting. Tickets complete in order;
 * *ticket is the last one. told: each command buffer can read its ticket in device->running. info:
 * checked semaphores of the application; the first submit waits for them and the last one signals;
 * NULL: none. On failure *ticket is the last ticket that was submitted; it is unchanged if none
 * was. */
enum vka_status queue_submit(struct vka_device *device, const VkCommandBuffer *commands, size_t n,
                             bool told, const struct vka_submit_info *info, uint64_t *ticket);

/* Marks the device as lost if status is DEVICE_LOST; returns status. */
enum vka_status queue_check_lost(struct vka_device *device, enum vka_status status);

/* Waits for a ticket, up to timeout nanoseconds; TIMEOUT or DEVICE_LOST. A timeout of 0 only asks,
 * and its TIMEOUT is not logged. */
enum vka_status queue_wait(struct vka_device *device, uint64_t ticket, uint64_t timeout);

/* The same, but no TIMEOUT is logged: the caller says what it waited for. */
enum vka_status queue_try(struct vka_device *device, uint64_t ticket, uint64_t timeout);

/* Releases `item` when its ticket is done; at once if it is done already. */
void queue_retire(struct vka_device *device, struct retired *item);

/* Copies between the host and a range that the host cannot see, and waits. size and offset are
 * multiples of 4; offset counts from the beginning of the range. */
enum vka_status queue_write(struct vka_device *device, const struct memory_range *range,
                            uint64_t offset, const void *data, uint64_t size);
enum vka_status queue_copy(struct vka_device *device, const struct memory_range *from,
                           uint64_t from_offset, const struct memory_range *to, uint64_t to_offset,
                           uint64_t size);
enum vka_status queue_read(struct vka_device *device, const struct memory_range *range,
                           uint64_t offset, void *data, uint64_t size);

/* Receipts detect a driver that drops work and reports success: the device writes a word at the end
 * of each submit, which the host reads after the wait. On request the device also writes the ticket
 * of the submit at its beginning, for the kernels to read. */

#define PAGE_RECEIPTS 4
#define RECEIPT_WORDS 3 /* the word that is written, and two of the ticket */

/* The command buffers to submit before and after the work of a ticket. */
struct receipt {
    VkCommandBuffer before; /* writes the ticket to device->running; may be left out */
    VkCommandBuffer behind;
};

/* Receipts are recorded once, and used again after they were checked. */
struct receipt_page {
    struct receipt_page *next;
    struct memory_range words; /* u32 [PAGE_RECEIPTS][RECEIPT_WORDS], host-visible */
    VkCommandBuffer commands[2 * PAGE_RECEIPTS]; /* all `before`, then all `behind`; of the pool */
    uint64_t ticket[PAGE_RECEIPTS];              /* whose receipt it is; 0: free */
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
