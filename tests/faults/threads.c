/* No threads of the library's own, so that calls come in the same order each time: it does without,
 * as where a process may have no more. */
#include <errno.h>
#include <stdint.h>

#ifdef _WIN32
static uintptr_t refuse(void *security, unsigned stack, unsigned(__stdcall *run)(void *),
                        void *argument, unsigned flags, unsigned *id)
{
    (void)security;
    (void)stack;
    (void)run;
    (void)argument;
    (void)flags;
    (void)id;
    errno = EAGAIN;
    return 0;
}

/* Calls go through the pointer that the import library has for the function. */
extern uintptr_t (*__wrap___imp__beginthreadex)(void *, unsigned, unsigned(__stdcall *)(void *),
                                                void *, unsigned, unsigned *);
uintptr_t (*__wrap___imp__beginthreadex)(void *, unsigned, unsigned(__stdcall *)(void *), void *,
                                         unsigned, unsigned *) = refuse;
#else
#include <pthread.h>

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
    (void)thread;
    (void)attributes;
    (void)run;
    (void)argument;
    return EAGAIN;
}
#endif
