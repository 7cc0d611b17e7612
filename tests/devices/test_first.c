/* What a first result costs: pipelines made, self-tests run and bytes of SPIR-V compiled for it, on a
 * device that knows nothing yet, against a kept table. A driver's compiler takes seconds for what is
 * cheap to count, so the counts are kept and not the time.
 *
 *     test_gpu first [--print | --time [NAME] | --plans N]
 *
 * --print writes the rows of this driver. --time judges the processor's time too, by what compiling
 * a fixed kernel takes in the same run, of all problems or of one: with the compiler's optimiser on.
 * --plans makes N first plans, of caches of five types in turn, and none may run into the usual
 * timeout: for a machine that is busy otherwise, such as by `stress-ng --cpu 4`, with
 * MESA_SHADER_CACHE_DISABLE=true.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "patience.h"
#include "tools/vkattn/generate/session.h"
#include "problems/types.h"
#include "selftest/self_test.h"
#include "test_program.h"

#include <core/os.h>
#include <gpu/device.h>

enum { HEADS = 2, ROWS = 40, WIDTH = 32, DIM = 64, CAPACITY = 256, BLOCK = 256 };

/* The most that a kept count may grow by, in percent. */
#define GROWTH 10

/* The most times that a kept time may be taken. */
#define SLOWER 1.5

struct objects {
    struct vka_device *device;
    struct vka_plan *plan;
    struct vka_layer *layer;
    struct vka_cache *cache;
    struct session session;
    struct vka_tensor *tensor[8];
    size_t n_tensor;
};

struct costs {
    uint64_t pipelines, self_tests, code; /* code: bytes of SPIR-V, once for each pipeline */
};

/* Rows of Mesa's CPU drivers, of Debian 12 and from 26 on, and of NVIDIA's driver on an H200. */
static const struct kept {
    const char *driver, *name;
    struct costs costs;
    double time; /* of the processor, the compiler's optimiser on, in yardsticks; 0: not kept */
} table[] = {
#include "first_results.def"
};

static bool prints;
static double ticks;     /* of processor time: what compiling the yardstick takes; 0: none */
static const char *only; /* the problem; NULL: all */

static struct vka_tensor *tensor(struct objects *o, enum vka_dtype dtype, uint32_t rank,
                                 const uint32_t *shape)
{
    struct vka_tensor **slot = &o->tensor[o->n_tensor++];
    assert_int_equal(vka_tensor_create(o->device, dtype, rank, shape, slot), VKA_OK);
    void *zeros = calloc(1, vka_tensor_size(*slot));
    assert_non_null(zeros);
    assert_int_equal(vka_tensor_write(*slot, zeros, vka_tensor_size(*slot)), VKA_OK);
    free(zeros);
    return *slot;
}

#define TENSOR(dtype, ...) \
    tensor(o, dtype, sizeof((uint32_t[]){__VA_ARGS__}) / 4, (uint32_t[]){__VA_ARGS__})

static void layer(struct objects *o, int unused)
{
    static const float zeros[WIDTH * WIDTH];
    const struct vka_linear_weights w = {zeros, zeros};
    (void)unused;
    assert_int_equal(
        vka_layer_create(o->device,
                         VKA_INFO(vka_layer_info, .n_head = HEADS, .head_dim = WIDTH / HEADS,
                                  .query_dim = WIDTH, .output_dim = WIDTH, .query = w, .key = w,
                                  .value = w, .output = w),
                         &o->layer),
        VKA_OK);
    assert_int_equal(vka_plan_create(o->device, NULL, &o->plan), VKA_OK);
    assert_int_equal(
        vka_plan_add_layer(o->plan, VKA_INFO(vka_layer_op, .layer = o->layer,
                                             .query = TENSOR(VKA_F32, 1, ROWS, WIDTH),
                                             .output = TENSOR(VKA_F32, 1, ROWS, WIDTH))),
        VKA_OK);
}

static void attention(struct objects *o, int path)
{
    struct vka_tensor *x = TENSOR(VKA_F32, 1, HEADS, ROWS, WIDTH);
    assert_int_equal(
        vka_plan_create(o->device, VKA_INFO(vka_plan_info, .path = (enum vka_path)path), &o->plan),
        VKA_OK);
    assert_int_equal(
        vka_plan_add_attention(o->plan, VKA_INFO(vka_attention_op, .q = x, .k = x, .v = x,
                                                 .output = TENSOR(VKA_F32, 1, HEADS, ROWS, WIDTH),
                                                 .options.causal = true)),
        VKA_OK);
}

