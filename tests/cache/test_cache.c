/* Decoding through a cache, dense and paged, and ragged batches: against plain causal attention
 * over the same numbers, which the other tests hold against the oracle. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <vkattn/vkattn.h>

#include "patience.h"
#include "problems/cache_soil.h"
#include "problems/limits.h"
#include "test_program.h"
#include "problems/rng.h"

enum { BATCH = 2, HEADS = 4, KV_HEADS = 2, DIM = 20, VALUE = 12, TOKENS = 300 };

static struct vka_device *device;

static void check(enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s", vka_status_name(status), vka_device_error(device));
}

static struct vka_tensor *tensor4(enum vka_dtype dtype, uint32_t a, uint32_t b, uint32_t c,
                                  uint32_t d)
{
    struct vka_tensor *t = NULL;
    check(vka_tensor_create(device, dtype, 4, (const uint32_t[]){a, b, c, d}, &t));
    return t;
}

static float *noise(size_t n, uint64_t seed)
{
    struct rng rng = {seed};
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)rng_uniform(&rng, -1.5, 1.5);
    return x;
}

/* q, k, v of TOKENS positions, [batch][head][token][dim], and the context of one causal pass. */
struct sequence {
    float *q, *k, *v, *context;
};

static void run_plan(struct vka_plan *plan)
{
    check(vka_plan_run(plan, PATIENCE));
}

static struct vka_plan *begin(enum vka_path path)
{
    struct vka_plan *plan = NULL;
    check(vka_plan_create(device, VKA_INFO(vka_plan_info, .path = path), &plan));
    return plan;
}

static const struct vka_rope rope = {.dim = 8};

static struct sequence one_pass(enum vka_path path)
{
    struct sequence s = {noise(BATCH * HEADS * TOKENS * DIM, 1),
                         noise(BATCH * KV_HEADS * TOKENS * DIM, 2),
                         noise(BATCH * KV_HEADS * TOKENS * VALUE, 3),
                         calloc(BATCH * HEADS * TOKENS * VALUE, sizeof(float))};
    struct vka_tensor *q = tensor4(VKA_F32, BATCH, HEADS, TOKENS, DIM);
    struct vka_tensor *k = tensor4(VKA_F32, BATCH, KV_HEADS, TOKENS, DIM);
    struct vka_tensor *v = tensor4(VKA_F32, BATCH, KV_HEADS, TOKENS, VALUE);
    struct vka_tensor *o = tensor4(VKA_F32, BATCH, HEADS, TOKENS, VALUE);
    struct vka_plan *plan = begin(path);
    check(
        vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = q, .k = k, .v = v, .output = o,
                                              .options.causal = true, .options.rope = rope)));
    check(vka_plan_finish(plan));
    check(vka_tensor_write(q, s.q, vka_tensor_size(q)));
    check(vka_tensor_write(k, s.k, vka_tensor_size(k)));
    check(vka_tensor_write(v, s.v, vka_tensor_size(v)));
    run_plan(plan);
    check(vka_tensor_read(o, s.context, vka_tensor_size(o)));
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&q);
    vka_tensor_destroy(&k);
    vka_tensor_destroy(&v);
    vka_tensor_destroy(&o);
    return s;
}

static void free_sequence(struct sequence *s)
{
    free(s->q);
    free(s->k);
    free(s->v);
    free(s->context);
}

/* A decoder of `step` new tokens a run. */
struct decoder {
    struct vka_cache *cache;
    struct vka_tensor *q, *k, *v, *o;
    struct vka_plan *plan;
    uint32_t step;
};

