/* Exchanges slices of tensors between all ranks. */
#ifndef VKA_MPI_EXCHANGE_H
#define VKA_MPI_EXCHANGE_H

#include "mpi/run.h"
#include "mpi/slice.h"

/* A device tensor that is read and written slice by slice: in place if the device's memory is mapped,
 * else through one copy of the whole tensor on the host, as copying single slices would copy
 * everything around them. */
struct image {
    struct vka_tensor *tensor; /* our own view: the caller may destroy the tensor */
    char *host;                /* dense; NULL: mapped */
};

/* needed: whether any slice will be read or written. */
enum vka_status image_create(struct vka_mpi *mpi, struct vka_tensor *tensor, bool needed,
                             struct image *image);
void image_destroy(struct image *image);

/* Call image_fetch before the first slice is read, and image_flush after the last is written. */
void image_fetch(const struct image *image, struct run *run);
void image_flush(const struct image *image, struct run *run);

/* Copies a slice, of which `view` is a view, from or to dense host memory. */
void image_get(const struct image *image, struct run *run, const struct slice *slice,
               struct vka_tensor *view, char *to);
void image_put(const struct image *image, struct run *run, const struct slice *slice,
               struct vka_tensor *view, const char *from);

/* A slice that is sent to, or received from, a rank. */
struct leg {
    int rank;
    const struct image *image;
    struct slice slice;
    struct vka_tensor *view;
    size_t at; /* bytes into the buffer */
};

/* The legs of one direction, in the order of their ranks. */
struct legs {
    size_t n, room;
    struct leg *leg;
    int *count, *at; /* [size], by rank: elements in the buffer */
    char *data;
};

/* How slices are exchanged. But for EACH every rank receives the same slices, and those to send are
 * added once, for rank 0; if there are none, a rank sends the slices that it receives from itself,
 * as its device has written them already. */
enum exchange_kind {
    EXCHANGE_EACH = 0, /* each rank receives others */
    EXCHANGE_ALL,      /* ranks have about as much to send */
    EXCHANGE_FEW,      /* few ranks have something to send */
};

/* Slices that are exchanged in non-blocking collectives. */
struct exchange {
    struct vka_mpi *mpi;
    enum exchange_kind kind;
    struct legs out, in;
    size_t element;       /* bytes that MPI counts as one; each slice has a multiple */
    int n_request;        /* one, or for FEW one for each rank */
    MPI_Request *request; /* [n_request] of the caller */
    bool borrowed;        /* in.data is the caller's */
};

/* images: n tensors whose types are those of all slices. */
enum vka_status exchange_create(struct vka_mpi *mpi, enum exchange_kind kind,
                                const struct image *images, int n, MPI_Request *request,
                                struct exchange *exchange);

/* Adds a slice, which may be empty, after those of the same and lower ranks. */
enum vka_status exchange_add(struct exchange *exchange, struct legs *legs, int rank,
                             const struct image *image, const struct slice *slice);

/* Makes the host memory. data: what is received goes there, see exchange_size; NULL: to memory of
 * its own. */
enum vka_status exchange_finish(struct exchange *exchange, char *data);

/* Bytes of all slices of one direction. */
size_t exchange_size(const struct exchange *exchange, const struct legs *legs);

/* Reads the slices to send and starts the exchange; the images have been fetched. */
enum vka_status exchange_start(struct exchange *exchange, struct run *run);

/* Waits, and writes the slices that were received. */
enum vka_status exchange_land(struct exchange *exchange, struct run *run);
void exchange_destroy(struct exchange *exchange);

#endif
