/* Many forwards on one device, many devices, and many whole lives, with the memory that the process
 * grows by.
 *
 *     test_gpu soak [--forwards N] [--devices N] [--lives N] [--drift KIB] [--leak BYTES] [--forever]
 *
 * A device is made, takes and gives back a tensor, and is destroyed; a life is a device with a
 * layer and one forward, most with the pipelines and verdicts of an earlier one.
 *
 * The drift is the least resident memory of the second half less that of the first, after a
 * warm-up: Mesa's CPU driver has a few MiB more or less from one life to the next. What the C
 * library keeps of freed memory is given back before each reading. A drift beyond --drift, 1024 if
 * not given, in each of ROUNDS rounds is a failure: the driver's few MiB come and go, what leaks
 * grows in every round. --leak leaks that much in each forward, device and life, which has to fail.
 */
#include <vkattn/vkattn.h>

#include <getopt.h>
#include <limits.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "patience.h"
#include "test_program.h"

#define SKIPPED 77
#define READINGS 50u
#define ROUNDS 3

enum { TOKENS = 4, HEADS = 2, DIM = 4, WIDTH = HEADS * DIM };

/* A causal self-attention layer, [1][TOKENS][WIDTH]. */
struct model {
    struct vka_device *device;
    struct vka_layer *layer;
    struct vka_tensor *in, *out;
    struct vka_plan *plan;
};

struct pipelines {
    void *blob;
    size_t size;
};

static enum vka_status make_layer(struct model *m)
{
    float weight[WIDTH * WIDTH];
    for (int i = 0; i < WIDTH * WIDTH; i++)
        weight[i] = (float)(i % 7) / 16 - 0.2f;
    const struct vka_linear_weights w = {.weight = weight};
    return vka_layer_create(m->device,
                            VKA_INFO(vka_layer_info, .n_head = HEADS, .head_dim = DIM,
                                     .query_dim = WIDTH, .output_dim = WIDTH, .query = w, .key = w,
                                     .value = w, .output = w),
                            &m->layer);
}

static enum vka_status make_plan(struct model *m)
{
    enum vka_status status = vka_plan_create(m->device, NULL, &m->plan);
    if (status == VKA_OK)
        status =
            vka_plan_add_layer(m->plan, VKA_INFO(vka_layer_op, .layer = m->layer, .query = m->in,
                                                 .output = m->out, .attention.causal = true));
    return status == VKA_OK ? vka_plan_finish(m->plan) : status;
}

/* Kept: of another device's, or NULL. */
static enum vka_status model_create(struct model *m, const struct pipelines *kept)
{
    const uint32_t shape[] = {1, TOKENS, WIDTH};
    *m = (struct model){0};
    const struct vka_device_info info = {.struct_size = sizeof info,
                                         .pipeline_cache = kept ? kept->blob : NULL,
                                         .pipeline_cache_size = kept ? kept->size : 0};
    enum vka_status status = vka_device_create(&info, &m->device);
    if (status == VKA_OK)
        status = make_layer(m);
    if (status == VKA_OK)
        status = vka_tensor_create(m->device, VKA_F32, 3, shape, &m->in);
    if (status == VKA_OK)
        status = vka_tensor_create(m->device, VKA_F32, 3, shape, &m->out);
    return status == VKA_OK ? make_plan(m) : status;
}

static void model_destroy(struct model *m)
{
    vka_plan_destroy(&m->plan);
    vka_layer_destroy(&m->layer);
    vka_tensor_destroy(&m->in);
    vka_tensor_destroy(&m->out);
    vka_device_destroy(&m->device);
}

/* One input through the model. The result's bits must be those of the first. */
static enum vka_status forward(struct model *m, bool *right)
{
    static float first[TOKENS * WIDTH];
    static bool has_first;
    float x[TOKENS * WIDTH], y[TOKENS * WIDTH];
    for (int i = 0; i < TOKENS * WIDTH; i++)
        x[i] = (float)(i % 5) - 2;
    enum vka_status status = vka_tensor_write(m->in, x, sizeof x);
    if (status == VKA_OK)
        status = vka_plan_run(m->plan, PATIENCE);
    if (status == VKA_OK)
        status = vka_tensor_read(m->out, y, sizeof y);
    if (!has_first)
        memcpy(first, y, sizeof y);
    has_first = true;
    *right = memcmp(first, y, sizeof y) == 0;
    return status;
}

/* Every 64th forward makes a new plan. */
static enum vka_status forward_often(void *user, unsigned long n, bool *right)
{
    struct model *m = user;
    if (n % 64 == 63) {
        vka_plan_destroy(&m->plan);
        enum vka_status status = make_plan(m);
        if (status != VKA_OK)
            return status;
    }
    return forward(m, right);
}

static enum vka_status make_device(void *user, unsigned long n, bool *right)
{
    (void)user;
    struct vka_device *device = NULL;
    struct vka_tensor *tensor = NULL;
    const uint32_t shape[] = {WIDTH};
    float x[WIDTH], y[WIDTH] = {0};
    for (int i = 0; i < WIDTH; i++)
        x[i] = (float)(n % 1000) + (float)i;
    enum vka_status status = vka_device_create(NULL, &device);
    if (status == VKA_OK)
        status = vka_tensor_create(device, VKA_F32, 1, shape, &tensor);
    if (status == VKA_OK)
        status = vka_tensor_write(tensor, x, sizeof x);
    if (status == VKA_OK)
        status = vka_tensor_read(tensor, y, sizeof y);
    *right = memcmp(x, y, sizeof y) == 0;
    vka_tensor_destroy(&tensor);
    vka_device_destroy(&device);
    return status;
}

