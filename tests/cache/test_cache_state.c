/* Layers of a cache that hold a state, beside keys and values of other sizes: the bits of operations
 * with states of the caller, sequences that wait and that have no room, copies, what is forgotten. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <vkattn/vkattn_model.h>

#include "patience.h"
#include "cache_case.h"
#include "problems/rng.h"
#include "test_program.h"

#include <op/cache/cache.h>

#define BATCH 2u
#define ROWS 2u
#define CAPACITY 8u
#define CHANNELS 5u
#define STATES 2u
#define KEY 4u
#define VALUE 3u
#define MOST 48 /* elements of a tensor here */

static struct vka_device *device;

static void check(enum vka_status status)
{
    cache_check(device, status);
}

static struct vka_tensor *tensor_of(uint32_t rank, const uint32_t *size, struct rng *rng)
{
    float values[MOST];
    struct vka_tensor *tensor = NULL;
    check(vka_tensor_create(device, VKA_F32, rank, size, &tensor));
    const size_t bytes = vka_tensor_size(tensor);
    assert_true(bytes <= sizeof values);
    for (size_t i = 0; i < bytes / sizeof *values; i++)
        values[i] = rng ? (float)rng_uniform(rng, -1, 1) : 0;
    check(vka_tensor_write(tensor, values, bytes));
    return tensor;
}

#define TENSOR(rng, ...)                                                  \
    tensor_of(sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), \
              (const uint32_t[]){__VA_ARGS__}, rng)

/* Layer 0 has keys and values, 1 states, 2 quantised ones of other sizes. */
static struct vka_cache *open_cache(uint32_t page_size)
{
    const struct vka_cache_layer_info layers[] = {
        {.struct_size = sizeof *layers, .n_kv_head = 1, .head_dim = KEY, .value_dim = VALUE},
        {.struct_size = sizeof *layers,
         .n_state = STATES,
         .head_dim = KEY,
         .value_dim = VALUE,
         .channels = CHANNELS,
         .conv_rows = 2},
        {.struct_size = sizeof *layers,
         .n_kv_head = 2,
         .head_dim = 8,
         .key_dtype = VKA_Q8_0,
         .value_dtype = VKA_Q8_0},
    };
    struct vka_cache *cache = NULL;
    check(vka_cache_create(device,
                           VKA_INFO(vka_cache_info, .batch = BATCH, .n_layer = 3,
                                    .capacity = CAPACITY, .page_size = page_size, .layers = layers),
                           &cache));
    return cache;
}

/* A plan with operations on the states, of a cache or of the caller. */
struct way {
    struct vka_plan *plan;
    struct vka_tensor *counts, *conv_output, *linear_output;
    struct vka_tensor *conv, *linear; /* states; of a cache its own */
};

struct inputs {
    struct vka_tensor *x, *weight, *q, *k, *v, *decay, *beta, *attended;
};

static struct inputs make_inputs(void)
{
    struct rng rng = {7};
    return (struct inputs){
        .x = TENSOR(&rng, BATCH, ROWS, CHANNELS),
        .weight = TENSOR(&rng, CHANNELS, 3),
        .q = TENSOR(&rng, BATCH, 1, ROWS, KEY),
        .k = TENSOR(&rng, BATCH, 1, ROWS, KEY),
        .v = TENSOR(&rng, BATCH, STATES, ROWS, VALUE),
        .decay = TENSOR(&rng, BATCH, STATES, ROWS),
        .beta = TENSOR(&rng, BATCH, 1, ROWS),
        .attended = TENSOR(NULL, BATCH, 1, ROWS, VALUE),
    };
}

static void free_inputs(struct inputs *in)
{
    struct vka_tensor **all[] = {&in->x, &in->weight, &in->q,    &in->k,
                                 &in->v, &in->decay,  &in->beta, &in->attended};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        vka_tensor_destroy(all[i]);
}

