/* Operations of many kinds on a device that stays; their results are known. */
#ifndef TESTS_FAULTS_OPERATIONS_H
#define TESTS_FAULTS_OPERATIONS_H

#include <gpu/device.h>

struct operation {
    const char *name;
    /* Makes, runs and destroys; *right is told where the status is VKA_OK. */
    enum vka_status (*run)(struct vka_device *device, int argument, bool *right);
    int argument;
    size_t most; /* calls and allocations worth a failure, where more are the same; 0: all */
};

/* NULL past the last. */
const struct operation *operation_get(size_t index);

/* Runs one. On a driver that computes nothing every result is right that is there. */
enum vka_status operation_run(const struct operation *operation, struct vka_device *device,
                              bool *right);

#endif
