/* What the safetensors reader and writer share, and the reader's header. */
#ifndef VKA_IO_SAFETENSORS_HEADER_H
#define VKA_IO_SAFETENSORS_HEADER_H

#include "io/io.h"

#define VKA_IO_PREFIX_SIZE 8             /* the header length, u64 little-endian */
#define VKA_IO_HEADER_SIZE_MAX 100000000 /* bytes, as the format says */
#define VKA_IO_METADATA "__metadata__"

/* A file that is read, after its length prefix, and where the sentence of a failure goes. */
struct vka_io_source {
    const char *path;
    char *error;
    const char *header; /* [header_size], without trailing spaces */
    size_t header_size;
    const char *region; /* the data, [region_size] */
    size_t region_size;
};

struct vka_io_header {
    struct vka_io_array *arrays;      /* [count], in the order of the header; within the region */
    struct vka_io_metadata *metadata; /* [metadata_count] */
    size_t count, metadata_count;
    char *strings; /* the names and the metadata */
};

/* Reads the JSON object. The caller frees *header, after a failure too, and checks that no name
 * occurs twice and that the arrays cover the region. */
enum vka_status vka_io_header_parse(const struct vka_io_source *source,
                                    struct vka_io_header *header);
void vka_io_header_free(struct vka_io_header *header);

#endif
