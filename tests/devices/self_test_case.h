/* Devices of drivers that get kernels wrong, and the layer that is tried on them.
 * SPDX-License-Identifier: MIT */
#ifndef TESTS_SELF_TEST_CASE_H
#define TESTS_SELF_TEST_CASE_H

#include "gpu/pipeline.h"
#include "layers/layer_case.h"
#include "miscompile.h"
#include "plan/plan.h"

struct kernel_set in_state(const struct vka_device *device, enum kernel_state state);
struct kernel_set tested(const struct vka_device *device);

/* Warnings that name a kernel. */
struct heard {
    size_t now, before; /* found by this device, kept from an earlier one */
};

/* A device that makes no mistake yet. blob: of a pipeline cache, or NULL; heard: counts, or NULL. */
struct vka_device *open_device(const void *blob, size_t size, bool skip, struct heard *heard);

/* Makes it as new: none of its kernels has a pipeline or is tested; caps: those that it was opened
 * with. So a test of each kernel opens one device, not one for each: opening a GPU takes a fifth of a
 * second, and with NVIDIA's driver 580 a process that had opened dozens could open no more. */
void renew_device(struct vka_device *device, const struct caps *caps);

/* Adds a layer to a plan on a path, `gone` being switched off once the layer is made: its status,
 * and the kernels of the plan. */
enum vka_status try_layer_without(struct vka_device *device, enum vka_path path,
                                  struct kernel_set gone, struct kernel_set *kernels);
enum vka_status try_layer(struct vka_device *device, enum vka_path path,
                          struct kernel_set *kernels);

#endif
