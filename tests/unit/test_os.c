/* What os.h promises of the system. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#ifndef _WIN32
#include <sys/wait.h>
#endif
#include <unistd.h>

#include "core/os.h"

#ifdef _WIN32
#include "core/os_windows.h"
#define NOWHERE "NUL"
#else
#define NOWHERE "/dev/null"
#endif

static char folder[PATH_MAX]; /* absolute, with nothing in it between tests */

static int set_up(void **state)
{
    char name[] = "test_os-XXXXXX";
    (void)state;
    if (!mkdtemp(name) || !getcwd(folder, sizeof folder - sizeof name - 1))
        return -1;
    strcat(folder, "/");
    strcat(folder, name);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(folder);
}

/* The path of a name in the folder, for as many more calls as a test makes. */
static const char *in_folder(const char *name)
{
    static char paths[16][PATH_MAX + 64];
    static unsigned turn;
    char *path = paths[turn++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void check_file(const char *path, const char *text)
{
    char got[64] = "";
    uint64_t size;
    FILE *file = os_open_file(path, &size);
    assert_non_null(file);
    assert_int_equal(size, strlen(text));
    assert_int_equal(fread(got, 1, sizeof got, file), strlen(text));
    assert_string_equal(got, text);
    fclose(file);
}

static unsigned count_names(void)
{
    unsigned n = 0;
    bool is_folder;
    struct os_folder *names = os_folder_open(folder);
    assert_non_null(names);
    while (os_folder_next(names, &is_folder))
        n++;
    os_folder_close(&names);
    return n;
}

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

/* ---- Files ----------------------------------------------------------------------------------- */

static void error_texts(void **state)
{
    char text[128], small[4];
    (void)state;
    os_error_text(ENOENT, text, sizeof text);
    assert_string_equal(text, "No such file or directory");
    os_error_text(123456, text, sizeof text);
    assert_non_null(strstr(text, "123456"));
    memset(small, 'x', sizeof small);
    os_error_text(ENOENT, small, sizeof small);
    assert_non_null(memchr(small, '\0', sizeof small));
}

static void folder_lengths(void **state)
{
    (void)state;
    assert_int_equal(os_folder_length(""), 0);
    assert_int_equal(os_folder_length("a"), 0);
    assert_int_equal(os_folder_length("/a"), 1);
    assert_int_equal(os_folder_length("a/b.c/d"), 6);
    assert_int_equal(os_folder_length("a/"), 2);
#ifdef _WIN32
    assert_int_equal(os_folder_length("a\\b.c/d\\e"), 8);
    assert_int_equal(os_folder_length("c:a"), 2);
    assert_int_equal(os_folder_length("c:\\a"), 3);
#endif
}

static void places(void **state)
{
    const char *file = in_folder("file");
    (void)state;
    write_file(file, "a");
    assert_int_equal(os_look(file), OS_FILE);
    assert_int_equal(os_look(folder), OS_FOLDER);
    assert_int_equal(os_look(NOWHERE), OS_OTHER);
    errno = 0;
    assert_int_equal(os_look(in_folder("none")), OS_NOTHING);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(os_look(""), OS_NOTHING);
    assert_false(os_same_file(file, folder));
    assert_false(os_same_file(in_folder("none"), in_folder("none")));
#ifndef _WIN32 /* there a user may make no links, and below a file is nothing */
    const char *link = in_folder("link");
    assert_int_equal(os_look(in_folder("file/x")), OS_UNKNOWN);
    assert_int_equal(errno, ENOTDIR);
    assert_int_equal(symlink("file", link), 0);
    assert_int_equal(os_look(link), OS_FILE);
    assert_true(os_same_file(file, link));
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink("/proc/self/exe", link), 0); /* as /dev/stdout is */
    assert_int_equal(os_look(link), OS_OTHER);
    assert_int_equal(unlink(link), 0);
#else
    char other[PATH_MAX + 64];
    snprintf(other, sizeof other, "%s/../%s/FILE", folder, folder + os_folder_length(folder));
    assert_true(os_same_file(file, other)); /* names in any case */
    assert_int_equal(os_look(in_folder("file/x")), OS_NOTHING);
#endif
    assert_int_equal(unlink(file), 0);
}

static void open_files(void **state)
{
    uint64_t size = 0;
    const char *path = in_folder("pipe");
    (void)state;
    assert_null(os_open_file(path, &size));
    assert_int_equal(errno, ENOENT);
#ifndef _WIN32
    assert_int_equal(mkfifo(path, 0600), 0);
    FILE *file = os_open_file(path, &size); /* nobody writes */
    assert_non_null(file);
    assert_true(size == OS_NO_SIZE);
    assert_true(fcntl(fileno(file), F_GETFD) & FD_CLOEXEC);
    fclose(file);
    assert_int_equal(unlink(path), 0);
#else
    FILE *file;
#endif
    file = os_open_file(folder, &size);
    if (file) /* or it fails, as the system likes */
        fclose(file);
    assert_true(!file || size == OS_NO_SIZE);
    write_file(path, "");
    check_file(path, "");
    assert_int_equal(unlink(path), 0);
}

/* The mapping outlives the stream and the name. */
static void mapped_files(void **state)
{
    uint64_t size;
    const char *path = in_folder("map");
    (void)state;
    write_file(path, "mapped");
    FILE *file = os_open_file(path, &size);
    assert_non_null(file);
    void *data = os_map_file(file, (size_t)size);
    assert_non_null(data);
    assert_int_equal((uintptr_t)data % 4096, 0);
    fclose(file);
#ifndef _WIN32 /* where a mapping keeps the name too */
    assert_int_equal(unlink(path), 0);
#endif
    assert_memory_equal(data, "mapped", 6);
    os_unmap_file(data, (size_t)size);
#ifdef _WIN32
    assert_int_equal(unlink(path), 0);
#endif
    file = os_open_file(NOWHERE, &size);
    assert_non_null(file);
    errno = 0;
    assert_null(os_map_file(file, 1));
    assert_int_not_equal(errno, 0);
    fclose(file);
}

static void drafts(void **state)
{
    struct os_draft draft;
    const char *path = in_folder("draft");
    (void)state;
    assert_true(os_draft_create(&draft, path));
    assert_int_equal(os_look(path), OS_NOTHING);
    assert_true(os_draft_write(&draft, "one", 3));
    assert_true(os_draft_write(&draft, "", 0));
    assert_true(os_draft_write(&draft, " two", 4));
    assert_int_equal(os_look(path), OS_NOTHING);
    assert_true(os_draft_keep(&draft));
    os_draft_discard(&draft);
    check_file(path, "one two");
#ifndef _WIN32
    assert_int_equal(chmod(path, 0606), 0);
#endif
    for (int keep = 0; keep < 2; keep++) {
        assert_true(os_draft_create(&draft, path));
        assert_true(os_draft_write(&draft, "new", 3));
        check_file(path, "one two");
        assert_true(!keep || os_draft_keep(&draft));
        errno = 0;
        os_draft_discard(&draft);
        assert_int_equal(errno, 0);
        check_file(path, keep ? "new" : "one two");
        assert_int_equal(count_names(), 1);
    }
#ifndef _WIN32
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0606);
#endif
    assert_int_equal(unlink(path), 0);
}

