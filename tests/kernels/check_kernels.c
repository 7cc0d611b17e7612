/* Checks and times every row of kernels.def that the device can run.
 *
 *     check_kernels [--seed S] [--kernel NAME] [--case N] [--few | --one | --sample]
 *                   [--each N] [--slice I/N] [--wide] [--bench] [--device NAME]
 *
 * A kernel is forced by switching its rivals off. Each case surrounds the output by canaries and
 * the inputs by NaN, runs twice for the same bits and compares with sums in double. A failing case
 * prints the options that run it alone. --few runs three cases of each kernel, or with a number in
 * $VKATTN_TEST_TURN (problems/turns.h) one of these, --one the middle one of these, --sample every
 * seventh, seventeenth or 51st, and with that number half of these where they compile long. --each
 * draws N problems of each case of an operation with a state, of whose sizes pipelines know nothing.
 * --slice 1/2 runs every second kernel and --slice 2/2 the others, --wide those alone that a CPU driver
 * of four lanes has not: of eight lanes, or with matrices. --bench times the kernels that passed.
 * Without --seed the clock gives one. */
#include "patience.h"
#include "check.h"
#include "gpu/quirks.h"
#include "problems/turns.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SKIPPED 77
#define TIMED_RUNS 7
#define WIDE                                                                                \
    (NEED_SUBGROUP_8 | NEED_EIGHT | NEED_MATRIX_F16 | NEED_MATRIX_BF16 | NEED_MATRIX2_F16 | \
     NEED_MATRIX2_BF16 | NEED_MATRIX_EXT_F16 | NEED_MATRIX_EXT_BF16)
#define MOST_PRINTED 8 /* failures of a kernel */
#define FEW 3          /* cases of a kernel, with --few */
/* --sample runs every seventh case, and every seventeenth of a kernel with many. Cases come from nested
 * loops, of attention: what hides keys, what a row without keys gives, which scores are returned, the
 * number of keys. No length of an inner loop (3, 5, 8) is a multiple of 7 or 17, so that the sample walks
 * through their combinations. ctest -C full runs every case, and so should a change to a kernel.
 * What compiles for minutes has a few cases, at a landing one of these in turn (problems/turns.h):
 * attention_feature where the rules take it for quantised caches alone, and attention by matrices on a
 * CPU driver, which emulates them. For attention_tile and attention_decode, which compile for seconds
 * a case, the sample is every 51st, which still has each of what loops go over. At a landing it is
 * one half or the other of products', attention's and linear attention's, and of the twins for float16
 * and bfloat16 that are slow, one: their modules are of the same source. */
#define SAMPLE 7
#define SAMPLE_OF_MANY 17
#define SAMPLE_OF_DEAR (3 * SAMPLE_OF_MANY)
#define MANY_CASES 150
#define LEAST_HALVED 6 /* cases of a sample of which a half is enough */

static const struct family {
    const char *prefix;
    void (*check)(struct check *c), (*bench)(struct check *c);
    const char *elsewhere; /* which test checks it where this one does not */
} families[] = {
#define CHECKED(prefix, noun) {prefix, check_##noun, bench_##noun, NULL},
#define ELSEWHERE(prefix, test) {prefix, NULL, NULL, test},
#include "all_families.def"
#undef CHECKED
#undef ELSEWHERE
};

struct settings {
    uint64_t seed;
    const char *kernel, *device;
    long only;
    uint32_t each;           /* problems of a case */
    unsigned slice, n_slice; /* kernels whose number is slice modulo n_slice */
    bool few, one, sample, wide, bench;
};

static const struct family *family_of(enum kernel kernel)
{
    const char *name = kernel_table[kernel].name;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strncmp(name, families[i].prefix, strlen(families[i].prefix)) == 0)
            return &families[i];
    return NULL;
}

/* Whether a case of the sample is in the half that is run: by the parity of the ones in its number,
 * with which the length of no loop falls in. */
static bool in_half(const struct check *c, long number)
{
    long ones = 0;
    for (; number > 0; number /= 2)
        ones += number % 2;
    return !c->halved || ones % 2 == c->half;
}

