/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "budget_case.h"
#include "problems/rng.h"

void budget_check(struct vka_device *device, enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s", vka_status_name(status), vka_device_error(device));
}

static struct vka_tensor *tensor4(struct vka_device *device, enum vka_dtype dtype, uint32_t a,
                                  uint32_t b, uint32_t c, uint32_t d)
{
    struct vka_tensor *t = NULL;
    budget_check(device, vka_tensor_create(device, dtype, 4, (const uint32_t[]){a, b, c, d}, &t));
    return t;
}

/* Floats are uniform in -1 .. 1; 16-bit elements have any bits that are within -2 .. 2. */
static void fill(struct vka_device *device, struct vka_tensor *t, uint64_t seed)
{
    size_t n = (size_t)vka_tensor_count(t), bytes = vka_tensor_size(t);
    void *data = malloc(bytes);
    struct rng rng = {seed};
    assert_non_null(data);
    for (size_t i = 0; i < n; i++)
        if (vka_tensor_dtype(t) == VKA_F32)
            ((float *)data)[i] = (float)rng_uniform(&rng, -1, 1);
        else
            ((uint16_t *)data)[i] = (uint16_t)(rng_next(&rng) & 0xbfff);
    budget_check(device, vka_tensor_write(t, data, bytes));
    free(data);
}

void *budget_contents(struct vka_device *device, struct vka_tensor *t)
{
    void *x = malloc(vka_tensor_size(t));
    assert_non_null(x);
    budget_check(device, vka_tensor_read(t, x, vka_tensor_size(t)));
    return x;
}

struct vka_tensor *budget_integers(struct vka_device *device, uint32_t n, const int32_t *values)
{
    struct vka_tensor *t = NULL;
    budget_check(device, vka_tensor_create(device, VKA_I32, 1, &n, &t));
    budget_check(device, vka_tensor_write(t, values, n * sizeof *values));
    return t;
}

struct budget_operands budget_operands_make(struct vka_device *device, const struct budget_case *p)
{
    static const int32_t q_start[] = {0, 7, 7, 40}, kv_start[] = {0, 70, 71, 150};
    struct budget_operands t = {
        .q = tensor4(device, p->dtype, p->batch, p->n_head, p->n_q, p->dim),
        .k = tensor4(device, p->dtype, p->batch, p->n_kv_head, p->n_kv, p->dim),
        .v = tensor4(device, p->dtype, p->batch, p->n_kv_head, p->n_kv, p->dim),
        .o = tensor4(device, p->dtype, p->batch, p->n_head, p->n_q, p->dim),
    };
    fill(device, t.q, 1);
    fill(device, t.k, 2);
    fill(device, t.v, 3);
    if (p->ragged) {
        t.q_start = budget_integers(device, 4, q_start);
        t.kv_start = budget_integers(device, 4, kv_start);
    }
    return t;
}

void budget_operands_free(struct budget_operands *t)
{
    vka_tensor_destroy(&t->q);
    vka_tensor_destroy(&t->k);
    vka_tensor_destroy(&t->v);
    vka_tensor_destroy(&t->o);
    vka_tensor_destroy(&t->q_start);
    vka_tensor_destroy(&t->kv_start);
}

struct vka_plan *budget_plan(struct vka_device *device, const struct budget_case *p,
                             const struct budget_operands *t, struct vka_cache *cache,
                             uint64_t budget)
{
    struct vka_plan *plan = NULL;
    budget_check(device, vka_plan_create(device,
                                         VKA_INFO(vka_plan_info, .submit_budget = budget,
                                                  .timestamps = true, .path = p->path),
                                         &plan));
    budget_check(device,
                 vka_plan_add_attention(
                     plan, VKA_INFO(vka_attention_op, .q = t->q, .k = t->k, .v = t->v,
                                    .output = t->o, .q_start = t->q_start, .kv_start = t->kv_start,
                                    .cache = cache, .options = p->options)));
    budget_check(device, vka_plan_finish(plan));
    return plan;
}

struct vka_cache *budget_cache(struct vka_device *device, const struct budget_case *p)
{
    struct vka_cache *cache = NULL;
    if (p->cache)
        budget_check(device, vka_cache_create(
                                 device,
                                 VKA_INFO(vka_cache_info, .batch = p->batch,
                                          .n_kv_head = p->n_kv_head, .head_dim = p->dim,
                                          .capacity = 2 * p->n_kv + 9, .key_dtype = p->dtype,
                                          .value_dtype = p->dtype, .page_size = p->paged ? 16 : 0),
                                 &cache));
    return cache;
}
