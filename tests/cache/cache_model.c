#include "cache_model.h"

#include <string.h>

void model_reset(struct model *m)
{
    memset(m->length, 0, sizeof m->length);
    memset(m->row, 0, sizeof m->row);
    memset(m->refused, 0, sizeof m->refused);
    for (uint32_t b = 0; b < m->batch; b++)
        for (uint32_t p = 0; p < m->table_row; p++) {
            uint32_t page = b * m->table_row + p;
            m->table[b][p] = page < m->n_page ? page : MODEL_NONE;
        }
}

uint32_t model_place(const struct model *m, uint32_t b, uint32_t position)
{
    if (!m->page_size)
        return b * m->capacity + position;
    return m->table[b][position / m->page_size] * m->page_size + position % m->page_size;
}

uint32_t model_uses(const struct model *m, uint32_t page)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < m->batch; b++)
        for (uint32_t p = 0; p < m->table_row; p++)
            n += m->table[b][p] == page;
    return n;
}

static uint32_t find_free(const struct model *m)
{
    for (uint32_t page = 0; page < m->n_page; page++)
        if (model_uses(m, page) == 0)
            return page;
    return MODEL_NONE;
}

static bool has_room(const struct model *m, uint32_t b, uint32_t n_new)
{
    if (m->length[b] + n_new > m->capacity)
        return false;
    for (uint32_t i = 0; m->page_size && i < n_new; i++)
        if (m->table[b][(m->length[b] + i) / m->page_size] == MODEL_NONE)
            return false;
    return true;
}

uint32_t model_append(struct model *m, uint32_t n_new, uint32_t first, uint32_t apart)
{
    static bool written[MODEL_ROWS];
    uint32_t full = 0;
    memset(written, 0, sizeof written);
    for (uint32_t b = 0; b < m->batch; b++) {
        if (m->refused[b] || !has_room(m, b, n_new)) {
            m->refused[b] = true;
            full |= 1u << b;
            continue;
        }
        for (uint32_t i = 0; i < n_new; i++) {
            uint32_t at = model_place(m, b, m->length[b] + i);
            m->row[at] = written[at] ? 0 : first + b * apart + i;
            written[at] = true;
        }
        m->length[b] += n_new;
    }
    return full;
}

/* From `length` on the sequence has pages of its own, or none. */
static bool own(struct model *m, uint32_t b, uint32_t length)
{
    for (uint32_t p = length / (m->page_size ? m->page_size : 1); p < m->table_row; p++) {
        uint32_t *entry = &m->table[b][p], free = find_free(m);
        if (*entry == MODEL_NONE || model_uses(m, *entry) == 1)
            continue;
        if (p * m->page_size < length && free == MODEL_NONE)
            return false;
        if (p * m->page_size < length)
            memcpy(&m->row[free * m->page_size], &m->row[*entry * m->page_size],
                   m->page_size * sizeof *m->row);
        *entry = free;
    }
    return true;
}

bool model_truncate(struct model *m, uint32_t b, uint32_t length)
{
    const struct model before = *m;
    if (length > m->length[b])
        return false;
    if (!own(m, b, length)) {
        *m = before;
        return false;
    }
    m->length[b] = length;
    m->refused[b] = false;
    return true;
}

bool model_fork(struct model *m, uint32_t from, uint32_t to)
{
    const struct model before = *m;
    uint32_t length = m->length[from];
    if (from == to)
        return false;
    for (uint32_t p = 0; p < m->table_row && p * m->page_size < length; p++)
        m->table[to][p] = m->table[from][p];
    if (!own(m, to, length)) {
        *m = before;
        return false;
    }
    if (!m->page_size && length > 0)
        memcpy(&m->row[to * m->capacity], &m->row[from * m->capacity],
               m->capacity * sizeof *m->row);
    m->length[to] = length;
    m->refused[to] = false;
    return true;
}