bool check_case(struct check *c)
{
    long number = c->n_case++;
    if (c->only >= 0 && number != c->only)
        return false;
    if (c->period && (number % c->period != 0 || !in_half(c, number / c->period)))
        return false;
    c->n_run++;
    c->rng.state = c->seed;
    for (const char *name = kernel_table[c->kernel].name; *name; name++)
        c->rng.state = rng_next(&c->rng) + (unsigned char)*name;
    c->rng.state = rng_next(&c->rng) + (uint64_t)number;
    return true;
}

void check_turn(struct check *c)
{
    if (c->turn > 0)
        c->rng.state = rng_next(&c->rng) + c->turn;
}

void check_fail(struct check *c, const char *text, const char *why)
{
    if (c->n_failed++ < MOST_PRINTED)
        printf("FAIL --seed %llu --kernel %s --case %ld: %s: %s\n", (unsigned long long)c->seed,
               kernel_table[c->kernel].name, c->n_case - 1, why, text);
}

/* What takes the problems that a kernel does not; KERNEL_COUNT: it takes all. */
static enum kernel stand_in(enum kernel kernel)
{
    if (kernel == KERNEL_attention_tile_mixed)
        return KERNEL_attention_tile;
    return kernel == KERNEL_attention_address ? KERNEL_attention_row : KERNEL_COUNT;
}

void check_not_used(struct check *c, const char *text)
{
    if (stand_in(c->kernel) != KERNEL_COUNT)
        c->n_run--;
    else
        check_fail(c, text, "the plan does not use the kernel");
}

static bool uses_kernel(const struct check *c, struct vka_plan *plan)
{
    for (size_t i = 0; i < plan->n_pass; i++)
        if (plan->passes[i].key.kernel == c->kernel)
            return true;
    return false;
}

/* Compares as compare_values does, but an error is over the mean squared row where that is more than
 * the row's. */
static bool compare_by_mean(const struct operand *o, const double *want, double limit,
                            const char *text, struct worst *worst, char why[WHY])
{
    size_t row = 0;
    const double error = compare_terms(o, want, 0, &row);
    if (isfinite(error) && error > worst->nmse[o->dtype]) {
        worst->nmse[o->dtype] = error;
        snprintf(worst->where[o->dtype], sizeof worst->where[0], "row %zu of %s", row, text);
    }
    snprintf(why, WHY, "row %zu: squared error %.3g of the mean, above %.3g", row, error, limit);
    return error <= limit;
}

void check_plan(struct check *c, struct vka_plan *plan, enum vka_status status,
                struct operand *output, const double *want, double limit, const char *text)
{
    char why[WHY] = "";
    if (status == VKA_OK)
        status = vka_plan_finish(plan);
    if (status != VKA_OK) {
        snprintf(why, WHY, "%s: %s", vka_status_name(status), vka_device_error(c->device));
        check_fail(c, text, why);
    } else if (!uses_kernel(c, plan)) {
        check_not_used(c, text);
    } else if (!compare_runs(c->device, plan, &output, 1, &c->rng, why) ||
               !(c->of_mean
                     ? compare_by_mean(output, want, limit, text, &c->worst, why)
                     : compare_values(output, want, limit, "output", text, &c->worst, why))) {
        check_fail(c, text, why);
    }
}

void check_bits(struct check *c, struct vka_plan *plan, enum vka_status status,
                struct operand *output, const char *change, const char *text)
{
    char why[WHY] = "";
    double *before = calloc(output->count, sizeof *before);
    if (status == VKA_OK)
        status = before ? vka_plan_finish(plan) : VKA_OUT_OF_HOST_MEMORY;
    if (status != VKA_OK) {
        snprintf(why, WHY, "%s: %s: %s", change, vka_status_name(status),
                 vka_device_error(c->device));
        check_fail(c, text, why);
        free(before);
        return;
    }
    memcpy(before, output->values, output->count * sizeof *before);
    snprintf(why, WHY, "%s, it gives other bits", change);
    if (!compare_runs(c->device, plan, &output, 1, &c->rng, why) ||
        memcmp(before, output->values, output->count * sizeof *before) != 0)
        check_fail(c, text, why);
    free(before);
}

