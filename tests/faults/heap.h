/* A heap that fails on demand: the linker's --wrap of malloc, calloc, realloc and free puts it
 * under the static libraries and the test itself. For programs of one thread. */
#ifndef TESTS_FAULTS_HEAP_H
#define TESTS_FAULTS_HEAP_H

#include <stddef.h>

#define HEAP_NEVER ((size_t)-1)

/* From here the n-th allocation fails, once. */
void heap_fail(size_t allocation);

/* Allocations since then; blocks taken and not given back since then. */
size_t heap_count(void);
long heap_alive(void);

#endif
