/* That a cache had no room is told of the submit that it happened in, whatever else is in flight
 * and in whatever order, and however often, its ticket is waited for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "patience.h"
#include "cache_case.h"
#include "test_program.h"
#include "problems/rng.h"

static struct vka_device *device;

static void check(enum vka_status status)
{
    cache_check(device, status);
}

static uint64_t submit(const struct appender *a)
{
    uint64_t ticket = 0;
    check(vka_plan_submit(a->plan, &ticket));
    return ticket;
}

/* sequence: that the sentence names where there was no room; -1: there was. */
static void expect(const struct appender *a, uint64_t ticket, int sequence)
{
    enum vka_status status = vka_plan_wait(a->plan, ticket, PATIENCE);
    if (status != (sequence < 0 ? VKA_OK : VKA_INVALID))
        fail_msg("ticket %d gives %s: %s", (int)ticket, vka_status_name(status),
                 vka_device_error(device));
    char words[40];
    snprintf(words, sizeof words, "the cache is full: sequence %d ", sequence);
    if (sequence >= 0 && !strstr(vka_device_error(device), words))
        fail_msg("\"%s\" does not name sequence %d", vka_device_error(device), sequence);
}

static void test_own_ticket(void **state)
{
    (void)state;
    for (uint32_t page_size = 0; page_size <= 16; page_size += 16) {
        struct vka_cache *cache = cache_open(device, 1, 8, VKA_F32, page_size, 0);
        struct appender a = appender_open(device, 1, 4, NULL, cache, NULL);
        uint64_t ticket[4];
        for (int i = 0; i < 4; i++)
            ticket[i] = submit(&a);
        for (int i = 0; i < 4; i++)
            expect(&a, ticket[i], i < 2 ? -1 : 0);
        for (int i = 4; i-- > 0;)
            expect(&a, ticket[i], i < 2 ? -1 : 0);
        appender_close(&a);
        vka_cache_destroy(&cache);
    }
}

/* Two caches, of which the second alone is full; and many submits a run. */
static void test_cut_runs(void **state)
{
    (void)state;
    struct vka_cache *cache = cache_open(device, 2, 100, VKA_F32, 0, 0);
    struct vka_cache *twin = cache_open(device, 2, 8, VKA_F32, 0, 0);
    struct appender a = appender_open(
        device, 2, 4, VKA_INFO(vka_plan_info, .submit_budget = 1, .path = VKA_PATH_UNFUSED), cache,
        twin);
    uint64_t ticket[5];
    for (int i = 0; i < 5; i++)
        ticket[i] = submit(&a);
    assert_true(ticket[1] - ticket[0] >= 4);
    for (int i = 5; i-- > 0;)
        expect(&a, ticket[i], i < 2 ? -1 : 0);
    appender_close(&a);
    vka_cache_destroy(&cache);
    vka_cache_destroy(&twin);
}

/* Once rows of 3 find no room, rows of 1 are refused too, until the host changes the sequence. */
static void test_several_plans(void **state)
{
    (void)state;
    struct vka_cache *cache = cache_open(device, 1, 8, VKA_F32, 0, 0);
    struct appender three = appender_open(device, 1, 3, NULL, cache, NULL);
    struct appender one = appender_open(device, 1, 1, NULL, cache, NULL);
    const struct {
        const struct appender *a;
        int sequence;
    } runs[] = {{&one, -1}, {&three, -1}, {&three, -1}, {&three, 0},
                {&one, 0},  {&three, 0},  {&one, 0}};
    static const int order[] = {3, 6, 0, 2, 4, 5, 1, 2, 0};
    uint64_t ticket[7];
    for (int i = 0; i < 7; i++)
        ticket[i] = submit(runs[i].a);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        expect(runs[order[i]].a, ticket[order[i]], runs[order[i]].sequence);
    check(vka_cache_truncate(cache, 0, 7));
    expect(&one, submit(&one), -1);
    appender_close(&three);
    appender_close(&one);
    vka_cache_destroy(&cache);
}

/* Operations of one step agree on the new positions; one on a layer that the step has had begins
 * another step. */
