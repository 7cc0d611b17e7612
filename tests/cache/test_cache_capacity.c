/* A sequence has the same bits in caches of every capacity and batch: beside a longer neighbour too, by
 * every type of cache, for tokens and slices of a prompt, with the kernels of CPU drivers and those that
 * the rules choose on GPUs.
 *
 *     test_cache_capacity [--rules usual|discrete|intel] [--type NAME]
 *     test_cache_capacity --type long
 *
 * Without options all of the first, of each rule the types that have kernels of their own. The second:
 * a sequence longer than a chain of sums, by products over buffers of scores. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "patience.h"
#include "core/dtype.h"
#include "problems/cache_soil.h"
#include "problems/operand.h"
#include "reference/reference.h"
#include "gpu/device.h"
#include "op/cache/cache.h"
#include "problems/types.h"
#include "test_program.h"

#define SKIPPED 77

enum { DIM = 32, KV_HEADS = 2, HEADS = 4, PROMPT = 16, BULK = 200, NEIGHBOUR = 1000 };

static const uint32_t capacities[] = {20000, 2049, 2047, 129, 127, 33, 31, 16};
#define CAPACITIES (sizeof capacities / sizeof *capacities)

/* What a sequence takes, one after the other, as far as there is room: rows of a plan, and how many of
 * them it keeps. */
static const struct {
    uint32_t rows, keep;
} steps[] = {
    {PROMPT, 10}, {1, 1},       {1, 1}, {PROMPT, 4}, {PROMPT, 15}, {PROMPT, 2},
    {PROMPT, 16}, {BULK, 78},   {1, 1}, {1, 1},      {BULK, 190},  {1, 1},
    {BULK, 200},  {PROMPT, 16}, {1, 1}, {1, 1},
};
#define STEPS (sizeof steps / sizeof *steps)

struct setup {
    struct vka_device *device;
    enum vka_dtype type, rows; /* of the cache; of q, new keys and values, and output: F32 or F16 */
    enum vka_path path;
    enum vka_masked_row masked_row;
    bool causal, sink;
    uint32_t page_size;
};

static void check(const struct setup *s, enum vka_status status)
{
    if (status == VKA_OK)
        return;
    fprintf(stderr, "FAIL %s: %s\n", vka_status_name(status), vka_device_error(s->device));
    exit(1);
}

static void *take(size_t n, size_t size)
{
    void *p = calloc(n, size);
    if (!p)
        abort();
    return p;
}

/* A plan of so many rows of each sequence. */
struct plan {
    uint32_t rows, batch;
    struct vka_tensor *q, *k, *v, *o, *log_sum, *n_append, *sink;
    struct vka_plan *plan;
};

static void plan_open(const struct setup *s, struct vka_cache *cache, uint32_t batch, uint32_t rows,
                      struct plan *p)
{
    const uint32_t q[] = {batch, HEADS, rows, DIM}, k[] = {batch, KV_HEADS, rows, DIM};
    const uint32_t heads = HEADS;
    const float sinks[HEADS] = {0.5f, -3, 2, 0};
    *p = (struct plan){.rows = rows, .batch = batch};
    check(s, vka_tensor_create(s->device, s->rows, 4, q, &p->q));
    check(s, vka_tensor_create(s->device, s->rows, 4, k, &p->k));
    check(s, vka_tensor_create(s->device, s->rows, 4, k, &p->v));
    check(s, vka_tensor_create(s->device, s->rows, 4, q, &p->o));
    check(s, vka_tensor_create(s->device, VKA_F32, 3, q, &p->log_sum));
    check(s, vka_tensor_create(s->device, VKA_I32, 1, &batch, &p->n_append));
    check(s, vka_tensor_create(s->device, VKA_F32, 1, &heads, &p->sink));
    check(s, vka_tensor_write(p->sink, sinks, sizeof sinks));
    check(s, vka_plan_create(s->device, VKA_INFO(vka_plan_info, .path = s->path), &p->plan));
    check(s, vka_plan_add_attention(p->plan, VKA_INFO(vka_attention_op, .q = p->q, .k = p->k,
                                                      .v = p->v, .output = p->o, .cache = cache,
                                                      .n_append = p->n_append,
                                                      .options = {.causal = s->causal,
                                                                  .masked_row = s->masked_row,
                                                                  .sink = s->sink ? p->sink : NULL,
                                                                  .log_sum_exp = p->log_sum})));
    check(s, vka_plan_finish(p->plan));
}

