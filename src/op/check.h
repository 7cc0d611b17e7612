/* Checks of arguments that several operations share. Each says what does not fit. */
#ifndef VKA_OP_CHECK_H
#define VKA_OP_CHECK_H

#include "gpu/device.h"
#include "gpu/tensor.h"

enum check_flag {
    CHECK_FLOAT = 1, /* F32, F16 or BF16 */
    CHECK_F32 = 2,
    CHECK_I32 = 4,
    CHECK_WRITTEN = 8, /* no two indices share an element */
};

/* A tensor that is given, belongs to the device and has an allowed type. */
enum vka_status check_tensor(struct vka_device *device, const char *caller, const char *name,
                             const struct vka_tensor *tensor, unsigned flags);

/* The tensor has rank n and the sizes given. */
enum vka_status check_shape(struct vka_device *device, const char *caller, const char *name,
                            const struct vka_tensor *tensor, uint32_t rank, const uint32_t *size);

/* A contiguous F32 vector of n elements, or NULL. */
enum vka_status check_vector(struct vka_device *device, const char *caller, const char *name,
                             const struct vka_tensor *tensor, uint32_t n);

/* The written tensor shares no byte with any of the others (NULL ones are skipped): the elements
 * between those of a view are free for another. */
enum vka_status check_no_overlap(struct vka_device *device, const char *caller, const char *name,
                                 const struct vka_tensor *written,
                                 const struct vka_tensor *const *others, size_t n);

#endif
