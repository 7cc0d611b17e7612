/* Exchanges boxes of tensors between all ranks, in one non-blocking collective. */
#ifndef VKA_MPI_EXCHANGE_H
#define VKA_MPI_EXCHANGE_H

#include "mpi/image.h"

/* A box that is sent to, or received from, a rank. */
struct leg {
    const struct image *image;
    struct box box;
    struct vka_tensor *view;
    size_t at; /* bytes into the buffer */
};

/* The legs of one direction, in the order of their ranks. */
struct legs {
    size_t n, room;
    struct leg *leg;
    int *bytes, *at; /* [size], by rank: bytes and place in the buffer */
    char *data;
};

struct exchange {
    struct vka_mpi *mpi;
    struct legs out, in;
    bool same; /* every rank receives the same boxes; they are added once, for rank 0 */
    MPI_Request request;
};

enum vka_status exchange_create(struct vka_mpi *mpi, size_t room, struct exchange *exchange);

/* Adds a box, which may be empty, after those of the same and lower ranks. */
enum vka_status exchange_add(struct exchange *exchange, struct legs *legs, int rank,
                             const struct image *image, const struct box *box);
enum vka_status exchange_finish(struct exchange *exchange);

/* Reads the boxes to send and starts the exchange; the images have been fetched. */
enum vka_status exchange_start(struct exchange *exchange, struct run *run);

/* Waits, and writes the boxes that were received. */
enum vka_status exchange_land(struct exchange *exchange, struct run *run);
void exchange_destroy(struct exchange *exchange);

#endif
