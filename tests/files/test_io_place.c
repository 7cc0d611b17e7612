/* vkattn_io, where files come to stand: what fails leaves nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef _WIN32
#include <sys/resource.h>
#endif
#include <sys/stat.h>
#include <unistd.h>
#include <vkattn/vkattn_io.h>

#include "io/file.h"
#include "io_equal.h"
#include "test_program.h"
#include "unit/folder.h"

#define COUNTOF(array) (sizeof(array) / sizeof((array)[0]))

static unsigned char data[4096];
static const struct vka_io_array good = {
    .name = "a", .dtype = VKA_IO_F32, .rank = 2, .shape = {2, 3}, .data = data, .size = 24};

/* Where nothing can be written; the sentence names the path. */
static void test_no_place(void **state)
{
    static const char *const paths[] = {"no/such/folder/x", ".", NOWHERE, ""};
    char error[VKA_IO_ERROR_SIZE];

    (void)state;
    for (size_t i = 0; i < COUNTOF(paths); i++) {
        assert_int_equal(vka_npy_write(paths[i], &good, error), VKA_IO);
        assert_memory_equal(error, paths[i], strlen(paths[i]));
        assert_int_equal(vka_safetensors_write(paths[i], &good, 1, NULL, 0, error), VKA_IO);
    }
#ifndef _WIN32
    struct stat info;
    assert_int_equal(stat(NOWHERE, &info), 0);
    assert_true(S_ISCHR(info.st_mode));
#endif
}

/* A name as long as a folder takes it leaves no room for one that is made of it. */
static void test_long_names(void **state)
{
    char name[NAME_MAX + 2] = "", error[VKA_IO_ERROR_SIZE];

    (void)state;
    for (size_t length = NAME_MAX - 32; length <= NAME_MAX + 1; length++) {
        const enum vka_status want = length <= NAME_MAX ? VKA_OK : VKA_IO;

        memset(name, 'n', length);
        name[length] = '\0';
        assert_int_equal(vka_io_check_place(in_folder(name), error), want);
        assert_int_equal(count_files(), 0);
        assert_int_equal(vka_npy_write(in_folder(name), &good, error), want);
        assert_int_equal(count_files(), want == VKA_OK);
        if (want == VKA_OK)
            assert_int_equal(unlink(in_folder(name)), 0);
    }
    assert_non_null(strstr(error, "name too long")); /* "File name" or "Filename" */
}

/* What can be told before the work whose result is to be written; nothing is left or changed. */
static void test_check_place(void **state)
{
    static const char *const no[] = {
        "no/such/folder/x", ".", "..", "/", NOWHERE, "", "x/", "no/such/folder/", "./",
#ifndef _WIN32
        "/proc/self/x",
#endif
    };
    char error[VKA_IO_ERROR_SIZE];
    struct stat before, after;
    const char *path;

    (void)state;
    for (size_t i = 0; i < COUNTOF(no); i++) {
        assert_int_equal(vka_io_check_place(no[i], error), VKA_IO);
        assert_memory_equal(error, no[i], strlen(no[i]));
        assert_int_equal(vka_npy_write(no[i], &good, error), VKA_IO);
    }
    path = in_folder("p.npy");
    assert_int_equal(vka_io_check_place(path, error), VKA_OK);
    assert_int_equal(count_files(), 0);
    assert_int_equal(vka_npy_write(path, &good, NULL), VKA_OK);
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(vka_io_check_place(path, error), VKA_OK);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(before.st_size, after.st_size);
    assert_int_equal(vka_io_check_place(in_folder("p.npy/x"), error), VKA_IO);
    assert_int_equal(unlink(in_folder("p.npy")), 0);
    assert_int_equal(mkdir(in_folder("closed"), 0555), 0);
    if (geteuid() != 0) /* root may write there */
        assert_int_equal(vka_io_check_place(in_folder("closed/x"), error), VKA_IO);
    assert_int_equal(rmdir(in_folder("closed")), 0);
#ifndef _WIN32 /* there a user may make no links */
    /* Links to files are replaced; what /dev/stdout is, one into the table of open files, is not,
     * even where a regular file is open there. */
    assert_int_equal(symlink("missing", in_folder("link")), 0);
    assert_int_equal(vka_io_check_place(in_folder("link"), error), VKA_OK);
    assert_int_equal(unlink(in_folder("link")), 0);
    assert_int_equal(symlink("/proc/self/exe", in_folder("link")), 0);
    assert_int_equal(vka_io_check_place(in_folder("link"), error), VKA_IO);
    assert_int_equal(vka_npy_write(in_folder("link"), &good, error), VKA_IO);
    assert_int_equal(lstat(in_folder("link"), &after), 0);
    assert_true(S_ISLNK(after.st_mode));
    assert_int_equal(unlink(in_folder("link")), 0);
#endif
}