/* A query of heads that share a key head, and a cache of the type. */
static void decode(struct objects *o, int dtype)
{
    static const float scales[HEADS] = {1, 1};
    const float *given = dtype_is_head_scaled((enum vka_dtype)dtype) ? scales : NULL;
    struct vka_tensor *k = TENSOR(VKA_F32, 1, HEADS, 1, DIM);
    assert_int_equal(
        vka_cache_create(o->device,
                         VKA_INFO(vka_cache_info, .batch = 1, .n_kv_head = HEADS, .head_dim = DIM,
                                  .capacity = CAPACITY, .key_dtype = (enum vka_dtype)dtype,
                                  .value_dtype = (enum vka_dtype)dtype, .key_scales = given,
                                  .value_scales = given),
                         &o->cache),
        VKA_OK);
    assert_int_equal(vka_plan_create(o->device, NULL, &o->plan), VKA_OK);
    assert_int_equal(
        vka_plan_add_attention(o->plan, VKA_INFO(vka_attention_op,
                                                 .q = TENSOR(VKA_F32, 1, 2 * HEADS, 1, DIM), .k = k,
                                                 .v = k, .cache = o->cache, .options.causal = true,
                                                 .output = TENSOR(VKA_F32, 1, 2 * HEADS, 1, DIM))),
        VKA_OK);
}

static void linear(struct objects *o, int dtype)
{
    assert_int_equal(vka_plan_create(o->device, NULL, &o->plan), VKA_OK);
    assert_int_equal(
        vka_plan_add_linear(o->plan, VKA_INFO(vka_linear_op, .input = TENSOR(VKA_F32, 3, BLOCK),
                                              .weight = TENSOR((enum vka_dtype)dtype, DIM, BLOCK),
                                              .output = TENSOR(VKA_F32, 3, DIM))),
        VKA_OK);
}

/* A Llama of SmolLM2's sizes with zeros for weights, a prompt and a token after it: of its blocks, which
 * take the same kernels, there is one. Runs. */
static void llama(struct objects *o, int unused)
{
    enum { WIDE = 576, QUERY_HEADS = 9, KV_HEADS = 3, FFN = 1536, TOKENS = 49152, PROMPT = 5 };
    const int32_t prompt[PROMPT] = {1, 2, 3, 4, 5};
    int32_t id;
    (void)unused;
    struct vka_tensor *embedding = TENSOR(VKA_Q8_0, TOKENS, WIDE);
    struct decoder_block block = {
        .attn_norm = {TENSOR(VKA_F32, WIDE), NULL},
        .ffn_norm = {TENSOR(VKA_F32, WIDE), NULL},
        .qkv = {{TENSOR(VKA_Q8_0, WIDE + 2 * KV_HEADS * DIM, WIDE), NULL}},
        .o = {TENSOR(VKA_Q8_0, WIDE, WIDE), NULL},
        .gate_up = {{TENSOR(VKA_Q8_0, 2 * FFN, WIDE), NULL}},
        .down = {TENSOR(VKA_Q8_0, WIDE, FFN), NULL}};
    const struct family family = {.norms_before = true, .gated = true, .activation = VKA_SILU};
    const struct decoder m = {.family = &family,
                              .width = WIDE,
                              .n_block = 1,
                              .n_head = QUERY_HEADS,
                              .n_kv_head = KV_HEADS,
                              .head_dim = DIM,
                              .ffn_width = FFN,
                              .n_token = TOKENS,
                              .rope_dim = DIM,
                              .rope_base = 1e5f,
                              .epsilon = 1e-5f,
                              .embedding = embedding,
                              .norm = {TENSOR(VKA_F32, WIDE), NULL},
                              .head = {embedding, NULL},
                              .blocks = &block};
    const struct session_info info = {.n_prompt = PROMPT,
                                      .count = 2,
                                      .kv = VKA_F16,
                                      .budget = VKA_NO_BUDGET,
                                      .timeout = PATIENCE};
    assert_int_equal(session_create(o->device, &m, &info, &o->session), VKA_OK);
    assert_int_equal(session_begin(&o->session, prompt, &id), VKA_OK);
    assert_int_equal(session_next(&o->session, &id), VKA_OK);
}

