/* Every host allocation of the driver made to fail in turn, through VkAllocationCallbacks: the
 * library passes the driver's error on, leaks nothing and goes on. What crashes inside the driver
 * is the driver's: it is named and stepped over. By default a third of them in the first scenario;
 * --all fails each one in every scenario.
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* MAP_ANONYMOUS, dladdr */
#include <dlfcn.h>
#include <execinfo.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"
#include "scenario.h"
#include "test_program.h"

/* What the children tell, in shared memory. */
struct report {
    size_t at, count; /* the allocation that fails, and how many a run makes */
    size_t failed_calls, lost, hidden, wrong;
    bool foreign_thread; /* the crash was in one that the library did not start */
};

static struct report *report;
static size_t step = 3; /* every so many allocations fail */

static void on_crash(int signal)
{
    void *frames[64];
    Dl_info here, there;
    int n = backtrace(frames, 64);
    report->foreign_thread = dladdr((void *)(uintptr_t)on_crash, &here) != 0;
    for (int i = 1; i < n; i++) /* after this one */
        if (dladdr(frames[i], &there) && there.dli_fbase == here.dli_fbase)
            report->foreign_thread = false;
    raise(signal);
}

/* Whether the driver gave up on the device, at once or after the error, and the next call says
 * so. */
static bool is_lost(const struct scenario *s)
{
    return s->n_failure == 2 && s->failures[1] == VKA_DEVICE_LOST;
}

/* Whether the driver lost a command and said success. */
static bool is_hidden(const struct scenario *s)
{
    return strncmp(driver_failed_in(), "vkCmd", 5) == 0 && s->failures[0] != VKA_OUT_OF_HOST_MEMORY;
}

/* Whether the output has the same bits; or, where the driver made no pipeline or module for want of
 * memory and another kernel took its place, the same numbers. */
static bool is_right(const struct scenario *s, const struct scenario *clean)
{
    if (memcmp(s->output, clean->output, sizeof s->output) == 0)
        return true;
    const bool made = strcmp(driver_failed_in(), "vkCreateComputePipelines") != 0 &&
                      strcmp(driver_failed_in(), "vkCreateShaderModule") != 0;
    if (made || s->n_failure > 0)
        return false;
    for (size_t i = 0; i < SCENARIO_FLOATS; i++)
        if (!(fabsf(s->output[i] - clean->output[i]) <= 1e-5f))
            return false;
    return true;
}

/* Why a run is not as it must be. */
static const char *judge(const struct scenario *s, const struct scenario *clean)
{
    if (is_hidden(s) || is_lost(s))
        return driver_alive() != 0 ? "objects were leaked" : NULL;
    if (!s->complete || s->n_failure > 1)
        return "what failed once failed again";
    if (!is_right(s, clean))
        return "another result than without the failure";
    return driver_alive() != 0 ? "objects were leaked" : NULL;
}

/* All allocations from report->at on; a crash ends the process. */
static int child(enum scenario_kind kind)
{
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    struct scenario clean, s;
    size_t n = 0;
    for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++)
        sigaction(crashes[i], &(struct sigaction){.sa_handler = on_crash, .sa_flags = SA_RESETHAND},
                  NULL);
    if (!driver_open() || vka_device_list(NULL, NULL, &n) != VKA_OK)
        return 77;
    driver_reset();
    driver_fail_allocation(DRIVER_NEVER);
    scenario_run(kind, &clean);
    report->count = driver_allocations();
    if (!clean.complete)
        return 1;
    for (; report->at < report->count; report->at += step) {
        driver_reset();
        driver_fail_allocation(report->at);
        scenario_run(kind, &s);
        report->failed_calls += s.n_failure;
        report->hidden += is_hidden(&s);
        report->lost += is_lost(&s);
        const char *why = judge(&s, &clean);
        if (why) {
            printf("allocation %zu, in \"%s\": %s: %s\n", report->at, driver_failed_in(), why,
                   s.error);
            report->wrong++;
        }
    }
    return 0;
}

static int run(enum scenario_kind kind, size_t *crashes)
{
    for (;;) {
        pid_t pid = fork();
        int status = 0;
        if (pid == 0)
            _exit(child(kind));
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
            return 1;
        if (WIFEXITED(status))
            return WEXITSTATUS(status);
        const char *busy = report->foreign_thread ? "a thread of its own" : driver_busy();
        report->foreign_thread = false;
        printf("allocation %zu: signal %d %s%s\n", report->at, WTERMSIG(status),
               busy ? "inside the driver, stepped over: " : "in the library", busy ? busy : "");
        if (!busy)
            return 1;
        ++*crashes;
        report->at += step;
    }
}

TEST_PROGRAM_ARGUMENTS(driver_memory)
{
    bool all = argc == 2 && strcmp(argv[1], "--all") == 0;
    if (all)
        step = 1;
    report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (report == MAP_FAILED || !driver_share())
        return 1;
    setvbuf(stdout, NULL, _IOLBF, 0); /* a crash takes no lines along */
    for (int kind = 0; kind < (all ? SCENARIO_KIND_COUNT : 1); kind++) {
        size_t crashes = 0;
        *report = (struct report){0};
        int status = run(kind, &crashes);
        if (status == 77)
            fprintf(stderr, "SKIPPED: no Vulkan device, so its allocations are not tested\n");
        if (status)
            return status;
        printf("every %zu of %zu allocations of the driver failed in turn: %zu failed calls, %zu "
               "devices lost, %zu "
               "crashes inside the driver, %zu commands that it lost and hid, %zu not handled\n",
               step, report->count, report->failed_calls, report->lost, crashes, report->hidden,
               report->wrong);
        if (report->wrong || report->failed_calls == 0)
            return 1;
    }
    return 0;
}
