/* What a reader of files says of one that it refuses. SPDX-License-Identifier: MIT */
#ifndef TESTS_IO_SENTENCE_H
#define TESTS_IO_SENTENCE_H

/* One line, not empty, that begins with the path "some/path". */
static inline void check_sentence(const char error[VKA_IO_ERROR_SIZE])
{
    assert_non_null(memchr(error, '\0', VKA_IO_ERROR_SIZE));
    assert_memory_equal(error, "some/path: ", 11);
    assert_true(strlen(error) > 20);
    assert_null(strpbrk(error, "\n\r\t\x1b"));
}

#endif
