#include "large_run.h"

#include <gpu/kernels.h>
#include <reference/reference.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANARIES 64 /* elements */

/* An hour: CPU drivers compile within the first run, and share their cores with other programs. */
#define TIMEOUT (120 * VKA_TIMEOUT_DEFAULT)
#define PATIENCE 20 /* times that a self-test or a calibration may time out */

enum vka_status large_tensor_create(struct vka_device *device, enum vka_dtype dtype, uint32_t rank,
                                    const uint32_t *size, enum large_layout layout,
                                    struct large_tensor *t)
{
    uint32_t order[VKA_MAX_RANK] = {0, 1, 2, 3};
    uint64_t stride[VKA_MAX_RANK], n = 1;
    *t = (struct large_tensor){.dtype = dtype, .count = 1};
    if (layout == LARGE_SWAPPED && rank == 4) {
        order[1] = 2;
        order[2] = 1;
    }
    for (uint32_t i = rank; i-- > 0;) {
        bool shared = layout == LARGE_SHARED && rank == 4 && order[i] < 2;
        stride[order[i]] = shared ? 0 : n;
        n *= shared ? 1 : size[order[i]];
        t->count *= size[i];
    }
    if (n + CANARIES > UINT32_MAX)
        return VKA_UNSUPPORTED; /* more than one axis takes; the draw keeps below */
    enum vka_status status =
        vka_tensor_create(device, dtype, 1, (const uint32_t[]){(uint32_t)n + CANARIES}, &t->base);
    if (status == VKA_OK)
        status = vka_tensor_strided(t->base, 0, rank, size, stride, &t->view);
    if (layout == LARGE_SHARED && rank == 4)
        t->count = n; /* written by the first head alone */
    return status;
}

enum vka_status large_tensors_create(struct vka_device *device, const struct large_attention *a,
                                     struct large_tensor t[OPERAND_COUNT])
{
    const enum large_layout rows = a->swapped ? LARGE_SWAPPED : LARGE_DENSE;
    const enum large_layout kv = a->shared_kv ? LARGE_SHARED : rows;
    const enum large_layout layouts[OPERAND_COUNT] = {
        [OPERAND_Q] = rows,    [OPERAND_K] = kv,      [OPERAND_V] = kv,
        [OPERAND_PAST_K] = kv, [OPERAND_PAST_V] = kv, [OPERAND_OUTPUT] = rows};
    enum vka_status status = VKA_OK;
    for (int i = 0; i < OPERAND_COUNT && status == VKA_OK; i++) {
        struct operand_shape shape = problem_shape(&a->p, (enum operand_id)i);
        if (i == OPERAND_PAST_K || i == OPERAND_PRESENT_K)
            shape.dtype = a->k;
        if (i == OPERAND_PAST_V || i == OPERAND_PRESENT_V)
            shape.dtype = a->v;
        if (shape.rank)
            status =
                large_tensor_create(device, shape.dtype, shape.rank, shape.size, layouts[i], &t[i]);
    }
    return status;
}

struct vka_attention_op large_op(const struct large_attention *a,
                                 const struct large_tensor t[OPERAND_COUNT])
{
    struct vka_tensor *view[OPERAND_COUNT];
    for (int i = 0; i < OPERAND_COUNT; i++)
        view[i] = t[i].view;
    return problem_op_of(&a->p, view);
}

void large_tensor_destroy(struct large_tensor *t)
{
    vka_tensor_destroy(&t->view);
    vka_tensor_destroy(&t->base);
    free(t->host);
    *t = (struct large_tensor){0};
}

void *large_host(struct large_tensor *t)
{
    if (!t->host)
        t->host = malloc(t->count * vka_dtype_size(t->dtype));
    return t->host;
}

enum vka_status large_upload(struct large_tensor *t)
{
    struct vka_tensor *dense = NULL;
    enum vka_status status = VKA_OK;
    if (t->count != vka_tensor_count(t->view)) { /* shared: the elements lie in order */
        status = vka_tensor_slice(t->base, 0, 0, (uint32_t)t->count, &dense);
        if (status != VKA_OK)
            return status;
    }
    status =
        vka_tensor_write(dense ? dense : t->view, t->host, t->count * vka_dtype_size(t->dtype));
    vka_tensor_destroy(&dense);
    free(t->host);
    t->host = NULL;
    return status;
}

