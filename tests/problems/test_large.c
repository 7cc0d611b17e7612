/* Problems of sizes that are log-uniform up to what memory holds, with answers known in closed
 * form.
 *
 *     test_gpu large [--seed S] [--count N] [--forever] [--problem SEED] [--verbose]
 *                [--only attention|cache|ragged|linear|rope|layer] [--device NAME]
 *                [--path auto|unfused|fused] [--kernels usual|gpu|tile|plain]
 *                [--max-work MULTIPLICATIONS] [--max-bytes BYTES]
 *
 * Problem i is drawn from S + i. One that fails is printed on a line, which begins with the options
 * that run it alone, and the run goes on. --verbose prints each before it runs. Without --kernels
 * half of the problems are without some of the kernels. What the device or memory is too small for
 * is counted by reason. Without --seed the clock gives one; --forever stops by a signal alone. */
#include "large_problem.h"
#include "test_program.h"

#include <gpu/kernels.h>

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SKIPPED 77
#define MOST_MEMORY (2560ull << 20) /* of the device: what passes it is a refusal */
#define REASONS 32

struct settings {
    uint64_t seed, count;
    bool forever, verbose;
    const char *device;
    struct large_bounds bounds;
};

struct tally {
    uint64_t passed, failed, refused;
    struct {
        char text[160];
        uint64_t count;
    } reasons[REASONS]; /* of refusals, sentences without their numbers */
};

static const char *const op_names[] = {"attention", "cache", "ragged", "linear", "rope", "layer"};
static const char *const path_names[] = {"auto", "unfused", "fused"};
static const char *const kernel_names[] = {"usual", "gpu", "tile", "plain"};

static int usage(void)
{
    fprintf(
        stderr,
        "usage: test_gpu large [--seed S] [--count N] [--forever] [--problem SEED] [--verbose]\n"
        "                  [--only attention|cache|ragged|linear|rope|layer]\n"
        "                  [--path auto|unfused|fused] [--kernels usual|gpu|tile|plain]\n"
        "                  [--device NAME]\n"
        "                  [--max-work MULTIPLICATIONS] [--max-bytes BYTES]\n");
    return 2;
}

static bool parse_number(const char *text, uint64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
}

static bool parse_real(const char *text, double *number)
{
    char *end;
    *number = strtod(text, &end);
    return end != text && *end == '\0' && *number >= 1e5;
}

static bool parse_name(const char *text, const char *const *names, int n, int *index)
{
    for (*index = 0; *index < n; ++*index)
        if (strcmp(text, names[*index]) == 0)
            return true;
    return false;
}

static bool parse_option(int c, struct settings *s)
{
    int op = 0;
    switch (c) {
    case 's':
        return parse_number(optarg, &s->seed);
    case 'c':
        return parse_number(optarg, &s->count) && s->count > 0;
    case 'p':
        s->count = 1;
        return parse_number(optarg, &s->seed);
    case 'o':
        if (!parse_name(optarg, op_names, LARGE_OP_COUNT, &op))
            return false;
        s->bounds.ops = 1u << op;
        return true;
    case 'k':
        return parse_name(optarg, kernel_names, LARGE_KERNELS_COUNT, &s->bounds.kernels);
    case 'a':
        return parse_name(optarg, path_names, VKA_PATH_COUNT, &s->bounds.path);
    case 'w':
        return parse_real(optarg, &s->bounds.work);
    case 'b':
        return parse_real(optarg, &s->bounds.bytes);
    case 'd':
        s->device = optarg;
        return true;
    case 'f':
        s->forever = true;
        return true;
    case 'v':
        s->verbose = true;
        return true;
    default:
        return false;
    }
}