/* A folder that came to stand there: nothing is left of the draft. */
static void failed_drafts(void **state)
{
    struct os_draft draft;
    const char *path = in_folder("taken");
    (void)state;
    assert_false(os_draft_create(&draft, in_folder("none/x")));
    assert_int_equal(errno, ENOENT);
    assert_true(os_draft_create(&draft, path));
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(count_names(), 2);
    assert_false(os_draft_keep(&draft));
    assert_int_equal(errno, EISDIR);
    os_draft_discard(&draft);
    assert_int_equal(errno, EISDIR);
    assert_int_equal(count_names(), 1);
    assert_int_equal(rmdir(path), 0);
}

/* Each with its own draft of the same file, at the same time. */
struct writers {
    const char *path;
    atomic_uint begun, done;
};

static void make_draft(void *context)
{
    struct writers *writers = context;
    struct os_draft draft;
    atomic_fetch_add(&writers->begun, 1);
    if (!os_draft_create(&draft, writers->path))
        return;
    if (os_draft_write(&draft, "whole", 5) && os_draft_keep(&draft))
        atomic_fetch_add(&writers->done, 1);
    os_draft_discard(&draft);
}

static void drafts_in_threads(void **state)
{
    struct writers writers = {.path = in_folder("same")};
    (void)state;
    os_run_threads(4, make_draft, &writers);
    assert_int_equal(writers.done, writers.begun);
    check_file(writers.path, "whole");
    assert_int_equal(count_names(), 1);
    assert_int_equal(unlink(writers.path), 0);
}

/* ---- Programs -------------------------------------------------------------------------------- */

/* Letters of several scripts, in the names of files and folders and in variables. */
#define LETTERS "\xc3\xa9\xd0\x96\xe6\xbc\xa2"

