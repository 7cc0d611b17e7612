/* struct vka_cache, and the passes that fill it. */
#ifndef VKA_OP_CACHE_CACHE_H
#define VKA_OP_CACHE_CACHE_H

#include "plan/plan.h"

struct vka_cache {
    struct vka_device *device;
    struct vka_cache_info info; /* defaults filled in */
    uint32_t table_row;         /* pages that a sequence can have; 0: not paged */
    struct vka_tensor k, v;     /* [batch or n_page][n_kv_head][rows][dim] */
    struct vka_tensor state;    /* I32 [2][batch]: lengths, old lengths; host-visible */
    struct vka_tensor
        table;       /* I32 [batch][table_row], the number of each page; host-visible; paged only */
    uint32_t *uses;  /* [n_page], paged only: entries of the table that name the page */
    uint32_t n_free; /* pages without uses */
    uint32_t first_free; /* none before it is free */
    uint64_t n_change;   /* by the host to a sequence's length or pages */
    uint64_t *changed;   /* [batch]: the last of them */
    size_t references;
    struct recorded recorded;
};

void cache_unref(struct vka_cache *cache);

/* The lengths, [batch], and the page table, [batch][n_page], as the host sees them. */
uint32_t *cache_length_words(const struct vka_cache *cache);
uint32_t *cache_table_words(const struct vka_cache *cache);

/* Lengths and old lengths, I32 [batch]. */
struct vka_tensor cache_lengths(const struct vka_cache *cache);
struct vka_tensor cache_positions(const struct vka_cache *cache);

/* Grows the lengths by n_new, where `full` is of plan_keep_cache, and appends rows
 * [batch][n_kv_head][n_new][dim] at the old ones. */
enum vka_status plan_cache_advance(struct vka_plan *plan, struct vka_cache *cache, uint32_t n_new,
                                   struct storage *full);
enum vka_status plan_cache_append(struct vka_plan *plan, struct vka_cache *cache,
                                  const struct vka_tensor *rows, const struct vka_tensor *cached);

/* Keys or values of a paged cache as a dense scratch tensor [batch][n_kv_head][capacity][dim]. */
enum vka_status plan_cache_gather(struct vka_plan *plan, struct vka_cache *cache,
                                  const struct vka_tensor *cached, struct vka_tensor *dense);

/* Copies one batch element, or page, of k or v. */
enum vka_status cache_copy_outer(struct vka_cache *cache, const struct vka_tensor *t, uint32_t from,
                                 uint32_t to);

/* Counts the uses of all pages from the table. */
void cache_count_uses(struct vka_cache *cache);

/* Sets `count` entries of a sequence's table from entry `first` on. */
void cache_set_pages(struct vka_cache *cache, uint32_t sequence, uint32_t first, uint32_t count,
                     const uint32_t *pages);

/* What a sequence will write again from position `length` on must be its own: a shared page that
 * holds positions before it is copied, others are exchanged for free ones, or for none where none
 * is free. INVALID where a copy finds none; nothing has changed on failure. */
enum vka_status cache_own_pages(struct vka_cache *cache, uint32_t sequence, uint32_t length);

/* Makes what runs of before told of a sequence void: nothing of them is in flight. */
void cache_change(struct vka_cache *cache, uint32_t sequence);

/* Keeps a cache as long as the plan, whose waits tell whether it had room. *full: u32 [batch][2],
 * for the ticket of the first run that had no room for a sequence, see ticket_of_words; 0: none. */
enum vka_status plan_keep_cache(struct vka_plan *plan, struct vka_cache *cache,
                                struct storage **full);

#endif
