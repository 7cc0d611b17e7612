/* vkattn-mnist as a user runs it: two trained models against the logits that PyTorch computed in
 * double, and input that must be refused. */
#include "test_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <vkattn/vkattn_io.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define IMAGES MNIST_DATA "/images-idx3-ubyte"
#define LABELS MNIST_DATA "/labels-idx1-ubyte"
#define DOCUMENTED MNIST_DATA "/documented.safetensors"
#define COUNT 1000
#define N_CLASS 10
#define EXIT_BAD_INPUT 2
#define EXIT_NO_DEVICE 3

extern char **environ;

static char folder[] = "/tmp/vkattn-mnist-XXXXXX"; /* holds all files that the tests write */

/* A path in the folder; valid until the fourth call after it. */
static const char *in_folder(const char *name)
{
    static char path[4][128];
    static int next;
    char *mine = path[next++ % 4];

    snprintf(mine, sizeof path[0], "%s/%s", folder, name);
    return mine;
}

/* The whole file with a zero behind it. */
static char *read_all(const char *path, size_t *size)
{
    FILE *stream = fopen(path, "rb");
    struct stat info;
    char *data;

    assert_non_null(stream);
    assert_int_equal(fstat(fileno(stream), &info), 0);
    *size = (size_t)info.st_size;
    data = calloc(*size + 1, 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size, stream), *size);
    fclose(stream);
    return data;
}

static void write_all(const char *path, const void *data, size_t size)
{
    FILE *stream = fopen(path, "wb");

    assert_non_null(stream);
    assert_int_equal(fwrite(data, 1, size, stream), size);
    assert_int_equal(fclose(stream), 0);
}

