/* A device tensor that is read and written box by box: in place where the device's memory is
 * mapped, else through one copy of the whole on the host, as each box would cost a copy of all
 * around it. */
#ifndef VKA_MPI_IMAGE_H
#define VKA_MPI_IMAGE_H

#include "mpi/run.h"
#include "mpi/slice.h"

struct image {
    struct vka_tensor *tensor; /* a view of our own: the caller may destroy his */
    char *host;                /* dense; NULL: mapped */
};

/* needed: whether boxes will be read or written at all. */
enum vka_status image_create(struct vka_mpi *mpi, struct vka_tensor *tensor, bool needed,
                             struct image *image);
void image_destroy(struct image *image);

/* Before the first box is read, and after the last is written. */
void image_fetch(const struct image *image, struct run *run);
void image_flush(const struct image *image, struct run *run);

/* Copies a box, whose view is `view`, from or to dense host memory. */
void image_get(const struct image *image, struct run *run, const struct box *box,
               struct vka_tensor *view, char *to);
void image_put(const struct image *image, struct run *run, const struct box *box,
               struct vka_tensor *view, const char *from);

#endif
