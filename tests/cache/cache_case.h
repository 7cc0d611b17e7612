/* What the tests of caches share: a cache, and plans that append rows of some tokens to it. */
#ifndef TESTS_CACHE_CASE_H
#define TESTS_CACHE_CASE_H

#include <vkattn/vkattn.h>

#define CACHE_HEADS 2u /* of queries, for one of keys */
#define CACHE_DIM 4u
#define CACHE_VALUE 3u

/* Ends the program with the device's sentence where a call failed. */
void cache_check(struct vka_device *device, enum vka_status status);

/* Appends n_new rows a run, and attends to all, causally; contents undefined at first. */
struct appender {
    uint32_t n_new;
    struct vka_tensor *q, *k, *v, *o; /* float32 [batch][heads][n_new][dim] */
    struct vka_plan *plan;
};

/* head_dim 4, value_dim 3, one key head. */
struct vka_cache *cache_open(struct vka_device *device, uint32_t batch, uint32_t capacity,
                             enum vka_dtype dtype, uint32_t page_size, uint32_t n_page);

/* twin: a second cache that the plan grows too, with the same rows; NULL: none. */
struct appender appender_open(struct vka_device *device, uint32_t batch, uint32_t n_new,
                              const struct vka_plan_info *info, struct vka_cache *cache,
                              struct vka_cache *twin);
void appender_close(struct appender *a);

#endif
