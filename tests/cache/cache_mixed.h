/* A cache whose layers hold keys and values of different sizes, states, or both kinds of state, beside a
 * copy of their contents in host memory. */
#ifndef TESTS_CACHE_MIXED_H
#define TESTS_CACHE_MIXED_H

#include <vkattn/vkattn_model.h>

#include "problems/operand.h"
#include "problems/rng.h"

#define MIXED_LAYERS 5u
#define MIXED_BATCH 4u
#define MIXED_OPS (2 * MIXED_LAYERS)

enum mixed_kind { MIXED_KEYS = 0, MIXED_LINEAR, MIXED_CONV };
enum { MIXED_Q, MIXED_K, MIXED_V, MIXED_DECAY, MIXED_BETA, MIXED_OUT, MIXED_IO };
#define MIXED_X MIXED_Q /* of a convolution */
#define MIXED_WEIGHT MIXED_K

struct mixed_layer {
    bool keys; /* else states: of n_state heads, of channels, or of both */
    uint32_t n_head, n_kv_head, n_state, head_dim, value_dim;
    uint32_t channels, width, dilation;
    enum vka_dtype key_dtype, value_dtype; /* of cached keys and values */
    enum vka_dtype io_dtype;               /* of inputs and outputs */
    enum vka_rule rule;
    bool key_decay, shared_beta;
    enum vka_activation activation;
};

struct mixed_sizes {
    uint32_t batch, n_layer, capacity, page_size;
    bool has_state;
    struct mixed_layer layers[MIXED_LAYERS];
};

struct mixed {
    struct vka_device *device;
    struct mixed_sizes sizes;
    struct vka_cache *cache;
    uint32_t length[MIXED_BATCH];
    bool refused[MIXED_BATCH]; /* had no room, and was not changed since */
    /* Each layer's, [batch][mixed_count()]: keys and values, or matrices and rows of a convolution. */
    double *contents[MIXED_LAYERS][2];
};

enum mixed_rows { MIXED_DENSE, MIXED_PADDED, MIXED_RAGGED };

struct mixed_op {
    enum mixed_kind kind;
    uint32_t layer;
    struct operand io[MIXED_IO];
    double *want; /* of output; NaN: not known */
};

/* Operations with the same new rows. */
struct mixed_step {
    enum mixed_rows rows;
    uint32_t n, n_op;
    struct vka_tensor *n_append, *q_start;         /* NULL: none */
    bool one;                                      /* n_append is one number for all */
    uint32_t first[MIXED_BATCH], had[MIXED_BATCH]; /* rows of each sequence */
    uint32_t old[MIXED_BATCH], kept[MIXED_BATCH];  /* of the last run */
    struct mixed_op ops[MIXED_OPS];
};

struct mixed_plan {
    struct vka_plan *plan;
    uint32_t n_step;
    struct mixed_step steps[2];
};

static inline uint32_t mixed_keep(const struct mixed_layer *l)
{
    return l->channels ? (l->width - 1) * l->dilation : 0;
}

static inline bool mixed_is_gated(enum vka_rule rule)
{
    return rule == VKA_RULE_GATED || rule == VKA_RULE_GATED_DELTA;
}

static inline bool mixed_is_delta(enum vka_rule rule)
{
    return rule == VKA_RULE_DELTA || rule == VKA_RULE_GATED_DELTA;
}

/* Heads and width of an operand of rows. */
void mixed_find_rows(const struct mixed_op *op, int which, uint32_t *heads, uint32_t *width);
/* Row i of a head of a sequence. */
double *mixed_row(const struct mixed_step *step, const struct mixed_op *op, int which,
                  double *values, uint32_t b, uint32_t head, uint32_t i);

/* Elements of a sequence in contents[layer][which]. */
size_t mixed_count(const struct mixed_sizes *s, uint32_t layer, int which);

/* What pipelines are made of is that of `shared`, whose layers come first. */
struct mixed_sizes mixed_draw(struct rng *rng, const struct mixed_sizes *shared);

/* Functions that return bool print what is wrong where it is false, or set the device's error. */
bool mixed_open(struct mixed *m, struct vka_device *device, const struct mixed_sizes *sizes);
void mixed_close(struct mixed *m);
bool mixed_truncate(struct mixed *m, uint32_t sequence, uint32_t length);
bool mixed_fork(struct mixed *m, uint32_t from, uint32_t to);
void mixed_forget(struct mixed *m); /* after a loss */

bool mixed_plan_open(struct mixed_plan *p, const struct mixed *m, struct rng *rng);
void mixed_plan_close(struct mixed_plan *p);

/* Draws and writes the inputs of a run. */
bool mixed_feed(const struct mixed *m, struct mixed_plan *p, struct rng *rng);
/* Does to the copy what a run does. Returns a bit for each sequence that has no room. */
uint32_t mixed_model(struct mixed *m, struct mixed_plan *p);
/* Whether the cache and the outputs of the last run are as the copy says; *worst rises to the worst
 * error over its limit. */
bool mixed_compare_cache(const struct mixed *m, double *worst);
bool mixed_compare_outputs(const struct mixed *m, struct mixed_plan *p, double *worst);

#endif
