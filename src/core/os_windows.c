#include "core/os.h"

#include <windows.h>

#include <process.h>

#define NS 1000000000ull /* a second */

long os_process(void)
{
    return (long)GetCurrentProcessId();
}

uint64_t os_now(void)
{
    LARGE_INTEGER now, rate; /* ticks, ticks a second */
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&rate);
    const uint64_t ticks = (uint64_t)now.QuadPart, each = (uint64_t)rate.QuadPart;
    return ticks / each * NS + ticks % each * NS / each;
}

double os_now_ms(void)
{
    return (double)os_now() * 1e-6;
}

/* A plain Sleep may take 16 ms, and may end a little too early. */
void os_sleep(uint64_t ns)
{
    const uint64_t begin = os_now();
#ifdef CREATE_WAITABLE_TIMER_HIGH_RESOLUTION
    HANDLE timer = CreateWaitableTimerExW(NULL, NULL, CREATE_WAITABLE_TIMER_HIGH_RESOLUTION,
                                          TIMER_ALL_ACCESS); /* Windows 10 1803 and later */
    if (timer) {
        LARGE_INTEGER due = {.QuadPart = -(LONGLONG)(ns / 100)}; /* negative: from now on */
        if (SetWaitableTimer(timer, &due, 0, NULL, NULL, FALSE))
            WaitForSingleObject(timer, INFINITE);
        CloseHandle(timer);
    }
#endif
    for (uint64_t done; (done = os_now() - begin) < ns;) {
        const uint64_t ms = (ns - done + 999999) / 1000000;
        Sleep(ms < INFINITE ? (DWORD)ms : INFINITE - 1);
    }
}

void os_yield(void)
{
    SwitchToThread();
}

unsigned os_n_core(void)
{
    DWORD n = GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
    return n < 1 ? 1 : (unsigned)n;
}

/* What each thread runs. */
struct task {
    void (*function)(void *context);
    void *context;
};

static unsigned __stdcall run(void *argument)
{
    const struct task *task = argument;
    task->function(task->context);
    return 0;
}

void os_run_threads(size_t n, void (*function)(void *context), void *context)
{
    HANDLE threads[OS_MAX_THREADS - 1];
    struct task task = {function, context};
    size_t others = 0;
    while (others < OS_MAX_THREADS - 1 && others + 1 < n) {
        HANDLE thread = (HANDLE)_beginthreadex(NULL, 0, run, &task, 0, NULL);
        if (!thread)
            break;
        threads[others++] = thread;
    }
    function(context);
    while (others) {
        WaitForSingleObject(threads[--others], INFINITE);
        CloseHandle(threads[others]);
    }
}

_Static_assert(sizeof(SRWLOCK) == sizeof(struct os_mutex), "os_mutex holds an SRWLOCK");

void os_mutex_lock(struct os_mutex *mutex)
{
    AcquireSRWLockExclusive((SRWLOCK *)&mutex->lock);
}

void os_mutex_unlock(struct os_mutex *mutex)
{
    ReleaseSRWLockExclusive((SRWLOCK *)&mutex->lock);
}
