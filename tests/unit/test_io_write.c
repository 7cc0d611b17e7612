/* vkattn_io, writing: what is written comes back, what fails leaves nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
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

#include "io/io.h"

#ifdef _WIN32
#define NOWHERE "NUL"
#else
#define NOWHERE "/dev/null"
#endif

#define COUNTOF(array) (sizeof(array) / sizeof((array)[0]))

/* An array for every type and rank, and an empty one. */
#define ARRAY_COUNT (VKA_IO_DTYPE_COUNT * (VKA_IO_MAX_RANK + 2))

static char folder[] = "test_io_write-XXXXXX"; /* in the working directory */
static unsigned char data[4096];               /* every array is a piece of it */
static struct vka_io_array arrays[ARRAY_COUNT];
static char names[ARRAY_COUNT][32];

static int set_up(void **state)
{
    static const uint64_t shape[] = {3, 2, 1, 4, 2, 1, 2, 3}; /* 288 elements */
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 37 + i / 256);
    for (int dtype = 0; dtype < VKA_IO_DTYPE_COUNT; dtype++) {
        for (uint32_t rank = 0; rank <= VKA_IO_MAX_RANK + 1; rank++, n++) {
            struct vka_io_array *a = &arrays[n];

            snprintf(names[n], sizeof names[n], "%03zu \"\\\n\x01\xc3\xa9", n);
            *a = (struct vka_io_array){.name = names[n], .dtype = (enum vka_io_dtype)dtype};
            a->rank = rank > VKA_IO_MAX_RANK ? 3 : rank;
            memcpy(a->shape, shape, a->rank * sizeof shape[0]);
            if (rank > VKA_IO_MAX_RANK)
                a->shape[1] = 0;
            a->size = vka_io_dtype_size(a->dtype);
            for (uint32_t i = 0; i < a->rank; i++)
                a->size *= a->shape[i];
            a->data = data + n;
        }
    }
    assert_int_equal(n, ARRAY_COUNT);
    return mkdtemp(folder) ? 0 : -1;
}

/* What stands in the folder, beside . and .. */
static size_t count_files(void)
{
    DIR *dir = opendir(folder);
    size_t count = 0;

    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count - 2;
}

static const char *in_folder(const char *name)
{
    static char path[512];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(folder);
}

static void check_equal(const struct vka_io_array *got, const struct vka_io_array *want)
{
    assert_int_equal(got->dtype, want->dtype);
    assert_int_equal(got->rank, want->rank);
    assert_memory_equal(got->shape, want->shape, sizeof got->shape);
    assert_int_equal(got->size, want->size);
    assert_memory_equal(got->data, want->data, got->size);
}

static void test_safetensors_round_trip(void **state)
{
    static const struct vka_io_metadata metadata[] = {{"format", "x"},
                                                      {"", ""},
                                                      {"__metadata__", "a"},
                                                      {"quotes \"\\/", "\n\t\x7f\xf0\x9f\x98\x80"}};
    const char *path = in_folder("a.safetensors");
    char error[VKA_IO_ERROR_SIZE] = "";
    struct vka_safetensors *file;
    const unsigned char *first;

    (void)state;
    for (size_t count = 0; count <= ARRAY_COUNT; count += ARRAY_COUNT / 10) {
        if (vka_safetensors_write(path, arrays, count, metadata, COUNTOF(metadata), error))
            fail_msg("%s", error);
        if (vka_safetensors_open(path, error, &file))
            fail_msg("%s", error);
        assert_int_equal(vka_safetensors_count(file), count);
        for (size_t i = 0; i < count; i++) {
            check_equal(vka_safetensors_find(file, arrays[i].name), &arrays[i]);
            if (arrays[i].size)
                assert_string_equal(vka_safetensors_at(file, i)->name, arrays[i].name);
        }
        for (size_t i = 0; i < COUNTOF(metadata); i++)
            assert_string_equal(vka_safetensors_metadata(file, metadata[i].key), metadata[i].value);
        /* A mapping begins at a page: the data must begin at a multiple of 8. */
        first = count ? vka_safetensors_at(file, 0)->data : NULL;
        assert_int_equal((uintptr_t)first % 8, 0);
        vka_safetensors_close(&file);
        assert_int_equal(count_files(), 1);
    }
    assert_int_equal(vka_safetensors_write(path, NULL, 0, NULL, 0, error), VKA_OK);
    assert_int_equal(vka_safetensors_open(path, error, &file), VKA_OK);
    assert_null(vka_safetensors_metadata(file, "format"));
    vka_safetensors_close(&file);
    assert_int_equal(unlink(path), 0);
}