static struct way open_way(const struct inputs *in, struct vka_cache *cache)
{
    struct way w = {.conv_output = TENSOR(NULL, BATCH, ROWS, CHANNELS),
                    .linear_output = TENSOR(NULL, BATCH, STATES, ROWS, VALUE)};
    check(vka_tensor_create(device, VKA_I32, 1, (const uint32_t[]){BATCH}, &w.counts));
    check(vka_plan_create(device, NULL, &w.plan));
    if (!cache) {
        w.conv = TENSOR(NULL, BATCH, CHANNELS, 2);
        w.linear = TENSOR(NULL, BATCH, STATES, KEY, VALUE);
    }
    const struct vka_causal_conv_op conv = {.struct_size = sizeof conv,
                                            .input = in->x,
                                            .weight = in->weight,
                                            .past = w.conv,
                                            .present = w.conv,
                                            .cache = cache,
                                            .cache_layer = cache ? 1 : 0,
                                            .lengths = w.counts,
                                            .output = w.conv_output};
    check(vka_plan_add_causal_conv(w.plan, &conv));
    const struct vka_linear_attention_op linear = {.struct_size = sizeof linear,
                                                   .rule = VKA_RULE_GATED_DELTA,
                                                   .q = in->q,
                                                   .k = in->k,
                                                   .v = in->v,
                                                   .decay = in->decay,
                                                   .beta = in->beta,
                                                   .past_state = w.linear,
                                                   .present_state = w.linear,
                                                   .cache = cache,
                                                   .cache_layer = cache ? 1 : 0,
                                                   .lengths = w.counts,
                                                   .output = w.linear_output};
    check(vka_plan_add_linear_attention(w.plan, &linear));
    struct vka_tensor *values = TENSOR(NULL, BATCH, 1, ROWS, VALUE);
    const struct vka_attention_op attention = {.struct_size = sizeof attention,
                                               .q = in->q,
                                               .k = in->k,
                                               .v = values,
                                               .output = in->attended,
                                               .cache = cache,
                                               .n_append = w.counts};
    if (cache)
        check(vka_plan_add_attention(w.plan, &attention));
    vka_tensor_destroy(&values);
    check(vka_plan_finish(w.plan));
    if (cache) {
        w.conv = &cache->layers[1].conv;
        w.linear = &cache->layers[1].linear;
    }
    return w;
}

static void close_way(struct way *w, bool cached)
{
    vka_plan_destroy(&w->plan);
    vka_tensor_destroy(&w->counts);
    vka_tensor_destroy(&w->conv_output);
    vka_tensor_destroy(&w->linear_output);
    if (cached)
        return;
    vka_tensor_destroy(&w->conv);
    vka_tensor_destroy(&w->linear);
}

static void expect_same(struct vka_tensor *a, struct vka_tensor *b)
{
    float values[2][MOST];
    const size_t bytes = vka_tensor_size(a);
    assert_int_equal(bytes, vka_tensor_size(b));
    check(vka_tensor_read(a, values[0], bytes));
    check(vka_tensor_read(b, values[1], bytes));
    assert_memory_equal(values[0], values[1], bytes);
}

static void expect_lengths(struct vka_cache *cache, uint32_t first, uint32_t second)
{
    const uint32_t want[] = {first, second};
    for (uint32_t b = 0; b < BATCH; b++) {
        uint32_t length = 0;
        check(vka_cache_length(cache, b, &length));
        assert_int_equal(length, want[b]);
    }
}

static void expect_invalid(enum vka_status status, const char *words)
{
    if (status != VKA_INVALID || !strstr(vka_device_error(device), words))
        fail_msg("%s: \"%s\" has no \"%s\"", vka_status_name(status), vka_device_error(device),
                 words);
}

/* counts: new rows of each sequence; kept: of those what there is room for. */
static void run(struct way ways[2], const int32_t counts[BATCH], const int32_t kept[BATCH])
{
    check(vka_tensor_write(ways[0].counts, counts, 4 * BATCH));
    check(vka_tensor_write(ways[1].counts, kept, 4 * BATCH));
    const bool fits = memcmp(counts, kept, 4 * BATCH) == 0;
    const enum vka_status status = vka_plan_run(ways[0].plan, PATIENCE);
    if (fits)
        check(status);
    else
        expect_invalid(status, "sequence 1 ");
    check(vka_plan_run(ways[1].plan, PATIENCE));
    expect_same(ways[0].conv, ways[1].conv);
    expect_same(ways[0].linear, ways[1].linear);
    if (!fits)
        return;
    expect_same(ways[0].conv_output, ways[1].conv_output);
    expect_same(ways[0].linear_output, ways[1].linear_output);
}

