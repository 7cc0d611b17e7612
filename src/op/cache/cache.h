/* struct vka_cache, its pages, and the passes that fill it. */
#ifndef VKA_OP_CACHE_CACHE_H
#define VKA_OP_CACHE_CACHE_H

#include "plan/cut.h"

/* Keys or values of a layer. Of a type with scales, `rows` are the bytes of the integers or of
 * float8, and the scales lie behind all of them: see CACHE_BLOCK. */
struct cached_rows {
    enum vka_dtype dtype;
    struct vka_tensor rows; /* [batch or n_page][n_kv_head][rows][dim] */
    uint64_t scales;        /* first scale, counted in float16, of F8_E4M3 in float32; 0: none */
    uint32_t byte_values;   /* values of an element of `rows`: 2 for Q4_0, else 1 */
    uint32_t rotated;       /* features of a block of the Hadamard rotation; 0: none */
};

struct cached_layer {
    struct cached_rows k, v;
};

static inline bool cache_has_blocks(const struct cached_layer *layer)
{
    return layer->k.scales || layer->v.scales;
}

/* All bytes of quantised rows, their scales included. */
struct vka_tensor cache_bytes(const struct cached_rows *cached);

/* Where kernels find the scales from key head `head` on; of blocks those of all heads. */
uint32_t cache_scales_from(const struct cached_rows *cached, uint32_t head);

struct vka_cache {
    struct vka_device *device;
    struct vka_cache_info info;  /* defaults filled in */
    uint32_t table_row;          /* most pages of a sequence; 0: not paged */
    struct cached_layer *layers; /* [n_layer] */
    float *key_scales;           /* of F8_E4M3: [2][n_kv_head] scale, 1 / scale; else NULL */
    float *value_scales;
    struct vka_tensor words; /* I32, `state` and behind it `table`; host-visible */
    struct vka_tensor state; /* I32 [4 * batch + 1], see cache_params */
    struct vka_tensor table; /* I32 [batch][table_row] page numbers; paged only */
    uint32_t *uses;          /* [n_page], paged only: table entries that name the page */
    uint32_t n_free;         /* pages without uses */
    uint32_t first_free;     /* no page before it is free */
    uint64_t n_change;       /* changes by the host to lengths or pages */
    uint64_t *changed;       /* [batch]: last change of a sequence */
    size_t references;
    struct recorded recorded;
};

void cache_unref(struct vka_cache *cache);

/* Lengths [batch] and page table [batch][table_row] in host memory. */
uint32_t *cache_length_words(const struct vka_cache *cache);
uint32_t *cache_table_words(const struct vka_cache *cache);

/* Lengths and old lengths, I32 [batch]. */
struct vka_tensor cache_lengths(const struct vka_cache *cache);
struct vka_tensor cache_positions(const struct vka_cache *cache);

/* An operation's use of a cache. */
struct cache_use {
    struct vka_cache *cache; /* NULL: none */
    uint32_t layer, n_new;
    const struct vka_tensor *n_append; /* NULL: all new rows of a sequence */
    const struct vka_tensor *q_start;  /* new rows are packed; NULL: n_new for each sequence */
};

/* INVALID where the use does not go with the earlier operations of its step. */
enum vka_status plan_check_step(struct vka_plan *plan, const char *caller,
                                const struct cache_use *use);

/* Begins a step, unless the use belongs to one: keeps the cache as long as the plan, whose waits
 * report when it had no room, and adds to the lengths. plan_end_step notes that the operation was
 * added. */
enum vka_status plan_begin_step(struct vka_plan *plan, const struct cache_use *use);
void plan_end_step(struct vka_plan *plan, const struct cache_use *use);

/* Adds to the lengths. full: u32 [batch][2], ticket of the first run without room for a sequence, see
 * ticket_of_words; 0: none. */
enum vka_status plan_cache_advance(struct vka_plan *plan, const struct cache_use *use,
                                   struct storage *full);

/* New keys and values [batch][n_kv_head][n_new][dim], or packed ones [1][n_kv_head][n_new][dim]. */
struct new_rows {
    struct vka_tensor k, v;
    /* Rotated by `rope` beside the keys, [batch][n_head][n_new][head_dim]; storage NULL: the keys are
     * appended as they are, and rope is not read. */
    struct vka_tensor q;
    enum vka_dtype q_type; /* in which rotated queries are written */
    const struct vka_rope *rope;
};

/* Whether plan_cache_append can rotate on the way: quantised rows, rows too far apart for a binding
 * and on CPU drivers many rows take passes of their own. */
bool cache_append_rotates(const struct vka_plan *plan, const struct cache_use *use,
                          const struct new_rows *rows);

/* Writes rows at the old lengths, rounded to the types of the cache, and replaces rows->q by
 * scratch of q_type. One pass, unless the budget or quantised rows ask for more. */
enum vka_status plan_cache_append(struct vka_plan *plan, const struct cache_use *use,
                                  struct new_rows *rows);

/* Quantises keys or values into a cache of a type with scales, at the old lengths. */
enum vka_status plan_cache_quantise(struct vka_plan *plan, const struct cache_use *use,
                                    const struct vka_tensor *rows,
                                    const struct cached_rows *cached);

/* The part of cached rows that a pass reads or writes: pages of a paged cache are not the sequences',
 * packed rows are of any sequence, and rows lie in a cache where the device says. */
struct vka_tensor cached_part(const struct vka_cache *cache, bool packed,
                              const struct vka_tensor *rows, const struct box *part);

/* Lengths of each axis down to which passes over rows of this size are cut for the budget. */
void cache_least_part(const uint32_t size[4], uint32_t unit[4]);

/* Copies keys or values of a paged cache to dense scratch [batch][n_kv_head][capacity][dim]. */
enum vka_status plan_cache_gather(struct vka_plan *plan, struct vka_cache *cache,
                                  const struct vka_tensor *cached, struct vka_tensor *dense);

/* Copies one batch element or page of all layers. */
enum vka_status cache_copy_outer(struct vka_cache *cache, uint32_t from, uint32_t to);

/* Counts the uses of all pages from the table. */
void cache_count_uses(struct vka_cache *cache);

/* Sets `count` entries of a sequence's table from entry `first` on. */
void cache_set_pages(struct vka_cache *cache, uint32_t sequence, uint32_t first, uint32_t count,
                     const uint32_t *pages);

/* Makes pages from position `length` on the sequence's own, so that it can write there. Copies a
 * shared page that also holds earlier positions; replaces later shared pages by free ones, or by
 * none if none is free. INVALID if there is no free page for the copy; changes nothing on
 * failure. */
enum vka_status cache_own_pages(struct vka_cache *cache, uint32_t sequence, uint32_t length);

/* Discards what earlier runs reported of a sequence. No run may be in flight. */
void cache_change(struct vka_cache *cache, uint32_t sequence);

#endif
