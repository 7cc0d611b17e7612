/* Any bytes as a safetensors file: refused, or arrays that lie in the bytes and cover the data. */
#include <stdlib.h>
#include <string.h>

#include <vkattn/vkattn_io.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

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
        if (vka_safetensors_find(file, a->name) != a)
            abort();
        bytes += a->size;
    }
    if (bytes > size)
        abort();
    vka_safetensors_metadata(file, "format");
    vka_safetensors_close(&file);
    return 0;
}
