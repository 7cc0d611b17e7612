/* A tensor on the device that is a strided view in a larger one, and what the host knows of it.
 * Around the elements lie canaries: NaN where the view is read, noise where it is written. */
#ifndef TESTS_OPERAND_H
#define TESTS_OPERAND_H

#include <vkattn/vkattn.h>

#include "rng.h"

/* How the axes of a view lie in memory. */
struct layout {
    uint32_t order[VKA_MAX_RANK]; /* axes, outermost first; the first `rank` count */
    uint32_t gap[VKA_MAX_RANK];   /* by axis: steps left free at the end of the axis */
    uint32_t step;                /* elements from one to the next of the innermost axis */
    uint32_t offset;              /* elements before the first */
};

struct operand {
    struct vka_tensor *base; /* [n]: the elements and all that surrounds them */
    struct vka_tensor *view; /* [size...] in base */
    enum vka_dtype dtype;
    uint32_t rank, size[VKA_MAX_RANK];
    uint64_t stride[VKA_MAX_RANK], offset; /* elements of base */
    size_t count, bytes;                   /* elements of the view; bytes of base */
    double *values;                        /* [count], row-major, as the type holds them */
    uint8_t *image;                        /* [bytes], what the host wrote to base */
    uint8_t *got;                          /* [bytes], what the host read from base */
};

/* One that any operation accepts: axes in their order, nothing between. */
struct layout layout_dense(void);

/* Any order of axes, gaps and offset. */
struct layout layout_random(struct rng *rng, uint32_t rank);

/* Contents undefined. On failure o can be destroyed all the same. */
enum vka_status operand_create(struct vka_device *device, enum vka_dtype dtype, uint32_t rank,
                               const uint32_t *size, const struct layout *layout,
                               struct operand *o);
/* Makes an operand without what the host knows of it: values, image and got are NULL. UNSUPPORTED
 * where it has more elements than an axis. */
enum vka_status operand_create_empty(struct vka_device *device, enum vka_dtype dtype, uint32_t rank,
                                     const uint32_t *size, const struct layout *layout,
                                     struct operand *o);
void operand_destroy(struct operand *o);

/* Uploads o->values, rounding them to the type first, among canaries that no kernel may read. */
enum vka_status operand_write(struct operand *o);

/* Fills elements and surroundings with noise. */
enum vka_status operand_write_noise(struct operand *o, struct rng *rng);

/* Reads base into o->got and the elements into o->values. */
enum vka_status operand_read(struct operand *o);

/* After operand_read: the first byte of base outside the view that is no longer what the host
 * wrote; SIZE_MAX where all are. */
size_t operand_damage(const struct operand *o);

/* Index in o of element i of y, to whose shape o broadcasts. */
size_t operand_broadcast(const struct operand *o, const struct operand *y, size_t i);

/* One element in memory. */
void operand_encode(enum vka_dtype dtype, double x, uint8_t *to);
double operand_decode(enum vka_dtype dtype, const uint8_t *from);

/* The nearest value that the type holds. */
double operand_round(enum vka_dtype dtype, double x);

#endif
