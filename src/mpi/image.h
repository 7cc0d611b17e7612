/* A device tensor that is read and written box by box: in place if the device's memory is mapped,
 * else through one copy of the whole tensor on the host, as copying single boxes would copy
 * everything around them. */
#ifndef VKA_MPI_IMAGE_H
#define VKA_MPI_IMAGE_H

#include "mpi/run.h"
#include "mpi/slice.h"

struct image {
    struct vka_tensor *tensor; /* our own view: the caller may destroy the tensor */
    char *host;                /* dense; NULL: mapped */
};

/* needed: whether any box will be read or written. */
enum vka_status image_create(struct vka_mpi *mpi, struct vka_tensor *tensor, bool needed,
                             struct image *image);
void image_destroy(struct image *image);

/* Call image_fetch before the first box is read, and image_flush after the last is written. */
void image_fetch(const struct image *image, struct run *run);
void image_flush(const struct image *image, struct run *run);

/* Copies a box, of which `view` is a view, from or to dense host memory. */
void image_get(const struct image *image, struct run *run, const struct box *box,
               struct vka_tensor *view, char *to);
void image_put(const struct image *image, struct run *run, const struct box *box,
               struct vka_tensor *view, const char *from);

#endif
