/* Devices made by hand, for the tests of what is chosen on them, and random sizes. */
#ifndef VKA_TUNE_DEVICES_H
#define VKA_TUNE_DEVICES_H

#include "gpu/device.h"
#include "kernel/matmul.h"

/* The least that Vulkan 1.1 lets a device offer, but for the bindings: the softmax needs 7. */
extern const struct caps mobile;
extern const struct caps discrete;

/* A device like another, with its name. */
struct caps like(const struct caps *model, const char *name);

struct caps cpu(uint32_t subgroup_size);

/* Mesa's CPU driver of a version, with all it has. */
struct caps mesa(uint32_t major);

/* The device with matrices of 16x16x16 in both 16-bit types. */
struct caps with_matrices(const struct caps *model);

/* The device with matrices of any multiple of 16x8x16. */
struct caps with_flexible_matrices(const struct caps *model);
/* They are of VK_EXT_cooperative_matrix_maintenance1. */
struct caps with_maintained_matrices(const struct caps *model);

#define TUNE_DEVICES 15

/* All of those and some more. */
void tune_devices(struct caps devices[TUNE_DEVICES]);

/* A device as an application or another driver might have it: less memory, some kernels off. */
struct caps vary(const struct caps *device);

/* Gives thousands of such of each of all devices to `check`. */
void tune_vary(void (*check)(const struct caps *caps));

/* What is chosen for a product. */
struct matmul_choice tune_choose(const struct caps *caps, const struct matmul_problem *problem);

/* Below n; and 1 .. 2^bits, small ones as likely as large ones. */
uint32_t below(uint32_t n);
uint32_t any_size(uint32_t bits);

bool is_power_of_two(uint32_t n);

#endif