void check_cut(struct check *c, struct vka_plan *plan, enum vka_status status, size_t uncut_passes,
               struct operand *output, const char *text)
{
    check_bits(c, plan, status, output, "cut by lower limits", text);
    if (status == VKA_OK && plan->n_pass <= uncut_passes)
        check_fail(c, text, "the limits did not cut it");
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void check_time(struct check *c, struct vka_plan *plan, enum vka_status status, double work,
                const char *rate, const char *text)
{
    double ms[TIMED_RUNS] = {0};
    struct vka_pass_info pass;
    if (status == VKA_OK)
        status = vka_plan_finish(plan);
    if (status == VKA_OK && !uses_kernel(c, plan)) {
        printf("  %-44s not used at this size\n", text);
        return;
    }
    for (int run = -1; run < TIMED_RUNS && status == VKA_OK; run++) { /* the first warms up */
        status = vka_plan_run(plan, PATIENCE);
        for (size_t i = 0; i < plan->n_pass && run >= 0 && status == VKA_OK; i++) {
            status = vka_plan_pass(plan, i, &pass);
            if (status == VKA_OK && plan->passes[i].key.kernel == c->kernel)
                ms[run] += pass.gpu_ms;
        }
    }
    qsort(ms, TIMED_RUNS, sizeof ms[0], compare_times);
    double median = ms[TIMED_RUNS / 2];
    if (status != VKA_OK)
        printf("  %-44s %s: %s\n", text, vka_status_name(status), vka_device_error(c->device));
    else if (median <= 0)
        printf("  %-44s the device has no timestamps\n", text);
    else
        printf("  %-44s %10.4f ms %10.2f %s\n", text, median, work / median * 1e-6, rate);
}

/* Whether a kernel is never a plan's choice by itself. */
static bool serves(enum kernel kernel)
{
    return kernel == KERNEL_attention_map || kernel == KERNEL_attention_merge ||
           kernel == KERNEL_linear_weights || kernel == KERNEL_linear_weights_coop ||
           kernel == KERNEL_linear_weights_address;
}

static enum kernel leader(enum kernel kernel)
{
    if (kernel == KERNEL_linear_weights)
        return KERNEL_linear_chunked;
    if (kernel == KERNEL_linear_weights_coop)
        return KERNEL_linear_chunked_coop;
    if (kernel == KERNEL_linear_weights_address)
        return KERNEL_linear_chunked_address;
    return serves(kernel) ? KERNEL_attention_tile : kernel;
}

static bool is_product(enum kernel kernel)
{
    return kernel_table[kernel].family == FAMILY_PRODUCT;
}

/* The kernels of the family that a plan could use in place of this one. */
static struct kernel_set rivals(enum kernel kernel, const struct family *family)
{
    struct kernel_set mask = NO_KERNELS;
    for (int k = 0; k < KERNEL_COUNT; k++) {
        enum kernel other = leader((enum kernel)k);
        bool same = family_of(other) == family || (is_product(other) && is_product(kernel));
        if (other != leader(kernel) && other != stand_in(kernel) && same &&
            !(is_attention_coop(kernel) && serves((enum kernel)k)))
            set_add(&mask, k);
    }
    return mask;
}

static void print_worst(const struct worst *worst)
{
    for (int type = 0; type < 3; type++)
        if (worst->nmse[type] > 0)
            printf("  worst %-4s %.2e: %s\n", vka_dtype_name((enum vka_dtype)type),
                   worst->nmse[type], worst->where[type]);
}

/* Cases from the middle of each third of all; where the kernel takes one not the next, behind the last the
 * first. one: of which third; FEW: of all. */
static void check_few(struct check *c, void (*check)(struct check *c), long one)
{
    c->only = LONG_MAX;
    check(c); /* counts */
    const long n_case = c->n_case;
    for (long i = one % FEW; i < (one < FEW ? one + 1 : FEW); i++) {
        const long n_run = c->n_run;
        const long first = n_case * (2 * i + 1) / (2 * FEW);
        for (long next = 0; c->n_run == n_run && next < n_case; next++) {
            c->only = (first + next) % n_case;
            c->n_case = 0;
            check(c);
        }
    }
}

static bool compiles_long(enum kernel kernel)
{
    const char *name = kernel_table[kernel].name;
    return strncmp(name, "attention_", 10) == 0 || strncmp(name, "matmul_", 7) == 0 ||
           strncmp(name, "linear_", 7) == 0;
}

static void check_sample(struct check *c, void (*check)(struct check *c))
{
    c->only = LONG_MAX;
    check(c); /* counts */
    const bool dear = c->kernel == KERNEL_attention_tile ||
                      c->kernel == KERNEL_attention_tile_mixed ||
                      c->kernel == KERNEL_attention_decode;
    c->period = c->n_case < MANY_CASES ? SAMPLE : dear ? SAMPLE_OF_DEAR : SAMPLE_OF_MANY;
    c->half = turn_of(2);
    c->halved = c->half < 2 && c->n_case >= LEAST_HALVED * c->period && compiles_long(c->kernel);
    c->only = -1;
    c->n_case = 0;
    check(c);
}

/* Pipelines of a kernel: what the cases cost where a CPU driver compiles them. */
static size_t count_pipelines(const struct vka_device *device, enum kernel kernel)
{
    size_t n = 0;
    for (const struct pipeline *p = device->pipelines.list; p; p = p->next)
        n += p->key.kernel == kernel;
    return n;
}

static bool is_slow(const struct vka_device *device, enum kernel kernel)
{
    const char *name = kernel_table[kernel].name;
    const bool long_code = strncmp(name, "attention_", 10) == 0 || strncmp(name, "linear_", 7) == 0;
    const bool emulated = device->caps.properties.type == VKA_DEVICE_CPU && strstr(name, "coop");
    return (emulated && long_code) ||
           (kernel == KERNEL_attention_feature && !quirk_has_scalars(&device->caps.properties));
}

/* Whether it is the turn of the other of two slow kernels, one for float16 and one for bfloat16. */
static bool is_twins_turn(const struct vka_device *device, enum kernel kernel)
{
    const char *name = kernel_table[kernel].name, *type = strrchr(name, '_');
    const uint32_t turn = turn_of(2);
    return turn < 2 && is_slow(device, kernel) && strcmp(type, turn == 0 ? "_bf16" : "_f16") == 0;
}

static bool check_kernel(struct vka_device *device, const struct settings *s, enum kernel kernel)
{
    const char *name = kernel_table[kernel].name;
    const struct family *family = family_of(kernel);
    const char *missing = kernel_missing(kernel, &device->caps);
    struct check c = {
        .device = device, .kernel = kernel, .seed = s->seed, .only = s->only, .each = s->each};
    if (!family || (!family->check && !family->elsewhere)) {
        printf("FAIL %s: no family of kernels checks it\n", name);
        return false;
    }
    if (missing || family->elsewhere) {
        printf("%-18s %s%s\n", name, missing ? "not run: it " : "checked by ",
               missing ? missing : family->elsewhere);
        return true;
    }
    if (s->sample && !s->kernel && is_twins_turn(device, kernel)) {
        printf("%-18s not run: it is its twin's turn\n", name);
        return true;
    }
    const struct kernel_set disabled = device->caps.without;
    set_join(&device->caps.without, rivals(kernel, family));
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (s->few || s->one)
        check_few(&c, family->check, s->one ? FEW / 2 : turn_of(FEW));
    else if (s->sample && !s->kernel && is_slow(device, kernel))
        check_few(&c, family->check, turn_of(FEW));
    else if (s->sample)
        check_sample(&c, family->check);
    else
        family->check(&c);
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%-18s %ld cases, %zu pipelines, %ld failed, %.0f s\n", name, c.n_run,
           count_pipelines(device, kernel), c.n_failed, difftime(end.tv_sec, start.tv_sec));
    print_worst(&c.worst);
    if (s->bench && c.n_failed == 0)
        family->bench(&c);
    device->caps.without = disabled;
    fflush(stdout);
    if (c.n_run == 0)
        printf("FAIL %s: no case was run\n", name);
    return c.n_failed == 0 && c.n_run > 0;
}