static struct decoder open_decoder(enum vka_path path, enum vka_dtype dtype, uint32_t step,
                                   uint32_t page_size, uint32_t capacity)
{
    struct decoder d = {.step = step};
    check(
        vka_cache_create(device,
                         VKA_INFO(vka_cache_info, .batch = BATCH, .n_kv_head = KV_HEADS,
                                  .head_dim = DIM, .value_dim = VALUE, .capacity = capacity,
                                  .key_dtype = dtype, .value_dtype = dtype, .page_size = page_size),
                         &d.cache));
    cache_soil_new(d.cache);
    d.q = tensor4(VKA_F32, BATCH, HEADS, step, DIM);
    d.k = tensor4(VKA_F32, BATCH, KV_HEADS, step, DIM);
    d.v = tensor4(VKA_F32, BATCH, KV_HEADS, step, VALUE);
    d.o = tensor4(VKA_F32, BATCH, HEADS, step, VALUE);
    d.plan = begin(path);
    check(vka_plan_add_attention(d.plan, VKA_INFO(vka_attention_op, .q = d.q, .k = d.k, .v = d.v,
                                                  .output = d.o, .cache = d.cache,
                                                  .options.causal = true, .options.rope = rope)));
    check(vka_plan_finish(d.plan));
    return d;
}

static void close_decoder(struct decoder *d)
{
    vka_cache_destroy(&d->cache); /* the plan keeps it */
    vka_plan_destroy(&d->plan);
    vka_tensor_destroy(&d->q);
    vka_tensor_destroy(&d->k);
    vka_tensor_destroy(&d->v);
    vka_tensor_destroy(&d->o);
}

/* Rows t .. t + step - 1 of all[outer][TOKENS][dim] to step_rows[outer][step][dim]. */
static void cut(const float *all, float *step_rows, size_t outer, uint32_t t, uint32_t step,
                size_t dim)
{
    for (size_t i = 0; i < outer; i++)
        memcpy(step_rows + i * step * dim, all + (i * TOKENS + t) * dim,
               step * dim * sizeof *step_rows);
}

static enum vka_status feed(struct decoder *d, const struct sequence *s, uint32_t t, float *context)
{
    enum { MOST = 64 };
    static float step_rows[BATCH * HEADS * MOST * DIM];
    assert_true(d->step <= MOST);
    cut(s->q, step_rows, BATCH * HEADS, t, d->step, DIM);
    check(vka_tensor_write(d->q, step_rows, vka_tensor_size(d->q)));
    cut(s->k, step_rows, BATCH * KV_HEADS, t, d->step, DIM);
    check(vka_tensor_write(d->k, step_rows, vka_tensor_size(d->k)));
    cut(s->v, step_rows, BATCH * KV_HEADS, t, d->step, VALUE);
    check(vka_tensor_write(d->v, step_rows, vka_tensor_size(d->v)));
    enum vka_status status = vka_plan_run(d->plan, PATIENCE);
    check(vka_tensor_read(d->o, context, vka_tensor_size(d->o)));
    return status;
}

/* The largest difference of rows t .. of `heads` [batch * head][step][VALUE] from the one pass. */
static double difference(const struct decoder *d, const struct sequence *s, uint32_t t,
                         const float *context)
{
    static float want[BATCH * HEADS * 64 * VALUE];
    double worst = 0;
    cut(s->context, want, BATCH * HEADS, t, d->step, VALUE);
    for (size_t i = 0; i < (size_t)BATCH * HEADS * d->step * VALUE; i++) {
        double e = (double)context[i] - (double)want[i];
        e = e < 0 ? -e : e;
        worst = e > worst || e != e ? e : worst;
    }
    return worst;
}

/* All tokens in steps; the plan is recorded once, by construction: only vka_plan_run is called. */
static void decode_all(enum vka_path path, enum vka_dtype dtype, uint32_t step, uint32_t page_size,
                       double limit)
{
    static float context[BATCH * HEADS * 64 * VALUE];
    struct sequence s = one_pass(path);
    struct decoder d = open_decoder(path, dtype, step, page_size, TOKENS);
    size_t passes = vka_plan_pass_count(d.plan);
    uint64_t workspace = vka_plan_workspace(d.plan);
    double worst = 0;
    for (uint32_t t = 0; t < TOKENS; t += step) {
        check(feed(&d, &s, t, context));
        double e = difference(&d, &s, t, context);
        worst = e > worst || e != e ? e : worst;
    }
    print_message("path %d, %s, %u a step, pages of %u: largest difference %.2e\n", (int)path,
                  vka_dtype_name(dtype), step, page_size, worst);
    assert_true(worst <= limit);
    assert_int_equal(vka_plan_pass_count(d.plan), passes);
    assert_int_equal(vka_plan_workspace(d.plan), workspace);
    uint32_t length = 0;
    check(vka_cache_length(d.cache, BATCH - 1, &length));
    assert_int_equal(length, TOKENS);
    close_decoder(&d);
    free_sequence(&s);
}

