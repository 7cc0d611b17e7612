#include "mpi/image.h"

#include <stdlib.h>
#include <string.h>

enum vka_status image_create(struct vka_mpi *mpi, struct vka_tensor *tensor, bool needed,
                             struct image *image)
{
    struct log *log = &mpi->log;
    struct box all = box_along(tensor, 0, (struct vka_mpi_range){0, vka_tensor_shape(tensor, 0)});
    ENSURE(comm_device_error(mpi, box_view(tensor, &all, &image->tensor)));
    if (needed && !vka_device_properties(mpi->device)->mapped_memory) {
        image->host = malloc(vka_tensor_size(tensor));
        ENSURE_ALLOC(image->host);
    }
    return VKA_OK;
}

void image_destroy(struct image *image)
{
    vka_tensor_destroy(&image->tensor);
    free(image->host);
    *image = (struct image){0};
}

void image_fetch(const struct image *image, struct run *run)
{
    if (image->host)
        run_read(run, image->tensor, image->host);
}

void image_flush(const struct image *image, struct run *run)
{
    if (image->host)
        run_write(run, image->tensor, image->host);
}

/* Copies row by row of the last axis. */
static void copy_box(const struct image *image, const struct box *box, char *dense, bool to_image)
{
    const struct vka_tensor *tensor = image->tensor;
    uint32_t last = vka_tensor_rank(tensor) - 1;
    size_t element = vka_dtype_size(vka_tensor_dtype(tensor));
    size_t bytes = box->count[last] * element;
    uint64_t rows = box_count(box, last);
    for (uint64_t row = 0; row < rows; row++, dense += bytes) {
        uint64_t rest = row, at = box->first[last], stride = vka_tensor_shape(tensor, last);
        for (uint32_t i = last; i-- > 0;) {
            at += (box->first[i] + rest % box->count[i]) * stride;
            rest /= box->count[i];
            stride *= vka_tensor_shape(tensor, i);
        }
        char *there = image->host + at * element;
        memcpy(to_image ? there : dense, to_image ? dense : there, bytes);
    }
}

void image_get(const struct image *image, struct run *run, const struct box *box,
               struct vka_tensor *view, char *to)
{
    if (image->host)
        copy_box(image, box, to, false);
    else
        run_read(run, view, to);
}

void image_put(const struct image *image, struct run *run, const struct box *box,
               struct vka_tensor *view, const char *from)
{
    if (image->host)
        copy_box(image, box, (char *)(uintptr_t)from, true);
    else
        run_write(run, view, from);
}
