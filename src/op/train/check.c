#include "op/common/check.h"
#include "op/train/check.h"

#include <stdlib.h>

unsigned train_repeats(const struct vka_tensor *tensor, const uint32_t size[4])
{
    unsigned axes = 0;
    for (uint32_t i = 0; i < 4; i++)
        axes |= (unsigned)(tensor->shape.size[i] == 1 && size[i] > 1) << i;
    return axes;
}

enum vka_status train_check_gradient(struct vka_device *device, const char *caller,
                                     const char *name, const struct vka_gradient *gradient,
                                     const struct shape *like)
{
    if (!gradient->tensor)
        return VKA_OK;
    ENSURE(check_tensor(device, caller, name, gradient->tensor, CHECK_FLOAT | CHECK_WRITTEN));
    return check_shape(device, caller, name, gradient->tensor, like->rank, like->size);
}

enum vka_status train_check_number(struct vka_device *device, const char *caller, const char *name,
                                   const struct vka_tensor *tensor, unsigned flags)
{
    const uint32_t one = 1;
    ENSURE(check_tensor(device, caller, name, tensor, flags));
    return check_shape(device, caller, name, tensor, 1, &one);
}

enum vka_status train_check_apart(struct vka_device *device, const char *caller,
                                  const struct named_tensor *written, size_t n_written,
                                  const struct vka_tensor *const *inputs, size_t n_input)
{
    for (size_t i = 0; i < n_written; i++) {
        if (!written[i].tensor)
            continue;
        ENSURE(
            check_no_overlap(device, caller, written[i].name, written[i].tensor, inputs, n_input));
        for (size_t j = 0; j < i; j++)
            ENSURE(check_no_overlap(device, caller, written[i].name, written[i].tensor,
                                    &written[j].tensor, 1));
    }
    return VKA_OK;
}

static int compare_places(const void *a, const void *b)
{
    const struct extent x = tensor_extent(((const struct listed_tensor *)a)->tensor);
    const struct extent y = tensor_extent(((const struct listed_tensor *)b)->tensor);
    if (x.buffer != y.buffer)
        return (uintptr_t)x.buffer < (uintptr_t)y.buffer ? -1 : 1;
    return (x.first > y.first) - (x.first < y.first);
}

enum vka_status train_check_items(struct vka_device *device, const char *caller,
                                  struct listed_tensor *list, size_t n)
{
    qsort(list, n, sizeof *list, compare_places);
    for (size_t i = 0; i < n; i++) {
        const struct extent mine = tensor_extent(list[i].tensor);
        for (size_t j = i + 1; j < n; j++) {
            const struct extent other = tensor_extent(list[j].tensor);
            if (other.buffer != mine.buffer || other.first >= mine.end)
                break;
            if (list[i].index != list[j].index && (list[i].written || list[j].written) &&
                tensors_overlap(list[i].tensor, list[j].tensor))
                return log_error(&device->log, VKA_INVALID,
                                 "%s: %s of item %zu shares elements with %s of item %zu", caller,
                                 list[i].name, list[i].index, list[j].name, list[j].index);
        }
    }
    return VKA_OK;
}