static void test_npy_round_trip(void **state)
{
    const char *path = in_folder("a.npy");
    char error[VKA_IO_ERROR_SIZE] = "";

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT; i++) {
        enum vka_status status = vka_npy_write(path, &arrays[i], error);
        struct vka_npy *file;

        if (arrays[i].dtype == VKA_IO_BF16) {
            assert_int_equal(status, VKA_INVALID);
            continue;
        }
        if (status || vka_npy_open(path, error, &file))
            fail_msg("%s", error);
        check_equal(vka_npy_array(file), &arrays[i]);
        assert_int_equal((uintptr_t)vka_npy_array(file)->data % 64, 0);
        vka_npy_close(&file);
    }
    assert_int_equal(count_files(), 1);
    assert_int_equal(unlink(path), 0);
}

/* An array in Fortran's order owns its copy: the file may go before it. */
static void test_npy_fortran_file(void **state)
{
    static const char text[] = "\x93NUMPY\x01\0\x3d\0{'descr': '|u1', 'fortran_order': True, "
                               "'shape': (2, 2), }  \n"
                               "acbd";
    const char *path = in_folder("f.npy");
    FILE *out = fopen(path, "wb");
    struct vka_npy *file;

    (void)state;
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, sizeof text - 1, out), sizeof text - 1);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(vka_npy_open(path, NULL, &file), VKA_OK);
    assert_int_equal(truncate(path, 0), 0);
    assert_memory_equal(vka_npy_array(file)->data, "abcd", 4);
    vka_npy_close(&file);
    assert_int_equal(vka_npy_open(path, NULL, &file), VKA_IO); /* empty now */
    assert_int_equal(unlink(path), 0);
}

/* Extreme shapes fit the npy header. */
static void test_npy_long_shape(void **state)
{
    const struct vka_io_array array = {
        .dtype = VKA_IO_U8, .rank = 8, .shape = {INT64_MAX, 0, 1, 0, 1, 0, 1, 0}};
    const struct vka_io_array wide = {
        .dtype = VKA_IO_U8, .rank = 8, .shape = {127, 127, 127, 127, 127, 127, 127, 0}};
    const char *path = in_folder("l.npy");
    struct vka_npy *file;

    (void)state;
    assert_int_equal(vka_npy_write(path, &array, NULL), VKA_OK);
    assert_int_equal(vka_npy_open(path, NULL, &file), VKA_OK);
    check_equal(vka_npy_array(file), &array);
    vka_npy_close(&file);
    assert_int_equal(vka_npy_write(path, &wide, NULL), VKA_OK);
    assert_int_equal(vka_npy_open(path, NULL, &file), VKA_OK);
    check_equal(vka_npy_array(file), &wide);
    vka_npy_close(&file);
    assert_int_equal(unlink(path), 0);
}

static const struct vka_io_array good = {
    .name = "a", .dtype = VKA_IO_F32, .rank = 2, .shape = {2, 3}, .data = data, .size = 24};

static void test_array_arguments(void **state)
{
    struct vka_io_array bad[10];
    char error[VKA_IO_ERROR_SIZE];

    (void)state;
    for (size_t i = 0; i < COUNTOF(bad); i++)
        bad[i] = good;
    bad[0].dtype = VKA_IO_DTYPE_COUNT;
    bad[1].dtype = (enum vka_io_dtype) - 1;
    bad[2].rank = VKA_IO_MAX_RANK + 1;
    bad[3].rank = UINT32_MAX;
    bad[4].shape[0] = 1;
    bad[5].shape[0] = UINT64_MAX;
    bad[6].shape[0] = 1ull << 63;
    bad[7].size = 23;
    bad[8].size = 0;
    bad[9].data = NULL;
    for (size_t i = 0; i < COUNTOF(bad); i++) {
        error[0] = '\0';
        assert_int_equal(vka_safetensors_write(in_folder("x"), &bad[i], 1, NULL, 0, error),
                         VKA_INVALID);
        assert_non_null(strstr(error, "'a'"));
        assert_int_equal(vka_npy_write(in_folder("x"), &bad[i], error), VKA_INVALID);
    }
    assert_int_equal(vka_npy_write(NULL, &good, error), VKA_INVALID);
    assert_int_equal(vka_npy_write(in_folder("x"), NULL, error), VKA_INVALID);
    assert_int_equal(count_files(), 0);
}