static bool parse_number(const char *text, uint64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
}

/* "I/N", I from 1 to N. */
static bool parse_slice(const char *text, struct settings *s)
{
    char end;
    bool ok = sscanf(text, "%u/%u%c", &s->slice, &s->n_slice, &end) == 2;
    return ok && s->slice-- >= 1 && s->slice < s->n_slice;
}

static bool parse(int argc, char **argv, struct settings *s)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'},   {"kernel", required_argument, NULL, 'k'},
        {"case", required_argument, NULL, 'c'},   {"bench", no_argument, NULL, 'b'},
        {"device", required_argument, NULL, 'd'}, {"few", no_argument, NULL, 'f'},
        {"one", no_argument, NULL, 'o'},          {"slice", required_argument, NULL, 'p'},
        {"sample", no_argument, NULL, 'S'},       {"each", required_argument, NULL, 'e'},
        {"wide", no_argument, NULL, 'w'},         {NULL, 0, NULL, 0},
    };
    struct timespec now;
    uint64_t number;
    bool ok = true;
    clock_gettime(CLOCK_REALTIME, &now);
    *s = (struct settings){.seed = (uint64_t)now.tv_sec, .only = -1, .each = 1, .n_slice = 1};
    for (int o; ok && (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 's') {
            ok = parse_number(optarg, &s->seed);
        } else if (o == 'c') {
            ok = parse_number(optarg, &number) && number <= INT32_MAX;
            s->only = ok ? (long)number : -1;
        } else if (o == 'k') {
            s->kernel = optarg;
        } else if (o == 'd') {
            s->device = optarg;
        } else if (o == 'f') {
            s->few = true;
        } else if (o == 'o') {
            s->one = true;
        } else if (o == 'S') {
            s->sample = true;
        } else if (o == 'e') {
            ok = parse_number(optarg, &number) && number > 0 && number <= UINT32_MAX;
            s->each = ok ? (uint32_t)number : 0;
        } else if (o == 'w') {
            s->wide = true;
        } else if (o == 'p') {
            ok = parse_slice(optarg, s);
        } else {
            s->bench = true;
            ok = o == 'b';
        }
    }
    return ok && optind == argc && s->few + s->one + s->sample <= 1;
}

