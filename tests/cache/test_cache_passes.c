/* How many dispatches a step with a cache takes before its attention. Plans are only looked at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/dtype.h"
#include "plan/plan.h"
#include "test_program.h"

enum { BATCH = 2, HEADS = 6, KV_HEADS = 2, DIM = 32, MOST = 8 };

static struct vka_device *device;

static void check(enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s", vka_status_name(status), vka_device_error(device));
}

static struct vka_tensor *tensor(uint32_t heads, uint32_t rows)
{
    struct vka_tensor *t = NULL;
    check(vka_tensor_create(device, VKA_F32, 4, (const uint32_t[]){BATCH, heads, rows, DIM}, &t));
    return t;
}

struct step {
    enum vka_dtype key_type, value_type;
    uint32_t page_size, n_q, n_new;
    bool rope, norm, nonfinite;
    const char *first[MOST]; /* names of the passes of layer 0 before attention */
};

#define ROTATED "advance", "rotate and append"
#define APART "advance", "rotate q", "rotate k"

static const struct step steps[] = {
    {VKA_F32, VKA_F32, 0, 1, 1, true, false, false, {ROTATED}},
    {VKA_F16, VKA_BF16, 16, 1, 1, true, false, false, {ROTATED}},
    {VKA_F16, VKA_F16, 16, 7, 7, true, false, true, {ROTATED}},
    {VKA_F32, VKA_F32, 16, 1, 1, false, false, false, {"advance", "append"}},
    {VKA_F32, VKA_F16, 0, 3, 1, false, false, false, {"advance", "append"}},
    /* Norms, many rows, other rows of queries than of keys and quantised rows take passes of their own. */
    {VKA_F32, VKA_F32, 0, 1, 1, true, true, false, {APART, "append"}},
    {VKA_F32, VKA_F32, 0, 3, 1, true, false, false, {APART, "append"}},
    {VKA_F32, VKA_F32, 16, 2000, 2000, true, false, false, {APART, "append", "append"}},
    {VKA_Q8_0, VKA_Q8_0, 0, 1, 1, true, false, false, {APART, "append", "append"}},
    {VKA_F8_E4M3, VKA_F16, 0, 1, 1, true, false, false, {APART, "append", "append"}},
};

static bool fills_cache(const char *name)
{
    static const char *const all[] = {ROTATED, APART, "append"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(name, all[i]) == 0)
            return true;
    return false;
}

/* The passes from `at` on are `names`, and none behind them up to `end` is such a pass. */
static void expect_passes(const struct vka_plan *plan, size_t at, size_t end,
                          const char *const *names)
{
    size_t n = 0;
    for (; n < MOST && names[n]; n++) {
        assert_true(at + n < end);
        assert_string_equal(plan->passes[at + n].name, names[n]);
        assert_true(kernel_table[plan->passes[at + n].key.kernel].buffers <= 8);
    }
    assert_true(at + n < end);
    for (size_t i = at + n; i < end; i++)
        assert_false(fills_cache(plan->passes[i].name));
}

static void check_step(const struct step *s)
{
    struct vka_tensor *q = tensor(HEADS, s->n_q), *o = tensor(HEADS, s->n_q);
    struct vka_tensor *k = tensor(KV_HEADS, s->n_new), *v = tensor(KV_HEADS, s->n_new);
    struct vka_tensor *norm = NULL;
    struct vka_cache *cache = NULL;
    struct vka_plan *plan = NULL;
    check(vka_tensor_create(device, VKA_F32, 1, (const uint32_t[]){DIM}, &norm));
    check(vka_cache_create(device,
                           VKA_INFO(vka_cache_info, .batch = BATCH, .n_kv_head = KV_HEADS,
                                    .head_dim = DIM, .capacity = 2048, .n_layer = 2,
                                    .page_size = s->page_size, .key_dtype = s->key_type,
                                    .value_dtype = s->value_type),
                           &cache));
    check(vka_plan_create(
        device,
        VKA_INFO(vka_plan_info, .count_nonfinite = s->nonfinite, .submit_budget = VKA_NO_BUDGET),
        &plan));
    struct vka_attention_op op = {.struct_size = sizeof op,
                                  .q = q,
                                  .k = k,
                                  .v = v,
                                  .output = o,
                                  .cache = cache,
                                  .options = {.causal = true, .rope.dim = s->rope ? DIM : 0}};
    op.options.q_norm = op.options.k_norm = s->norm ? norm : NULL;
    enum vka_status status = vka_plan_add_attention(plan, &op);
    const size_t second = plan->n_pass;
    op.cache_layer = 1;
    if (status == VKA_OK)
        status = vka_plan_add_attention(plan, &op);
    if (status == VKA_OK) {
        expect_passes(plan, 0, second, s->first);
        expect_passes(plan, second, plan->n_pass, s->first + 1); /* the lengths grow once a step */
    } else { /* a device without a fused kernel reads no quantised cache */
        assert_int_equal(status, VKA_UNSUPPORTED);
        assert_true(dtype_is_scaled(s->key_type));
    }
    vka_plan_destroy(&plan);
    vka_cache_destroy(&cache);
    struct vka_tensor *all[] = {q, k, v, o, norm};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        vka_tensor_destroy(&all[i]);
}

static void test_steps(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        check_step(&steps[i]);
}

TEST_PROGRAM(cache_passes)
{
    if (vka_device_create(VKA_INFO(vka_device_info, .device = NULL), &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, no pass was counted\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vka_device_destroy(&device);
    return failed;
}
