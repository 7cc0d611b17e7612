#include "core/os.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

long os_process(void)
{
    return (long)getpid();
}

uint64_t os_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

double os_now_ms(void)
{
    return (double)os_now() * 1e-6;
}

void os_sleep(uint64_t ns)
{
    nanosleep(
        &(struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)},
        NULL);
}

void os_yield(void)
{
    sched_yield();
}

unsigned os_n_core(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : (unsigned)n;
}

/* What each thread runs. */
struct task {
    void (*function)(void *context);
    void *context;
};

static void *run(void *argument)
{
    const struct task *task = argument;
    task->function(task->context);
    return NULL;
}

void os_run_threads(size_t n, void (*function)(void *context), void *context)
{
    pthread_t threads[OS_MAX_THREADS - 1];
    struct task task = {function, context};
    size_t others = 0;
    while (others < OS_MAX_THREADS - 1 && others + 1 < n &&
           pthread_create(&threads[others], NULL, run, &task) == 0)
        others++;
    function(context);
    while (others)
        pthread_join(threads[--others], NULL);
}

void os_mutex_lock(struct os_mutex *mutex)
{
    pthread_mutex_lock(&mutex->lock);
}

void os_mutex_unlock(struct os_mutex *mutex)
{
    pthread_mutex_unlock(&mutex->lock);
}
