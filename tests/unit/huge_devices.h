/* Devices whose memory is made up: any amount of it, of which the host sees the small slices.
 * SPDX-License-Identifier: MIT */
#ifndef TESTS_HUGE_DEVICES_H
#define TESTS_HUGE_DEVICES_H

#include "gpu/device.h"
#include "gpu/tensor.h"

#define GIB (1ull << 30)

/* GPUs with and without a limit on the grid, and both CPU drivers. */
#define HUGE_DEVICES 4
extern struct vka_device huge_devices[HUGE_DEVICES];

/* Set-up and tear-down of a group of tests. */
int huge_devices_make(void **state);
int huge_devices_free(void **state);

#endif
