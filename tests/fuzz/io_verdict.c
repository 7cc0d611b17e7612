/* What the readers say of files that come through standard input, each as one byte for its format
 * (0 safetensors, 1 npy, 2 GGUF), its length as a u32, little-endian, and its bytes. A line for
 * each:
 *
 *     refused SENTENCE
 *     read [NAME:DTYPE:SHAPE:BYTES ...]
 *
 * where name, type and bytes are hexadecimal and a shape is 2,3. An array of npy has no name. A type of
 * GGUF is not hexadecimal, its shape is followed by @ and the offset of the data; then comes metadata,
 * KEY:TYPE:ITEM:BYTES, its types by their numbers in the file, and of an array of strings each one after
 * its length.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vkattn/vkattn_io.h>

static void print_hex(const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        printf("%02x", ((const unsigned char *)data)[i]);
}

static void print_array(const struct vka_io_array *array)
{
    const char *name = array->name ? array->name : "";
    putchar(' ');
    print_hex(name, strlen(name));
    putchar(':');
    print_hex(array->type, strlen(array->type));
    putchar(':');
    for (uint32_t i = 0; i < array->rank; i++)
        printf("%s%" PRIu64, i ? "," : "", array->shape[i]);
    putchar(':');
    print_hex(array->data, array->size);
}

static void judge_safetensors(const unsigned char *bytes, size_t size)
{
    char error[VKA_IO_ERROR_SIZE];
    struct vka_safetensors *file = NULL;
    if (vka_safetensors_parse("file", bytes, size, error, &file) != VKA_OK) {
        printf("refused %s", error);
        return;
    }
    printf("read");
    for (size_t i = 0; i < vka_safetensors_count(file); i++)
        print_array(vka_safetensors_at(file, i));
    vka_safetensors_close(&file);
}

static void judge_npy(const unsigned char *bytes, size_t size)
{
    char error[VKA_IO_ERROR_SIZE];
    struct vka_npy *file = NULL;
    if (vka_npy_parse("file", bytes, size, error, &file) != VKA_OK) {
        printf("refused %s", error);
        return;
    }
    printf("read");
    print_array(vka_npy_array(file));
    vka_npy_close(&file);
}

static void judge_gguf(const unsigned char *bytes, size_t size)
{
    char error[VKA_IO_ERROR_SIZE];
    struct vka_gguf *file = NULL;
    if (vka_gguf_parse("file", bytes, size, error, &file) != VKA_OK) {
        printf("refused %s", error);
        return;
    }
    printf("read");
    for (size_t i = 0; i < vka_gguf_count(file); i++) {
        const struct vka_gguf_tensor *tensor = vka_gguf_at(file, i);
        putchar(' ');
        print_hex(tensor->name, strlen(tensor->name));
        printf(":%s:", tensor->type);
        for (uint32_t axis = 0; axis < tensor->rank; axis++)
            printf("%s%" PRIu64, axis ? "," : "", tensor->shape[axis]);
        printf("@%" PRIu64 ":", tensor->offset);
        print_hex(tensor->data, tensor->size);
    }
    for (size_t i = 0; i < vka_gguf_metadata_count(file); i++) {
        const struct vka_gguf_value *value = vka_gguf_metadata_at(file, i);
        putchar(' ');
        print_hex(value->key, strlen(value->key));
        printf(":%d:%d:", value->type, value->item);
        print_hex(value->data, value->size);
    }
    vka_gguf_close(&file);
}

int main(void)
{
    unsigned char prefix[5];
    while (fread(prefix, 1, sizeof prefix, stdin) == sizeof prefix) {
        size_t size =
            prefix[1] | (size_t)prefix[2] << 8 | (size_t)prefix[3] << 16 | (size_t)prefix[4] << 24;
        /* Allocates no byte more than it has, so that a sanitizer sees any step past them. */
        unsigned char *bytes = malloc(size ? size : 1);
        if (!bytes || fread(bytes, 1, size, stdin) != size)
            return 2;
        (prefix[0] == 2 ? judge_gguf : prefix[0] == 1 ? judge_npy : judge_safetensors)(bytes, size);
        putchar('\n');
        free(bytes);
    }
    return ferror(stdin) || fflush(stdout) ? 2 : 0;
}