static void test_decode(void **state)
{
    (void)state;
    for (enum vka_path path = VKA_PATH_UNFUSED; path <= VKA_PATH_FUSED; path++) {
        decode_all(path, VKA_F32, 1, 0, 1e-6);
        decode_all(path, VKA_F32, 1, 16, 1e-6);
        decode_all(path, VKA_F32, 50, 32, 1e-6);
        decode_all(path, VKA_F16, 30, 0, 5e-3);
        decode_all(path, VKA_BF16, 20, 48, 5e-2);
    }
}

static void test_overflow(void **state)
{
    (void)state;
    static float context[BATCH * HEADS * 64 * VALUE], want[BATCH * HEADS * 64 * VALUE];
    for (enum vka_path path = VKA_PATH_UNFUSED; path <= VKA_PATH_FUSED; path++) {
        struct sequence s = one_pass(path);
        struct decoder d = open_decoder(path, VKA_F32, 4, path == VKA_PATH_FUSED ? 16 : 0, 10);
        check(feed(&d, &s, 0, context));
        check(feed(&d, &s, 4, want));
        check(vka_cache_truncate(d.cache, 0, 6)); /* sequence 0 has room, sequence 1 has not */
        assert_int_equal(feed(&d, &s, 8, context), VKA_INVALID);
        assert_non_null(strstr(vka_device_error(device), "sequence 1 holds 8 of 10"));
        uint32_t length[2];
        check(vka_cache_length(d.cache, 0, &length[0]));
        check(vka_cache_length(d.cache, 1, &length[1]));
        assert_int_equal(length[0], 10);
        assert_int_equal(length[1], 8);
        /* Nothing was overwritten: once there is room, sequence 1 goes on as if nothing were. */
        check(vka_cache_truncate(d.cache, 0, 0));
        check(vka_cache_truncate(d.cache, 1, 4));
        check(feed(&d, &s, 4, context));
        size_t half = (size_t)HEADS * 4 * VALUE;
        assert_memory_equal(context + half, want + half, half * sizeof *want);
        close_decoder(&d);
        free_sequence(&s);
    }
}

/* A fork goes on like its origin; the origin does not notice. */
static void fork_with(uint32_t page_size)
{
    static float context[BATCH * HEADS * 64 * VALUE], again[BATCH * HEADS * 64 * VALUE];
    struct sequence s = one_pass(VKA_PATH_FUSED);
    size_t q_half = (size_t)HEADS * TOKENS * DIM, k_half = (size_t)KV_HEADS * TOKENS * DIM;
    size_t v_half = (size_t)KV_HEADS * TOKENS * VALUE, half = (size_t)HEADS * 20 * VALUE;
    struct decoder d = open_decoder(VKA_PATH_FUSED, VKA_F32, 20, page_size, TOKENS);
    check(feed(&d, &s, 0, context));
    check(feed(&d, &s, 20, context));
    check(vka_cache_fork(d.cache, 0, 1));
    memcpy(s.q + q_half, s.q, q_half * sizeof *s.q); /* now both sequences get sequence 0's */
    memcpy(s.k + k_half, s.k, k_half * sizeof *s.k);
    memcpy(s.v + v_half, s.v, v_half * sizeof *s.v);
    check(feed(&d, &s, 40, context));
    assert_memory_equal(context, context + half, half * sizeof *context);
    assert_true(difference(&d, &s, 40, context) > 1e-3); /* sequence 1 has left its own text */
    check(vka_cache_truncate(d.cache, 0, 40));
    check(vka_cache_truncate(d.cache, 1, 0)); /* the fork's end leaves the origin alone */
    check(feed(&d, &s, 40, again));
    assert_memory_equal(context, again, half * sizeof *context);
    close_decoder(&d);
    free_sequence(&s);
}