static void test_steps(void **state)
{
    (void)state;
    struct inputs in = make_inputs();
    for (uint32_t page_size = 0; page_size <= 16; page_size += 16) {
        struct vka_cache *cache = open_cache(page_size);
        struct way ways[] = {open_way(&in, cache), open_way(&in, NULL)};
        static const int32_t counts[][BATCH] = {{2, 1}, {0, 2}, {2, 2}, {2, 2}};
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            run(ways, counts[i], counts[i]);
        expect_lengths(cache, 6, 7);
        run(ways, (const int32_t[]){1, 2}, (const int32_t[]){1, 0});
        expect_lengths(cache, 7, 7);
        run(ways, (const int32_t[]){0, 1}, (const int32_t[]){0, 0}); /* until the host changes it */
        expect_invalid(vka_cache_truncate(cache, 1, 3), "a state, which cannot go back");
        check(vka_cache_truncate(cache, 1, 7));
        run(ways, (const int32_t[]){0, 1}, (const int32_t[]){0, 1});
        expect_lengths(cache, 7, 8);
        close_way(&ways[0], true);
        close_way(&ways[1], false);
        vka_cache_destroy(&cache);
    }
    free_inputs(&in);
}

/* The state of a sequence, all zeros or not. */
static bool is_zero(struct vka_tensor *states, uint32_t sequence)
{
    float values[MOST];
    const size_t bytes = vka_tensor_size(states), each = bytes / 4 / BATCH;
    check(vka_tensor_read(states, values, bytes));
    bool zero = true;
    for (size_t i = 0; i < each; i++)
        zero = zero && values[sequence * each + i] == 0;
    return zero;
}

static void test_forks(void **state)
{
    (void)state;
    struct inputs in = make_inputs();
    for (uint32_t page_size = 0; page_size <= 16; page_size += 16) {
        struct vka_cache *cache = open_cache(page_size);
        struct way ways[] = {open_way(&in, cache), open_way(&in, NULL)};
        struct vka_tensor *states[] = {ways[0].conv, ways[0].linear};
        run(ways, (const int32_t[]){2, 0}, (const int32_t[]){2, 0});
        for (int i = 0; i < 2; i++)
            assert_true(!is_zero(states[i], 0) && is_zero(states[i], 1));
        check(vka_cache_fork(cache, 0, 1));
        expect_lengths(cache, 2, 2);
        for (int i = 0; i < 2; i++) {
            float values[MOST];
            const size_t bytes = vka_tensor_size(states[i]);
            check(vka_tensor_read(states[i], values, bytes));
            assert_memory_equal(values, (char *)values + bytes / 2, bytes / 2);
        }
        check(vka_cache_truncate(cache, 0, 0));
        for (int i = 0; i < 2; i++)
            assert_true(is_zero(states[i], 0) && !is_zero(states[i], 1));
        if (page_size) {
            expect_invalid(vka_cache_set_pages(cache, 1, 0, 1, (const uint32_t[]){0}),
                           "a layer has a state");
            check(vka_cache_set_pages(cache, 0, 0, 1, (const uint32_t[]){0}));
        }
        close_way(&ways[0], true);
        close_way(&ways[1], false);
        vka_cache_destroy(&cache);
    }
    free_inputs(&in);
}

/* A state that is no longer finite is told with its sequence and layer, of runs that append to it, until the
 * sequence is empty; the other sequences go on. Each kernel notes it for itself. */
