#include "cache_case.h"
#include "problems/cache_soil.h"

#include <stdio.h>
#include <stdlib.h>

void cache_check(struct vka_device *device, enum vka_status status)
{
    if (status == VKA_OK)
        return;
    fprintf(stderr, "FAIL %s: %s\n", vka_status_name(status), vka_device_error(device));
    exit(1);
}

struct vka_cache *cache_open(struct vka_device *device, uint32_t batch, uint32_t capacity,
                             enum vka_dtype dtype, uint32_t page_size, uint32_t n_page)
{
    struct vka_cache *cache = NULL;
    cache_check(device,
                vka_cache_create(
                    device,
                    VKA_INFO(vka_cache_info, .batch = batch, .n_kv_head = 1, .head_dim = CACHE_DIM,
                             .value_dim = CACHE_VALUE, .capacity = capacity, .key_dtype = dtype,
                             .value_dtype = dtype, .page_size = page_size, .n_page = n_page),
                    &cache));
    cache_soil_new(cache);
    return cache;
}

static struct vka_tensor *tensor4(struct vka_device *device, uint32_t a, uint32_t b, uint32_t c,
                                  uint32_t d)
{
    struct vka_tensor *t = NULL;
    cache_check(device, vka_tensor_create(device, VKA_F32, 4, (const uint32_t[]){a, b, c, d}, &t));
    return t;
}

struct appender appender_open(struct vka_device *device, uint32_t batch, uint32_t n_new,
                              const struct vka_plan_info *info, struct vka_cache *cache,
                              struct vka_cache *twin)
{
    struct appender a = {.n_new = n_new,
                         .q = tensor4(device, batch, CACHE_HEADS, n_new, CACHE_DIM),
                         .k = tensor4(device, batch, 1, n_new, CACHE_DIM),
                         .v = tensor4(device, batch, 1, n_new, CACHE_VALUE),
                         .o = tensor4(device, batch, CACHE_HEADS, n_new, CACHE_VALUE)};
    struct vka_cache *caches[] = {twin, cache}; /* the output is the cache's */
    cache_check(device, vka_plan_create(device, info, &a.plan));
    for (int i = twin ? 0 : 1; i < 2; i++)
        cache_check(device, vka_plan_add_attention(
                                a.plan, VKA_INFO(vka_attention_op, .q = a.q, .k = a.k, .v = a.v,
                                                 .output = a.o, .cache = caches[i],
                                                 .options.causal = true)));
    cache_check(device, vka_plan_finish(a.plan));
    return a;
}

void appender_close(struct appender *a)
{
    vka_plan_destroy(&a->plan);
    vka_tensor_destroy(&a->q);
    vka_tensor_destroy(&a->k);
    vka_tensor_destroy(&a->v);
    vka_tensor_destroy(&a->o);
}
