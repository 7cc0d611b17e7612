/* Calls of MPI that fail on demand, by MPI's own profiling interface: the program's definitions of
 * them come before those of the library, which have a second name. */
#ifndef TESTS_MPI_CALLS_H
#define TESTS_MPI_CALLS_H

#include <stdbool.h>
#include <stddef.h>

/* How many calls there were that start something, and which one fails. */
struct calls {
    size_t n, fail_at; /* SIZE_MAX: none */
    bool at_end;       /* it succeeds, and the next test for its end fails */
    const char *failed;
};
extern struct calls calls;

#endif
