/* The compute queue: submits numbered from 1, bounded waits, copies through staging. */
#ifndef VKA_GPU_COMMAND_H
#define VKA_GPU_COMMAND_H

#include "gpu/state.h"

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

/* Waits as queue_wait does, but logs no TIMEOUT: the caller says what it waited for. */
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

#endif
