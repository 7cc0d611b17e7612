/* What os.h promises of files and folders. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/os.h"
#include "folder.h"
#include "test_program.h"

#ifdef _WIN32
#include "core/os_windows.h"
#else
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#endif

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

static void error_texts(void **state)
{
    char text[128], small[4];
    (void)state;
    os_error_text(ENOENT, text, sizeof text);
    assert_string_equal(text, "No such file or directory");
    os_error_text(123456, text, sizeof text);
    assert_true(text[0] && strlen(text) < sizeof text); /* musl's words have no number */
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
        assert_int_equal(count_files(), 1);
    }
#ifndef _WIN32
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0606);
#endif
    assert_int_equal(unlink(path), 0);
}

#ifndef _WIN32
static int pipe_ends[2];
static volatile sig_atomic_t n_alarm;

/* Makes room in the pipe by the third alarm: the first one finds the write waiting, or the second. */
static void on_alarm(int number)
{
    char byte[4096];
    (void)number;
    if (++n_alarm >= 3 && read(pipe_ends[0], byte, sizeof byte) < 0)
        return;
}

/* A signal ends a write that waits, as to a full pipe, before a byte is written. */
static void interrupted_writes(void **state)
{
    const struct sigaction take = {.sa_handler = on_alarm}; /* without SA_RESTART */
    const struct itimerval often = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    const char *path = in_folder("draft");
    struct sigaction old;
    struct os_draft draft;
    char byte = 0;
    (void)state;
    assert_true(os_draft_create(&draft, path));
    assert_int_equal(close(draft.handle), 0);
    assert_int_equal(pipe(pipe_ends), 0);
    draft.handle = pipe_ends[1];
    assert_int_equal(fcntl(pipe_ends[0], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(fcntl(draft.handle, F_SETFL, O_NONBLOCK), 0);
    while (write(draft.handle, &byte, 1) == 1)
        continue;
    assert_int_equal(fcntl(draft.handle, F_SETFL, 0), 0);
    assert_int_equal(sigaction(SIGALRM, &take, &old), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    const bool written = os_draft_write(&draft, "one", 3);
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &old, NULL), 0);
    os_draft_discard(&draft);
    close(pipe_ends[0]);
    assert_true(written && n_alarm >= 3);
    assert_int_equal(count_files(), 0);
}
#endif

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
    assert_int_equal(count_files(), 2);
    assert_false(os_draft_keep(&draft));
    assert_int_equal(errno, EISDIR);
    os_draft_discard(&draft);
    assert_int_equal(errno, EISDIR);
    assert_int_equal(count_files(), 1);
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
    assert_int_equal(count_files(), 1);
    assert_int_equal(unlink(writers.path), 0);
}

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
    assert_int_equal(count_files(), 3);
    assert_int_equal(unlink(in_folder("file")), 0);
    assert_int_equal(unlink(in_folder("link")), 0);
    assert_int_equal(rmdir(in_folder("sub")), 0);
}

#ifdef _WIN32
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
#endif

#ifndef _WIN32
/* What is printed goes to no file that a program opens while its standard streams are closed. */
static void closed_streams(void **state)
{
    (void)state;
    for (unsigned closed = 0; closed < 8; closed++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            int argc = 0, wrong = 0;
            char **argv = NULL, byte;
            for (int i = 0; i < 3; i++)
                if (closed >> i & 1)
                    close(i);
            os_program_begin(&argc, &argv);
            for (int i = 0; i < 3; i++)
                if (closed >> i & 1)
                    wrong += (i ? write(i, "x", 1) : read(i, &byte, 1)) != -1 || errno != EBADF;
            _exit(wrong + (open("/dev/null", O_RDONLY) <= 2));
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}
#endif

TEST_PROGRAM(os_files)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_texts),   cmocka_unit_test(folder_lengths),
        cmocka_unit_test(places),        cmocka_unit_test(open_files),
        cmocka_unit_test(mapped_files),  cmocka_unit_test(drafts),
        cmocka_unit_test(failed_drafts), cmocka_unit_test(drafts_in_threads),
        cmocka_unit_test(letters),       cmocka_unit_test(folders),
#ifdef _WIN32
        cmocka_unit_test(long_paths),
#else
        cmocka_unit_test(interrupted_writes), cmocka_unit_test(closed_streams),
#endif
    };
    return cmocka_run_group_tests(tests, folder_set_up_absolute, folder_tear_down);
}
