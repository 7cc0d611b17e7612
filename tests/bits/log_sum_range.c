#include "log_sum_range.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <gpu/device.h>
#include <reference/reference.h>

#include "log_sum.h"
#include "patience.h"

enum { HEADS = 5, DIM = 8, Q = 0, K, V, SINK, MASK, OUTPUT, LOG_SUM, OPERANDS };
enum { PLAIN, NOT_A_NUMBER, ALL_MINUS_INFINITY, LARGE, SMALL, NO_KEY, ROW_KINDS };

/* Row i is of kind i % ROW_KINDS. The first feature of every key is from -1 up, below 0. */
static void fill(struct operand o[OPERANDS])
{
    static const double sinks[HEADS] = {0.5, INFINITY, -INFINITY, 150, -150};
    struct rng rng = {11};
    const uint32_t n_q = o[Q].size[2], n_kv = o[K].size[2];
    for (int i = Q; i <= V; i++)
        for (size_t j = 0; j < o[i].count; j++) {
            double x =
                i == K && j % DIM == 0 ? rng_uniform(&rng, -1, -0.5) : rng_uniform(&rng, -1, 1);
            uint32_t kind = i == Q ? j / DIM % n_q % ROW_KINDS : PLAIN;
            x = kind == ALL_MINUS_INFINITY ? (j % DIM ? 0 : INFINITY)
                : kind == LARGE            ? 300 * x
                : kind == SMALL            ? 1e-3 * x
                                           : x;
            o[i].values[j] = operand_round(o[i].dtype, kind == NOT_A_NUMBER ? NAN : x);
        }
    memcpy(o[SINK].values, sinks, sizeof sinks);
    for (size_t j = 0; j < o[MASK].count; j++)
        o[MASK].values[j] = j / n_kv % ROW_KINDS != NO_KEY && j % 7 != 3;
    for (int i = Q; i <= MASK; i++)
        assert_int_equal(operand_write(&o[i]), VKA_OK);
}

/* Compares with the oracle. Contexts roughly: they are judged elsewhere. */
static void compare(struct operand o[OPERANDS], bool sink, const char *name)
{
    uint8_t *mask = calloc(o[MASK].count, 1);
    double *want = calloc(o[LOG_SUM].count, sizeof *want);
    double *context = calloc(o[OUTPUT].count, sizeof *context);
    assert_true(mask && want && context);
    for (size_t j = 0; j < o[MASK].count; j++)
        mask[j] = o[MASK].values[j] != 0;
    struct ref_attention a = {.batch = 1, .n_head = HEADS, .n_kv_head = HEADS};
    a.n_q = o[Q].size[2], a.n_kv = o[K].size[2], a.head_dim = a.value_dim = DIM;
    a.q = o[Q].values, a.k = o[K].values, a.v = o[V].values;
    a.mask_rank = 2, a.mask_shape[0] = a.n_q, a.mask_shape[1] = a.n_kv, a.bool_mask = mask;
    a.masked_row = VKA_MASKED_UNIFORM;
    a.sink = sink ? o[SINK].values : NULL;
    a.context = context, a.log_sum_exp = want;
    assert_int_equal(ref_attention(&a), VKA_OK);
    for (size_t i = 0; i < o[LOG_SUM].count; i++) {
        double got = o[LOG_SUM].values[i];
        bool same = isnan(want[i]) ? isnan(got) : got == want[i];
        if (!same && !(fabs(got - want[i]) <= LOG_SUM_ERROR * (1 + fabs(want[i]))))
            fail_msg("%s%s: row %zu: %.9g, not %.9g", name, sink ? " with sinks" : "", i, got,
                     want[i]);
    }
    for (size_t i = 0; i < o[OUTPUT].count; i++) {
        double got = o[OUTPUT].values[i];
        size_t kind = i / DIM % a.n_q % ROW_KINDS;
        if (kind != ALL_MINUS_INFINITY && /* NaN, or 0 beside a sink */
            !(isnan(context[i]) ? isnan(got) : fabs(got - context[i]) <= 0.02))
            fail_msg("%s%s: output %zu: %.9g, not %.9g", name, sink ? " with sinks" : "", i, got,
                     context[i]);
    }
    free(mask);
    free(want);
    free(context);
}

