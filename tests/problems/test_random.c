/* Random attention problems over the whole contract against the oracle.
 *
 *     test_gpu random [--seed S] [--count N] [--forever] [--device NAME] [--path auto|unfused|fused]
 *                 [--shared] [--each N] [--alike N] [--validate] [--gpu]
 *                 [--backward | --quantised | --ragged]
 *     test_gpu random --problem TEXT [--device NAME] [--validate] [--gpu]
 *
 * Problem i has the seed S + i, so a failing one is run alone by --seed ITS_SEED --count 1. What fails
 * is shrunk; --problem runs the text of any problem. Without --seed the clock gives one. --shared draws
 * few types and sizes of head, for drivers that take seconds to compile a kernel; with --each N, which
 * runs of thousands ask for, N problems in turn have the same ones, and no kernel is self-tested, which
 * compiles one more pipeline of each. With --alike N, N problems have the
 * same options and nearly the same sizes, with other data. --backward draws gradients of attention,
 * --ragged steps of packed sequences with a cache. --quantised draws layers with quantised weights and
 * caches, which dense, paged, in steps, forked and alone give the same bits; --gpu with the kernels
 * that the rules choose on GPUs. --forever stops at the first failure or signal. */
#include "gpu/device.h"
#include "gpu/kernels.h"
#include "problem.h"
#include "test_program.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SKIPPED 77
#define SHRINKING 200 /* tries */

struct settings {
    uint64_t seed, count, each, alike;
    bool forever, shared, validate, gpu;
    enum problem_way way;
    const char *device, *text; /* text: of `problem`, the only one; NULL: problems are drawn */
    struct problem problem;
    enum vka_path path;
};

static int usage(void)
{
    fprintf(stderr, "usage: test_gpu random [--seed S] [--count N] [--forever] [--device NAME]\n"
                    "                   [--path auto|unfused|fused] [--shared] [--each N]\n"
                    "                   [--alike N] [--problem TEXT] [--validate] [--gpu]\n"
                    "                   [--backward | --quantised | --ragged]\n");
    return 2;
}

static bool parse_number(const char *text, uint64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
}

static bool parse_path(const char *text, enum vka_path *path)
{
    static const char *const names[] = {
        [VKA_PATH_AUTO] = "auto", [VKA_PATH_UNFUSED] = "unfused", [VKA_PATH_FUSED] = "fused"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], text) == 0) {
            *path = (enum vka_path)i;
            return true;
        }
    return false;
}

static bool parse(int argc, char **argv, struct settings *s)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'},
        {"count", required_argument, NULL, 'c'},
        {"forever", no_argument, NULL, 'f'},
        {"validate", no_argument, NULL, 'v'},
        {"shared", no_argument, NULL, 'h'},
        {"each", required_argument, NULL, 'e'},
        {"alike", required_argument, NULL, 'a'},
        {"device", required_argument, NULL, 'd'},
        {"path", required_argument, NULL, 'p'},
        {"backward", no_argument, NULL, 'b'},
        {"quantised", no_argument, NULL, 'q'},
        {"gpu", no_argument, NULL, 'g'},
        {"ragged", no_argument, NULL, 'r'},
        {"problem", required_argument, NULL, 't'},
        {NULL, 0, NULL, 0},
    };
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *s = (struct settings){
        .seed = (uint64_t)now.tv_sec * 1000000, .count = 300, .each = 1, .alike = 1};
    bool ok = true;
    for (int c; ok && (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 's')
            ok = parse_number(optarg, &s->seed);
        else if (c == 'c')
            ok = parse_number(optarg, &s->count) && s->count > 0;
        else if (c == 'e')
            ok = parse_number(optarg, &s->each) && s->each > 0;
        else if (c == 'a')
            ok = parse_number(optarg, &s->alike) && s->alike > 0;
        else if (c == 'p')
            ok = parse_path(optarg, &s->path);
        else if (c == 'd')
            s->device = optarg;
        else if (c == 'f')
            s->forever = true;
        else if (c == 'h')
            s->shared = true;
        else if (c == 't')
            s->text = optarg;
        else if (c == 'b')
            s->way = WAY_BACKWARD;
        else if (c == 'q')
            s->way = WAY_LAYER;
        else if (c == 'g')
            s->gpu = true;
        else if (c == 'r')
            s->way = WAY_PACKED;
        else if (c == 'v')
            s->validate = true;
        else
            ok = false;
    }
    return ok && optind == argc && (s->alike == 1 || s->way == WAY_DENSE);
}

static bool read_problem(struct settings *s)
{
    char wrong[PROBLEM_TEXT];
    const bool ok = problem_read(s->text, &s->problem, wrong);
    if (!ok)
        fprintf(stderr, "random: what is %s?\n", wrong);
    s->way = s->problem.way;
    s->seed = s->problem.seed;
    s->count = 1;
    return ok;
}

/* The validation layer's messages are failures too. */
static void count_errors(void *user, enum vka_log_level level, const char *message)
{
    size_t *errors = user;
    if (level != VKA_LOG_ERROR || strncmp(message, "the cache is full", 17) == 0)
        return;
    (*errors)++;
    fprintf(stderr, "%s\n", message);
}

