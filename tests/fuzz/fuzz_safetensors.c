/* Any bytes as a safetensors file: refused, or arrays that lie in the bytes and cover the data, of
 * which weights of 4 bits are repacked. */
#include <stdlib.h>
#include <string.h>

#include <vkattn/vkattn_io.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

/* The arrays w.*, in each format: refused with a sentence, or blocks of the size that was told. */
static void repack(const struct vka_safetensors *file)
{
    char error[VKA_IO_ERROR_SIZE] = "";
    struct vka_int4 weight = {0};
    if (vka_int4_find(file, "w", error, &weight) != VKA_OK) {
        if (!error[0])
            abort();
        return;
    }
    for (int format = 0; format < VKA_INT4_FORMAT_COUNT; format++) {
        uint32_t out, in;
        size_t size;
        weight.format = (enum vka_int4_format)format;
        error[0] = 0;
        if (vka_int4_size(&weight, error, &out, &in, &size) != VKA_OK) {
            if (!error[0] || size)
                abort();
            continue;
        }
        char *blocks = malloc(size);
        if (!blocks)
            abort();
        if (vka_int4_repack(&weight, blocks, size, error) != VKA_OK && !error[0])
            abort();
        free(blocks);
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    char error[VKA_IO_ERROR_SIZE] = "";
    struct vka_safetensors *file = NULL;
    enum vka_status status = vka_safetensors_parse("bytes", data, size, error, &file);
    if (status != VKA_OK) {
        if (file || status != VKA_IO || !error[0] || strlen(error) >= sizeof error)
            abort();
        return 0;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < vka_safetensors_count(file); i++) {
        const struct vka_io_array *a = vka_safetensors_at(file, i);
        const unsigned char *first = a->data;
        if (first < data || a->size > (size_t)(data + size - first))
            abort();
        if (a->dtype != VKA_IO_DTYPE_COUNT && strcmp(a->type, vka_io_dtype_name(a->dtype)) != 0)
            abort();
        if (vka_safetensors_find(file, a->name) != a)
            abort();
        bytes += a->size;
    }
    if (bytes > size)
        abort();
    vka_safetensors_metadata(file, "format");
    repack(file);
    vka_safetensors_close(&file);
    return 0;
}