static void test_name_arguments(void **state)
{
    static const char *const bad_names[] = {
        NULL, "__metadata__", "\xff", "a\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "b"};
    const char *path = in_folder("x");
    char error[VKA_IO_ERROR_SIZE];

    (void)state;
    for (size_t i = 0; i < COUNTOF(bad_names); i++) {
        struct vka_io_array pair[2] = {good, good};
        struct vka_io_metadata metadata[2] = {{"b", "v"}, {bad_names[i], "v"}};

        pair[0].name = "b";
        pair[1].name = bad_names[i];
        error[0] = '\0';
        assert_int_equal(vka_safetensors_write(path, pair, 2, NULL, 0, error), VKA_INVALID);
        assert_true(strlen(error) > 20);
        if (i != 1) /* a metadata key may be called so */
            assert_int_equal(vka_safetensors_write(path, &good, 1, metadata, 2, error),
                             VKA_INVALID);
        metadata[1] = (struct vka_io_metadata){"k", bad_names[i]};
        if (i != 1 && i != 7)
            assert_int_equal(vka_safetensors_write(path, &good, 1, metadata, 2, error),
                             VKA_INVALID);
    }
    assert_int_equal(vka_safetensors_write(NULL, &good, 1, NULL, 0, error), VKA_INVALID);
    assert_int_equal(vka_safetensors_write(path, NULL, 1, NULL, 0, error), VKA_INVALID);
    assert_int_equal(vka_safetensors_write(path, &good, 1, NULL, 1, error), VKA_INVALID);
    assert_int_equal(count_files(), 0);
}

/* Any bytes, none too. */
static void test_other_files(void **state)
{
    const char *path = in_folder("bytes");
    char error[VKA_IO_ERROR_SIZE] = "";
    unsigned char back[sizeof data + 1];

    (void)state;
    for (size_t size = sizeof data; size <= sizeof data; size -= sizeof data) {
        assert_int_equal(vka_file_write(path, size ? data : NULL, size, error), VKA_OK);
        FILE *file = fopen(path, "rb");

        assert_non_null(file);
        assert_int_equal(fread(back, 1, sizeof back, file), size);
        fclose(file);
        assert_memory_equal(back, data, size);
    }
    assert_int_equal(vka_file_write(NULL, data, 1, error), VKA_INVALID);
    assert_int_equal(vka_file_write(path, NULL, 1, error), VKA_INVALID);
    assert_memory_equal(error, path, strlen(path));
    assert_int_equal(vka_file_write("no/such/folder/x", data, 1, error), VKA_IO);
    assert_int_equal(count_files(), 1);
    assert_int_equal(unlink(path), 0);
}

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
#ifdef _WIN32
    assert_non_null(strstr(error, "name too long")); /* "File name" or "Filename" */
#else
    assert_non_null(strstr(error, "File name too long"));
#endif
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
    char stale[600];
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

static void test_dtypes(void **state)
{
    static const char *const dtype_names[] = {"F32", "F16", "BF16", "F64", "BOOL", "U8", "I8",
                                              "U16", "I16", "U32",  "I32", "U64",  "I64"};
    static const size_t sizes[] = {4, 2, 2, 8, 1, 1, 1, 2, 2, 4, 4, 8, 8};

    (void)state;
    assert_int_equal(COUNTOF(dtype_names), VKA_IO_DTYPE_COUNT);
    for (int i = 0; i < VKA_IO_DTYPE_COUNT; i++) {
        assert_string_equal(vka_io_dtype_name((enum vka_io_dtype)i), dtype_names[i]);
        assert_int_equal(vka_io_dtype_size((enum vka_io_dtype)i), sizes[i]);
    }
    assert_string_equal(vka_io_dtype_name(VKA_IO_DTYPE_COUNT), "?");
    assert_int_equal(vka_io_dtype_size(VKA_IO_DTYPE_COUNT), 0);
    assert_int_equal(vka_io_dtype_size((enum vka_io_dtype) - 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors_round_trip),
        cmocka_unit_test(test_npy_round_trip),
        cmocka_unit_test(test_npy_fortran_file),
        cmocka_unit_test(test_npy_long_shape),
        cmocka_unit_test(test_array_arguments),
        cmocka_unit_test(test_name_arguments),
        cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_no_place),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_check_place),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_replace_open),
        cmocka_unit_test(test_stale_temporary),
        cmocka_unit_test(test_permissions),
        cmocka_unit_test(test_dtypes),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