#ifdef _WIN32
static void test_full_disk(void **state)
{
    (void)state;
    print_message("SKIPPED: the system limits no file's size\n");
    skip();
}
#else

/* A full disk, played by a limit on the file size: the old file stays, nothing else does. */
static void test_full_disk(void **state)
{
    const struct vka_io_array big = {
        .dtype = VKA_IO_U8, .rank = 1, .shape = {sizeof data}, .data = data, .size = sizeof data};
    const char *path = in_folder("full.npy");
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    char error[VKA_IO_ERROR_SIZE] = "";
    struct rlimit limit, small;
    struct vka_npy *file;

    (void)state;
    assert_int_equal(vka_npy_write(path, &good, error), VKA_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = (struct rlimit){1000, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(vka_npy_write(path, &big, error), VKA_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, old);
    assert_non_null(strstr(error, "full.npy: cannot write: "));
    assert_int_equal(count_files(), 1);
    assert_int_equal(vka_npy_open(path, error, &file), VKA_OK);
    check_equal(vka_npy_array(file), &good);
    vka_npy_close(&file);
    assert_int_equal(unlink(path), 0);
}

#endif

/* A file that is open can be replaced, and its reader keeps what it has; on Windows it cannot. */
static void test_replace_open(void **state)
{
    const char *path = in_folder("r.npy");
    struct vka_io_array other = good;
    struct vka_npy *before, *after;

    (void)state;
    other.data = data + 100;
    assert_int_equal(vka_npy_write(path, &good, NULL), VKA_OK);
    assert_int_equal(vka_npy_open(path, NULL, &before), VKA_OK);
#ifdef _WIN32
    assert_int_equal(vka_npy_write(path, &other, NULL), VKA_IO);
    assert_int_equal(count_files(), 1);
    check_equal(vka_npy_array(before), &good);
    vka_npy_close(&before);
    assert_int_equal(vka_npy_write(path, &other, NULL), VKA_OK);
    assert_int_equal(vka_npy_open(path, NULL, &after), VKA_OK);
#else
    assert_int_equal(vka_npy_write(path, &other, NULL), VKA_OK);
    assert_int_equal(vka_npy_open(path, NULL, &after), VKA_OK);
    check_equal(vka_npy_array(before), &good);
    vka_npy_close(&before);
#endif
    check_equal(vka_npy_array(after), &other);
    vka_npy_close(&after);
    assert_int_equal(unlink(path), 0);
}

/* More than this program writes, and fewer than a writer tries. */
#define STALE 900

/* A name left by a process that died is not written into. */
static void test_stale_temporary(void **state)
{
    const char *path = in_folder("s.npy");
    char stale[PATH_MAX + 64];
    int fd;

    (void)state;
    for (unsigned serial = 0; serial < STALE; serial++) {
        snprintf(stale, sizeof stale, "%s/.vka-%ld-%u.tmp", folder, (long)getpid(), serial);
        fd = open(stale, O_CREAT | O_EXCL | O_WRONLY, 0600);
        assert_true(fd >= 0);
        close(fd);
    }
    assert_int_equal(vka_npy_write(path, &good, NULL), VKA_OK);
    assert_int_equal(count_files(), STALE + 1);
    for (unsigned serial = 0; serial < STALE; serial++) {
        struct stat info;

        snprintf(stale, sizeof stale, "%s/.vka-%ld-%u.tmp", folder, (long)getpid(), serial);
        assert_int_equal(stat(stale, &info), 0);
        assert_int_equal(info.st_size, 0);
        assert_int_equal(unlink(stale), 0);
    }
    assert_int_equal(unlink(path), 0);
}

#ifdef _WIN32
static void test_permissions(void **state)
{
    (void)state;
    print_message("SKIPPED: files have no permissions of POSIX here\n");
    skip();
}
#else
/* A new file has the umask's permissions; one that replaces another has that one's. */
static void test_permissions(void **state)
{
    static const mode_t modes[] = {0600, 0644, 0666, 0400};
    const char *path = in_folder("p.npy");
    struct stat info;
    mode_t mask = umask(027);

    (void)state;
    assert_int_equal(vka_npy_write(path, &good, NULL), VKA_OK);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    for (size_t i = 0; i < COUNTOF(modes); i++) {
        assert_int_equal(chmod(path, modes[i]), 0);
        assert_int_equal(vka_npy_write(path, &good, NULL), VKA_OK);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 0777, modes[i]);
    }
    umask(mask);
    assert_int_equal(unlink(path), 0);
}

#endif

static int set_up(void **state)
{
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 37 + i / 256);
    return folder_set_up(state);
}

TEST_PROGRAM(io_place)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_place),     cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_check_place),  cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_replace_open), cmocka_unit_test(test_stale_temporary),
        cmocka_unit_test(test_permissions),
    };

    return cmocka_run_group_tests(tests, set_up, folder_tear_down);
}
