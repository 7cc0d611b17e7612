/* Any bytes as a GGUF file: refused, or tensors and metadata that lie in the bytes. After a P they are
 * the shards of a model in two or three files: a byte that says how many, the size of each but the last
 * as a u16, and the shards. */
#include <stdlib.h>
#include <string.h>

#include "io/gguf_shards.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static const unsigned char *bytes;
static size_t n_byte;

/* Aborts unless shard[size] lies in the file; returns a sum, so that a sanitizer sees each byte. */
static unsigned read_shard(const void *shard, size_t size)
{
    const unsigned char *first = shard;
    unsigned sum = 0;
    if (first < bytes || first > bytes + n_byte || size > (size_t)(bytes + n_byte - first))
        abort();
    for (size_t i = 0; i < size; i++)
        sum += first[i];
    return sum;
}

static unsigned read_value(const struct vka_gguf_value *value)
{
    unsigned sum = read_shard(value->data, value->size);
    size_t at = 0, size;
    const char *text;
    int64_t integer;
    uint64_t strings = 0;
    double real;
    while (vka_gguf_string(value, &at, &text, &size)) {
        sum += read_shard(text, size);
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

/* Aborts unless what was refused has a sentence. */
static void check_refusal(const struct vka_gguf *file, enum vka_status status, const char *error)
{
    if (file || status != VKA_IO || !error[0] || strlen(error) >= VKA_IO_ERROR_SIZE)
        abort();
}

static void read_file(const struct vka_gguf *file, bool whole)
{
    static volatile unsigned sink;
    size_t total = 0;
    for (size_t i = 0; i < vka_gguf_count(file); i++) {
        const struct vka_gguf_tensor *tensor = vka_gguf_at(file, i);
        if (vka_gguf_find(file, tensor->name) != tensor || tensor->rank > 4)
            abort();
        if ((whole && tensor->data != bytes + tensor->offset) ||
            (tensor->size && tensor->offset % 8))
            abort(); /* one without bytes may lie anywhere */
        sink += read_shard(tensor->data, tensor->size);
        total += tensor->size;
    }
    (void)sink;
    if (total > n_byte) /* they overlap */
        abort();
    for (size_t i = 0; i < vka_gguf_metadata_count(file); i++) {
        const struct vka_gguf_value *value = vka_gguf_metadata_at(file, i);
        if (vka_gguf_metadata(file, value->key) != value)
            abort();
        sink += read_value(value);
    }
}

static void read_shards(const unsigned char *data, size_t size)
{
    enum { MOST = 3 };
    char error[VKA_IO_ERROR_SIZE] = "", path[] = "bytes-00001-of-00003.gguf";
    struct vka_gguf *shards[MOST] = {NULL};
    const size_t count = 2 + data[1] % 2, head = 2 + 2 * (count - 1);
    enum vka_status status = VKA_OK;
    size_t at = head;
    if (size < head)
        return;
    for (size_t i = 0; i < count && !status; i++) {
        size_t shard = size - at;
        if (i + 1 < count && shard > (data[2 + 2 * i] | (size_t)data[3 + 2 * i] << 8))
            shard = data[2 + 2 * i] | (size_t)data[3 + 2 * i] << 8;
        status = vka_gguf_parse("shard", data + at, shard, error, &shards[i]);
        at += shard;
    }
    if (!status)
        status = vka_gguf_join(path, shards, count, error);
    if (status)
        check_refusal(NULL, status, error);
    else
        read_file(shards[0], false);
    for (size_t i = 0; i < count; i++)
        if (status || i == 0)
            vka_gguf_close(&shards[i]);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    char error[VKA_IO_ERROR_SIZE] = "";
    struct vka_gguf *file = NULL;
    bytes = data;
    n_byte = size;
    if (size >= 2 && data[0] == 'P') {
        read_shards(data, size);
        return 0;
    }
    enum vka_status status = vka_gguf_parse("bytes", data, size, error, &file);
    if (status)
        check_refusal(file, status, error);
    else
        read_file(file, true);
    vka_gguf_close(&file);
    return 0;
}
