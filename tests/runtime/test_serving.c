/* A layer that serves sequences of mixed lengths in packed steps, prompts, slices of them and tokens side by
 * side: each row has the bits that its sequence has when it is served alone, whatever the budget of
 * a submit. Offsets that exceed the rows, that fall, and steps without room.
 *
 *     test_gpu serving [--validate] */
#include <vkattn/vkattn.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "patience.h"
#include "problems/cache_soil.h"
#include "problems/rng.h"
#include "test_program.h"

#define SKIPPED 77
#define SEQUENCES 3u
#define WIDTH 32u
#define HEADS 4u
#define KV_HEADS 2u
#define DIM 8u
#define ROWS 16u /* recorded; steps send fewer */
#define CAPACITY 24u
#define LAYERS 2u
#define WHOLE 4u /* whole_n_q of all plans */
#define STEPS 6u

/* New rows of each sequence in each step: prompts while others decode or wait. */
static const uint32_t script[STEPS][SEQUENCES] = {{7, 0, 3}, {1, 9, 1},  {1, 1, 1},
                                                  {0, 1, 5}, {1, 12, 0}, {1, 1, 1}};

struct packed {
    struct vka_tensor *x, *y, *q_start;
    struct vka_cache *cache;
    struct vka_plan *plan;
};

static struct vka_device *device;
static struct vka_layer *layers[LAYERS];

static void check(enum vka_status status)
{
    if (status == VKA_OK)
        return;
    fprintf(stderr, "FAIL %s: %s\n", vka_status_name(status), vka_device_error(device));
    exit(1);
}

static void require(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "FAIL %s\n", what);
    exit(1);
}

static struct vka_tensor *make(enum vka_dtype dtype, uint32_t rank, const uint32_t *size)
{
    struct vka_tensor *t = NULL;
    check(vka_tensor_create(device, dtype, rank, size, &t));
    return t;
}

static void open_layers(void)
{
    static float weight[4][WIDTH * HEADS * DIM];
    struct rng rng = {18};
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (int i = 0; i < 4; i++)
            for (uint32_t e = 0; e < WIDTH * HEADS * DIM; e++)
                weight[i][e] = (float)rng_uniform(&rng, -0.3, 0.3);
        check(vka_layer_create(device,
                               VKA_INFO(vka_layer_info, .n_head = HEADS, .n_kv_head = KV_HEADS,
                                        .head_dim = DIM, .query_dim = WIDTH, .output_dim = WIDTH,
                                        .query.weight = weight[0], .key.weight = weight[1],
                                        .value.weight = weight[2], .output.weight = weight[3]),
                               &layers[l]));
    }
}

static struct vka_cache *make_cache(uint32_t batch, enum vka_dtype dtype, uint32_t page_size)
{
    struct vka_cache *cache = NULL;
    check(vka_cache_create(device,
                           VKA_INFO(vka_cache_info, .batch = batch, .n_layer = LAYERS,
                                    .n_kv_head = KV_HEADS, .head_dim = DIM, .capacity = CAPACITY,
                                    .key_dtype = dtype, .value_dtype = dtype, .no_hadamard = true,
                                    .page_size = page_size),
                           &cache));
    cache_soil_new(cache);
    return cache;
}

/* Two layers over n rows: packed where `batch` is not 0, else of the one sequence of the cache. */
static struct packed open_plan(struct vka_cache *cache, uint32_t n, uint32_t batch, uint64_t budget)
{
    const uint32_t size[3] = {1, n, WIDTH}, n_start = batch + 1;
    struct packed p = {.x = make(VKA_F32, 3, size),
                       .y = make(VKA_F32, 3, size),
                       .q_start = batch ? make(VKA_I32, 1, &n_start) : NULL,
                       .cache = cache};
    struct vka_tensor *middle = make(VKA_F32, 3, size);
    check(vka_plan_create(device,
                          VKA_INFO(vka_plan_info, .whole_n_head = HEADS,
                                   .whole_n_kv_head = KV_HEADS, .whole_n_q = WHOLE,
                                   .submit_budget = budget, .path = VKA_PATH_FUSED),
                          &p.plan));
    for (uint32_t l = 0; l < LAYERS; l++)
        check(vka_plan_add_layer(
            p.plan,
            VKA_INFO(vka_layer_op, .layer = layers[l], .query = l ? middle : p.x,
                     .output = l + 1 < LAYERS ? middle : p.y, .cache = cache, .cache_layer = l,
                     .q_start = p.q_start, .attention.causal = true, .attention.rope.dim = DIM)));
    check(vka_plan_finish(p.plan));
    vka_tensor_destroy(&middle);
    return p;
}

static void close_plan(struct packed *p)
{
    vka_plan_destroy(&p->plan);
    vka_tensor_destroy(&p->x);
    vka_tensor_destroy(&p->y);
    vka_tensor_destroy(&p->q_start);
}

