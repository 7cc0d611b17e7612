/* Attention of any kind, planned for a time budget a submit. Failed calls fail the running cmocka
 * test. */
#ifndef TESTS_BUDGET_CASE_H
#define TESTS_BUDGET_CASE_H

#include <vkattn/vkattn.h>

/* Attention of any kind: operands, and what the operation has beside them. */
struct budget_case {
    const char *name;
    uint32_t batch, n_head, n_kv_head, n_q, n_kv, dim;
    enum vka_dtype dtype; /* of all four operands, and of the cache */
    bool cache, paged, ragged;
    enum vka_path path;
    struct vka_attention_options options;
};

struct budget_operands {
    struct vka_tensor *q, *k, *v, *o, *q_start, *kv_start;
};

void budget_check(struct vka_device *device, enum vka_status status);

/* Keys, queries and values of the case, at random, and where it is ragged four sequences. */
struct budget_operands budget_operands_make(struct vka_device *device, const struct budget_case *p);
void budget_operands_free(struct budget_operands *t);

/* [n], int32. */
struct vka_tensor *budget_integers(struct vka_device *device, uint32_t n, const int32_t *values);

/* The elements of a tensor, which the caller frees. */
void *budget_contents(struct vka_device *device, struct vka_tensor *t);

/* An empty one with room for two runs; NULL where the case has none. */
struct vka_cache *budget_cache(struct vka_device *device, const struct budget_case *p);

/* A finished plan with timestamps. */
struct vka_plan *budget_plan(struct vka_device *device, const struct budget_case *p,
                             const struct budget_operands *t, struct vka_cache *cache,
                             uint64_t budget);

#endif
