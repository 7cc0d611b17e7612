#include "idx.h"

#include "common/options.h"

#include "core/os.h"

#include <vkattn/vkattn_io.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The magic number: two zero bytes, 0x08 for unsigned bytes, the number of axes. */
#define IDX_MAGIC 0x00000800u

static uint32_t load_be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static enum vka_status refuse(const char *path, const char *why, char *error)
{
    snprintf(error, VKA_IO_ERROR_SIZE, "%s: %s", path, why);
    return VKA_IO;
}

/* Reads the header of a file with `rank` axes and leaves the stream at the data. size: of the file,
 * to compare with the header. */
static enum vka_status read_header(FILE *stream, uint64_t size, const char *path, uint32_t rank,
                                   struct idx_file *file, char *error)
{
    uint8_t header[16] = {0};
    const size_t header_size = 4 + 4 * (size_t)rank;
    uint64_t wanted;

    if (size == OS_NO_SIZE)
        return refuse(path, "expected a regular file", error);
    if (fread(header, 1, header_size, stream) != header_size)
        return refuse(path, "too short for an IDX header", error);
    if (header[0] == 0x1f && header[1] == 0x8b)
        return refuse(path, "is compressed, expected the unpacked IDX file", error);
    if (load_be32(header) != (IDX_MAGIC | rank)) {
        snprintf(error, VKA_IO_ERROR_SIZE, "%s: magic number 0x%08x, expected 0x%08x", path,
                 (unsigned)load_be32(header), (unsigned)(IDX_MAGIC | rank));
        return VKA_IO;
    }
    file->count = load_be32(header + 4);
    file->rows = rank == 3 ? load_be32(header + 8) : 1;
    file->cols = rank == 3 ? load_be32(header + 12) : 1;
    if (file->count == 0)
        return refuse(path, "holds nothing, expected at least one entry", error);
    if (file->rows < 1 || file->rows > IDX_MAX_SIDE || file->cols < 1 || file->cols > IDX_MAX_SIDE)
        return refuse(path, "image sides outside 1 to 255 pixels", error);
    /* At most 2^32 * 2^16, so this cannot overflow. */
    wanted = header_size + (uint64_t)file->count * file->rows * file->cols;
    if (size != wanted) {
        snprintf(error, VKA_IO_ERROR_SIZE, "%s: has %llu bytes, its header asks for %llu", path,
                 (unsigned long long)size, (unsigned long long)wanted);
        return VKA_IO;
    }
    return VKA_OK;
}

static enum vka_status read_file(const char *path, uint32_t rank, struct idx_file *file,
                                 char *error)
{
    enum vka_status status;
    size_t size;
    uint64_t whole;
    FILE *stream = os_open_file(path, &whole);

    memset(file, 0, sizeof *file);
    if (!stream)
        return refuse(path, strerror(errno), error);
    status = read_header(stream, whole, path, rank, file, error);
    if (status != VKA_OK)
        goto fail;
    size = (size_t)file->count * file->rows * file->cols;
    file->data = malloc(size);
    if (!file->data) {
        snprintf(error, VKA_IO_ERROR_SIZE, "%s: out of memory for %zu bytes", path, size);
        status = VKA_OUT_OF_HOST_MEMORY;
        goto fail;
    }
    if (fread(file->data, 1, size, stream) != size) {
        status = refuse(path, "cannot be read to its end", error);
        goto fail;
    }
    fclose(stream);
    return VKA_OK;

fail:
    fclose(stream);
    idx_free(file);
    return status;
}

enum vka_status idx_read_images(const char *path, struct idx_file *file, char *error)
{
    return read_file(path, 3, file, error);
}

enum vka_status idx_read_labels(const char *path, struct idx_file *file, char *error)
{
    return read_file(path, 1, file, error);
}

void idx_free(struct idx_file *file)
{
    free(file->data);
    memset(file, 0, sizeof *file);
}

bool idx_check_pair(const struct idx_file *images, const struct idx_file *labels, uint32_t n_class,
                    const char *path)
{
    if (images->count != labels->count) {
        tool_error("%s: has %u labels, expected %u as there are images", path,
                   (unsigned)labels->count, (unsigned)images->count);
        return false;
    }
    for (uint32_t i = 0; i < labels->count; i++) {
        if (labels->data[i] >= n_class) {
            tool_error("%s: label %u is %u, expected a class below %u", path, (unsigned)i,
                       (unsigned)labels->data[i], (unsigned)n_class);
            return false;
        }
    }
    return true;
}
