/* Pages that sequences of a paged cache share, and the table that names them. */
#ifndef VKA_OP_CACHE_PAGES_H
#define VKA_OP_CACHE_PAGES_H

#include "op/cache/state.h"

/* Page table [batch][table_row] in host memory. */
uint32_t *cache_table_words(const struct vka_cache *cache);

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

#endif