static const struct {
    const char *name;
    void (*add)(struct objects *o, int argument);
    int argument;
} problems[] = {
    {"layer", layer, 0},
    {"attention", attention, VKA_PATH_AUTO},
    {"attention unfused", attention, VKA_PATH_UNFUSED},
    {"attention fused", attention, VKA_PATH_FUSED},
    {"decode f32", decode, VKA_F32},
    {"decode f16", decode, VKA_F16},
    {"decode q8_0", decode, VKA_Q8_0},
    {"decode q4_0", decode, VKA_Q4_0},
    {"decode f8_e4m3", decode, VKA_F8_E4M3},
    {"linear q4_k", linear, VKA_Q4_K},
    {"llama", llama, 0},
};

static bool grew(uint64_t now, uint64_t kept)
{
    return 100 * now > (100 + GROWTH) * kept;
}

/* The kept row of this driver; NULL: none. */
static const struct kept *find(const char *driver, const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strstr(driver, table[i].driver) && strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

/* ---- time ------------------------------------------------------------------------------------ */

static const uint32_t yardstick[] = {
#include "first_yardstick.def"
};

static PFN_vkCreateShaderModule create_module;

static VKAPI_ATTR VkResult VKAPI_CALL create_yardstick(VkDevice device,
                                                       const VkShaderModuleCreateInfo *info,
                                                       const VkAllocationCallbacks *allocator,
                                                       VkShaderModule *module)
{
    VkShaderModuleCreateInfo other = *info;
    other.codeSize = sizeof yardstick;
    other.pCode = yardstick;
    return create_module(device, &other, allocator, module);
}

/* Mean processor time of the process of three compilations of the yardstick: in the place of
 * loop_probe, which has its bindings. Its result is wrong, and nobody asks for it. */
static double measure_yardstick(void)
{
    enum { TIMES = 3 };
    double sum = 0;
    for (int i = 0; i < TIMES; i++) {
        struct vka_device *device = NULL;
        assert_int_equal(vka_device_create(NULL, &device), VKA_OK);
        create_module = device->vk.vkCreateShaderModule;
        device->vk.vkCreateShaderModule = create_yardstick;
        const clock_t begin = clock();
        assert_int_equal(self_test_kernel(device, KERNEL_loop_probe, 0), VKA_OK);
        sum += (double)(clock() - begin);
        vka_device_destroy(&device);
    }
    return sum / TIMES;
}

/* Prints what a first result took of the processor; with --time it fails where that grew. */
static void print_time(const struct objects *o, const char *name, const struct kept *kept,
                       clock_t took)
{
    if (ticks == 0 || vka_device_properties(o->device)->type != VKA_DEVICE_CPU)
        return;
    print_message("%s: %.2f s of the processor, %.1f times the yardstick's %.3f s\n", name,
                  (double)took / CLOCKS_PER_SEC, (double)took / ticks, ticks / CLOCKS_PER_SEC);
    if (kept && kept->time > 0 && !prints && (double)took > SLOWER * kept->time * ticks)
        fail_msg("the first result of %s took more than %.1f times %.1f yardsticks", name, SLOWER,
                 kept->time);
}

/* ---- first results --------------------------------------------------------------------------- */

static void drop(struct objects *o)
{
    session_free(&o->session);
    vka_plan_destroy(&o->plan);
    vka_layer_destroy(&o->layer);
    vka_cache_destroy(&o->cache);
    while (o->n_tensor > 0)
        vka_tensor_destroy(&o->tensor[--o->n_tensor]);
    vka_device_destroy(&o->device);
}

static void first_result(size_t index)
{
    struct objects o = {0};
    const char *name = problems[index].name;
    const clock_t begin = clock();
    assert_int_equal(vka_device_create(NULL, &o.device), VKA_OK);
    const char *driver = vka_device_properties(o.device)->driver;
    for (int k = 0; k < KERNEL_COUNT; k++) /* measuring rates depends on the machine */
        o.device->rates.of[k] = (struct rate){1, 1};
    problems[index].add(&o, problems[index].argument);
    if (o.plan) {
        assert_int_equal(vka_plan_finish(o.plan), VKA_OK);
        assert_int_equal(vka_plan_run(o.plan, PATIENCE), VKA_OK);
    }
    const struct costs now = {o.device->pipelines.n_made, o.device->self_test.n_run,
                              o.device->pipelines.code};
    const struct kept *kept = find(driver, name);
    const clock_t took = clock() - begin;
    print_time(&o, name, kept, took);
    const char *mesa = strstr(driver, "Mesa");
    print_message("{\"%.8s\", \"%s\", {%llu, %llu, %llu}, %.1f},\n", mesa ? mesa : driver, name,
                  (unsigned long long)now.pipelines, (unsigned long long)now.self_tests,
                  (unsigned long long)now.code, ticks > 0 ? (double)took / ticks : 0);
    if (kept && !prints &&
        (grew(now.pipelines, kept->costs.pipelines) ||
         grew(now.self_tests, kept->costs.self_tests) || grew(now.code, kept->costs.code)))
        fail_msg("the first result of %s costs more than {%llu, %llu, %llu}", name,
                 (unsigned long long)kept->costs.pipelines,
                 (unsigned long long)kept->costs.self_tests, (unsigned long long)kept->costs.code);
    drop(&o);
}

static void first_results(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        const bool long_one = problems[i].add == llama; /* counted where it is timed */
        if (only ? strcmp(problems[i].name, only) == 0 : ticks > 0 || !long_one)
            first_result(i);
    }
}

