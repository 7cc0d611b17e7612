/* Checks of arguments that the operations of vkattn_train.h share. */
#ifndef VKA_OP_TRAIN_CHECK_H
#define VKA_OP_TRAIN_CHECK_H

#include <vkattn/vkattn_train.h>

#include "op/common/check.h"

/* The axes in which a tensor of rank 4 repeats to have these sizes, a bit each. */
unsigned train_repeats(const struct vka_tensor *tensor, const uint32_t size[4]);

/* Checks a gradient, which need not be wanted, against the shape that it has. */
enum vka_status train_check_gradient(struct vka_device *device, const char *caller,
                                     const char *name, const struct vka_gradient *gradient,
                                     const struct shape *like);

/* Checks a contiguous tensor of a type's CHECK_ flag with one element. */
enum vka_status train_check_number(struct vka_device *device, const char *caller, const char *name,
                                   const struct vka_tensor *tensor, unsigned flags);

/* Checks that gradients share no element with inputs or each other; skips NULL. */
struct named_tensor {
    const char *name;
    const struct vka_tensor *tensor;
};
enum vka_status train_check_apart(struct vka_device *device, const char *caller,
                                  const struct named_tensor *written, size_t n_written,
                                  const struct vka_tensor *const *inputs, size_t n_input);

/* What item `index` of a list has. */
struct listed_tensor {
    const char *name;
    size_t index;
    bool written;
    const struct vka_tensor *tensor;
};
/* Checks that what is written of an item shares no element with what another item has; no tensor is
 * NULL. In n log n steps where few tensors of a buffer lie in each other's range. Sorts the list. */
enum vka_status train_check_items(struct vka_device *device, const char *caller,
                                  struct listed_tensor *list, size_t n);

#endif