/* false: another kernel is chosen for the problem. */
static bool attend(struct vka_device *device, enum kernel kernel, struct operand o[OPERANDS],
                   bool sink)
{
    enum vka_path path = kernel == KERNEL_softmax_shared ? VKA_PATH_UNFUSED : VKA_PATH_FUSED;
    struct vka_plan *plan = log_sum_plan(device, path);
    struct vka_pass_info pass;
    bool taken = path == VKA_PATH_UNFUSED;
    enum vka_status status =
        vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = o[Q].view, .k = o[K].view,
                                              .v = o[V].view, .output = o[OUTPUT].view,
                                              .options = {.mask = o[MASK].view,
                                                          .masked_row = VKA_MASKED_UNIFORM,
                                                          .sink = sink ? o[SINK].view : NULL,
                                                          .log_sum_exp = o[LOG_SUM].view}));
    if (status == VKA_OK)
        log_sum_check(device, vka_plan_finish(plan));
    for (size_t i = 0; status == VKA_OK && i < vka_plan_pass_count(plan); i++)
        taken |= vka_plan_pass(plan, i, &pass) == VKA_OK &&
                 strcmp(pass.kernel, kernel_table[kernel].name) == 0;
    if (taken)
        log_sum_check(device, vka_plan_run(plan, PATIENCE));
    vka_plan_destroy(&plan);
    return taken;
}

static bool try_kernel(struct vka_device *device, enum kernel kernel, enum vka_dtype dtype,
                       uint32_t n_q, uint32_t n_kv)
{
    struct operand o[OPERANDS];
    const uint32_t rows[4] = {1, HEADS, n_q, DIM}, keys[4] = {1, HEADS, n_kv, DIM};
    const uint32_t mask[2] = {n_q, n_kv}, heads = HEADS;
    bool taken = false;
    log_sum_operand(device, &o[Q], dtype, 4, rows);
    log_sum_operand(device, &o[K], dtype, 4, keys);
    log_sum_operand(device, &o[V], dtype, 4, keys);
    log_sum_operand(device, &o[SINK], VKA_F32, 1, &heads);
    log_sum_operand(device, &o[MASK], VKA_BOOL, 2, mask);
    log_sum_operand(device, &o[OUTPUT], dtype, 4, rows);
    log_sum_operand(device, &o[LOG_SUM], VKA_F32, 3, rows);
    fill(o);
    for (int sink = 0; sink < 2; sink++) {
        if (!attend(device, kernel, o, sink))
            continue;
        log_sum_check(device, operand_read(&o[OUTPUT]));
        log_sum_check(device, operand_read(&o[LOG_SUM]));
        compare(o, sink, kernel_table[kernel].name);
        taken = true;
    }
    for (int i = 0; i < OPERANDS; i++)
        operand_destroy(&o[i]);
    return taken;
}

static bool is_attention(enum kernel kernel)
{
    return strncmp(kernel_table[kernel].name, "attention_", 10) == 0 &&
           kernel != KERNEL_attention_map && kernel != KERNEL_attention_merge;
}

/* NO_GPU_KERNELS: the driver here cannot compile those for GPUs. */
static bool is_compiled(enum kernel kernel)
{
#ifdef NO_GPU_KERNELS
    return kernel == KERNEL_softmax_shared || kernel == KERNEL_attention_row ||
           kernel == KERNEL_attention_texel || kernel == KERNEL_attention_address ||
           kernel == KERNEL_attention_feature;
#else
    return kernel < KERNEL_COUNT;
#endif
}

void log_sum_range(void **state)
{
    struct vka_device *device = *state;
    static const enum vka_dtype dtypes[] = {VKA_F32, VKA_F16, VKA_BF16};
    const struct kernel_set usual = device->caps.without;
    struct kernel_set all = NO_KERNELS;
    for (int k = 0; k < KERNEL_COUNT; k++)
        if (is_attention((enum kernel)k))
            set_add(&all, k);
    for (int k = 0; k < KERNEL_COUNT; k++) {
        bool taken = false;
        if (!is_attention((enum kernel)k) && k != KERNEL_softmax_shared)
            continue;
        if (!is_compiled((enum kernel)k)) {
            print_message("SKIPPED: this driver cannot compile %s\n", kernel_table[k].name);
            continue;
        }
        device->caps.without = usual;
        if (is_attention((enum kernel)k))
            set_join(&device->caps.without, set_minus(all, KERNEL_SET(k)));
        for (size_t t = 0; t < sizeof dtypes / sizeof dtypes[0] && !taken; t++)
            for (int few = 0; few < 2; few++) /* few rows: their keys may be split */
                taken |= try_kernel(device, (enum kernel)k, dtypes[t], few ? ROW_KINDS : 40,
                                    few ? 1000 : 130);
        print_message("%s %s\n", kernel_table[k].name, taken ? "right" : "not of this device");
    }
    device->caps.without = usual;
}
