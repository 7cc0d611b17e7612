/* Any bytes as a npy file: refused, or an array whose elements can all be read. */
#include <stdlib.h>
#include <string.h>

#include <vkattn/vkattn_io.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    char error[VKA_IO_ERROR_SIZE] = "";
    struct vka_npy *file = NULL;
    enum vka_status status = vka_npy_parse("bytes", data, size, error, &file);
    if (status != VKA_OK) {
        if (file || status != VKA_IO || !error[0] || strlen(error) >= sizeof error)
            abort();
        return 0;
    }
    const struct vka_io_array *a = vka_npy_array(file);
    unsigned char *copy = malloc(a->size + 1);
    if (a->size > size || a->rank > VKA_IO_MAX_RANK)
        abort();
    if (copy && a->size)
        memcpy(copy, a->data, a->size); /* a sanitizer sees what lies outside */
    free(copy);
    vka_npy_close(&file);
    return 0;
}
