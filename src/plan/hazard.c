#include "plan/hazard.h"

#include <stdlib.h>
#include <string.h>

/* Compares buffers, not storages: an application may wrap one buffer twice. */
static struct interval interval_of(const struct binding *b)
{
    const struct memory_range *range = &b->storage->range;
    uint64_t first = range->offset + b->offset;
    return (struct interval){range->block->buffer, first, first + b->size};
}

static bool is_before(const struct interval *a, VkBuffer buffer, uint64_t byte)
{
    return a->buffer == buffer ? a->end < byte : (uint64_t)a->buffer < (uint64_t)buffer;
}

/* The first interval that ends at the byte or later, in the buffer or in one behind it. */
static size_t find(const struct intervals *s, VkBuffer buffer, uint64_t byte)
{
    size_t low = 0, high = s->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (is_before(&s->list[middle], buffer, byte))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool meets(const struct intervals *s, struct interval x)
{
    size_t i = find(s, x.buffer, x.first + 1);
    return i < s->n && s->list[i].buffer == x.buffer && s->list[i].first < x.end;
}

static bool make_room(struct intervals *s)
{
    if (s->n < s->room)
        return true;
    size_t room = s->room ? 2 * s->room : 16;
    struct interval *list = realloc(s->list, room * sizeof *list);
    if (!list)
        return false;
    s->list = list;
    s->room = room;
    return true;
}

/* Adds an interval, joined with all that it touches. False where memory ran out. */
static bool add(struct intervals *s, struct interval x)
{
    size_t begin = find(s, x.buffer, x.first), end = begin;
    for (; end < s->n && s->list[end].buffer == x.buffer && s->list[end].first <= x.end; end++) {
        x.first = s->list[end].first < x.first ? s->list[end].first : x.first;
        x.end = s->list[end].end > x.end ? s->list[end].end : x.end;
    }
    if (begin == end) {
        if (!make_room(s))
            return false;
        memmove(&s->list[begin + 1], &s->list[begin], (s->n - begin) * sizeof x);
        s->n++;
    } else {
        memmove(&s->list[begin + 1], &s->list[end], (s->n - end) * sizeof x);
        s->n -= end - begin - 1;
    }
    s->list[begin] = x;
    return true;
}

bool hazards_meet(const struct hazards *h, const struct binding *bindings, uint32_t n)
{
    for (uint32_t i = 0; i < n && !h->unknown; i++) {
        struct interval x = interval_of(&bindings[i]);
        if (meets(&h->written, x) || (bindings[i].write && meets(&h->read, x)))
            return true;
    }
    return h->unknown;
}

void hazards_add(struct hazards *h, const struct binding *bindings, uint32_t n)
{
    for (uint32_t i = 0; i < n && !h->unknown; i++)
        h->unknown = !add(bindings[i].write ? &h->written : &h->read, interval_of(&bindings[i]));
}

void hazards_clear(struct hazards *h)
{
    h->read.n = h->written.n = 0;
    h->unknown = false;
}

void hazards_free(struct hazards *h)
{
    free(h->read.list);
    free(h->written.list);
    *h = (struct hazards){0};
}