static void test_fork(void **state)
{
    (void)state;
    fork_with(0);
    fork_with(16); /* 40 positions: two full pages shared, half a page copied */
}

/* Pages in any order, some shared: the same context. */
static void test_page_table(void **state)
{
    (void)state;
    static float context[BATCH * HEADS * 64 * VALUE], want[BATCH * HEADS * 64 * VALUE];
    struct sequence s = one_pass(VKA_PATH_FUSED);
    struct decoder d = open_decoder(VKA_PATH_FUSED, VKA_F32, 40, 16, 80);
    const uint32_t shuffled[] = {9, 2, 7, 0, 5}, rest[] = {1, 3, 4, 6, 8};
    check(feed(&d, &s, 0, want));
    check(vka_cache_truncate(d.cache, 0, 0));
    check(vka_cache_truncate(d.cache, 1, 0));
    check(vka_cache_set_pages(d.cache, 0, 0, 5, shuffled));
    check(vka_cache_set_pages(d.cache, 1, 0, 5, rest));
    check(feed(&d, &s, 0, context));
    assert_memory_equal(context, want, vka_tensor_size(d.o));
    const uint32_t outside = 10;
    assert_int_equal(vka_cache_set_pages(d.cache, 0, 4, 1, &outside), VKA_INVALID);
    assert_non_null(strstr(vka_device_error(device), "pages[0] is 10"));
    assert_int_equal(vka_cache_set_pages(d.cache, 0, 4, 2, shuffled), VKA_INVALID);
    assert_int_equal(vka_cache_set_pages(d.cache, 2, 0, 1, shuffled), VKA_INVALID);
    close_decoder(&d);
    free_sequence(&s);
}

/* A paged cache of 64 positions a sequence, and a plan of the decoder's rows in it. */
static struct vka_plan *open_pool(const struct decoder *d, uint32_t n_page,
                                  struct vka_cache **cache)
{
    struct vka_plan *plan = begin(VKA_PATH_UNFUSED);
    check(vka_cache_create(device,
                           VKA_INFO(vka_cache_info, .batch = BATCH, .n_kv_head = KV_HEADS,
                                    .head_dim = DIM, .value_dim = VALUE, .capacity = 64,
                                    .page_size = 16, .n_page = n_page),
                           cache));
    cache_soil_new(*cache);
    check(vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = d->q, .k = d->k, .v = d->v,
                                                .output = d->o, .cache = *cache)));
    check(vka_plan_finish(plan));
    return plan;
}

/* A pool smaller than the sequences: pages that are not there are as good as full. */
static void test_small_pool(void **state)
{
    (void)state;
    struct sequence s = one_pass(VKA_PATH_UNFUSED);
    static float context[BATCH * HEADS * 64 * VALUE], want[BATCH * HEADS * 64 * VALUE];
    struct decoder d = open_decoder(VKA_PATH_UNFUSED, VKA_F32, 10, 16, 64);
    struct vka_cache *small = NULL, *whole = NULL;
    struct vka_plan *plan = open_pool(&d, 5, &small); /* sequence 1 has one page */
    struct vka_plan *roomy = open_pool(&d, 8, &whole);
    check(feed(&d, &s, 0, context));
    run_plan(roomy);
    check(vka_tensor_read(d.o, want, vka_tensor_size(d.o)));
    run_plan(plan);
    check(vka_tensor_read(d.o, context, vka_tensor_size(d.o)));
    assert_memory_equal(context, want, vka_tensor_size(d.o));
    assert_int_equal(vka_plan_run(plan, PATIENCE), VKA_INVALID);
    assert_non_null(strstr(vka_device_error(device), "sequence 1 holds 10 of 64"));
    vka_plan_destroy(&plan);
    vka_plan_destroy(&roomy);
    vka_cache_destroy(&small);
    vka_cache_destroy(&whole);
    close_decoder(&d);
    free_sequence(&s);
}

