/* Random problems on the stub: no compiler, no numbers, sizes beyond this machine. Plans are made
 * whole and in slices, judged and run; the stub ends the process where the host asks for what no
 * driver has to bear.
 *
 *     test_stub_problems [--seed S] [--count N] [--kind NAME] [--most-refused N] [--verbose]
 *
 * Problem i has the seed S + i, and with it its kind, its device (see stub.h) and lowered limits;
 * one that fails is run alone by --seed ITS_SEED --count 1. What is beyond a device is refused, as
 * vkattn.h says; more refusals than --most-refused are a failure, as something is no longer cut
 * that was. */
#include "trial.h"

#include <gpu/device.h>

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SHARED_DEVICE 25 /* problems */

enum kind { ATTENTION = 0, BACKWARD, CACHE, LINEAR, LAYER, ROWS, LARGE, KINDS };

static const struct {
    const char *name;
    bool (*run)(struct trial *t);
    uint32_t share; /* of all problems */
} kinds[KINDS] = {
    {"attention", trial_attention, 7}, {"backward", trial_backward, 3}, {"cache", trial_cache, 4},
    {"linear", trial_linear, 3},       {"layer", trial_layer, 1},       {"rows", trial_rows, 3},
    {"large", trial_large, 3},
};

struct settings {
    uint64_t seed, count, most_refused;
    int kind; /* -1: any */
    bool verbose;
};

struct tally {
    uint64_t run, failed, refused[KINDS], ran[KINDS];
    size_t passes, submits;
};

static int usage(void)
{
    fprintf(stderr, "usage: test_stub_problems [--seed S] [--count N] [--kind NAME]\n"
                    "                          [--most-refused N] [--verbose]\n");
    return 2;
}

static bool parse(int argc, char **argv, struct settings *s)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'}, {"count", required_argument, NULL, 'c'},
        {"kind", required_argument, NULL, 'k'}, {"most-refused", required_argument, NULL, 'r'},
        {"verbose", no_argument, NULL, 'v'},    {NULL, 0, NULL, 0}};
    *s = (struct settings){.seed = 1, .count = 100, .kind = -1, .most_refused = UINT64_MAX};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        char *end = NULL;
        if (c == 's')
            s->seed = strtoull(optarg, &end, 10);
        else if (c == 'c')
            s->count = strtoull(optarg, &end, 10);
        else if (c == 'r')
            s->most_refused = strtoull(optarg, &end, 10);
        else if (c == 'v')
            s->verbose = true;
        else if (c != 'k')
            return false;
        if (end && *end)
            return false;
        for (int k = 0; c == 'k' && k < KINDS; k++)
            if (strcmp(optarg, kinds[k].name) == 0)
                s->kind = k;
        if (c == 'k' && s->kind < 0)
            return false;
    }
    return optind == argc;
}

/* 2^low .. 2^high, or 0. */
static uint64_t draw_limit(struct rng *rng, uint32_t percent, double low, double high)
{
    const uint64_t limit = (uint64_t)exp2(rng_uniform(rng, low, high));
    return rng_chance(rng, percent) ? limit : 0;
}

/* One of all, with limits lowered or not. */
static enum vka_status open_device(uint64_t seed, struct vka_device **device)
{
    static const char *const names[] = {
        "stub cpu",  "stub cpu",  "stub large",   "stub large",   "stub small",  "stub least",
        "stub wide", "stub wide", "stub varying", "stub varying", "stub carved", "stub rebar"};
    struct rng rng = {seed / SHARED_DEVICE ^ 0x57ab};
    const struct vka_device_info info = {
        .struct_size = sizeof info,
        .device = names[rng_range(&rng, 0, sizeof names / sizeof names[0] - 1)],
        .skip_self_test = true,
        .max_buffer_range = draw_limit(&rng, 40, 16, 27),
        .max_allocation = draw_limit(&rng, 25, 20, 36),
        .max_shared_memory = (uint32_t)draw_limit(&rng, 20, 12, 15),
        .no_mapped_memory = rng_chance(&rng, 30),
        .no_timeline = rng_chance(&rng, 30),
    };
    return vka_device_create(&info, device);
}

