/* What os.h promises of the system: processes, time, threads, and what programs ask for.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#ifndef _WIN32
#include <sys/wait.h>
#endif
#include <unistd.h>

#include "core/os.h"
#include "folder.h"
#include "test_program.h"

#ifdef _WIN32
#include "core/os_windows.h"
#endif

/* ---- Process, time, threads ------------------------------------------------------------------ */

static void process(void **state)
{
    long own = os_process();
    (void)state;
    assert_int_equal(own, os_process());
#ifndef _WIN32
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(os_process() == own);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
#endif
}

static void time_passes(void **state)
{
    uint64_t begin = os_now(), before = begin;
    double begin_ms = os_now_ms();
    (void)state;
    for (int i = 0; i < 1000; i++) {
        uint64_t now = os_now();
        assert_true(now >= before);
        before = now;
    }
    os_yield();
    os_sleep(0);
    os_sleep(2000000);
    assert_true(os_now() - begin >= 2000000);
    double ms = os_now_ms() - begin_ms, same = (double)(os_now() - begin) * 1e-6;
    assert_true(ms >= 1.99 && ms <= same + 0.01);
}

/* Takes numbers one by one, so that it does not matter how many threads there are. */
struct numbers {
    atomic_uint next, threads, taken[1000];
};

static void take(void *context)
{
    struct numbers *numbers = context;
    atomic_fetch_add(&numbers->threads, 1);
    for (unsigned i; (i = atomic_fetch_add(&numbers->next, 1)) < 1000;)
        atomic_fetch_add(&numbers->taken[i], 1);
}

static void threads(void **state)
{
    static const size_t counts[] = {0, 1, 2, OS_MAX_THREADS, OS_MAX_THREADS + 1, SIZE_MAX};
    (void)state;
    assert_true(os_n_core() >= 1);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct numbers numbers = {.next = 0};
        os_run_threads(counts[i], take, &numbers);
        assert_true(numbers.threads >= 1 && numbers.threads <= OS_MAX_THREADS);
        assert_true(counts[i] == 0 || numbers.threads <= counts[i]);
        for (unsigned j = 0; j < 1000; j++)
            assert_int_equal(numbers.taken[j], 1);
    }
}

/* Not atomic: only the mutex makes it right. */
static struct os_mutex mutex = OS_MUTEX_INIT;
static unsigned counted;

static void count(void *context)
{
    (void)context;
    for (int i = 0; i < 10000; i++) {
        os_mutex_lock(&mutex);
        counted++;
        os_mutex_unlock(&mutex);
    }
}

static void mutexes(void **state)
{
    struct numbers numbers = {.next = 1000}; /* nothing to take: counts the threads */
    (void)state;
    os_run_threads(4, take, &numbers);
    assert_int_equal(numbers.threads, 4);
    os_run_threads(4, count, NULL);
    assert_int_equal(counted, 4 * 10000);
}

/* ---- Programs -------------------------------------------------------------------------------- */

/* What was printed is one text, zeros in it too. */
static void memory_streams(void **state)
{
    struct os_memory memory;
    (void)state;
    assert_true(os_memory_open(&memory));
    assert_true(os_memory_close(&memory));
    assert_int_equal(memory.size, 0);
    assert_string_equal(memory.text, "");
    free(memory.text);
    assert_true(os_memory_open(&memory));
    for (int i = 0; i < 20000; i++)
        assert_true(fprintf(memory.stream, "%05d\n", i) == 6);
    assert_int_equal(putc(0, memory.stream), 0);
    assert_true(os_memory_close(&memory));
    assert_int_equal(memory.size, 6 * 20000 + 1);
    assert_memory_equal(memory.text + 6 * 12345, "12345\n12346\n", 12);
    assert_int_equal(memory.text[memory.size], 0);
    free(memory.text);
}

