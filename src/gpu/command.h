/* The compute queue: submits numbered from 1, bounded waits, copies through staging. */
#ifndef VKA_GPU_COMMAND_H
#define VKA_GPU_COMMAND_H

#include "gpu/memory.h"
#include "gpu/receipt.h"
#include "gpu/vk.h"

#define MAX_IN_FLIGHT 16 /* submits, where fences stand in for timeline semaphores */

/* What is freed once the submit `ticket` is done. */
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
    VkSemaphore timeline;          /* or, without timeline semaphores: */
    VkFence fence[MAX_IN_FLIGHT];  /* of ticket t at t % MAX_IN_FLIGHT */
    VkCommandPool pool;            /* of the copies below and the receipts */
    struct receipt_page *receipts;
    struct retired *retired;
};

/* The handle is there already. */
enum vka_status queue_init(struct vka_device *device, bool timeline);

/* Waits for what is in flight, ten seconds at most. False where the device is still at work
 * then. */
bool queue_drain(struct vka_device *device);

/* The same, and releases everything; nothing where the device is still at work. */
bool queue_finish(struct vka_device *device);

/* Submits n command buffers, one after the other without waiting; tickets complete in order, and
 * the last one's is that of all. told: each finds its ticket in device->running. info: the application's semaphores, checked, which the first waits
 * for and the last signals; NULL: none. On failure *ticket is that of the last that was submitted,
 * and is left alone where none was. */
enum vka_status queue_submit(struct vka_device *device, const VkCommandBuffer *commands, size_t n,
                             bool told, const struct vka_submit_info *info, uint64_t *ticket);

/* Marks the device as lost where a call said so; returns status. */
enum vka_status queue_check_lost(struct vka_device *device, enum vka_status status);

/* Waits for a ticket, timeout in nanoseconds; TIMEOUT or DEVICE_LOST. A timeout of 0 only asks:
 * TIMEOUT is not logged then. */
enum vka_status queue_wait(struct vka_device *device, uint64_t ticket, uint64_t timeout);

/* Releases `item` when its ticket is done, at once where it is already. */
void queue_retire(struct vka_device *device, struct retired *item);

/* Copies between the host and a range the host cannot see, and waits. size and offset are multiples
 * of 4; offset counts from the range's beginning. */
enum vka_status queue_write(struct vka_device *device, const struct memory_range *range,
                            uint64_t offset, const void *data, uint64_t size);
enum vka_status queue_copy(struct vka_device *device, const struct memory_range *from,
                           uint64_t from_offset, const struct memory_range *to, uint64_t to_offset,
                           uint64_t size);
enum vka_status queue_read(struct vka_device *device, const struct memory_range *range,
                           uint64_t offset, void *data, uint64_t size);

#endif
