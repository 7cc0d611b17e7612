/* What the safetensors reader and writer share, and the reader's header. */
#ifndef VKA_IO_SAFETENSORS_H
#define VKA_IO_SAFETENSORS_H

#include "io/io.h"

#define VKA_IO_PREFIX_SIZE 8             /* the header length, u64 little-endian */
#define VKA_IO_HEADER_SIZE_MAX 100000000 /* bytes, as the format says */
#define VKA_IO_METADATA "__metadata__"

/* A file being read, its length prefix taken off, and where complaints go. */
struct vka_io_source {
    const char *path;
    char *error;
    const char *header; /* [header_size], trailing spaces cut off */
    size_t header_size;
    const char *region; /* the data, [region_size] */
    size_t region_size;
};

struct vka_io_header {
    struct vka_io_array *arrays;      /* [count], as the header has them, each within the region */
    struct vka_io_metadata *metadata; /* [metadata_count] */
    size_t count, metadata_count;
    char *strings; /* the names and the metadata */
};

/* Reads the JSON object. *header is to be freed whether this succeeds or not. That no name stands
 * twice, and that the arrays cover the region, is for the caller to see. */
enum vka_status vka_io_header_parse(const struct vka_io_source *source,
                                    struct vka_io_header *header);
void vka_io_header_free(struct vka_io_header *header);

#endif