static enum vka_status keep_pipelines(struct vka_device *device, struct pipelines *p)
{
    free(p->blob);
    *p = (struct pipelines){0};
    enum vka_status status = vka_device_pipeline_cache(device, NULL, &p->size);
    if (status != VKA_OK)
        return status;
    p->blob = malloc(p->size);
    return p->blob ? vka_device_pipeline_cache(device, p->blob, &p->size) : VKA_OUT_OF_HOST_MEMORY;
}

/* Every 16th with nothing of an earlier one; its pipelines are for the others. */
static enum vka_status live_once(void *user, unsigned long n, bool *right)
{
    struct pipelines *kept = user;
    bool fresh = n % 16 == 0;
    struct model m;
    enum vka_status status = model_create(&m, fresh ? NULL : kept);
    if (status == VKA_OK)
        status = forward(&m, right);
    if (status == VKA_OK && fresh)
        status = keep_pipelines(m.device, kept);
    model_destroy(&m);
    return status;
}

/* Bytes. */
static long resident(void)
{
    long size = 0, pages = 0;
#ifdef __GLIBC__ /* which keeps what is freed */
    malloc_trim(0);
#endif
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file)
        return 0;
    if (fscanf(file, "%ld %ld", &size, &pages) != 2)
        pages = 0;
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

struct counts {
    unsigned long forwards, devices, lives;
    long drift;  /* KiB */
    size_t leak; /* bytes of each step */
    bool forever;
};

/* Loses bytes of memory, each page of them touched. */
static void leak(size_t bytes)
{
    static void *volatile lost;
    if (bytes > 0 && (lost = malloc(bytes)))
        memset(lost, 1, bytes);
}

/* A tenth of the count to warm up, then all of it, resident memory read READINGS times. Bytes. */
static bool drift_of(const char *what, unsigned long count, size_t lost, void *user,
                     enum vka_status (*step)(void *, unsigned long, bool *), long *drift)
{
    unsigned long warm = count / 10;
    long least[2] = {LONG_MAX, LONG_MAX}; /* of each half, bytes */
    for (unsigned long n = 0; n < warm + count; n++) {
        bool right = true;
        enum vka_status status = step(user, n, &right);
        leak(lost);
        if (status != VKA_OK || !right) {
            printf("FAIL %s %lu: %s\n", what, n, right ? vka_status_name(status) : "other bits");
            return false;
        }
        if (n < warm || (n - warm) % (count / READINGS) != 0)
            continue;
        long now = resident();
        long *half = &least[n - warm >= count / 2];
        *half = now < *half ? now : *half;
    }
    *drift = least[1] - least[0];
    printf("%lu %s: %+ld KiB of %ld\n", count, what, *drift / 1024, least[0] / 1024);
    fflush(stdout);
    return true;
}

/* Whether a round drifts by no more than it may. */
static bool soak(const char *what, unsigned long count, const struct counts *counts, void *user,
                 enum vka_status (*step)(void *, unsigned long, bool *))
{
    for (int round = 0; round < ROUNDS; round++) {
        long drift = 0;
        if (!drift_of(what, count, counts->leak, user, step, &drift))
            return false;
        if (drift <= 1024 * counts->drift)
            return true;
    }
    printf("FAIL %s: more than %ld KiB in each of %d rounds\n", what, counts->drift, ROUNDS);
    return false;
}

static bool parse(int argc, char **argv, struct counts *counts)
{
    static const struct option options[] = {{"forwards", required_argument, NULL, 'f'},
                                            {"devices", required_argument, NULL, 'd'},
                                            {"lives", required_argument, NULL, 'l'},
                                            {"drift", required_argument, NULL, 'r'},
                                            {"leak", required_argument, NULL, 'k'},
                                            {"forever", no_argument, NULL, 'e'},
                                            {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'f')
            counts->forwards = strtoul(optarg, NULL, 10);
        else if (c == 'd')
            counts->devices = strtoul(optarg, NULL, 10);
        else if (c == 'l')
            counts->lives = strtoul(optarg, NULL, 10);
        else if (c == 'r')
            counts->drift = strtol(optarg, NULL, 10);
        else if (c == 'k')
            counts->leak = strtoul(optarg, NULL, 10);
        else if (c == 'e')
            counts->forever = true;
        else
            return false;
    }
    return optind == argc && counts->forwards >= READINGS && counts->devices >= READINGS &&
           counts->lives >= READINGS;
}

TEST_PROGRAM_ARGUMENTS(soak)
{
    struct counts counts = {.forwards = 100000, .devices = 1000, .lives = 100, .drift = 1024};
    if (!parse(argc, argv, &counts)) {
        fprintf(stderr,
                "usage: test_gpu soak [--forwards N] [--devices N] [--lives N] [--drift KIB] "
                "[--leak BYTES] [--forever], N from %u\n",
                READINGS);
        return 2;
    }
    struct model m;
    enum vka_status status = model_create(&m, NULL);
    if (status != VKA_OK) {
        fprintf(stderr, "soak: SKIPPED, NO VULKAN DEVICE (%s): nothing was tested\n",
                vka_status_name(status));
        model_destroy(&m);
        return status == VKA_NO_DEVICE ? SKIPPED : 1;
    }
    struct pipelines kept = {0};
    bool ok = true;
    do
        ok = soak("forwards", counts.forwards, &counts, &m, forward_often) &&
             soak("devices", counts.devices, &counts, NULL, make_device) &&
             soak("lives", counts.lives, &counts, &kept, live_once);
    while (ok && counts.forever);
    free(kept.blob);
    model_destroy(&m);
    return ok ? 0 : 1;
}
