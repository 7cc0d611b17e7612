/* A driver that fails on demand: stands between volk and the Vulkan loader (the linker's
 * --wrap=dlsym puts it there), passes every call on, and counts, refuses or falsifies some. For
 * programs of one thread. */
#ifndef TESTS_FAULTS_DRIVER_H
#define TESTS_FAULTS_DRIVER_H

#include <gpu/vk.h>

#define DRIVER_MAX_ERRORS 6
#define DRIVER_NEVER SIZE_MAX

/* Makes what driver_busy tells common to the processes forked from here on. */
bool driver_share(void);

/* Loads Vulkan and keeps one instance of its own, so that drivers stay in memory. False where there
 * is no Vulkan. */
bool driver_open(void);

/* Whether the driver computes, once it is open: not that of tests/stub, whose dispatches do nothing, so
 * that no result can be judged and no kernel passes its self-test. */
bool driver_computes(void);

/* Forgets what was counted and armed. */
void driver_reset(void);

/* Calls that return a VkResult, since the last reset; what the n-th of them was, and the errors
 * that Vulkan lets it return. Waits without time, one after the other, are one call: how often one
 * asks is a matter of time. */
size_t driver_calls(void);
const char *driver_call_name(size_t call);
size_t driver_call_errors(size_t call, VkResult errors[DRIVER_MAX_ERRORS]);

/* The n-th call fails. A wait or a submit that loses the device waits for it in truth, as a lost
 * device is at rest. */
void driver_fail(size_t call, VkResult error);

/* The compiler refuses pipelines of a module with these words, which is made from here on, with this
 * result, but for the first `spared` of them; SIZE_MAX: all are only counted. How many were refused
 * and asked for since. */
void driver_refuse(const uint32_t *words, VkResult result, size_t spared);
size_t driver_refusals(void);
size_t driver_pipelines(void);

/* Whether a module of these words was made since the last reset. */
bool driver_saw(const uint32_t *words);

/* The n-th call, a submit, says success and does nothing but signal. */
void driver_drop(size_t call);

/* From here on semaphores rest and tell of more submits than there were. */
void driver_boast(void);

/* From the n-th listing of devices on, each is there as often as there is room. */
void driver_multiply_devices(size_t listing);

/* Objects made and not destroyed. */
long driver_alive(void);

/* Command buffers and pools freed, and devices destroyed, while a submit of theirs was not known to
 * be done. For scenarios of one device and one plan. */
size_t driver_freed_in_flight(void);

/* The driver's own host allocations go through VkAllocationCallbacks from here to the next reset,
 * and the n-th fails. */
void driver_fail_allocation(size_t allocation);
size_t driver_allocations(void);

/* The call in which it failed, "" for none. A vkCmd function has no result, and a driver that does not
 * tell of it when the recording ends has lost the command. */
const char *driver_failed_in(void);

/* Between driver.c and driver_memory.c: what to give the driver, NULL for nothing; and the
 * reset. */
const VkAllocationCallbacks *driver_callbacks(void);
void driver_keep_allocations(void);

/* The call that the driver is at work on; NULL outside. After driver_share it outlives a crash. */
const char *driver_busy(void);

#endif