static bool parse(int argc, char **argv, struct settings *s)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'},     {"count", required_argument, NULL, 'c'},
        {"problem", required_argument, NULL, 'p'},  {"only", required_argument, NULL, 'o'},
        {"path", required_argument, NULL, 'a'},     {"kernels", required_argument, NULL, 'k'},
        {"max-work", required_argument, NULL, 'w'}, {"max-bytes", required_argument, NULL, 'b'},
        {"device", required_argument, NULL, 'd'},   {"forever", no_argument, NULL, 'f'},
        {"verbose", no_argument, NULL, 'v'},        {NULL, 0, NULL, 0},
    };
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *s = (struct settings){
        .seed = (uint64_t)now.tv_sec * 1000000,
        .count = 20,
        .bounds = {.work = 3e8, .bytes = 256 << 20, .ops = ~0u, .kernels = -1, .path = -1},
    };
    bool ok = true;
    for (int c; ok && (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
        ok = parse_option(c, s);
    return ok && optind == argc;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void count_refusal(struct tally *tally, const char *why)
{
    char text[sizeof tally->reasons[0].text];
    size_t length = 0, i = 0;
    for (const char *c = why; *c && length + 1 < sizeof text; c++)
        if (!isdigit((unsigned char)*c))
            text[length++] = *c;
        else if (length == 0 || text[length - 1] != '#')
            text[length++] = '#';
    text[length] = '\0';
    while (i + 1 < REASONS && tally->reasons[i].count && strcmp(tally->reasons[i].text, text) != 0)
        i++;
    memcpy(tally->reasons[i].text, text, length + 1);
    tally->reasons[i].count++;
    tally->refused++;
}

/* The options that draw the same problem. */
static void print_options(const struct settings *s, uint64_t seed)
{
    printf("--problem %llu --max-work %g --max-bytes %.0f", (unsigned long long)seed,
           s->bounds.work, s->bounds.bytes);
    for (int i = 0; i < LARGE_OP_COUNT; i++)
        if (s->bounds.ops == 1u << i)
            printf(" --only %s", op_names[i]);
    if (s->bounds.path >= 0)
        printf(" --path %s", path_names[s->bounds.path]);
    if (s->bounds.kernels >= 0)
        printf(" --kernels %s", kernel_names[s->bounds.kernels]);
}

static void print_kernels(struct kernel_set kernels)
{
    const char *before = " by ";
    for (int k = 0; k < KERNEL_COUNT; k++)
        if (set_has(kernels, k)) {
            printf("%s%s", before, kernel_table[k].name);
            before = ",";
        }
}

static void run_one(struct vka_device *device, const struct settings *s, uint64_t seed,
                    struct tally *tally)
{
    struct large_problem problem;
    struct large_result result;
    char text[LARGE_TEXT];
    double start = seconds();
    large_draw(&problem, seed, &s->bounds);
    if (s->verbose)
        printf("%llu: %s", (unsigned long long)seed, large_text(&problem, text));
    fflush(stdout);
    bool ok = large_check(device, &problem, &result);
    if (s->verbose) {
        print_kernels(result.kernels);
        printf(": %.2f s%s%s\n", seconds() - start, result.refused ? ", refused: " : "",
               result.refused ? result.why : "");
    }
    if (result.refused) {
        count_refusal(tally, result.why);
    } else if (ok) {
        tally->passed++;
    } else {
        tally->failed++;
        printf("FAIL ");
        print_options(s, seed);
        printf(": %s: %s", result.why, large_text(&problem, text));
        print_kernels(result.kernels);
        printf("\n");
    }
    fflush(stdout);
}

TEST_PROGRAM_ARGUMENTS(large)
{
    struct settings s;
    struct vka_device *device = NULL;
    struct tally tally = {0};
    if (!parse(argc, argv, &s))
        return usage();
    printf("seed %llu\n", (unsigned long long)s.seed);
    fflush(stdout);
    enum vka_status status = vka_device_create(
        VKA_INFO(vka_device_info, .device = s.device, .max_memory = MOST_MEMORY), &device);
    if (status != VKA_OK) {
        fprintf(stderr, "large: SKIPPED, NO VULKAN DEVICE (%s): nothing was tested\n",
                vka_status_name(status));
        return status == VKA_NO_DEVICE && !s.device ? SKIPPED : 1;
    }
    printf("%s, %s\n", vka_device_properties(device)->name, vka_device_properties(device)->driver);
    for (uint64_t i = 0; i < s.count || s.forever; i++)
        run_one(device, &s, s.seed + i, &tally);
    for (size_t i = 0; i < REASONS && tally.reasons[i].count; i++)
        printf("refused %llu: %s\n", (unsigned long long)tally.reasons[i].count,
               tally.reasons[i].text);
    printf("%llu passed, %llu failed, %llu refused\n", (unsigned long long)tally.passed,
           (unsigned long long)tally.failed, (unsigned long long)tally.refused);
    vka_device_destroy(&device);
    return tally.failed ? 1 : 0;
}
