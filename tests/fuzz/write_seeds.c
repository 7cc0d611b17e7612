/* Writes the headers of the unit tests' tables as whole files:
 *
 *     write_seeds FOLDER      makes FOLDER/bad-123.safetensors, good-001.npy and so on
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_cases.h"
#include "npy_cases.h"
#include "safetensors_cases.h"

static FILE *create(const char *folder, const char *kind, size_t index, const char *suffix)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s-%03zu.%s", folder, kind, index, suffix);
    FILE *file = fopen(path, "wb");
    if (!file) {
        perror(path);
        exit(2);
    }
    return file;
}

static void finish(FILE *file, size_t data)
{
    for (size_t i = 0; i < data; i++)
        putc((int)(i & 0xff), file);
    if (ferror(file) | fclose(file)) {
        perror("cannot write a seed");
        exit(2);
    }
}

static void put_length(FILE *file, size_t length, int bytes)
{
    for (int i = 0; i < bytes; i++)
        putc((int)((unsigned long long)length >> 8 * i & 0xff), file);
}

static void write_safetensors(FILE *file, const char *header, size_t data)
{
    put_length(file, strlen(header), 8);
    for (const char *c = header; *c; c++)
        putc(*c == '\'' ? '"' : *c, file);
    finish(file, data);
}

static void write_npy(FILE *file, unsigned version, const char *header, size_t data)
{
    fputs("\x93NUMPY", file);
    putc((int)version, file);
    putc(0, file);
    put_length(file, strlen(header), version == 1 ? 2 : 4);
    fputs(header, file);
    finish(file, data);
}

static void write_gguf(FILE *file, const char *words)
{
    static unsigned char bytes[GGUF_ROOM];
    fwrite(bytes, 1, gguf_build(words, bytes), file);
    finish(file, 0);
}

static void write_gguf_seeds(const char *folder)
{
    size_t n = sizeof malformed_gguf / sizeof malformed_gguf[0];
    for (size_t i = 0; i < n; i++)
        write_gguf(create(folder, "bad", i, "gguf"), malformed_gguf[i].words);
    for (size_t i = 0; i < sizeof wellformed_gguf / sizeof wellformed_gguf[0]; i++)
        write_gguf(create(folder, "good", n++, "gguf"), wellformed_gguf[i].words);
    for (size_t i = 0; i < GGUF_TYPE_COUNT; i++) { /* a row of a block, of every type */
        char words[200];
        sprintf(words, HEAD(1, 0) "=a w1 d%u w%u d0 p32 z%u", gguf_types[i].values,
                gguf_types[i].number, gguf_types[i].size);
        write_gguf(create(folder, "good", n++, "gguf"), words);
    }
}

int main(int argc, char **argv)
{
    const size_t n_bad = sizeof malformed_safetensors / sizeof malformed_safetensors[0],
                 n_bad_npy = sizeof malformed_npy / sizeof malformed_npy[0];
    if (argc != 2) {
        fprintf(stderr, "usage: write_seeds FOLDER\n");
        return 2;
    }
    for (size_t i = 0; i < n_bad; i++)
        write_safetensors(create(argv[1], "bad", i, "safetensors"), malformed_safetensors[i].header,
                          malformed_safetensors[i].data);
    for (size_t i = 0; i < sizeof wellformed_safetensors / sizeof wellformed_safetensors[0]; i++)
        write_safetensors(create(argv[1], wellformed_safetensors[i].names ? "good" : "bad",
                                 n_bad + i, "safetensors"),
                          wellformed_safetensors[i].header, wellformed_safetensors[i].data);
    for (size_t i = 0; i < n_bad_npy; i++)
        write_npy(create(argv[1], "bad", i, "npy"), 1 + i % 3, malformed_npy[i].header,
                  malformed_npy[i].data);
    for (size_t i = 0; i < sizeof wellformed_npy / sizeof wellformed_npy[0]; i++)
        write_npy(create(argv[1], "good", i, "npy"), 1 + i % 3, wellformed_npy[i].header,
                  wellformed_npy[i].data);
    write_gguf_seeds(argv[1]);
    return 0;
}
