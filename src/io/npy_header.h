/* The dictionary in a npy header. */
#ifndef VKA_IO_NPY_HEADER_H
#define VKA_IO_NPY_HEADER_H

#include <vkattn/vkattn_io.h>

struct vka_npy_header {
    enum vka_io_dtype dtype;
    bool fortran_order;
    uint32_t rank;
    uint64_t shape[VKA_IO_MAX_RANK];
};

/* Reads text[length], a Python dict literal with exactly descr, fortran_order and shape. Returns
 * NULL, or what is wrong, in static storage, as the end of a sentence that begins with "the
 * header". Never allocates. */
const char *vka_npy_header_parse(const char *text, size_t length, struct vka_npy_header *header);

#endif