static void print_worst(const struct worst *worst, const struct settings *s)
{
    for (int type = 0; type < 3 && s->way == WAY_LAYER; type++)
        if (worst->nmse[type] > 0)
            printf("worst %-4s %.2e to decoded weights\n", vka_dtype_name((enum vka_dtype)type),
                   worst->nmse[type]);
    for (int type = 0; type < 3; type++)
        if (worst->nmse[type] > 0 && s->way != WAY_LAYER)
            printf("worst %-4s %.2e of %.0e: %s\n", vka_dtype_name((enum vka_dtype)type),
                   worst->nmse[type], compare_limit((enum vka_dtype)type), worst->where[type]);
}

static void draw(struct vka_device *device, const struct settings *s, uint64_t seed,
                 struct problem *p)
{
    if (s->way == WAY_LAYER)
        problem_quantised_draw(p, seed);
    else if (s->way == WAY_PACKED)
        ragged_draw(p, seed);
    else if (s->way == WAY_BACKWARD)
        problem_backward_draw(p, seed);
    else
        problem_draw(p, seed - seed % s->alike, s->path);
    const uint64_t kinds = seed / s->each / s->alike;
    if (s->shared && s->way == WAY_PACKED)
        ragged_share(p, kinds);
    else if (s->shared)
        problem_share(p, kinds);
    if (s->way == WAY_PACKED)
        ragged_fit(device, p);
    if (s->alike > 1)
        problem_vary(p, seed);
}

struct failure {
    struct vka_device *device;
    char why[WHY];
};

static bool fails_alike(const struct problem *p, void *user)
{
    const struct failure *failure = user;
    struct problem_result result;
    return !problem_check(failure->device, p, NULL, &result) &&
           problem_same_reason(failure->why, result.why);
}

static void report(struct vka_device *device, struct problem *p, const char *why)
{
    struct failure failure = {.device = device};
    struct problem_result result;
    char text[PROBLEM_TEXT];
    snprintf(failure.why, sizeof failure.why, "%s", why);
    printf("FAIL %s: %s\n", why, problem_text(p, text));
    fflush(stdout);
    const int tries = problem_shrink(p, fails_alike, &failure, SHRINKING);
    const bool again = !problem_check(device, p, NULL, &result);
    printf("%s after %d tries: %s: --problem '%s'\n", again ? "shrunk" : "right", tries, result.why,
           problem_text(p, text));
}

static enum vka_status open_device(const struct settings *s, size_t *errors,
                                   struct vka_device **device)
{
    /* A full cache, which --quantised and --ragged draw, refuses rows. */
    const bool full = s->way == WAY_LAYER || s->way == WAY_PACKED;
    const enum vka_status status =
        vka_device_create(VKA_INFO(vka_device_info, .device = s->device, .validation = s->validate,
                                   .log = full ? NULL : count_errors, .log_user = errors,
                                   .skip_self_test = s->each > 1),
                          device);
    if (status == VKA_OK && s->gpu)
        (*device)->caps.properties.type = VKA_DEVICE_DISCRETE;
    return status;
}

/* Opens the device again now and then: it keeps all pipelines, which take a CPU driver up to 40 MB a
 * problem. */
static uint64_t run(struct vka_device **device, const struct settings *s, size_t *errors)
{
    struct worst worst = {0};
    const uint64_t reopen = s->way == WAY_LAYER ? 50 : 500;
    const uint64_t every = s->way == WAY_PACKED ? 50 : 1000;
    uint64_t failures = 0, i = 0;
    struct kernel_set kernels = NO_KERNELS;
    for (; (i < s->count || s->forever) && !(s->forever && failures); i++) {
        struct problem_result result = {0};
        struct problem p = s->problem;
        size_t before = *errors;
        if (i > 0 && i % reopen == 0) {
            vka_device_destroy(device);
            if (open_device(s, errors, device) != VKA_OK) {
                printf("FAIL the device cannot be opened again\n");
                failures++;
                break;
            }
        }
        if (!s->text)
            draw(*device, s, s->seed + i, &p);
        bool ok = problem_check(*device, &p, &worst, &result);
        if (ok && *errors > before) {
            ok = false;
            snprintf(result.why, sizeof result.why, "errors in the log");
        }
        set_join(&kernels, result.kernels);
        failures += !ok;
        if (!ok)
            report(*device, &p, result.why);
        if ((i + 1) % every == 0)
            printf("%llu problems\n", (unsigned long long)i + 1);
        if (!ok || (i + 1) % every == 0)
            fflush(stdout);
    }
    print_worst(&worst, s);
    for (int k = 0; k < KERNEL_COUNT; k++)
        if (set_has(kernels, k))
            printf("ran %s\n", kernel_table[k].name);
    printf("%llu problems, %llu failed\n", (unsigned long long)i, (unsigned long long)failures);
    return failures;
}

TEST_PROGRAM_ARGUMENTS(random)
{
    struct settings s;
    struct vka_device *device = NULL;
    size_t errors = 0;
    if (!parse(argc, argv, &s) || (s.text && !read_problem(&s)))
        return usage();
    printf("seed %llu\n", (unsigned long long)s.seed);
    fflush(stdout);
    enum vka_status status = open_device(&s, &errors, &device);
    if (status != VKA_OK) {
        fprintf(stderr, "random: SKIPPED, NO VULKAN DEVICE (%s): nothing was tested\n",
                vka_status_name(status));
        return status == VKA_NO_DEVICE && !s.device ? SKIPPED : 1;
    }
    printf("%s, %s\n", vka_device_properties(device)->name, vka_device_properties(device)->driver);
    uint64_t failures = run(&device, &s, &errors);
    vka_device_destroy(&device);
    return failures ? 1 : 0;
}
