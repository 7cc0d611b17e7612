/* A cache of the library beside a copy of its contents in host memory, as the cache's types keep
 * them. Functions that return bool set the device's error on false. */
#ifndef TESTS_CACHE_TWIN_H
#define TESTS_CACHE_TWIN_H

#include <vkattn/vkattn.h>

#include "problems/cache_soil.h"

struct twin_sizes {
    uint32_t batch, n_layer, n_kv_head, group, head_dim, value_dim, capacity, page_size, n_page;
    enum vka_dtype key_dtype, value_dtype;
    enum vka_dtype io_dtype; /* of q, k, v and output */
    enum vka_path path;
    bool causal, no_hadamard;
    int32_t window; /* to the left; 0: none */
    enum vka_masked_row masked_row;
    enum vka_scores scores_kind; /* returned, float32 */
    uint32_t hidden;             /* of 100 positions, those that a mask hides; 0: no mask */
};

struct twin {
    struct vka_device *device;
    struct twin_sizes sizes;
    struct vka_cache *cache;
    uint32_t *length;               /* [batch] */
    bool *refused;                  /* [batch]: had no room, and was not changed since */
    float *k_scales, *v_scales;     /* [n_kv_head], of types that are given them */
    double **k, **v;                /* [n_layer], each [batch][n_kv_head][capacity][dim] */
    uint8_t *mask;                  /* [capacity] */
    struct vka_tensor *mask_tensor; /* BOOL [capacity], or NULL */
};

#define TWIN_IO 5

/* A plan of one step: the same number of new positions of all layers. */
struct twin_plan {
    uint32_t n_new, n_layer;
    struct operand (*io)[TWIN_IO]; /* [n_layer]: q, k, v, output, scores if they are returned */
    struct vka_tensor *n_append;   /* NULL: all new positions are kept */
    int64_t *old;                  /* [batch]: lengths before the last run */
    struct vka_plan *plan;
};

enum vka_dtype twin_draw_dtype(struct rng *rng);

bool twin_open(struct twin *t, struct vka_device *device, const struct twin_sizes *sizes);
void twin_close(struct twin *t);

bool twin_plan_open(struct twin_plan *p, const struct twin *t, uint32_t n_new, bool n_append,
                    struct rng *rng);
void twin_plan_close(struct twin_plan *p);

/* Fills what it can of the cache with NaN, and empties it. */
void twin_poison(struct twin *t, struct twin_plan *p);

/* Writes inputs of a run of the plan, and appends them to the host's copy. Returns whether a
 * sequence has no room. */
bool twin_append(struct twin *t, struct twin_plan *p, struct rng *rng);

bool twin_lengths_match(const struct twin *t);

/* Row NMSE of the worst row of the last run's outputs; reads them. */
double twin_compare(const struct twin *t, struct twin_plan *p);

/* Whether what is at and behind the lengths changes a bit of what the last run gave; before: of the
 * cache, see cache_before. */
bool twin_soil(const struct twin *t, struct twin_plan *p, const void *before, char why[WHY]);

/* A refusal for want of a free page leaves both as they are. */
void twin_truncate(struct twin *t, uint32_t sequence, uint32_t length);
void twin_fork(struct twin *t, uint32_t from, uint32_t to);

/* After vka_device_recover: the cache is empty, and tensors have undefined contents. */
void twin_recovered(struct twin *t);

#endif