/* A CPU driver compiles before the first run, whose timeout is for the work alone. Its compiler takes a
 * thousand times as long as this run, of whatever the machine is busy with. */
static void runs_do_not_compile(void **state)
{
    (void)state;
    struct objects o = {0};
    assert_int_equal(
        vka_device_create(VKA_INFO(vka_device_info, .skip_self_test = true), &o.device), VKA_OK);
    if (only || vka_device_properties(o.device)->type != VKA_DEVICE_CPU) {
        vka_device_destroy(&o.device);
        skip();
    }
    const clock_t begin = clock();
    attention(&o, VKA_PATH_FUSED);
    assert_int_equal(vka_plan_finish(o.plan), VKA_OK);
    const clock_t finished = clock();
    assert_int_equal(vka_plan_run(o.plan, PATIENCE), VKA_OK);
    const double compiling = (double)(finished - begin), running = (double)(clock() - finished);
    print_message("compiling %.0f ms, running %.1f ms of the processor\n",
                  1e3 * compiling / CLOCKS_PER_SEC, 1e3 * running / CLOCKS_PER_SEC);
    assert_true(4 * running < compiling);
    drop(&o);
}

/* The i-th of --plans, on a device that knows nothing yet, and a cache of this type. */
static bool first_plan(uint64_t i, enum vka_dtype type)
{
    struct objects o = {0};
    const double begin = os_now_ms();
    assert_int_equal(vka_device_create(NULL, &o.device), VKA_OK);
    decode(&o, (int)type);
    const enum vka_status finish = vka_plan_finish(o.plan);
    const double finished = os_now_ms();
    const enum vka_status run =
        finish == VKA_OK ? vka_plan_run(o.plan, VKA_TIMEOUT_DEFAULT) : VKA_INVALID;
    const bool ok = finish == VKA_OK && run == VKA_OK;
    print_message("%llu %s: %s, finished after %.1f s, run after %.3f s%s%s\n",
                  (unsigned long long)i, vka_dtype_name(type), ok ? "OK" : "FAIL",
                  (finished - begin) / 1e3, (os_now_ms() - finished) / 1e3, ok ? "" : ": ",
                  ok ? "" : vka_device_error(o.device));
    drop(&o);
    return ok;
}

static int first_plans(uint64_t n)
{
    uint64_t failed = 0, i = 0;
    while (i < n)
        for (EACH_TYPE(type, type_is_cached))
            if (i < n)
                failed += !first_plan(i++, type);
    print_message("%llu first plans, %llu failed\n", (unsigned long long)n,
                  (unsigned long long)failed);
    return failed != 0;
}

TEST_PROGRAM_ARGUMENTS(first)
{
    prints = argc == 2 && strcmp(argv[1], "--print") == 0;
    const bool times = prints || (argc >= 2 && strcmp(argv[1], "--time") == 0);
    only = times && argc == 3 ? argv[2] : NULL;
    const struct CMUnitTest tests[] = {cmocka_unit_test(first_results),
                                       cmocka_unit_test(runs_do_not_compile)};
    size_t n = 0;
    if (vka_device_list(NULL, NULL, &n) != VKA_OK || n == 0) {
        fprintf(stderr, "SKIPPED: no Vulkan device, so first results are not counted\n");
        return 77;
    }
    if (argc == 3 && strcmp(argv[1], "--plans") == 0)
        return first_plans(strtoull(argv[2], NULL, 10));
    if (times && !getenv("MESA_SHADER_CACHE_DISABLE")) {
        fprintf(stderr, "set MESA_SHADER_CACHE_DISABLE=true: what is cached takes no time\n");
        return 2;
    }
    if (times)
        ticks = measure_yardstick();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
