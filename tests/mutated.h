/* Mutated files, in memory: a reader refuses each of them, or accepts it and what it gives is sound. */
#ifndef TESTS_MUTATED_H
#define TESTS_MUTATED_H

#include <stdbool.h>
#include <stddef.h>

/* Reads a file, checks what it got against the bytes, and closes it. Whether it was accepted. */
typedef bool read_mutant(const unsigned char *bytes, size_t size);

/* Asserts that every shorter file is refused, and the whole accepted. Each ends where its allocation
 * does, so that a sanitizer sees any step past it. */
void check_cuts(const unsigned char *bytes, size_t size, read_mutant *read);

/* Gives each byte of bytes[first .. end) each of the n values that it has not, one at a time. Asserts that at least so many were accepted, and so many refused. */
struct mutants {
    size_t first, end;  /* end 0: all */
    const void *values; /* NULL: all that there are */
    size_t n;
    size_t least_accepted, least_refused;
};
void check_mutants(unsigned char *bytes, size_t size, const struct mutants *m, read_mutant *read);

#endif