static void letters(void **state)
{
    struct os_draft draft;
    unsigned seen = 0;
    const char *name;
    bool is_folder;
    (void)state;
    for (int i = 0; i < 2; i++) { /* made, and replaced */
        assert_true(os_draft_create(&draft, in_folder(LETTERS ".txt")));
        assert_true(os_draft_write(&draft, i ? "two" : "one", 3));
        assert_true(os_draft_keep(&draft));
        os_draft_discard(&draft);
        check_file(in_folder(LETTERS ".txt"), i ? "two" : "one");
    }
    assert_int_equal(os_look(in_folder(LETTERS ".txt")), OS_FILE);
    struct os_folder *names = os_folder_open(folder);
    assert_non_null(names);
    while ((name = os_folder_next(names, &is_folder)))
        seen += strcmp(name, LETTERS ".txt") == 0 ? 1 : 100;
    os_folder_close(&names);
    assert_int_equal(seen, 1);
#ifdef _WIN32
    wchar_t *wide = os_windows_wide(in_folder(LETTERS ".txt"));
    assert_non_null(wide);
    assert_int_equal(_wunlink(wide), 0);
    free(wide);
#else
    assert_int_equal(unlink(in_folder(LETTERS ".txt")), 0);
#endif
}

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
    assert_int_equal(count_names(), 0);
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

/* More characters than a plain path of Windows may have. */
static void long_paths(void **state)
{
    char path[1024], error[64];
    struct os_draft draft;
    wchar_t *wide[4];
    int n = snprintf(path, sizeof path, "%s", folder);
    (void)state;
    for (int i = 0; i < 4; i++) {
        n += snprintf(path + n, sizeof path - (size_t)n, "/%0100d", i);
        wide[i] = os_windows_wide(path);
        assert_non_null(wide[i]);
        assert_int_equal(_wmkdir(wide[i]), 0);
    }
    snprintf(path + n, sizeof path - (size_t)n, "/file");
    if (!os_draft_create(&draft, path)) {
        os_error_text(errno, error, sizeof error);
        fail_msg("%s", error);
    }
    assert_true(os_draft_write(&draft, "long", 4));
    assert_true(os_draft_keep(&draft));
    os_draft_discard(&draft);
    check_file(path, "long");
    wchar_t *file = os_windows_wide(path);
    assert_int_equal(_wunlink(file), 0);
    free(file);
    for (int i = 4; i-- > 0;) {
        assert_int_equal(_wrmdir(wide[i]), 0);
        free(wide[i]);
    }
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
    assert_int_equal(count_names(), 0);
    assert_true(os_cache_folder("test", true, at));
    snprintf(want, sizeof want, "%.4000s/xdg/test", folder);
    assert_string_equal(at, want);
    assert_int_equal(os_look(at), OS_FOLDER);
    assert_true(os_cache_folder("test", false, at));
    assert_string_equal(at, want);
    assert_int_equal(rmdir(at), 0);
    assert_int_equal(rmdir(in_folder("xdg")), 0);

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

static void folders(void **state)
{
    unsigned seen = 0;
    const char *name;
    bool is_folder;
    (void)state;
    assert_null(os_folder_open(in_folder("none")));
    assert_int_equal(errno, ENOENT);
    write_file(in_folder("file"), "");
    assert_int_equal(mkdir(in_folder("sub"), 0700), 0);
#ifdef _WIN32
    write_file(in_folder("link"), "");
#else
    assert_int_equal(symlink("sub", in_folder("link")), 0);
#endif
    struct os_folder *names = os_folder_open(folder);
    assert_non_null(names);
    while ((name = os_folder_next(names, &is_folder))) {
        assert_int_equal(is_folder, strcmp(name, "sub") == 0);
        seen |= strcmp(name, "file") == 0 ? 1u : strcmp(name, "sub") == 0 ? 2u : 4u;
    }
    os_folder_close(&names);
    assert_null(names);
    os_folder_close(&names);
    assert_int_equal(seen, 7);
    assert_int_equal(count_names(), 3);
    assert_int_equal(unlink(in_folder("file")), 0);
    assert_int_equal(unlink(in_folder("link")), 0);
    assert_int_equal(rmdir(in_folder("sub")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(process),       cmocka_unit_test(time_passes),
        cmocka_unit_test(threads),       cmocka_unit_test(mutexes),
        cmocka_unit_test(error_texts),   cmocka_unit_test(folder_lengths),
        cmocka_unit_test(places),        cmocka_unit_test(open_files),
        cmocka_unit_test(mapped_files),  cmocka_unit_test(drafts),
        cmocka_unit_test(failed_drafts), cmocka_unit_test(drafts_in_threads),
        cmocka_unit_test(letters),       cmocka_unit_test(memory_streams),
        cmocka_unit_test(cache_folders), cmocka_unit_test(terminals),
        cmocka_unit_test(folders),
#ifdef _WIN32
        cmocka_unit_test(long_paths),
#endif
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