enum vka_status large_blank(struct large_tensor *t)
{
    size_t bytes = vka_tensor_size(t->base);
    void *noise = malloc(bytes);
    if (!noise)
        return VKA_OUT_OF_HOST_MEMORY;
    memset(noise, 0xff, bytes);
    enum vka_status status = vka_tensor_write(t->base, noise, bytes);
    free(noise);
    return status;
}

enum vka_status large_download(struct large_tensor *t)
{
    struct vka_tensor *tail = NULL;
    uint8_t canaries[CANARIES * 4];
    size_t size = vka_dtype_size(t->dtype);
    uint32_t n = vka_tensor_shape(t->base, 0);
    if (!large_host(t))
        return VKA_OUT_OF_HOST_MEMORY;
    enum vka_status status = vka_tensor_read(t->view, t->host, t->count * size);
    if (status == VKA_OK)
        status = vka_tensor_slice(t->base, 0, n - CANARIES, CANARIES, &tail);
    if (status == VKA_OK)
        status = vka_tensor_read(tail, canaries, CANARIES * size);
    vka_tensor_destroy(&tail);
    for (size_t i = 0; status == VKA_OK && i < CANARIES * size; i++)
        if (canaries[i] != 0xff)
            status = VKA_INTERNAL;
    return status;
}

uint32_t large_encode(enum vka_dtype dtype, double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return dtype == VKA_F16    ? ref_to_f16(x)
           : dtype == VKA_BF16 ? ref_to_bf16(x)
           : dtype == VKA_BOOL ? x != 0
           : dtype == VKA_I32  ? (uint32_t)(int32_t)x
                               : bits;
}

void large_store(struct large_tensor *t, uint64_t i, uint32_t bits)
{
    size_t size = vka_dtype_size(t->dtype);
    if (size == 4)
        ((uint32_t *)t->host)[i] = bits;
    else if (size == 2)
        ((uint16_t *)t->host)[i] = (uint16_t)bits;
    else
        ((uint8_t *)t->host)[i] = (uint8_t)bits;
}

double large_load(const struct large_tensor *t, uint64_t i)
{
    if (t->dtype == VKA_F32)
        return (double)((const float *)t->host)[i];
    uint16_t half = ((const uint16_t *)t->host)[i];
    return t->dtype == VKA_F16 ? ref_from_f16(half) : ref_from_bf16(half);
}

double large_round(enum vka_dtype dtype, double x)
{
    return dtype == VKA_F32   ? (double)(float)x
           : dtype == VKA_F16 ? ref_from_f16(ref_to_f16(x))
                              : ref_from_bf16(ref_to_bf16(x));
}

static enum vka_status add_all(struct vka_plan *plan, const struct large_add *add)
{
    enum vka_status status = VKA_OK;
    if (add->attention)
        status = vka_plan_add_attention(plan, add->attention);
    if (status == VKA_OK && add->linear)
        status = vka_plan_add_linear(plan, add->linear);
    if (status == VKA_OK && add->layer)
        status = vka_plan_add_layer(plan, add->layer);
    return status == VKA_OK ? vka_plan_finish(plan) : status;
}

enum vka_status large_finish(struct vka_device *device, const struct large_problem *p,
                             bool nonfinite, const struct large_add *add, struct vka_plan **plan,
                             struct large_result *result)
{
    const struct kernel_set disabled = device->caps.without;
    enum vka_status status = VKA_TIMEOUT;
    set_join(&device->caps.without, p->a.disabled_kernels);
    for (int i = 0; i < PATIENCE && status == VKA_TIMEOUT; i++) {
        vka_plan_destroy(plan);
        status = vka_plan_create(
            device,
            VKA_INFO(vka_plan_info, .path = p->a.path, .workspace_limit = p->a.workspace_limit,
                     .submit_budget = p->a.submit_budget, .count_nonfinite = nonfinite),
            plan);
        if (status == VKA_OK)
            status = add_all(*plan, add);
    }
    device->caps.without = disabled;
    if (status == VKA_OK)
        set_join(&result->kernels, problem_kernels(*plan));
    struct vka_tensor *const output = add->attention ? add->attention->output
                                      : add->linear  ? add->linear->output
                                                     : add->layer->output;
    if (status == VKA_OK && p->judge && !p->judge(*plan, &output, 1, result->why, LARGE_WHY))
        status = VKA_INTERNAL;
    return status;
}

enum vka_status large_run(struct vka_plan *plan)
{
    return vka_plan_run(plan, TIMEOUT);
}

