/* GGUF files that are built from words, and read. SPDX-License-Identifier: MIT */
#ifndef TESTS_GGUF_FILE_H
#define TESTS_GGUF_FILE_H

#include "gguf_cases.h"
#include "io_sentence.h"

#define SAMPLE                                                                                \
    HEAD(2, 4)                                                                                \
    U32(ALIGNMENT, 16)                                                                        \
    KEY("s", 8)                                                                               \
    "=text " KEY("list", 9) "w8 d2 =one =three " KEY("b", 7) "b1 " TENSOR("weight", 32, 8, 0) \
        TENSOR("norm", 4, 0, 48) "p16 z64"
#define SAMPLE_DATA 64

/* A file of its own allocation, so that a sanitizer sees any step past it. */
static inline unsigned char *build(const char *words, size_t *size)
{
    static unsigned char room[GGUF_ROOM];
    unsigned char *bytes;

    *size = gguf_build(words, room);
    bytes = malloc(*size ? *size : 1);
    assert_non_null(bytes);
    memcpy(bytes, room, *size);
    return bytes;
}

/* The status, and where it is a failure its sentence. */
static inline enum vka_status parse(const void *bytes, size_t size, struct vka_gguf **file,
                                    char error[VKA_IO_ERROR_SIZE])
{
    enum vka_status status;

    memset(error, 'x', VKA_IO_ERROR_SIZE);
    *file = (struct vka_gguf *)error; /* to be overwritten */
    status = vka_gguf_parse("some/path", bytes, size, error, file);
    if (status) {
        assert_null(*file);
        check_sentence(error);
    }
    return status;
}

#endif