/* Sequences of these lengths, one empty, packed; against each on its own. */
static void test_ragged(void **state)
{
    (void)state;
    enum { N = 5, Q = 97, KV = 120 };
    static const int32_t q_start[N + 1] = {0, 1, 40, 40, 77, Q},
                                     kv_start[N + 1] = {0, 9, 48, 60, 100, KV};
    float *q_host = noise(HEADS * Q * DIM, 4), *k_host = noise(KV_HEADS * KV * DIM, 5);
    float *v_host = noise(KV_HEADS * KV * VALUE, 6);
    struct vka_tensor *q = tensor4(VKA_F32, 1, HEADS, Q, DIM), *qs = NULL, *ks = NULL;
    struct vka_tensor *k = tensor4(VKA_F32, 1, KV_HEADS, KV, DIM);
    struct vka_tensor *v = tensor4(VKA_F32, 1, KV_HEADS, KV, VALUE);
    struct vka_tensor *o = tensor4(VKA_F32, 1, HEADS, Q, VALUE);
    struct vka_tensor *each = tensor4(VKA_F32, 1, HEADS, Q, VALUE);
    check(vka_tensor_create(device, VKA_I32, 1, (const uint32_t[]){N + 1}, &qs));
    check(vka_tensor_create(device, VKA_I32, 1, (const uint32_t[]){N + 1}, &ks));
    struct vka_plan *plan = begin(VKA_PATH_AUTO), *alone = begin(VKA_PATH_FUSED);
    struct vka_attention_op op = {.struct_size = sizeof op,
                                  .q = q,
                                  .k = k,
                                  .v = v,
                                  .output = o,
                                  .q_start = qs,
                                  .kv_start = ks,
                                  .options.causal = true};
    check(vka_plan_add_attention(plan, &op));
    check(vka_plan_finish(plan));
    op.q_start = op.kv_start = NULL;
    for (int i = 0; i < N; i++) {
        uint32_t n_q = (uint32_t)(q_start[i + 1] - q_start[i]);
        uint32_t n_kv = (uint32_t)(kv_start[i + 1] - kv_start[i]);
        if (n_q == 0)
            continue;
        check(vka_tensor_slice(q, 2, (uint32_t)q_start[i], n_q, &op.q));
        check(vka_tensor_slice(k, 2, (uint32_t)kv_start[i], n_kv, &op.k));
        check(vka_tensor_slice(v, 2, (uint32_t)kv_start[i], n_kv, &op.v));
        check(vka_tensor_slice(each, 2, (uint32_t)q_start[i], n_q, &op.output));
        check(vka_plan_add_attention(alone, &op));
        vka_tensor_destroy(&op.q);
        vka_tensor_destroy(&op.k);
        vka_tensor_destroy(&op.v);
        vka_tensor_destroy(&op.output);
    }
    check(vka_plan_finish(alone));
    check(vka_tensor_write(q, q_host, vka_tensor_size(q)));
    check(vka_tensor_write(k, k_host, vka_tensor_size(k)));
    check(vka_tensor_write(v, v_host, vka_tensor_size(v)));
    check(vka_tensor_write(qs, q_start, sizeof q_start));
    check(vka_tensor_write(ks, kv_start, sizeof kv_start));
    run_plan(plan);
    run_plan(alone);
    static float got[HEADS * Q * VALUE], want[HEADS * Q * VALUE];
    check(vka_tensor_read(o, got, sizeof got));
    check(vka_tensor_read(each, want, sizeof want));
    assert_memory_equal(got, want, sizeof got);

    /* Offsets that make no sense are clamped: no crash, and what makes sense is right. */
    const int32_t wild[N + 1] = {0, 1, INT32_MAX, -5, 12, 2000000};
    check(vka_tensor_write(qs, wild, sizeof wild));
    run_plan(plan);
    check(vka_tensor_read(o, got, sizeof got));
    for (int h = 0; h < HEADS; h++)
        assert_memory_equal(got + (size_t)h * Q * VALUE, want + (size_t)h * Q * VALUE,
                            VALUE * sizeof *got);
    vka_plan_destroy(&plan);
    vka_plan_destroy(&alone);
    struct vka_tensor *all[] = {q, k, v, o, each, qs, ks};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        vka_tensor_destroy(&all[i]);
    free(q_host);
    free(k_host);
    free(v_host);
}

