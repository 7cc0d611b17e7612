/* Checks of arguments that several operations share; each logs what is wrong. */
#ifndef VKA_OP_CHECK_H
#define VKA_OP_CHECK_H

#include "gpu/device.h"
#include "gpu/tensor.h"

enum check_flag {
    CHECK_FLOAT = 1, /* F32, F16 or BF16 */
    CHECK_F32 = 2,
    CHECK_I32 = 4,
    CHECK_WEIGHT = 16, /* F32, F16, BF16, I8 or a block type */
    CHECK_WRITTEN = 8, /* no two indices share an element */
};

/* Checks that a tensor is given, belongs to the device and has an allowed type. */
enum vka_status check_tensor(struct vka_device *device, const char *caller, const char *name,
                             const struct vka_tensor *tensor, unsigned flags);

/* Checks that only bits of `allowed` are set in the member `given` of an info struct. */
enum vka_status check_given(struct vka_device *device, const char *caller, uint32_t given,
                            uint32_t allowed);

/* A number of an info struct of which 0 stands for a default, unless `flag` of `given` says that 0 is
 * meant. */
static inline double or_default(double value, uint32_t given, uint32_t flag, double otherwise)
{
    return value != 0 || given & flag ? value : otherwise;
}

/* Checks that a tensor has this rank and these sizes. */
enum vka_status check_shape(struct vka_device *device, const char *caller, const char *name,
                            const struct vka_tensor *tensor, uint32_t rank, const uint32_t *size);

/* Checks that a tensor is a contiguous F32 vector of n elements, or NULL. */
enum vka_status check_vector(struct vka_device *device, const char *caller, const char *name,
                             const struct vka_tensor *tensor, uint32_t n);

/* Checks the type that the activations of a product with weights of type `weight` are taken in: F32, or
 * I8 where the weights are quantised. */
enum vka_status check_activations(struct vka_device *device, const char *caller,
                                  enum vka_dtype activations, enum vka_dtype weight);

/* Whether they share a byte; true too where excluding it would take too long. */
bool tensors_overlap(const struct vka_tensor *a, const struct vka_tensor *b);

/* Checks that `written` shares no byte with any of the others; skips NULL. Another tensor may use
 * the gaps between the elements of a view. */
enum vka_status check_no_overlap(struct vka_device *device, const char *caller, const char *name,
                                 const struct vka_tensor *written,
                                 const struct vka_tensor *const *others, size_t n);

#endif