static void plan_close(struct plan *p)
{
    vka_plan_destroy(&p->plan);
    vka_tensor_destroy(&p->q);
    vka_tensor_destroy(&p->k);
    vka_tensor_destroy(&p->v);
    vka_tensor_destroy(&p->o);
    vka_tensor_destroy(&p->log_sum);
    vka_tensor_destroy(&p->n_append);
    vka_tensor_destroy(&p->sink);
}

/* Writes one sequence's rows, which every cache gets, and noise to the others. */
static void write_rows(const struct setup *s, struct vka_tensor *t, uint32_t place, uint64_t seed)
{
    const size_t n = vka_tensor_count(t), one = n / vka_tensor_shape(t, 0);
    struct rng own = {seed}, noise = {~seed};
    const size_t size = vka_dtype_size(s->rows);
    uint8_t *x = take(n, size);
    for (size_t i = 0; i < n; i++)
        operand_encode(s->rows, rng_uniform(i / one == place ? &own : &noise, -1.5, 1.5),
                       x + i * size);
    check(s, vka_tensor_write(t, x, n * size));
    free(x);
}

/* Widens float16 numbers to float32, in place. */
static void widen(float *x, size_t n)
{
    for (size_t i = n; i-- > 0;) {
        uint16_t half;
        memcpy(&half, (const uint8_t *)x + i * sizeof half, sizeof half);
        x[i] = (float)ref_from_f16(half);
    }
}

/* Runs a step; out: the outputs of the sequence's kept rows, then their log-sum-exps. */
static size_t run_step(const struct setup *s, struct plan *p, uint32_t place, const int32_t *keeps,
                       uint64_t seed, float *out)
{
    const uint32_t keep = (uint32_t)keeps[place];
    size_t n = 0;
    write_rows(s, p->q, place, seed);
    write_rows(s, p->k, place, seed + 1);
    write_rows(s, p->v, place, seed + 2);
    check(s, vka_tensor_write(p->n_append, keeps, p->batch * sizeof *keeps));
    check(s, vka_plan_run(p->plan, PATIENCE));
    struct vka_tensor *results[] = {p->o, p->log_sum};
    for (int r = 0; r < 2; r++) {
        const size_t width = r ? 1 : DIM, count = vka_tensor_count(results[r]);
        float *x = take(count, sizeof *x);
        check(s, vka_tensor_read(results[r], x, vka_tensor_size(results[r])));
        if (!r && s->rows == VKA_F16)
            widen(x, count);
        for (size_t h = 0; h < HEADS; h++, n += keep * width)
            memcpy(out + n, x + (place * HEADS + h) * p->rows * width, keep * width * sizeof *x);
        free(x);
    }
    return n;
}

/* All steps for which there is room. ends[i]: floats in out after step i; as many as before where it
 * had none. */
static void run_all(const struct setup *s, uint32_t capacity, uint32_t batch, uint32_t place,
                    size_t ends[STEPS], float *out)
{
    struct vka_cache *cache = NULL;
    static const uint32_t rows[] = {1, PROMPT, BULK};
    struct plan plans[3];
    int32_t keeps[2] = {0};
    /* The unfused path makes scores of the whole capacity. */
    const uint32_t most_rows = s->path == VKA_PATH_UNFUSED ? PROMPT : BULK;
    uint32_t length = 0;
    size_t n = 0;
    check(s, vka_cache_create(s->device,
                              VKA_INFO(vka_cache_info, .batch = batch, .n_kv_head = KV_HEADS,
                                       .head_dim = DIM, .capacity = capacity, .key_dtype = s->type,
                                       .value_dtype = s->type, .page_size = s->page_size),
                              &cache));
    cache_soil_new(cache);
    for (size_t i = 0; i < 3; i++)
        if (rows[i] <= most_rows && rows[i] <= capacity)
            plan_open(s, cache, batch, rows[i], &plans[i]);
        else
            plans[i] = (struct plan){0};
    for (uint32_t n_new = most_rows, there = 0; batch > 1 && there + n_new <= NEIGHBOUR;
         there += n_new) {
        keeps[1 - place] = (int32_t)n_new; /* the neighbour's prompt */
        keeps[place] = 0;
        run_step(s, &plans[n_new == BULK ? 2 : 1], place, keeps, 7 + there, out);
    }
    for (size_t i = 0; i < STEPS; i++) {
        keeps[0] = keeps[1] = 0;
        keeps[place] = (int32_t)steps[i].keep;
        struct plan *p = &plans[steps[i].rows == 1 ? 0 : steps[i].rows == PROMPT ? 1 : 2];
        if (p->plan && length + steps[i].keep <= capacity) {
            n += run_step(s, p, place, keeps, 100 * (i + 1), out + n);
            length += steps[i].keep;
        } else {
            length = capacity; /* the later steps stand elsewhere */
        }
        ends[i] = n;
    }
    for (size_t i = 0; i < 3; i++)
        plan_close(&plans[i]);
    vka_cache_destroy(&cache);
}

