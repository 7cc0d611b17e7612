/* vkattn tune: a tuning profile while it is made. SPDX-License-Identifier: MIT */
#ifndef TUNE_TUNING_H
#define TUNE_TUNING_H

#include "common/device.h"
#include "core/os.h"

#define TUNE_KERNELS 64
#define TUNE_SEEN 256
#define TUNE_NAME 64     /* bytes of the name of a problem or kernel, with its NUL */
#define TUNE_CHECKED 256 /* kernels times types */

/* The tuning profile while it is made, and what is known about the device. */
struct tuning {
    struct device_options device;
    struct vka_device_properties properties;
    char *text;              /* the profile so far: its two first lines, then what is decided */
    char path[OS_PATH_SIZE]; /* where it is kept */
    char index[16];          /* of the device, for --device */
    char kernel[TUNE_KERNELS][TUNE_NAME];  /* those that the device can run */
    char checked[TUNE_CHECKED][TUNE_NAME]; /* "KERNEL TYPE" of those that passed */
    char seen[TUNE_SEEN][TUNE_NAME];       /* problems that are decided */
    size_t n_kernel, n_checked, n_seen;
    unsigned n_variant; /* of a kernel, that are tried */
};

#endif