static enum vka_status step(const struct packed *p, const int32_t *start, const float *x, float *y,
                            size_t bytes)
{
    if (start)
        check(vka_tensor_write(p->q_start, start, (SEQUENCES + 1) * sizeof *start));
    check(vka_tensor_write(p->x, x, bytes));
    const enum vka_status status = vka_plan_run(p->plan, PATIENCE);
    check(vka_tensor_read(p->y, y, bytes));
    return status;
}

/* Offsets of a step of the script, from row `first` on. */
static uint32_t offsets(uint32_t i, uint32_t first, int32_t start[SEQUENCES + 1])
{
    start[0] = (int32_t)first;
    for (uint32_t s = 0; s < SEQUENCES; s++)
        start[s + 1] = start[s] + (int32_t)script[i][s];
    return (uint32_t)start[SEQUENCES];
}

/* Inputs of a step; NaN in rows that no sequence has. */
static void draw(uint32_t i, const int32_t start[SEQUENCES + 1], float x[ROWS * WIDTH])
{
    struct rng rng = {1800 + i};
    for (uint32_t e = 0; e < ROWS * WIDTH; e++)
        x[e] = NAN;
    for (int32_t e = start[0] * (int32_t)WIDTH; e < start[SEQUENCES] * (int32_t)WIDTH; e++)
        x[e] = (float)rng_uniform(&rng, -1, 1);
}

/* The script, packed, beside each sequence in a cache of its own. */
static void serve(enum vka_dtype dtype, uint32_t page_size, uint64_t budget)
{
    static float x[ROWS * WIDTH], y[ROWS * WIDTH], own[ROWS * WIDTH];
    struct vka_cache *cache = make_cache(SEQUENCES, dtype, page_size), *alone[SEQUENCES];
    struct packed packed = open_plan(cache, ROWS, SEQUENCES, budget);
    for (uint32_t s = 0; s < SEQUENCES; s++)
        alone[s] = make_cache(1, dtype, page_size ? 0 : 16);
    for (uint32_t i = 0; i < STEPS; i++) {
        int32_t start[SEQUENCES + 1];
        offsets(i, i % 3, start);
        draw(i, start, x);
        check(step(&packed, start, x, y, sizeof x));
        for (uint32_t s = 0; s < SEQUENCES; s++) {
            const uint32_t n = script[i][s], at = (uint32_t)start[s] * WIDTH;
            if (n == 0)
                continue;
            struct packed one = open_plan(alone[s], n, 0, 0);
            check(step(&one, NULL, x + at, own, n * WIDTH * sizeof *own));
            require(memcmp(own, y + at, n * WIDTH * sizeof *own) == 0,
                    "a sequence alone has other bits");
            for (uint32_t e = 0; e < n * WIDTH; e++)
                require(isfinite(own[e]), "a result is not finite");
            close_plan(&one);
        }
    }
    close_plan(&packed);
    vka_cache_destroy(&cache);
    for (uint32_t s = 0; s < SEQUENCES; s++)
        vka_cache_destroy(&alone[s]);
}

static void require_length(struct vka_cache *cache, uint32_t sequence, uint32_t want)
{
    uint32_t length = 0;
    check(vka_cache_length(cache, sequence, &length));
    if (length != want)
        fprintf(stderr, "sequence %u has length %u, not %u\n", sequence, length, want);
    require(length == want, "a length");
}

/* What the device meets in place of good offsets: it clamps, and writes nothing outside. */
static void meet_bad_offsets(void)
{
    static float x[ROWS * WIDTH], y[ROWS * WIDTH];
    static const struct {
        int32_t start[SEQUENCES + 1];
        uint32_t added[SEQUENCES]; /* UINT32_MAX: undefined, at most ROWS */
    } cases[] = {
        {{0, 4, 10, 100}, {4, 6, 6}},        /* a total beyond the recorded rows */
        {{-1, 4, 10, INT32_MIN}, {4, 6, 0}}, /* negative ones count as 0 */
        {{2, 2, 2, 2}, {0, 0, 0}},           /* no row */
        {{0, 9, 5, 7}, {9, 0, UINT32_MAX}},  /* falling */
        {{INT32_MAX, 3, 2, 1}, {0, UINT32_MAX, UINT32_MAX}},
    };
    struct vka_cache *cache = make_cache(SEQUENCES, VKA_F32, 16);
    struct packed packed = open_plan(cache, ROWS, SEQUENCES, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check(step(&packed, cases[i].start, x, y, sizeof x));
        for (uint32_t s = 0; s < SEQUENCES; s++) {
            if (cases[i].added[s] != UINT32_MAX)
                require_length(cache, s, cases[i].added[s]);
            check(vka_cache_truncate(cache, s, 0));
        }
    }
    close_plan(&packed);
    vka_cache_destroy(&cache);
}