/* An output whose features are apart is made in scratch first; rows of no sequence keep what they
 * had, and so do the elements between. */
static void test_ragged_spares(void **state)
{
    (void)state;
    enum { Q = 9, KV = 12, COUNT = HEADS * Q * VALUE };
    static const int32_t q_start[3] = {2, 5, 7}, kv_start[3] = {0, 5, KV};
    static float got[2 * COUNT];
    const uint64_t stride[4] = {2 * COUNT, 2 * Q * VALUE, 2 * VALUE, 2};
    struct vka_tensor *q = tensor4(VKA_F32, 1, HEADS, Q, DIM), *qs = NULL, *ks = NULL, *o = NULL;
    struct vka_tensor *k = tensor4(VKA_F32, 1, KV_HEADS, KV, DIM);
    struct vka_tensor *v = tensor4(VKA_F32, 1, KV_HEADS, KV, VALUE);
    struct vka_tensor *base = tensor4(VKA_F32, 1, 1, 1, 2 * COUNT);
    float *values = noise(2 * COUNT + HEADS * KV * (DIM + VALUE), 7);
    check(vka_tensor_create(device, VKA_I32, 1, (const uint32_t[]){3}, &qs));
    check(vka_tensor_create(device, VKA_I32, 1, (const uint32_t[]){3}, &ks));
    check(vka_tensor_strided(base, 0, 4, (const uint32_t[]){1, HEADS, Q, VALUE}, stride, &o));
    struct vka_plan *plan = begin(VKA_PATH_FUSED);
    check(vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = q, .k = k, .v = v,
                                                .output = o, .q_start = qs, .kv_start = ks)));
    check(vka_plan_finish(plan));
    check(vka_tensor_write(q, values, vka_tensor_size(q)));
    check(vka_tensor_write(k, values, vka_tensor_size(k)));
    check(vka_tensor_write(v, values, vka_tensor_size(v)));
    check(vka_tensor_write(qs, q_start, sizeof q_start));
    check(vka_tensor_write(ks, kv_start, sizeof kv_start));
    check(vka_tensor_write(base, values, sizeof got));
    run_plan(plan);
    check(vka_tensor_read(base, got, sizeof got));
    for (int i = 0; i < 2 * COUNT; i++) {
        int row = i / 2 / VALUE % Q;
        bool written = i % 2 == 0 && row >= q_start[0] && row < q_start[2];
        assert_true(isfinite(got[i]));
        assert_int_equal(memcmp(&got[i], &values[i], sizeof *got) != 0, written);
    }
    vka_plan_destroy(&plan);
    struct vka_tensor *all[] = {q, k, v, o, base, qs, ks};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        vka_tensor_destroy(&all[i]);
    free(values);
}

TEST_PROGRAM(cache)
{
    const struct vka_device_info info = limits_info(*VKA_INFO(vka_device_info, .device = NULL));
    if (vka_device_create(&info, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, nothing of the cache was tested\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode),        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_fork),          cmocka_unit_test(test_page_table),
        cmocka_unit_test(test_small_pool),    cmocka_unit_test(test_ragged),
        cmocka_unit_test(test_ragged_spares),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vka_device_destroy(&device);
    return failed;
}
