/* Pages that sequences of a paged cache share: what is refused changes nothing, and how long it
 * takes does not grow with what other sequences have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "patience.h"
#include "cache_case.h"
#include "op/cache/cache.h"
#include "test_program.h"

#define PAGE 16u

static struct vka_device *device;

static void check(enum vka_status status)
{
    cache_check(device, status);
}

static void feed(const struct appender *a, int seed)
{
    struct vka_tensor *inputs[] = {a->q, a->k, a->v};
    for (int t = 0; t < 3; t++) {
        size_t n = vka_tensor_count(inputs[t]);
        float *x = malloc(n * sizeof *x);
        assert_non_null(x);
        for (size_t i = 0; i < n; i++)
            x[i] = (float)((i * 37 + (size_t)(seed + t) * 11) % 64) / 32 - 1;
        check(vka_tensor_write(inputs[t], x, n * sizeof *x));
        free(x);
    }
    check(vka_plan_run(a->plan, PATIENCE));
}

/* A pool of four pages, all of which are taken. */
static struct vka_cache *open_pool(void)
{
    struct vka_cache *cache = cache_open(device, 2, 3 * PAGE, VKA_F32, PAGE, 4);
    check(vka_cache_set_pages(cache, 0, 0, 3, (const uint32_t[]){1, 0, 2}));
    check(vka_cache_set_pages(cache, 1, 0, 3, (const uint32_t[]){3, 3, 3}));
    return cache;
}

typedef enum vka_status refused_call(struct vka_cache *cache);

/* The context of one more token of both sequences. */
struct context {
    float o[2][CACHE_HEADS * CACHE_VALUE];
};

/* After `rows` rows, a fork of sequence 0 or none, and the call that is refused, NULL: none. */
static struct context go_on(uint32_t rows, bool fork, refused_call *call)
{
    struct context context;
    struct vka_cache *cache = open_pool();
    struct appender fill = appender_open(device, 2, rows, NULL, cache, NULL);
    struct appender one = appender_open(device, 2, 1, NULL, cache, NULL);
    feed(&fill, 1);
    if (fork)
        check(vka_cache_fork(cache, 0, 1));
    if (call) {
        assert_int_equal(call(cache), VKA_INVALID);
        assert_non_null(strstr(vka_device_error(device), "no free page"));
    }
    for (uint32_t b = 0; b < 2; b++) {
        uint32_t length = 0;
        check(vka_cache_length(cache, b, &length));
        assert_int_equal(length, rows);
    }
    feed(&one, 9);
    assert_int_equal(vka_tensor_size(one.o), sizeof context.o);
    check(vka_tensor_read(one.o, context.o, sizeof context.o));
    appender_close(&fill);
    appender_close(&one);
    vka_cache_destroy(&cache);
    return context;
}

static void expect_nothing_changed(uint32_t rows, bool fork, refused_call *call)
{
    struct context want = go_on(rows, fork, NULL), got = go_on(rows, fork, call);
    assert_memory_equal(&got, &want, sizeof got);
}

/* Its second page could be given up, but not the first: that is to be copied. */
static enum vka_status truncate_early(struct vka_cache *cache)
{
    return vka_cache_truncate(cache, 1, PAGE / 2);
}

static enum vka_status fork_half(struct vka_cache *cache)
{
    return vka_cache_fork(cache, 0, 1);
}

static void test_refused(void **state)
{
    (void)state;
    expect_nothing_changed(2 * PAGE, true, truncate_early);
    expect_nothing_changed(PAGE / 2, false, fork_half);
}

/* Free pages go where the sequence goes on, not to its last pages. */
static void test_few_free(void **state)
{
    (void)state;
    struct vka_cache *cache = cache_open(device, 2, 3 * PAGE, VKA_F32, PAGE, 4);
    struct appender page = appender_open(device, 2, PAGE, NULL, cache, NULL);
    check(vka_cache_set_pages(cache, 0, 0, 3, (const uint32_t[]){0, 1, 2}));
    check(vka_cache_set_pages(cache, 1, 0, 3, (const uint32_t[]){0, 1, 2}));
    check(vka_cache_truncate(cache, 1, 0));
    feed(&page, 1);
    assert_int_equal(vka_plan_run(page.plan, PATIENCE), VKA_INVALID);
    assert_non_null(strstr(vka_device_error(device), "sequence 1 holds 16 of 48"));
    appender_close(&page);
    vka_cache_destroy(&cache);
}

/* A length beyond the capacity, which a driver out of memory was seen to leave, is refused before the
 * page table is read by it; truncating sets it right. */
static void test_wild_length(void **state)
{
    (void)state;
    struct vka_cache *cache = cache_open(device, 2, 3 * PAGE, VKA_F32, PAGE, 6);
    uint32_t length = 7;
    cache_length_words(cache)[0] = UINT32_MAX - PAGE;
    assert_int_equal(vka_cache_fork(cache, 0, 1), VKA_INTERNAL);
    assert_non_null(strstr(vka_device_error(device), "in sequence 0, whose capacity is 48"));
    assert_int_equal(vka_cache_length(cache, 0, &length), VKA_INTERNAL);
    assert_int_equal(length, 7);
    assert_int_equal(vka_cache_truncate(cache, 0, 3 * PAGE + 1), VKA_INVALID);
    check(vka_cache_truncate(cache, 0, 0));
    check(vka_cache_length(cache, 0, &length));
    assert_int_equal(length, 0);
    check(vka_cache_fork(cache, 0, 1));
    vka_cache_destroy(&cache);
}

/* Gives sequences n_page pages each, frees them and forks, so many times; returns the processor time
 * in seconds. */
static double use_pages(uint32_t n_page, uint32_t times)
{
    enum { BATCH = 32 };
    const clock_t begin = clock();
    struct vka_cache *cache = NULL;
    uint32_t *pages = malloc(n_page * sizeof *pages);
    assert_non_null(pages);
    check(vka_cache_create(device,
                           VKA_INFO(vka_cache_info, .batch = BATCH, .n_kv_head = 1, .head_dim = 1,
                                    .capacity = n_page * PAGE, .key_dtype = VKA_F16,
                                    .value_dtype = VKA_F16, .page_size = PAGE),
                           &cache));
    for (uint32_t i = 0; i < n_page; i++)
        pages[i] = i;
    for (uint32_t n = 0; n < times; n++) {
        for (uint32_t b = 1; b < BATCH; b++)
            check(vka_cache_set_pages(cache, b, 0, n_page, pages)); /* all those of sequence 0 */
        for (uint32_t b = 0; b < BATCH; b++)
            check(vka_cache_truncate(cache, b, 0));
        for (uint32_t b = 1; b < BATCH; b++)
            check(vka_cache_fork(cache, 0, b));
    }
    free(pages);
    vka_cache_destroy(&cache);
    return (double)(clock() - begin) / CLOCKS_PER_SEC;
}

/* 262,144 pages, and an eighth of them eight times as often: the same work where uses of a page are
 * counted, eight times as much where each use is looked for among all pages. */
static void test_large_table(void **state)
{
    (void)state;
    const double small = use_pages(1024, 64), large = use_pages(8192, 8);
    assert_true(large < 4 * small + 1);
}

TEST_PROGRAM(cache_pages)
{
    if (vka_device_create(NULL, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, nothing of the cache was tested\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_few_free),
        cmocka_unit_test(test_wild_length),
        cmocka_unit_test(test_large_table),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vka_device_destroy(&device);
    return failed;
}
