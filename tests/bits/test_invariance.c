/* The bits of a result: the same however often it is run, whatever else is in the batch, however it
 * is sliced, cut for budgets and limits, or comes in key chunks or steps, and for any number of the
 * driver's threads.
 *
 *     test_gpu invariance [--seed S] [--count N] [--device NAME] [--path auto|unfused|fused] [--sample]
 *
 * Configuration i has the seed S + i. Without --path, one in three is forced to each path. --sample
 * takes two of the four numbers of threads with a configuration, and the others with the next. */
#include "invariance.h"
#include "test_program.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SKIPPED 77
#define OFTEN 3         /* one in so many has key chunks, and a prompt in steps */
#define MOST_REFUSED 10 /* one in so many may be beyond lowered limits, and one more */

struct settings {
    uint64_t seed, count;
    const char *device;
    enum vka_path path;
    bool any_path, sample;
};

static bool parse(int argc, char **argv, struct settings *s)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'},   {"count", required_argument, NULL, 'c'},
        {"device", required_argument, NULL, 'd'}, {"path", required_argument, NULL, 'p'},
        {"sample", no_argument, NULL, 'S'},       {NULL, 0, NULL, 0},
    };
    static const char *const paths[] = {"auto", "unfused", "fused"};
    *s = (struct settings){.seed = 1, .count = 100, .any_path = true};
    bool ok = true;
    for (int c; ok && (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 's')
            s->seed = strtoull(optarg, NULL, 10);
        else if (c == 'c')
            s->count = strtoull(optarg, NULL, 10);
        else if (c == 'd')
            s->device = optarg;
        else if (c == 'S')
            s->sample = true;
        else if (c == 'p') {
            s->any_path = false;
            while (s->path < VKA_PATH_COUNT && strcmp(paths[s->path], optarg) != 0)
                s->path++;
            ok = s->path < VKA_PATH_COUNT;
        } else
            ok = false;
    }
    return ok && optind == argc && s->count > 0;
}

static bool report(struct invariance *t, uint64_t seed, bool ok, const char *how)
{
    if (!ok)
        printf("FAIL seed %" PRIu64 "%s: %s\n", seed, how, t->why);
    return ok;
}

static bool run_one(struct invariance *t, uint64_t seed, enum vka_path path, bool often)
{
    struct problem problem;
    char text[PROBLEM_TEXT];
    bool ok = report(t, seed, invariant_attention(t, seed, path), "");
    if (!ok) {
        invariance_draw(&problem, seed, path);
        printf("%s\n", problem_text(&problem, text));
    }
    if (!often)
        return ok;
    ok &= report(t, seed, invariant_keys(t, seed), ", key chunks");
    return ok & report(t, seed, invariant_prompt(t, seed, path), ", a prompt");
}

static uint64_t run_all(struct invariance *t, const struct settings *s)
{
    uint64_t failures = 0;
    for (uint64_t i = 0; i < s->count; i++) {
        uint64_t seed = s->seed + i;
        enum vka_path path = s->any_path ? (enum vka_path)(seed / 2 % VKA_PATH_COUNT) : s->path;
        failures += !run_one(t, seed, path, i % OFTEN == 0);
        fflush(stdout);
    }
    printf("%" PRIu64 " configurations, %" PRIu64 " runs compared, %" PRIu64
           " in key chunks, %" PRIu64 " with lowered limits, %" PRIu64 " of them refused; %" PRIu64
           " failed\n",
           s->count, t->n_run, t->n_key_chunks, t->n_limited, t->n_refused, failures);
    if (t->n_refused > 1 + t->n_limited / MOST_REFUSED) {
        printf("FAIL more than one in %d is beyond the lowered limits\n", MOST_REFUSED);
        failures++;
    }
    return failures;
}

/* LP_NUM_THREADS is of Mesa's CPU driver, which reads it as a device is made; 0: in the calling
 * thread. The other devices keep the number that the caller wants. */
static enum vka_status open_threaded(struct invariance *t, const char *name)
{
    static const char *const numbers[N_THREADS] = {"0", "1", "3", "8"};
    const char *usual = getenv("LP_NUM_THREADS");
    char *kept = usual ? strdup(usual) : NULL;
    enum vka_status status = VKA_OK;
    for (size_t i = 0; i < N_THREADS && status == VKA_OK; i++) {
        setenv("LP_NUM_THREADS", numbers[i], 1);
        status = vka_device_create(
            VKA_INFO(vka_device_info, .device = name, .skip_self_test = true), &t->threaded[i]);
    }
    if (kept)
        setenv("LP_NUM_THREADS", kept, 1);
    else
        unsetenv("LP_NUM_THREADS");
    free(kept);
    return status;
}

static enum vka_status open_devices(struct invariance *t, const char *name)
{
    enum vka_status status =
        vka_device_create(VKA_INFO(vka_device_info, .device = name), &t->device);
    if (status == VKA_OK)
        status = vka_device_create(VKA_INFO(vka_device_info, .device = name,
                                            .max_buffer_range = 1 << 18, .max_allocation = 8 << 20,
                                            .no_mapped_memory = true, .no_timeline = true),
                                   &t->small);
    return status == VKA_OK ? open_threaded(t, name) : status;
}

TEST_PROGRAM_ARGUMENTS(invariance)
{
    struct settings s;
    struct invariance t = {0};
    uint64_t failures = 1;
    if (!parse(argc, argv, &s)) {
        fprintf(stderr, "usage: test_gpu invariance [--seed S] [--count N] [--device NAME]\n"
                        "                       [--path auto|unfused|fused] [--sample]\n");
        return 2;
    }
    t.sample = s.sample;
    enum vka_status status = open_devices(&t, s.device);
    if (status == VKA_OK)
        failures = run_all(&t, &s);
    else
        fprintf(stderr, "invariance: SKIPPED, NO VULKAN DEVICE (%s): nothing was tested\n",
                vka_status_name(status));
    for (size_t i = 0; i < N_THREADS; i++)
        vka_device_destroy(&t.threaded[i]);
    vka_device_destroy(&t.small);
    vka_device_destroy(&t.device);
    return status == VKA_NO_DEVICE && !s.device ? SKIPPED : failures != 0;
}
