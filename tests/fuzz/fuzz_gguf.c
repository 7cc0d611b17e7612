/* Any bytes as a GGUF file: refused, or tensors and metadata that lie in the bytes. */
#include <stdlib.h>
#include <string.h>

#include <vkattn/vkattn_io.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static const unsigned char *bytes;
static size_t n_byte;

/* Aborts unless part[size] lies in the file; returns a sum, so that a sanitizer sees each byte. */
static unsigned read_part(const void *part, size_t size)
{
    const unsigned char *first = part;
    unsigned sum = 0;
    if (first < bytes || first > bytes + n_byte || size > (size_t)(bytes + n_byte - first))
        abort();
    for (size_t i = 0; i < size; i++)
        sum += first[i];
    return sum;
}

static unsigned read_value(const struct vka_gguf_value *value)
{
    unsigned sum = read_part(value->data, value->size);
    size_t at = 0, size;
    const char *text;
    int64_t integer;
    uint64_t strings = 0;
    double real;
    while (vka_gguf_string(value, &at, &text, &size)) {
        sum += read_part(text, size);
        strings++;
    }
    if ((value->item == VKA_GGUF_STRING) != (strings > 0) && value->count)
        abort();
    if (strings && strings != value->count)
        abort();
    if (vka_gguf_integer(value, value->count, &integer) ||
        vka_gguf_real(value, value->count, &real))
        abort();
    if (value->count && vka_gguf_integer(value, value->count - 1, &integer))
        sum += (unsigned)integer;
    if (value->count && vka_gguf_real(value, value->count - 1, &real))
        sum++;
    return sum;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static volatile unsigned sink;
    (void)sink;
    char error[VKA_IO_ERROR_SIZE] = "";
    struct vka_gguf *file = NULL;
    enum vka_status status = vka_gguf_parse("bytes", data, size, error, &file);
    size_t total = 0;
    bytes = data;
    n_byte = size;
    if (status != VKA_OK) {
        if (file || status != VKA_IO || !error[0] || strlen(error) >= sizeof error)
            abort();
        return 0;
    }
    for (size_t i = 0; i < vka_gguf_count(file); i++) {
        const struct vka_gguf_tensor *tensor = vka_gguf_at(file, i);
        if (vka_gguf_find(file, tensor->name) != tensor || tensor->rank > 4)
            abort();
        if (tensor->data != data + tensor->offset || (tensor->size && tensor->offset % 8))
            abort(); /* one without bytes may lie anywhere */
        sink += read_part(tensor->data, tensor->size);
        total += tensor->size;
    }
    if (total > size) /* they overlap */
        abort();
    for (size_t i = 0; i < vka_gguf_metadata_count(file); i++) {
        const struct vka_gguf_value *value = vka_gguf_metadata_at(file, i);
        if (vka_gguf_metadata(file, value->key) != value)
            abort();
        sink += read_value(value);
    }
    vka_gguf_close(&file);
    return 0;
}