static bool compare(const struct setup *s, uint32_t capacity, const char *how,
                    const size_t *want_ends, const float *want, const size_t *ends,
                    const float *got)
{
    for (size_t i = 0; i < STEPS; i++) {
        const size_t from = i ? ends[i - 1] : 0, n = ends[i] - from;
        if (n == 0 || (ends[i] == want_ends[i] && memcmp(got + from, want + from, 4 * n) == 0))
            continue;
        size_t e = from;
        while (e < ends[i] && memcmp(got + e, want + e, 4) == 0)
            e++;
        fprintf(stderr,
                "FAIL %s, rows %s, path %d, causal %d, sink %d, masked row %d: step %zu, %u rows: "
                "%.9g in a "
                "cache "
                "of %u%s, %.9g in one of %u\n",
                vka_dtype_name(s->type), vka_dtype_name(s->rows), (int)s->path, s->causal, s->sink,
                (int)s->masked_row, i, steps[i].keep, (double)got[e], capacity, how,
                (double)want[e], capacities[0]);
        return false;
    }
    return true;
}

static bool run_setup(const struct setup *s)
{
    size_t most = 0, want_ends[STEPS], ends[STEPS];
    bool ok = true;
    for (size_t i = 0; i < STEPS; i++)
        most += steps[i].rows * HEADS * (DIM + 1);
    float *want = take(most, sizeof *want), *got = take(most, sizeof *got);
    run_all(s, capacities[0], 1, 0, want_ends, want);
    for (size_t c = 1; c < CAPACITIES && ok; c++) {
        run_all(s, capacities[c], 1, 0, ends, got);
        ok = compare(s, capacities[c], "", want_ends, want, ends, got);
    }
    for (uint32_t place = 0; place < 2 && ok; place++) {
        run_all(s, 2049, 2, place, ends, got);
        ok = compare(s, 2049, " beside a longer sequence", want_ends, want, ends, got);
    }
    free(want);
    free(got);
    return ok;
}

enum { LONG_LENGTH = 16384 + 500, LONG_DIM = 4 };

/* Puts rows of a sequence into its cache, as an append would, and their number. */
static void fill_long(const struct setup *s, struct vka_cache *cache)
{
    struct vka_tensor *const rows[] = {&cache->layers[0].k.rows, &cache->layers[0].v.rows};
    for (int i = 0; i < 2; i++) {
        struct rng rng = {(uint64_t)i + 1};
        float *x = take(vka_tensor_count(rows[i]), sizeof *x);
        for (size_t e = 0; e < LONG_LENGTH * LONG_DIM; e++)
            x[e] = (float)rng_uniform(&rng, -1.5, 1.5);
        check(s, vka_tensor_write(rows[i], x, vka_tensor_count(rows[i]) * sizeof *x));
        free(x);
    }
    *cache_length_words(cache) = LONG_LENGTH;
}