static void test_broken(void **state)
{
    (void)state;
    static const float largest[] = {3e38f, 3e38f, 3e38f, 3e38f};
    static const char words[] = "sequence 1: the state of layer 1 of the cache is no longer finite";
    struct inputs in = make_inputs();
    enum { KEYS_TOKEN_BY_TOKEN, KEYS_BY_CHUNKS, ROWS_OF_CONVOLUTION, WAYS };
    for (int which = 0; which < WAYS; which++) {
        const bool conv = which == ROWS_OF_CONVOLUTION;
        struct vka_tensor *input = conv ? in.x : in.k;
        const float other[] = {NAN, 1, 1, 1};
        struct vka_cache *cache = open_cache(0);
        const struct kernel_set without = device->caps.without;
        if (which == KEYS_BY_CHUNKS)
            set_add(&device->caps.without, KERNEL_linear_recurrent);
        struct way w = open_way(&in, cache);
        device->caps.without = without;
        uint64_t ticket[2];
        check(vka_tensor_write(w.counts, (const int32_t[]){1, 1}, 4 * BATCH));
        check(vka_plan_submit(w.plan, &ticket[0]));
        check(vka_plan_wait(w.plan, ticket[0], PATIENCE));
        float before[MOST], broken[MOST];
        const size_t bytes = vka_tensor_size(input);
        check(vka_tensor_read(input, before, bytes));
        memcpy(broken, before, bytes);
        memcpy(broken + bytes / 8, conv ? other : largest, 4 * sizeof *broken); /* of sequence 1 */
        check(vka_tensor_write(input, broken, bytes));
        for (int i = 0; i < 2; i++) { /* with keys of such length the state grows beyond float32 */
            check(vka_plan_submit(w.plan, &ticket[1]));
            (void)vka_plan_wait(w.plan, ticket[1], PATIENCE);
        }
        expect_invalid(vka_plan_wait(w.plan, ticket[1], PATIENCE), words);
        check(vka_plan_wait(w.plan, ticket[0], PATIENCE));
        check(vka_tensor_write(input, before, bytes));
        check(vka_cache_truncate(cache, 1, 3)); /* the length: it waits, and is not told of */
        check(vka_tensor_write(w.counts, (const int32_t[]){1, 0}, 4 * BATCH));
        check(vka_plan_run(w.plan, PATIENCE));
        check(vka_tensor_write(w.counts, (const int32_t[]){0, 1}, 4 * BATCH));
        expect_invalid(vka_plan_run(w.plan, PATIENCE), words);
        check(vka_cache_truncate(cache, 1, 0));
        check(vka_plan_run(w.plan, PATIENCE));
        expect_lengths(cache, 4, 1);
        close_way(&w, true);
        vka_cache_destroy(&cache);
    }
    free_inputs(&in);
}

/* One count of all sequences is not those of each, though they begin at one place. */
static void test_counts(void **state)
{
    (void)state;
    struct inputs in = make_inputs();
    struct vka_cache *cache = open_cache(0);
    struct vka_plan *plan = NULL;
    struct vka_tensor *counts = NULL, *first = NULL, *values = TENSOR(NULL, BATCH, 1, ROWS, VALUE);
    struct vka_tensor *output = TENSOR(NULL, BATCH, ROWS, CHANNELS);
    check(vka_tensor_create(device, VKA_I32, 1, (const uint32_t[]){BATCH}, &counts));
    check(vka_tensor_slice(counts, 0, 0, 1, &first));
    check(vka_plan_create(device, NULL, &plan));
    check(vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = in.q, .k = in.k, .v = values,
                                                .output = in.attended, .cache = cache,
                                                .n_append = first)));
    expect_invalid(vka_plan_add_causal_conv(plan, VKA_INFO(vka_causal_conv_op, .input = in.x,
                                                           .weight = in.weight, .cache = cache,
                                                           .cache_layer = 1, .lengths = counts,
                                                           .output = output)),
                   "n_append is not that of the operation that began the step");
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&first);
    vka_tensor_destroy(&counts);
    vka_tensor_destroy(&values);
    vka_tensor_destroy(&output);
    vka_cache_destroy(&cache);
    free_inputs(&in);
}

static uint32_t submits_left;
static PFN_vkQueueSubmit submit_to_queue;

static VkResult VKAPI_CALL submit_some(VkQueue queue, uint32_t n, const VkSubmitInfo *info,
                                       VkFence fence)
{
    if (submits_left == 0)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    submits_left--;
    return submit_to_queue(queue, n, info, fence);
}

/* Forks sequence 0 to 1 where the driver takes so many submits and no more. */
static enum vka_status fork_by(struct vka_cache *cache, uint32_t submits)
{
    submits_left = submits;
    submit_to_queue = device->vk.vkQueueSubmit;
    device->vk.vkQueueSubmit = submit_some;
    const enum vka_status status = vka_cache_fork(cache, 0, 1);
    device->vk.vkQueueSubmit = submit_to_queue;
    return status;
}

