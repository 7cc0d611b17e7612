/* Fused attention whose keys, values or mask of one head pass a binding, or the queries of one tile:
 * cut along the keys or within the tile, with the bits of the whole, by the kernel that the device
 * prefers and by the one for GPUs.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include <gpu/device.h>
#include <plan/plan.h>

#include "problems/limits.h"
#include "problems/problem.h"
#include "test_program.h"

#define N_KV \
    4500 /* keys of 8 float32 are 144,000 bytes, four rows of a mask or values of 4 are 72,000 */

static const struct problem problems[] = {
    {.seed = 1, .batch = 2, .n_q = 4, .mask = VKA_F32, .mask_rank = 2, .mask_shape = {4, N_KV}},
    {.seed = 2,
     .batch = 1,
     .n_q = 40,
     .offsets = PER_BATCH_ONE,
     .causal = true,
     .window = true,
     .window_left = 1500,
     .window_right = -1,
     .masked_row = VKA_MASKED_UNIFORM,
     .poison_hidden = true},
    {.seed = 3,
     .batch = 1,
     .n_q = 40,
     .n_past = N_KV - 40,
     .causal = true,
     .sink = true,
     .scattered = true,
     .poison_hidden = true},
    {.seed = 4,
     .batch = 1,
     .n_q = 1,
     .mask = VKA_BOOL,
     .mask_rank = 1,
     .mask_shape = {N_KV - 300},
     .lengths = PER_BATCH_ONE,
     .dropout = 0.25f,
     .dropout_seed = 5,
     .poison_hidden = true},
};

/* Runs all of them; the kernels that took them. */
static struct kernel_set check_all(struct vka_device *device, struct kernel_set disabled)
{
    struct kernel_set kernels = NO_KERNELS;
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        struct problem p = problems[i];
        struct problem_result result;
        char text[PROBLEM_TEXT];
        p.n_kv_head = 1;
        p.group = 2;
        p.n_new = N_KV - p.n_past;
        p.head_dim = 8;
        p.value_dim = 4; /* more, and what the splits of a tile leave would pass a binding */
        p.path = VKA_PATH_FUSED;
        p.limits = true;
        p.disabled_kernels = disabled;
        bool ok = problem_check(device, &p, NULL, &result);
        if (!ok || result.refused)
            fail_msg("%s: %s", result.why, problem_text(&p, text));
        set_join(&kernels, result.kernels);
    }
    return kernels;
}

/* Kernels of attention that CPU drivers prefer: without them the one for GPUs is taken. */
static struct kernel_set cpu_rows(void)
{
    return KERNEL_SET(KERNEL_attention_row, KERNEL_attention_texel, KERNEL_attention_address,
                      KERNEL_attention_feature);
}

static void tell(struct kernel_set used, size_t n, const char *what)
{
    for (int k = 0; k < KERNEL_COUNT; k++)
        if (set_has(used, k) && kernel_table[k].family == FAMILY_ATTENTION)
            print_message("%s: %zu problems, %s, the same bits\n", kernel_table[k].name, n, what);
}

static void long_keys(void **state)
{
    struct vka_device *device = *state;
    struct kernel_set used = check_all(device, NO_KERNELS);
    if (!kernel_missing(KERNEL_attention_tile, &device->caps))
        set_join(&used, check_all(device, cpu_rows()));
    tell(used, sizeof problems / sizeof problems[0], "64 KiB a binding");
}

/* ---- Queries that lie far apart -------------------------------------------------------------- */

enum { HEADS = 4, KV_HEADS = 2, QUERIES = 21, HEAD_DIM = 8, VALUE_DIM = 4, GAP = 4000, KEYS = 900 };

/* Rows of 16 KB, of which a binding of 64 KiB has the two heads of one query alone. */
struct wide {
    struct operand q, k, v, mask, output, log_sum;
};

static void make(struct vka_device *device, struct operand *o, enum vka_dtype dtype, uint32_t rank,
                 const uint32_t *size, const struct layout *layout, struct rng *rng)
{
    if (operand_create(device, dtype, rank, size, layout, o))
        fail_msg("%s", vka_device_error(device));
    for (size_t i = 0; i < o->count; i++)
        o->values[i] = operand_round(dtype, rng_uniform(rng, -1, 1));
    assert_int_equal(operand_write(o), VKA_OK);
}

