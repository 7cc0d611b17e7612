/* The bits of a result: the same however often it is run, whatever else is in the batch, however it
 * is sliced and chunked, under lower limits, and for any number of the driver's threads.
 *
 *     test_invariance [--seed S] [--count N] [--device NAME] [--path auto|unfused|fused] [--print]
 *
 * Configuration i has the seed S + i. --print runs each once and prints a hash of its results, for
 * comparing processes: invariance.sh does that with other numbers of threads. */
#include "invariance.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SKIPPED 77
#define CHUNKED 4 /* one in so many configurations is a prompt in chunks too */

struct settings {
    uint64_t seed, count;
    const char *device;
    enum vka_path path;
    bool print;
};

static bool parse(int argc, char **argv, struct settings *s)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'},   {"count", required_argument, NULL, 'c'},
        {"device", required_argument, NULL, 'd'}, {"path", required_argument, NULL, 'p'},
        {"print", no_argument, NULL, 'r'},        {NULL, 0, NULL, 0},
    };
    static const char *const paths[] = {"auto", "unfused", "fused"};
    *s = (struct settings){.seed = 1, .count = 100};
    bool ok = true;
    for (int c; ok && (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 's')
            s->seed = strtoull(optarg, NULL, 10);
        else if (c == 'c')
            s->count = strtoull(optarg, NULL, 10);
        else if (c == 'd')
            s->device = optarg;
        else if (c == 'r')
            s->print = true;
        else if (c == 'p') {
            while (s->path < VKA_PATH_COUNT && strcmp(paths[s->path], optarg) != 0)
                s->path++;
            ok = s->path < VKA_PATH_COUNT;
        } else
            ok = false;
    }
    return ok && optind == argc && s->count > 0;
}

static uint64_t run_all(struct invariance *t, const struct settings *s)
{
    uint64_t failures = 0, chunked = 0;
    for (uint64_t i = 0; i < s->count; i++) {
        struct problem problem;
        char text[PROBLEM_TEXT];
        uint64_t seed = s->seed + i;
        problem_draw(&problem, seed, s->path);
        bool ok = invariant_attention(t, seed, s->path);
        if (!ok)
            printf("FAIL %s: %s\n", t->why, problem_text(&problem, text));
        else if (s->print)
            printf("%" PRIu64 " %016" PRIx64 "\n", seed, t->hash);
        if (!s->print && i % CHUNKED == 0) {
            bool same = invariant_chunks(t, seed, s->path);
            if (!same)
                printf("FAIL seed %" PRIu64 ": %s\n", seed, t->why);
            ok &= same;
            chunked++;
        }
        failures += !ok;
        if (!ok || i % 100 == 99)
            fflush(stdout);
    }
    if (!s->print)
        printf("%" PRIu64 " configurations, %" PRIu64 " also in chunks, %" PRIu64
               " beyond lowered limits, %" PRIu64 " failed\n",
               s->count, chunked, t->n_refused, failures);
    return failures;
}

int main(int argc, char **argv)
{
    struct settings s;
    struct invariance t = {0};
    if (!parse(argc, argv, &s)) {
        fprintf(stderr, "usage: test_invariance [--seed S] [--count N] [--device NAME]\n"
                        "                       [--path auto|unfused|fused] [--print]\n");
        return 2;
    }
    enum vka_status status =
        vka_device_create(VKA_INFO(vka_device_info, .device = s.device), &t.device);
    if (status == VKA_OK && !s.print)
        status = vka_device_create(VKA_INFO(vka_device_info, .device = s.device,
                                            .max_buffer_range = 1 << 18, .max_allocation = 8 << 20,
                                            .no_mapped_memory = true, .no_timeline = true),
                                   &t.small);
    if (status != VKA_OK) {
        fprintf(stderr, "test_invariance: SKIPPED, NO VULKAN DEVICE (%s): nothing was tested\n",
                vka_status_name(status));
        vka_device_destroy(&t.device);
        return status == VKA_NO_DEVICE && !s.device ? SKIPPED : 1;
    }
    uint64_t failures = run_all(&t, &s);
    vka_device_destroy(&t.small);
    vka_device_destroy(&t.device);
    return failures ? 1 : 0;
}
