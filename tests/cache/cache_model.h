/* What a cache should be: lengths, tables, and for each row who wrote it. Everything is looked for
 * in the simplest way. */
#ifndef TESTS_CACHE_MODEL_H
#define TESTS_CACHE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define MODEL_BATCH 4u /* sequences, pages of a sequence, rows of the whole cache at most */
#define MODEL_PAGES 8u
#define MODEL_ROWS 2048u
#define MODEL_NONE UINT32_MAX /* no page */

struct model {
    uint32_t batch, capacity;
    uint32_t page_size, table_row, n_page; /* 0: not paged */
    uint32_t length[MODEL_BATCH];
    bool refused[MODEL_BATCH]; /* had no room, and was not changed since */
    uint32_t table[MODEL_BATCH][MODEL_PAGES];
    /* Rows of pages or of sequences: the number of the row that was written; 0: not known. */
    uint32_t row[MODEL_ROWS];
};

/* Makes the model what a new cache is: empty, nothing known. */
void model_reset(struct model *m);

/* Where a position of a sequence lies in `row`. */
uint32_t model_place(const struct model *m, uint32_t b, uint32_t position);

/* Rows first, first + 1 ... of sequence 0, those of sequence b `apart` * b further. Returns a bit
 * for each sequence that had no room. Where two write one row, it is not known which is last. */
uint32_t model_append(struct model *m, uint32_t n_new, uint32_t first, uint32_t apart);

/* False where refused: nothing has changed then. */
bool model_truncate(struct model *m, uint32_t b, uint32_t length);
bool model_fork(struct model *m, uint32_t from, uint32_t to);

/* Entries of the table that name a page. */
uint32_t model_uses(const struct model *m, uint32_t page);

#endif