/* Runs the tool with a NULL-ended list of arguments, its streams to the files "out" and "err". */
static int run_tool(const char *const *arguments)
{
    const char *argv[32] = {MNIST_TOOL, "--no-cache"};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int state, n = 2;

    for (int i = 0; arguments[i]; i++)
        argv[n++] = arguments[i];
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, in_folder("out"), O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    posix_spawn_file_actions_addopen(&actions, 2, in_folder("err"), O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    assert_int_equal(posix_spawn(&child, MNIST_TOOL, &actions, NULL, (char *const *)argv, environ),
                     0);
    posix_spawn_file_actions_destroy(&actions);
    while (waitpid(child, &state, 0) < 0)
        assert_int_equal(errno, EINTR);
    assert_true(WIFEXITED(state));
    return WEXITSTATUS(state);
}

#define RUN(...) run_tool((const char *const[]){__VA_ARGS__, NULL})

/* ---- Accuracy -------------------------------------------------------------------------------- */

static float *read_logits(const char *path, size_t count)
{
    const size_t size = count * N_CLASS * sizeof(float);
    char error[VKA_IO_ERROR_SIZE] = "";
    struct vka_npy *file = NULL;
    const struct vka_io_array *array;
    float *logits = malloc(size);

    assert_non_null(logits);
    if (vka_npy_open(path, error, &file) != VKA_OK)
        fail_msg("%s", error);
    array = vka_npy_array(file);
    assert_int_equal(array->dtype, VKA_IO_F32);
    assert_int_equal(array->rank, 2);
    assert_int_equal(array->shape[0], count);
    assert_int_equal(array->shape[1], N_CLASS);
    memcpy(logits, array->data, size);
    vka_npy_close(&file);
    return logits;
}

/* The logits are within 1e-3 of those in double. */
static void check_logits(const float *got, size_t count, const char *expected_path)
{
    char error[VKA_IO_ERROR_SIZE] = "";
    struct vka_safetensors *file = NULL;
    const struct vka_io_array *array;
    double worst = 0;

    if (vka_safetensors_open(expected_path, error, &file) != VKA_OK)
        fail_msg("%s", error);
    array = vka_safetensors_find(file, "logits");
    assert_non_null(array);
    assert_int_equal(array->size, COUNT * N_CLASS * sizeof(float));
    for (size_t i = 0; i < count * N_CLASS; i++) {
        float want;

        memcpy(&want, (const char *)array->data + i * sizeof want, sizeof want);
        if (!(fabs((double)got[i] - (double)want) <= 1e-3))
            fail_msg("logit %zu of image %zu: %g, expected %g", i % N_CLASS, i / N_CLASS,
                     (double)got[i], (double)want);
        worst = fmax(worst, fabs((double)got[i] - (double)want));
    }
    print_message("%zu images, worst difference of a logit %.2e\n", count, worst);
    vka_safetensors_close(&file);
}

static void check_last_line(const char *path, const char *line)
{
    size_t size, length = strlen(line);
    char *text = read_all(path, &size);

    assert_true(size >= length);
    assert_string_equal(text + size - length, line);
    assert_true(size == length || text[size - length - 1] == '\n');
    free(text);
}

static void check_page(const char *path, const char *headline)
{
    size_t size;
    char *page = read_all(path, &size);

    assert_true(size < 2000000);
    assert_memory_equal(page, "<!doctype html>", strlen("<!doctype html>"));
    assert_string_equal(page + size - strlen("</html>\n"), "</html>\n");
    assert_non_null(strstr(page, headline));
    assert_non_null(strstr(page, "\"attention\":\""));
    assert_null(strstr(page, "http:")); /* needs nothing from elsewhere */
    assert_null(strstr(page, "https:"));
    free(page);
}

/* A run over 1,000 digits, one whose last batch is smaller, and one smaller than a batch. */
static void check_model(const char *model, const char *expected, const char *accuracy,
                        const char *headline)
{
    float *all, *some;

    assert_int_equal(RUN("--model", model, "--images", IMAGES, "--labels", LABELS, "--logits",
                         in_folder("all.npy"), "--html", in_folder("page.html")),
                     0);
    check_last_line(in_folder("out"), accuracy);
    check_page(in_folder("page.html"), headline);
    all = read_logits(in_folder("all.npy"), COUNT);
    check_logits(all, COUNT, expected);

    assert_int_equal(RUN("--model", model, "--images", IMAGES, "--labels", LABELS, "--logits",
                         in_folder("some.npy"), "--count", "250"),
                     0);
    some = read_logits(in_folder("some.npy"), 250);
    assert_memory_equal(some, all, 250 * N_CLASS * sizeof *some);
    free(some);

    assert_int_equal(RUN("--model", model, "--images", IMAGES, "--labels", LABELS, "--logits",
                         in_folder("few.npy"), "--count", "3", "--html", in_folder("page.html")),
                     0);
    some = read_logits(in_folder("few.npy"), 3);
    check_logits(some, 3, expected);
    check_page(in_folder("page.html"), "3 of 3 handwritten");
    free(some);
    free(all);
}

static void heads_over_patches(void **state)
{
    (void)state;
    check_model(DOCUMENTED, MNIST_DATA "/documented_expected.safetensors",
                "accuracy: 0.9630 (963/1000)\n", "963 of 1000 handwritten");
}

static void heads_over_channels(void **state)
{
    (void)state;
    check_model(MNIST_DATA "/executed.safetensors", MNIST_DATA "/executed_expected.safetensors",
                "accuracy: 0.9640 (964/1000)\n", "964 of 1000 handwritten");
}

static void json_is_one_line(void **state)
{
    size_t size;
    char *text;

    (void)state;
    assert_int_equal(RUN("--model", DOCUMENTED, "--images", IMAGES, "--labels", LABELS, "--json"),
                     0);
    text = read_all(in_folder("out"), &size);
    assert_ptr_equal(strchr(text, '\n'), text + size - 1);
    assert_int_equal(text[0], '{');
    assert_non_null(strstr(text, "\"correct\":963"));
    assert_non_null(strstr(text, "\"attend\":\"patches\""));
    free(text);
    check_last_line(in_folder("err"), "accuracy: 0.9630 (963/1000)\n");
}

/* ---- Bad input ------------------------------------------------------------------------------- */

/* Exit code 2 and one line on stderr that holds `word`, with no output begun. */
static void check_refused(const char *model, const char *images, const char *labels,
                          const char *word)
{
    size_t size;
    char *text;
    int code = RUN("--model", model, "--images", images, "--labels", labels, "--html",
                   in_folder("refused.html"));

    text = read_all(in_folder("err"), &size);
    if (code != EXIT_BAD_INPUT || !strstr(text, word))
        fail_msg("expected exit code 2 and '%s', got %d and: %s", word, code, text);
    assert_ptr_equal(strchr(text, '\n'), text + size - 1);
    assert_int_equal(access(in_folder("refused.html"), F_OK), -1);
    free(text);
}

/* The images with one byte changed; at beyond the file: shortened or lengthened by a byte. */
static void check_bad_images(size_t at, int byte, long grow, const char *word)
{
    size_t size;
    char *data = read_all(IMAGES, &size);

    if (at < size)
        data[at] = (char)byte;
    write_all(in_folder("images"), data, size + (size_t)grow); /* one zero stands behind */
    free(data);
    check_refused(DOCUMENTED, in_folder("images"), LABELS, word);
}

static void bad_images(void **state)
{
    (void)state;
    check_bad_images(SIZE_MAX, 0, -1, "header asks for");
    check_bad_images(SIZE_MAX, 0, 1, "header asks for");
    check_bad_images(2, 0x0d, 0, "magic");           /* floats, not bytes */
    check_bad_images(3, 1, 0, "magic");              /* one axis, not three */
    check_bad_images(4, 0xff, 0, "header asks for"); /* four thousand million images */
    check_bad_images(8, 0xff, 0, "sides");
    check_bad_images(15, 0, 0, "sides");
    check_refused(DOCUMENTED, in_folder("none"), LABELS, "none");
    check_refused(DOCUMENTED, LABELS, LABELS, "magic");
    write_all(in_folder("images"), "\0\0\x08\x03\0\0", 6);
    check_refused(DOCUMENTED, in_folder("images"), LABELS, "too short");
    write_all(in_folder("images"), "\0\0\x08\x03\0\0\0\0\0\0\0\x1c\0\0\0\x1c", 16);
    check_refused(DOCUMENTED, in_folder("images"), LABELS, "holds nothing");
    write_all(in_folder("images"), "\x1f\x8b\x08\x08----------------", 20);
    check_refused(DOCUMENTED, in_folder("images"), LABELS, "compressed");
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    check_refused(DOCUMENTED, in_folder("pipe"), LABELS, "regular");
}

static void bad_labels(void **state)
{
    size_t size;
    char *data = read_all(LABELS, &size);

    (void)state;
    data[8 + 500] = 10;
    write_all(in_folder("labels"), data, size);
    check_refused(DOCUMENTED, IMAGES, in_folder("labels"), "label 500");
    data[8 + 500] = 0;
    data[7]--; /* one label fewer, in header and file */
    write_all(in_folder("labels"), data, size - 1);
    check_refused(DOCUMENTED, IMAGES, in_folder("labels"), "999 labels");
    free(data);
}

/* A model in whose header the first `old` became `new`, of the same length. */
static void check_bad_model(const char *old, const char *new, const char *word)
{
    const size_t length = strlen(old);
    size_t size;
    char *data = read_all(MNIST_DATA "/executed.safetensors", &size);
    size_t at = 0;

    assert_int_equal(length, strlen(new));
    while (at + length < size && memcmp(data + at, old, length) != 0)
        at++;
    assert_true(at + length < size);
    memcpy(data + at, new, length);
    write_all(in_folder("model"), data, size);
    free(data);
    check_refused(in_folder("model"), IMAGES, LABELS, word);
}

static void bad_model(void **state)
{
    (void)state;
    check_refused(IMAGES, IMAGES, LABELS, "images-idx3-ubyte");
    check_refused(MNIST_DATA "/executed_expected.safetensors", IMAGES, LABELS, "format");
    check_bad_model("vkattn-mnist-1", "vkattn-mnist-2", "format");
    check_bad_model("interleaved", "interlocked", "qkv_heads");
    check_bad_model("attend", "astern", "astern");
    check_bad_model("channels", "kitchens", "attend");
    check_bad_model("num_heads\\\": 16", "num_heads\\\": 49", "expected F32");
    check_bad_model("num_heads\\\": 16", "num_heads\\\": -1", "num_heads");
    check_bad_model("q_proj.bias", "q_proj.base", "q_proj.bias");
}

/* An output that is refused before anything is computed: one line, that holds `word`. */
static void check_bad_output(const char *option, const char *name, const char *word)
{
    char path[128], *text;
    size_t size;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(RUN("--model", in_folder("model"), "--images", IMAGES, "--labels", LABELS,
                         "--count", "2", "--logits", in_folder("some.npy"), option, path),
                     EXIT_BAD_INPUT);
    text = read_all(in_folder("err"), &size);
    if (!strstr(text, option) || !strstr(text, path) || !strstr(text, word))
        fail_msg("expected '%s', '%s' and '%s', got: %s", option, path, word, text);
    assert_ptr_equal(strchr(text, '\n'), text + size - 1);
    assert_int_equal(access(in_folder("some.npy"), F_OK), -1);
    free(text);
}

/* What cannot be written, and what is read, is left as it was. */
static void bad_output(void **state)
{
    struct stat info;
    size_t size, after;
    char *model = read_all(DOCUMENTED, &size), *text;

    (void)state;
    write_all(in_folder("model"), model, size);
    assert_int_equal(mkdir(in_folder("page"), 0700), 0);
    check_bad_output("--html", "page", "not a regular file");
    assert_int_equal(stat(in_folder("page"), &info), 0);
    assert_true(S_ISDIR(info.st_mode));
    assert_int_equal(rmdir(in_folder("page")), 0);
    check_bad_output("--html", "missing/page.html", "No such file");
    check_bad_output("--html", "some.npy", "another file than --html");
    check_bad_output("--html", "model", "another file than --model");
    assert_int_equal(link(in_folder("model"), in_folder("few.npy")), 0);
    check_bad_output("--html", "few.npy", "another file than --model");
    assert_int_equal(unlink(in_folder("few.npy")), 0);
    assert_int_equal(symlink(IMAGES, in_folder("few.npy")), 0);
    check_bad_output("--html", "few.npy", "another file than --images");
    assert_int_equal(unlink(in_folder("few.npy")), 0);
    check_bad_output("--tuning-profile", "some.npy", "--logits");
    text = read_all(in_folder("model"), &after);
    assert_int_equal(after, size);
    assert_memory_equal(text, model, size);
    free(text);
    free(model);
}

static void bad_usage(void **state)
{
    (void)state;
    assert_int_equal(RUN("--images", IMAGES, "--labels", LABELS), EXIT_BAD_INPUT);
    assert_int_equal(RUN("--model", DOCUMENTED, "--labels", LABELS), EXIT_BAD_INPUT);
    assert_int_equal(RUN("--nonsense"), EXIT_BAD_INPUT);
    assert_int_equal(
        RUN("--model", DOCUMENTED, "--images", IMAGES, "--labels", LABELS, "--count", "0"),
        EXIT_BAD_INPUT);
    assert_int_equal(
        RUN("--model", DOCUMENTED, "--images", IMAGES, "--labels", LABELS, "--count", "1001"),
        EXIT_BAD_INPUT);
    assert_int_equal(RUN("--help"), 0);
}

/* ---- Order ----------------------------------------------------------------------------------- */

static int remove_folder(void)
{
    static const char *const names[] = {"out",       "err",    "all.npy", "some.npy", "few.npy",
                                        "page.html", "images", "labels",  "model",    "pipe"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(in_folder(names[i]));
    return rmdir(folder); /* fails where a half-written file was left behind */
}

TEST_PROGRAM(mnist)
{
    const struct CMUnitTest refusals[] = {
        cmocka_unit_test(bad_usage), cmocka_unit_test(bad_images), cmocka_unit_test(bad_labels),
        cmocka_unit_test(bad_model), cmocka_unit_test(bad_output),
    };
    const struct CMUnitTest results[] = {
        cmocka_unit_test(heads_over_patches),
        cmocka_unit_test(heads_over_channels),
        cmocka_unit_test(json_is_one_line),
    };
    int failed;
    bool no_device = false;

    if (!mkdtemp(folder)) {
        perror(folder);
        return 1;
    }
    failed = cmocka_run_group_tests(refusals, NULL, NULL);
    if (RUN("--model", DOCUMENTED, "--images", IMAGES, "--labels", LABELS, "--count", "1") ==
        EXIT_NO_DEVICE)
        no_device = true;
    else
        failed += cmocka_run_group_tests(results, NULL, NULL);
    if (remove_folder() != 0) {
        perror(folder);
        failed++;
    }
    if (no_device && failed == 0) {
        fprintf(stderr, "SKIPPED: NO VULKAN DEVICE, no digit was classified\n");
        return 77;
    }
    return failed != 0;
}