bool large_failed(struct vka_device *device, enum vka_status status, struct large_result *result)
{
    result->refused = status == VKA_UNSUPPORTED || status == VKA_OUT_OF_DEVICE_MEMORY ||
                      status == VKA_OUT_OF_HOST_MEMORY;
    if (!*result->why) /* else the plan was judged to be wrong */
        snprintf(result->why, LARGE_WHY, "%s: %s", vka_status_name(status),
                 vka_device_error(device));
    return false;
}

/* These keep the context of a row in registers, which have no room for sums of blocks of keys:
 * their chains of 16,384 are as far off as 5e-8 where all addends are of one size. */
#define LONG_CHAINS                                                                               \
    KERNEL_SET(KERNEL_attention_row, KERNEL_attention_tile, KERNEL_attention_tile_mixed,          \
               KERNEL_attention_coop_f16, KERNEL_attention_coop_bf16, KERNEL_attention_coop2_f16, \
               KERNEL_attention_coop2_bf16, KERNEL_attention_coop2_ext_f16,                       \
               KERNEL_attention_coop2_ext_bf16)

struct large_verdict large_verdict(const char *name, enum vka_dtype dtype,
                                   struct kernel_set kernels)
{
    double limit = dtype == VKA_F32 ? 1e-11 : dtype == VKA_F16 ? 1e-6 : 5e-5;
    if (dtype == VKA_F32 && set_meets(kernels, LONG_CHAINS))
        limit = 1e-7;
    return (struct large_verdict){.name = name, .limit = limit, .worst = -1};
}

/* What rounding to the subnormals of float16 alone is off by. */
#define HALF_SUBNORMAL 0x1p-25

/* NaN for NaN and Inf for Inf count as right. */
static double difference(double got, double want)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    return got == want ? 0 : fabs(got - want);
}

void large_judge(struct large_verdict *v, const struct large_tensor *t, uint64_t at, uint64_t width,
                 const double *want, bool exact)
{
    double error = 0, norm = 0, most = -1;
    uint64_t column = 0;
    for (uint64_t i = 0; i < width; i++) {
        double e = difference(large_load(t, at + i), want[i]);
        if (t->dtype == VKA_F16 && !exact)
            e = fmax(e - HALF_SUBNORMAL, 0);
        error += e * e;
        norm += isfinite(want[i]) ? want[i] * want[i] : 0;
        if (e > most) {
            most = e;
            column = i;
        }
    }
    double nmse = error == 0 ? 0 : error / norm; /* a row that should be 0 has to be 0 */
    if (!(nmse <= (exact ? 0 : v->limit)))
        v->failed++;
    if (!(nmse <= v->worst) && (!exact || nmse > 0)) {
        v->worst = nmse;
        v->row = v->rows;
        v->column = column;
        v->got = large_load(t, at + column);
        v->want = want[column];
    }
    v->rows++;
}

bool large_judged(const struct large_verdict *v, struct large_result *result)
{
    if (!v->failed)
        return true;
    snprintf(result->why, LARGE_WHY,
             "%s: %llu of %llu rows, NMSE %.3g above %.3g at row %llu [%llu]: %.9g, not %.9g",
             v->name, (unsigned long long)v->failed, (unsigned long long)v->rows, v->worst,
             v->limit, (unsigned long long)v->row, (unsigned long long)v->column, v->got, v->want);
    return false;
}

uint32_t large_mix(uint32_t index, uint32_t class)
{
    uint32_t x = index * 0x9E3779B1u ^ (class + 1) * 0x85EBCA6Bu;
    x = (x ^ x >> 15) * 0x2C1B3C6Du;
    x = (x ^ x >> 12) * 0x297A2D39u;
    return x ^ x >> 15;
}

bool large_check(struct vka_device *device, const struct large_problem *p,
                 struct large_result *result)
{
    static bool (*const checks[LARGE_OP_COUNT])(struct vka_device *, const struct large_problem *,
                                                struct large_result *) = {
        [LARGE_ATTENTION] = large_check_attention, [LARGE_CACHE] = large_check_cache,
        [LARGE_RAGGED] = large_check_attention,    [LARGE_LINEAR] = large_check_linear,
        [LARGE_ROPE] = large_check_attention,      [LARGE_LAYER] = large_check_layer,
    };
    *result = (struct large_result){0};
    return checks[p->op](device, p, result) || result->refused;
}