/* The context of one row over so many keys, and its log-sum-exp, in a cache of so many. */
static void run_long(struct vka_device *device, uint32_t capacity, float out[LONG_DIM + 1])
{
    const struct setup s = {.device = device, .rows = VKA_F32};
    const uint32_t one[] = {1, 1, 1, LONG_DIM};
    struct vka_cache *cache = NULL;
    struct vka_tensor *t[4];
    struct vka_plan *plan;
    check(&s, vka_cache_create(device,
                               VKA_INFO(vka_cache_info, .batch = 1, .n_kv_head = 1,
                                        .head_dim = LONG_DIM, .capacity = capacity),
                               &cache));
    fill_long(&s, cache);
    for (int i = 0; i < 4; i++)
        check(&s, vka_tensor_create(device, VKA_F32, i < 3 ? 4 : 3, one, &t[i]));
    check(&s, vka_plan_create(device, VKA_INFO(vka_plan_info, .path = VKA_PATH_UNFUSED), &plan));
    check(&s,
          vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = t[0], .k = t[0], .v = t[1],
                                                .output = t[2], .cache = cache,
                                                .options = {.causal = true, .log_sum_exp = t[3]})));
    check(&s, vka_plan_finish(plan));
    write_rows(&s, t[0], 0, 7);
    write_rows(&s, t[1], 0, 8);
    check(&s, vka_plan_run(plan, PATIENCE));
    check(&s, vka_tensor_read(t[2], out, LONG_DIM * sizeof *out));
    check(&s, vka_tensor_read(t[3], out + LONG_DIM, sizeof *out));
    vka_plan_destroy(&plan);
    for (int i = 0; i < 4; i++)
        vka_tensor_destroy(&t[i]);
    vka_cache_destroy(&cache);
}

/* Capacities on both sides of that from which the softmax of a row without a cache is split. */
static bool check_long(struct vka_device *device)
{
    float small[LONG_DIM + 1], large[LONG_DIM + 1];
    run_long(device, 17000, small);
    run_long(device, 140000, large);
    for (int i = 0; i <= LONG_DIM; i++)
        if (memcmp(&small[i], &large[i], sizeof small[i]) != 0) {
            fprintf(stderr,
                    "FAIL %d keys: result %d is %.9g in a cache of 17000, %.9g in one of 140000\n",
                    LONG_LENGTH, i, (double)small[i], (double)large[i]);
            return false;
        }
    return true;
}

static bool set_rules(struct vka_device *device, const char *rules)
{
    struct vka_device_properties *has = &device->caps.properties;
    if (strcmp(rules, "usual") == 0)
        return true;
    if (strcmp(rules, "discrete") == 0) {
        has->type = VKA_DEVICE_DISCRETE;
        return true;
    }
    if (strcmp(rules, "intel") == 0) {
        has->type = VKA_DEVICE_INTEGRATED;
        has->vendor_id = 0x8086;
        return true;
    }
    return false;
}

static int usage(void)
{
    fprintf(stderr,
            "usage: test_cache_capacity [--rules usual|discrete|intel] [--type NAME|long]\n");
    return 2;
}

TEST_PROGRAM_ARGUMENTS(cache_capacity)
{
    const char *rules = "usual", *only = NULL;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc || (strcmp(argv[i], "--rules") != 0 && strcmp(argv[i], "--type") != 0))
            return usage();
        *(strcmp(argv[i], "--rules") == 0 ? &rules : &only) = argv[i + 1];
    }
    struct vka_device *device = NULL;
    if (vka_device_create(NULL, &device) != VKA_OK)
        return SKIPPED;
    if (!set_rules(device, rules))
        return usage();
    if (only && strcmp(only, "long") == 0) {
        const bool same = check_long(device);
        vka_device_destroy(&device);
        return same ? 0 : 1;
    }
    bool ok = true;
    unsigned count = 0;
    for (EACH_TYPE(type, type_is_cached)) {
        if (!ok || (only && strcmp(only, vka_dtype_name(type)) != 0))
            continue;
        const bool scaled = dtype_is_scaled(type);
        const int turns = scaled ? 1 : type == VKA_F16 ? 4 : 2;
        for (int turn = 0; turn < turns && ok; turn++, count++) {
            ok = run_setup(&(struct setup){
                .device = device,
                .type = type,
                .rows = turn < 2 ? VKA_F32 : VKA_F16,
                .path = turn % 2 ? VKA_PATH_UNFUSED : VKA_PATH_AUTO,
                .causal = type != VKA_F16,
                .sink = type != VKA_F16 || turn > 1,
                .masked_row = type == VKA_Q8_0 ? VKA_MASKED_UNIFORM : VKA_MASKED_ZERO,
                .page_size = type == VKA_F16 ? 16 : 0,
            });
            if (ok)
                printf("%s, rows %s, path %d\n", vka_dtype_name(type), turn < 2 ? "f32" : "f16",
                       turn % 2);
            fflush(stdout);
        }
    }
    if (ok)
        printf("%s rules on %s: %u kinds of cache, the same bits of every capacity\n", rules,
               vka_device_properties(device)->name, count);
    vka_device_destroy(&device);
    return ok ? 0 : 1;
}