/* A sequence without room keeps its length, the others go on, and the run says so. */
static void meet_no_room(void)
{
    static float x[ROWS * WIDTH], y[ROWS * WIDTH];
    struct vka_cache *cache = make_cache(SEQUENCES, VKA_F32, 0);
    struct packed packed = open_plan(cache, ROWS, SEQUENCES, 0);
    check(step(&packed, (const int32_t[]){0, 1, 16, 16}, x, y, sizeof x));
    require(step(&packed, (const int32_t[]){0, 2, 12, 13}, x, y, sizeof x) == VKA_INVALID,
            "a step without room was not refused");
    require(strstr(vka_device_error(device), "sequence 1 holds 15 of 24") != NULL,
            "the sentence names another sequence");
    require_length(cache, 0, 3);
    require_length(cache, 1, 15);
    require_length(cache, 2, 1);
    close_plan(&packed);
    vka_cache_destroy(&cache);
}

static void refuse(const char *words, const struct vka_layer_op *op, enum vka_path path)
{
    struct vka_plan *plan = NULL;
    check(vka_plan_create(device, VKA_INFO(vka_plan_info, .path = path), &plan));
    require(vka_plan_add_layer(plan, op) == VKA_INVALID, words);
    if (!strstr(vka_device_error(device), words))
        fprintf(stderr, "%s\n", vka_device_error(device));
    require(strstr(vka_device_error(device), words) != NULL, words);
    vka_plan_destroy(&plan);
}

/* Arguments that the call refuses. */
static void refuse_arguments(void)
{
    struct vka_cache *cache = make_cache(SEQUENCES, VKA_F32, 0);
    const uint32_t size[3] = {1, 4, WIDTH}, two[3] = {2, 4, WIDTH}, three[3] = {1, 3, WIDTH};
    const uint32_t n = SEQUENCES + 1, fewer = SEQUENCES;
    const uint32_t scores[4] = {1, HEADS, 4, CAPACITY};
    struct vka_tensor *x = make(VKA_F32, 3, size), *y = make(VKA_F32, 3, size);
    struct vka_tensor *x2 = make(VKA_F32, 3, two), *y2 = make(VKA_F32, 3, two);
    struct vka_tensor *key = make(VKA_F32, 3, three), *s = make(VKA_F32, 4, scores);
    struct vka_tensor *start = make(VKA_I32, 1, &n), *short_start = make(VKA_I32, 1, &fewer);
    const struct vka_layer_op good = {.struct_size = sizeof good,
                                      .layer = layers[0],
                                      .query = x,
                                      .output = y,
                                      .cache = cache,
                                      .q_start = start};
    struct vka_layer_op op = good;
    op.cache = NULL;
    refuse("q_start is given without cache", &op, VKA_PATH_AUTO);
    op = good;
    op.q_start = short_start;
    refuse("cache has batch 3", &op, VKA_PATH_AUTO);
    op = good;
    op.query = x2;
    op.output = y2;
    refuse("q has batch 2, but with q_start it must be 1", &op, VKA_PATH_AUTO);
    op = good;
    op.key = key;
    refuse("3 new keys, but with q_start", &op, VKA_PATH_AUTO);
    op = good;
    op.attention.scores = s;
    op.attention.scores_kind = VKA_SCORES_RAW;
    refuse("scores is given with q_start", &op, VKA_PATH_AUTO);
    refuse("the plan's path is UNFUSED", &good, VKA_PATH_UNFUSED);
    op = good;
    op.q_start = y;
    refuse("q_start", &op, VKA_PATH_AUTO);
    struct vka_tensor **all[] = {&x, &y, &x2, &y2, &key, &s, &start, &short_start};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        vka_tensor_destroy(all[i]);
    vka_cache_destroy(&cache);
}

/* Messages of validation layers; that a cache is full, and arguments, are refused on purpose. */
static void count_errors(void *user, enum vka_log_level level, const char *message)
{
    if (level != VKA_LOG_ERROR || !strstr(message, "VUID"))
        return;
    ++*(size_t *)user;
    fprintf(stderr, "%s\n", message);
}

TEST_PROGRAM_ARGUMENTS(serving)
{
    size_t errors = 0;
    const bool validate = argc > 1 && strcmp(argv[1], "--validate") == 0;
    const enum vka_status status = vka_device_create(
        VKA_INFO(vka_device_info, .validation = validate, .log = count_errors, .log_user = &errors),
        &device);
    if (status != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device (%s), nothing was tested\n",
                vka_status_name(status));
        return status == VKA_NO_DEVICE ? SKIPPED : 1;
    }
    open_layers();
    serve(VKA_F32, 0, 0);
    serve(VKA_F32, 16, 1);
    serve(VKA_Q8_0, 16, 100000);
    meet_bad_offsets();
    meet_no_room();
    refuse_arguments();
    for (uint32_t l = 0; l < LAYERS; l++)
        vka_layer_destroy(&layers[l]);
    require(errors == 0, "validation layers report errors");
    printf("%s: prompts and tokens in one step, as alone\n", vka_device_properties(device)->name);
    vka_device_destroy(&device);
    return 0;
}