/* How fast the device is taken to be: some kernels have yet to be measured. */
static void draw_rates(struct vka_device *device, uint64_t seed)
{
    struct rng rng = {seed ^ 0x4a7e5};
    for (int k = 0; k < KERNEL_COUNT; k++) {
        const double group = exp2(rng_uniform(&rng, -3, 8));
        device->rates.of[k] = (struct rate){group * exp2(rng_uniform(&rng, 0, 8)), group};
        if (rng_chance(&rng, 5))
            device->rates.of[k] = (struct rate){0, 0};
    }
}

static enum kind draw_kind(uint64_t seed)
{
    uint32_t all = 0, k = 0;
    for (int i = 0; i < KINDS; i++)
        all += kinds[i].share;
    uint32_t at = rng_range(&(struct rng){seed ^ 0x61d}, 0, all - 1);
    for (; at >= kinds[k].share; k++)
        at -= kinds[k].share;
    return (enum kind)k;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void run_one(struct vka_device *device, const struct settings *s, uint64_t seed,
                    struct tally *tally)
{
    const enum kind kind = s->kind < 0 ? draw_kind(seed) : (enum kind)s->kind;
    struct trial t = {.device = device, .seed = seed, .rng = {seed ^ 0x7a1a1}};
    const double start = seconds();
    draw_rates(device, seed);
    const bool ok = kinds[kind].run(&t);
    tally->run++;
    tally->failed += !ok;
    tally->ran[kind]++;
    tally->refused[kind] += t.refused;
    tally->passes += t.passes;
    tally->submits += t.submits;
    if (!ok)
        printf("FAIL --seed %llu --count 1%s%s: %s, %s: %s: %s\n", (unsigned long long)seed,
               s->kind < 0 ? "" : " --kind ", s->kind < 0 ? "" : kinds[kind].name, kinds[kind].name,
               vka_device_properties(device)->name, t.why, t.text);
    else if (s->verbose)
        printf("%llu %s, %s: %zu passes, %.3f s: %s%s%s\n", (unsigned long long)seed,
               kinds[kind].name, vka_device_properties(device)->name, t.passes, seconds() - start,
               t.text, t.refused ? ", refused: " : "", t.refused ? t.why : "");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct settings s;
    struct tally tally = {0};
    struct vka_device *device = NULL;
    if (!parse(argc, argv, &s))
        return usage();
    setenv("VKATTN_STUB", "cpu,least,small,large,wide,varying,carved,rebar", 1);
    for (uint64_t i = 0; i < s.count; i++) {
        if (i == 0 || (s.seed + i) % SHARED_DEVICE == 0) {
            vka_device_destroy(&device);
            const enum vka_status status = open_device(s.seed + i, &device);
            if (status != VKA_OK) {
                printf("FAIL no stub: %s\n", vka_status_name(status));
                return 1;
            }
        }
        run_one(device, &s, s.seed + i, &tally);
    }
    vka_device_destroy(&device);
    uint64_t refused = 0;
    for (int k = 0; k < KINDS; k++)
        refused += tally.refused[k];
    for (int k = 0; k < KINDS; k++)
        printf("%-10s %5llu, %llu refused\n", kinds[k].name, (unsigned long long)tally.ran[k],
               (unsigned long long)tally.refused[k]);
    printf("%llu problems, %zu passes, %zu submits, %llu failed\n", (unsigned long long)tally.run,
           tally.passes, tally.submits, (unsigned long long)tally.failed);
    if (refused > s.most_refused)
        printf("FAIL %llu problems refused, not %llu\n", (unsigned long long)refused,
               (unsigned long long)s.most_refused);
    return tally.failed != 0 || refused > s.most_refused;
}