static void make_wide(struct vka_device *device, struct wide *w, enum vka_dtype dtype, bool mask)
{
    const struct layout dense = layout_dense();
    const uint32_t gap = GAP * 4 / (uint32_t)vka_dtype_size(dtype);
    const struct layout rows = {.order = {0, 2, 1, 3}, .gap = {[3] = gap}, .step = 1};
    const struct layout spread = {.order = {0, 2, 1}, .gap = {[1] = GAP}, .step = 1};
    struct rng rng = {11};
    make(device, &w->q, dtype, 4, (uint32_t[]){1, HEADS, QUERIES, HEAD_DIM}, &rows, &rng);
    make(device, &w->k, dtype, 4, (uint32_t[]){1, KV_HEADS, KEYS, HEAD_DIM}, &dense, &rng);
    make(device, &w->v, dtype, 4, (uint32_t[]){1, KV_HEADS, KEYS, VALUE_DIM}, &dense, &rng);
    make(device, &w->output, dtype, 4, (uint32_t[]){1, HEADS, QUERIES, VALUE_DIM}, &rows, &rng);
    make(device, &w->log_sum, VKA_F32, 3, (uint32_t[]){1, HEADS, QUERIES}, &spread, &rng);
    if (mask) /* rows of 20 KB, of which one step of keys is bound */
        make(device, &w->mask, VKA_F32, 2, (uint32_t[]){QUERIES, KEYS},
             &(struct layout){.order = {0, 1}, .gap = {[1] = GAP}, .step = 1}, &rng);
}

static struct vka_plan *plan_wide(struct vka_device *device, const struct wide *w, uint32_t whole)
{
    struct vka_plan *plan = NULL;
    const struct vka_plan_info info = {
        .struct_size = sizeof info, .path = VKA_PATH_FUSED, .whole_n_q = whole};
    assert_int_equal(vka_plan_create(device, &info, &plan), VKA_OK);
    if (vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = w->q.view, .k = w->k.view,
                                              .v = w->v.view, .output = w->output.view,
                                              .options = {.causal = true,
                                                          .mask = w->mask.view,
                                                          .log_sum_exp = w->log_sum.view})) ||
        vka_plan_finish(plan))
        fail_msg("%s", vka_device_error(device));
    return plan;
}

/* The kernels that took it, for `whole` queries. */
static struct kernel_set check_wide(struct vka_device *device, enum vka_dtype dtype, uint32_t whole,
                                    bool mask)
{
    struct wide w = {0};
    struct operand *outputs[] = {&w.output, &w.log_sum};
    struct kernel_set kernels = NO_KERNELS;
    char why[WHY];
    make_wide(device, &w, dtype, mask);
    struct vka_plan *plan = plan_wide(device, &w, whole);
    struct vka_device_properties usual = limits_lower(device, LEAST_RANGE, LEAST_ALLOCATION);
    struct vka_plan *cut = plan_wide(device, &w, whole);
    limits_restore(device, &usual);
    assert_true(cut->n_pass >= plan->n_pass + QUERIES); /* it is cut within a tile indeed */
    if (!compare_plans(device, plan, cut, outputs, 2, &(struct rng){3}, why))
        fail_msg("kernels for %u queries, %s mask: %s", whole, mask ? "a" : "no", why);
    for (size_t i = 0; i < cut->n_pass; i++)
        set_add(&kernels, cut->passes[i].key.kernel);
    vka_plan_destroy(&plan);
    vka_plan_destroy(&cut);
    struct operand *all[] = {&w.q, &w.k, &w.v, &w.mask, &w.output, &w.log_sum};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        operand_destroy(all[i]);
    return kernels;
}

static void wide_rows(void **state)
{
    static const uint32_t whole[] = {1, QUERIES, 4096}; /* kernels for few rows and for many */
    struct vka_device *device = *state;
    bool tiles = !kernel_missing(KERNEL_attention_tile, &device->caps);
    const struct kernel_set usual = device->caps.without;
    struct kernel_set used = NO_KERNELS;
    for (int gpu = 0; gpu < (tiles ? 2 : 1); gpu++) {
        if (gpu)
            set_join(&device->caps.without, cpu_rows());
        for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
            for (int mask = 0; mask < 2; mask++)
                set_join(&used, check_wide(device, VKA_F32, whole[i], mask));
        device->caps.without = usual;
    }
    tell(used, 6, "one query a binding");
    tell(check_wide(device, VKA_F16, 4096, false), 1, "one query of float16 a binding");
}

TEST_PROGRAM(long_keys)
{
    struct vka_device *device = NULL;
    if (vka_device_create(NULL, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, no long keys were tested\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(long_keys, device),
                                       cmocka_unit_test_prestate(wide_rows, device)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vka_device_destroy(&device);
    return failed;
}