#ifdef _WIN32
/* The folder of LOCALAPPDATA, in any letters. */
static void cache_folders(void **state)
{
    char at[OS_PATH_SIZE], want[OS_PATH_SIZE];
    wchar_t *wide = os_windows_wide(in_folder(LETTERS));
    (void)state;
    assert_non_null(wide);
    assert_int_equal(_wputenv_s(L"LOCALAPPDATA", wide), 0);
    assert_string_equal(os_environment("LOCALAPPDATA"), in_folder(LETTERS));
    assert_false(os_cache_folder("test", false, at));
    assert_int_equal(count_files(), 0);
    assert_true(os_cache_folder("test", true, at));
    snprintf(want, sizeof want, "%.4000s/" LETTERS "\\test", folder);
    assert_string_equal(at, want);
    assert_int_equal(os_look(at), OS_FOLDER);
    assert_true(os_cache_folder("test", false, at));
    wchar_t *below = os_windows_wide(at);
    assert_int_equal(_wrmdir(below), 0);
    assert_int_equal(_wrmdir(wide), 0);
    free(below);
    free(wide);
    assert_int_equal(_putenv_s("LOCALAPPDATA", "relative"), 0); /* does not count */
    assert_false(os_cache_folder("test", true, at));
    assert_int_equal(_putenv_s("LOCALAPPDATA", ""), 0);
    assert_null(os_environment("LOCALAPPDATA"));
    assert_false(os_cache_folder("test", true, at));
}

#else
static void cache_folders(void **state)
{
    char at[OS_PATH_SIZE], want[OS_PATH_SIZE], *longest = malloc(OS_PATH_SIZE);
    (void)state;
    assert_int_equal(setenv("XDG_CACHE_HOME", in_folder("xdg"), 1), 0);
    assert_int_equal(setenv("HOME", folder, 1), 0);
    assert_string_equal(os_environment("HOME"), folder);
    assert_false(os_cache_folder("test", false, at));
    assert_int_equal(count_files(), 0);
    assert_true(os_cache_folder("test", true, at));
    snprintf(want, sizeof want, "%.4000s/xdg/test", folder);
    assert_string_equal(at, want);
    assert_int_equal(os_look(at), OS_FOLDER);
    assert_true(os_cache_folder("test", false, at));
    assert_string_equal(at, want);
    assert_int_equal(rmdir(at), 0);
    assert_int_equal(rmdir(in_folder("xdg")), 0);

    assert_int_equal(setenv("XDG_CACHE_HOME", in_folder("xdg/a"), 1), 0); /* all are made */
    assert_true(os_cache_folder("test", true, at));
    assert_int_equal(os_look(at), OS_FOLDER);
    assert_int_equal(rmdir(at), 0);
    assert_int_equal(rmdir(in_folder("xdg/a")), 0);
    assert_int_equal(rmdir(in_folder("xdg")), 0);
    assert_int_equal(setenv("HOME", in_folder("no/home"), 1), 0); /* that is not */
    assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
    assert_true(os_cache_folder("test", true, at));
    assert_int_equal(os_look(at), OS_NOTHING);
    assert_int_equal(setenv("HOME", folder, 1), 0);

    assert_int_equal(setenv("XDG_CACHE_HOME", "relative", 1), 0); /* does not count */
    assert_true(os_cache_folder("test", true, at));
    snprintf(want, sizeof want, "%.4000s/.cache/test", folder);
    assert_string_equal(at, want);
    assert_int_equal(rmdir(at), 0);
    assert_int_equal(rmdir(in_folder(".cache")), 0);

    assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
    assert_int_equal(unsetenv("HOME"), 0);
    assert_null(os_environment("HOME"));
    assert_false(os_cache_folder("test", true, at));
    assert_non_null(longest);
    memset(longest, 'x', OS_PATH_SIZE - 1);
    longest[0] = '/';
    longest[OS_PATH_SIZE - 1] = '\0';
    assert_int_equal(setenv("XDG_CACHE_HOME", longest, 1), 0);
    assert_false(os_cache_folder("test", true, at));
    longest[OS_PATH_SIZE - 6] = '\0'; /* room for "/test" and the NUL, and one too little */
    assert_int_equal(setenv("XDG_CACHE_HOME", longest, 1), 0);
    assert_true(os_cache_folder("test", true, at)); /* though such a folder cannot be made */
    assert_int_equal(strlen(at), OS_PATH_SIZE - 1);
    assert_false(os_cache_folder("test2", true, at));
    free(longest);
}
#endif

static void terminals(void **state)
{
    uint64_t size;
    FILE *file = os_open_file(NOWHERE, &size);
    (void)state;
    assert_non_null(file);
    assert_false(os_is_terminal(file));
    fclose(file);
}

TEST_PROGRAM(os)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(process),        cmocka_unit_test(time_passes),
        cmocka_unit_test(threads),        cmocka_unit_test(mutexes),
        cmocka_unit_test(memory_streams), cmocka_unit_test(cache_folders),
        cmocka_unit_test(terminals),
    };
    return cmocka_run_group_tests(tests, folder_set_up_absolute, folder_tear_down);
}