static void test_steps(void **state)
{
    (void)state;
    struct vka_cache *cache = NULL;
    struct vka_plan *plan = NULL;
    struct vka_tensor *t[3] = {0}, *n[2] = {0};
    check(vka_cache_create(device,
                           VKA_INFO(vka_cache_info, .batch = 1, .n_layer = 2, .n_kv_head = 1,
                                    .head_dim = 4, .capacity = 8),
                           &cache));
    for (uint32_t i = 0; i < 3; i++) /* of 1, 1 and 2 positions */
        check(vka_tensor_create(device, VKA_F32, 4, (const uint32_t[]){1, 1, 1 + i / 2, 4}, &t[i]));
    for (int i = 0; i < 2; i++)
        check(vka_tensor_create(device, VKA_I32, 1, (const uint32_t[]){1}, &n[i]));
    check(vka_plan_create(device, NULL, &plan));
    struct vka_attention_op op = {.struct_size = sizeof op,
                                  .q = t[0],
                                  .k = t[0],
                                  .v = t[0],
                                  .output = t[1],
                                  .cache = cache,
                                  .n_append = n[0]};
    struct vka_attention_op other = op, longer = op;
    check(vka_plan_add_attention(plan, &op));
    other.cache_layer = longer.cache_layer = 1;
    other.n_append = n[1];
    assert_int_equal(vka_plan_add_attention(plan, &other), VKA_INVALID);
    assert_non_null(strstr(vka_device_error(device), "n_append is not that of"));
    longer.k = longer.v = t[2];
    assert_int_equal(vka_plan_add_attention(plan, &longer), VKA_INVALID);
    assert_non_null(strstr(vka_device_error(device), "2 new keys, but"));
    longer.cache_layer = 0;
    check(vka_plan_add_attention(plan, &longer)); /* a second step */
    check(vka_plan_finish(plan));
    check(vka_tensor_write(n[0], (const int32_t[]){2}, 4));
    for (int run = 0; run < 2; run++)
        check(vka_plan_run(plan, PATIENCE));
    uint32_t length = 0;
    check(vka_cache_length(cache, 0, &length));
    assert_int_equal(length, 6); /* at most 1, then 2, twice */
    vka_plan_destroy(&plan);
    vka_cache_destroy(&cache);
    for (int i = 0; i < 3; i++)
        vka_tensor_destroy(&t[i]);
    for (int i = 0; i < 2; i++)
        vka_tensor_destroy(&n[i]);
}

/* What the host changes about a sequence makes void what was told of that one alone. */
static void test_forgotten(void **state)
{
    (void)state;
    struct vka_cache *cache = cache_open(device, 2, 8, VKA_F32, 16, 0);
    struct appender a = appender_open(device, 2, 4, NULL, cache, NULL);
    submit(&a);
    submit(&a);
    const uint64_t both = submit(&a);
    expect(&a, both, 0);
    assert_int_equal(vka_cache_truncate(cache, 0, 9), VKA_INVALID); /* refused: nothing changed */
    expect(&a, both, 0);
    check(vka_cache_truncate(cache, 0, 0));
    expect(&a, both, 1);
    check(vka_cache_truncate(cache, 1, 4));
    expect(&a, both, -1);
    const uint64_t fits = submit(&a), second = submit(&a), none = submit(&a);
    expect(&a, none, 0);
    expect(&a, second, 1);
    expect(&a, fits, -1);
    expect(&a, both, -1);
    check(vka_cache_fork(cache, 1, 0)); /* `to` alone has changed */
    expect(&a, none, 1);
    check(vka_cache_set_pages(cache, 1, 0, 1, (const uint32_t[]){1}));
    expect(&a, none, -1);
    appender_close(&a);
    vka_cache_destroy(&cache);
}

/* More than fences, receipts or any ring has places for. */
static void in_flight(struct vka_device *d)
{
    enum { RUNS = 400, FIT = 150 };
    struct vka_device *usual = device;
    device = d;
    struct vka_cache *cache = cache_open(device, 1, FIT, VKA_F32, 0, 0);
    struct appender a = appender_open(device, 1, 1, NULL, cache, NULL);
    static uint64_t ticket[RUNS];
    struct rng rng = {1};
    for (int i = 0; i < RUNS; i++)
        ticket[i] = submit(&a);
    for (int n = 0; n < 3 * RUNS; n++) {
        uint32_t i = rng_range(&rng, 0, RUNS - 1);
        expect(&a, ticket[i], i < FIT ? -1 : 0);
    }
    expect(&a, ticket[FIT - 1], -1);
    expect(&a, ticket[FIT], 0);
    appender_close(&a);
    vka_cache_destroy(&cache);
    device = usual;
}

static void test_many_in_flight(void **state)
{
    (void)state;
    struct vka_device *fences = NULL;
    in_flight(device);
    assert_int_equal(
        vka_device_create(VKA_INFO(vka_device_info, .no_timeline = true, .skip_self_test = true),
                          &fences),
        VKA_OK);
    in_flight(fences);
    vka_device_destroy(&fences);
}

TEST_PROGRAM(cache_room)
{
    if (vka_device_create(NULL, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, nothing of the cache was tested\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_ticket),     cmocka_unit_test(test_cut_runs),
        cmocka_unit_test(test_several_plans),  cmocka_unit_test(test_forgotten),
        cmocka_unit_test(test_many_in_flight), cmocka_unit_test(test_steps),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vka_device_destroy(&device);
    return failed;
}
