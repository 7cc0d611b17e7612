#include "heap.h"

#include <stdbool.h>

static size_t count, fail_at = HEAP_NEVER;
static long alive;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void __wrap_free(void *memory);

static bool fails(void)
{
    return count++ == fail_at;
}

static void *made(void *memory)
{
    alive += memory != NULL;
    return memory;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : made(__real_malloc(size));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : made(__real_calloc(n, size));
}

void *__wrap_realloc(void *old, size_t size)
{
    if (fails())
        return NULL;
    void *memory = __real_realloc(old, size);
    return old ? memory : made(memory);
}

void __wrap_free(void *memory)
{
    alive -= memory != NULL;
    __real_free(memory);
}

void heap_fail(size_t allocation)
{
    count = 0;
    alive = 0;
    fail_at = allocation;
}

size_t heap_count(void)
{
    return count;
}

long heap_alive(void)
{
    return alive;
}