int main(int argc, char **argv)
{
    struct settings s;
    struct vka_device *device = NULL;
    if (!parse(argc, argv, &s)) {
        fprintf(stderr, "usage: check_kernels [--seed S] [--kernel NAME] [--case N]\n"
                        "                     [--few | --one | --sample] [--each N]\n"
                        "                     [--slice I/N] [--wide] [--bench] [--device NAME]\n");
        return 2;
    }
    printf("seed %llu\n", (unsigned long long)s.seed);
    enum vka_status status = vka_device_create(
        VKA_INFO(vka_device_info, .device = s.device, .skip_self_test = true), &device);
    if (status != VKA_OK) {
        fprintf(stderr, "check_kernels: SKIPPED, NO VULKAN DEVICE (%s): nothing was checked\n",
                vka_status_name(status));
        return status == VKA_NO_DEVICE && !s.device ? SKIPPED : 1;
    }
    printf("%s, %s\n", vka_device_properties(device)->name, vka_device_properties(device)->driver);
    bool ok = true, found = false;
    for (int k = 0; k < KERNEL_COUNT; k++) {
        if (s.kernel && strcmp(s.kernel, kernel_table[k].name) != 0)
            continue;
        if ((unsigned)k % s.n_slice != s.slice || (s.wide && !(kernel_table[k].needs & WIDE)))
            continue;
        found = true;
        ok &= check_kernel(device, &s, (enum kernel)k);
    }
    vka_device_destroy(&device);
    if (!found)
        fprintf(stderr, "check_kernels: no kernel is named %s\n", s.kernel);
    return ok && found ? 0 : 1;
}