/* A copy that fails on the way leaves a sequence empty: no positions, zeros, pages of its own. */
static void test_failed_forks(void **state)
{
    (void)state;
    struct inputs in = make_inputs();
    for (uint32_t page_size = 0; page_size <= 16; page_size += 16) {
        struct vka_cache *cache = open_cache(page_size);
        struct way ways[] = {open_way(&in, cache), open_way(&in, NULL)};
        uint32_t submits = 0;
        run(ways, (const int32_t[]){2, 1}, (const int32_t[]){2, 1});
        while (fork_by(cache, submits) != VKA_OK) {
            expect_lengths(cache, 2, 0);
            assert_true(is_zero(ways[0].conv, 1) && is_zero(ways[0].linear, 1));
            for (uint32_t i = 0; page_size && i < cache->info.n_page; i++)
                assert_true(cache->uses[i] <= 1);
            check(vka_tensor_write(ways[0].counts, (const int32_t[]){0, 1}, 4 * BATCH));
            check(vka_plan_run(ways[0].plan, PATIENCE));
            expect_lengths(cache, 2, 1);
            assert_false(is_zero(ways[0].conv, 1) || is_zero(ways[0].linear, 1));
            submits++;
        }
        assert_true(submits > 2);
        expect_lengths(cache, 2, 2);
        close_way(&ways[0], true);
        close_way(&ways[1], false);
        vka_cache_destroy(&cache);
    }
    free_inputs(&in);
}

static bool refuses(struct vka_cache *cache, uint32_t sequence)
{
    return cache_length_words(cache)[2 * BATCH + sequence] != 0;
}

/* States that could not be made zeros are unknown until they are, whatever else is done to the sequence. */
static void test_unknown(void **state)
{
    (void)state;
    struct inputs in = make_inputs();
    for (uint32_t page_size = 0; page_size < 32; page_size += 16) {
        struct vka_cache *cache = open_cache(page_size);
        struct way ways[] = {open_way(&in, cache), open_way(&in, NULL)};
        run(ways, (const int32_t[]){2, 1}, (const int32_t[]){2, 1});
        cache->unknown[0] = true; /* as a memory that is not mapped may leave it */
        check(vka_cache_truncate(cache, 0, 2));
        assert_true(refuses(cache, 0) && !refuses(cache, 1));
        check(vka_cache_fork(cache, 0, 1));
        assert_true(refuses(cache, 0) && refuses(cache, 1));
        check(vka_cache_truncate(cache, 0, 0));
        check(vka_cache_fork(cache, 0, 1));
        assert_true(!refuses(cache, 0) && !refuses(cache, 1));
        close_way(&ways[0], true);
        close_way(&ways[1], false);
        vka_cache_destroy(&cache);
    }
    free_inputs(&in);
}

/* What a lost device leaves is forgotten, and the same plans go on from zeros. */
static void test_loss(void **state)
{
    (void)state;
    struct inputs in = make_inputs();
    struct vka_cache *cache = open_cache(0);
    struct way ways[] = {open_way(&in, cache), open_way(&in, NULL)};
    static const int32_t counts[] = {2, 1};
    run(ways, counts, counts);
    assert_false(is_zero(ways[0].conv, 0) || is_zero(ways[0].linear, 1));
    device->lost = true;
    check(vka_device_recover(device));
    expect_lengths(cache, 0, 0);
    for (uint32_t b = 0; b < BATCH; b++)
        assert_true(is_zero(ways[0].conv, b) && is_zero(ways[0].linear, b));
    close_way(&ways[0], true);
    close_way(&ways[1], false);
    vka_cache_destroy(&cache);
    free_inputs(&in);
}

TEST_PROGRAM(cache_state)
{
    if (vka_device_create(NULL, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, no cache with states was tested\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),        cmocka_unit_test(test_forks),
        cmocka_unit_test(test_counts),       cmocka_unit_test(test_broken),
        cmocka_unit_test(test_failed_forks), cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_loss),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vka_device_destroy(&device);
    return failed;
}
