/* What a cache holds, and an operation's use of one. */
#ifndef VKA_OP_CACHE_STATE_H
#define VKA_OP_CACHE_STATE_H

#include "plan/cut.h"

/* Keys or values of a layer. Where the type has scales, `rows` are the bytes of the integers or of
 * float8, and the scales lie behind all of them: see CACHE_BLOCK. */
struct cached_rows {
    enum vka_dtype dtype;
    struct vka_tensor rows; /* [batch or n_page][n_kv_head][rows][dim] */
    uint64_t scales;        /* first scale, counted in float16, of heads' in float32; 0: none */
    uint32_t byte_values;   /* values of an element of `rows`: 1 or 2 */
    uint32_t hadamard;      /* features of a block that a Hadamard matrix multiplies; 0: none */
};

/* What a layer holds: keys and values, or states in float32; storage NULL: not these. */
struct cached_layer {
    struct vka_cache_layer_info info; /* defaults filled in */
    struct cached_rows k, v;
    float *key_scales; /* of heads: [2][n_kv_head] scale, 1 / scale; else NULL */
    float *value_scales;
    struct vka_tensor linear; /* [batch][n_state][head_dim][value_dim] */
    struct vka_tensor conv;   /* [batch][channels][conv_rows] */
};

static inline bool cache_is_state(const struct cached_layer *layer)
{
    return !layer->k.rows.storage;
}

static inline bool cache_has_blocks(const struct cached_layer *layer)
{
    return layer->k.scales || layer->v.scales;
}

struct vka_cache {
    struct vka_device *device;
    struct vka_cache_info info;  /* defaults filled in; of a layer, its own info */
    uint32_t table_row;          /* most pages of a sequence; 0: not paged */
    struct cached_layer *layers; /* [n_layer] */
    bool has_state;              /* a layer has one */
    struct vka_tensor words;     /* I32, `state` and behind it `table`; host-visible */
    struct vka_tensor state;     /* I32 [8 * batch + 3], see cache_params, note.glsl */
    struct vka_tensor table;     /* I32 [batch][table_row] page numbers; paged only */
    uint32_t *uses;              /* [n_page], paged only: table entries that name the page */
    uint32_t n_free;             /* pages without uses */
    uint32_t first_free;         /* no page before it is free */
    uint64_t n_change;           /* changes by the host to lengths or pages */
    uint64_t *changed;           /* [batch]: last change of a sequence */
    bool *unknown;               /* [batch]: its states are not known: it takes no positions */
    size_t references;
    struct recorded recorded;
};

/* What an operation uses of a layer. */
enum cache_held { HELD_KEYS = 0, HELD_LINEAR, HELD_CONV };

/* An operation's use of a cache. */
struct cache_use {
    struct vka_cache *cache; /* NULL: none */
    uint32_t layer, n_new;
    const struct vka_tensor *n_append; /* NULL: all new rows of a sequence */
    const struct vka_tensor *q_start;  /* new rows are packed; NULL: n_new for each sequence */
    enum cache_held held;
};

#endif
