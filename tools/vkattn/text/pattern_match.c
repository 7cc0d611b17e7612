/* What a regular expression fits. SPDX-License-Identifier: MIT */
#include "pattern.h"

static bool has(const struct pattern *p, const struct pattern_set *set,
                const struct pattern_text *text, size_t at)
{
    uint32_t c = text->points[at];
    bool found = (set->kinds & text->kinds[at]) != 0;
    for (unsigned i = 0; !found && i < set->n_range; i++)
        found = p->ranges[set->first + i].first <= c && c <= p->ranges[set->first + i].last;
    return found != set->negated;
}

/* Whether the text fits from `at` on; *end is behind what fits. */
static bool fits(const struct pattern *p, int node, const struct pattern_text *text, size_t at,
                 size_t *end)
{
    if (node < 0) {
        *end = at;
        return true;
    }
    const struct pattern_node *n = &p->nodes[node];
    size_t count = 0;
    switch (n->kind) {
    case NODE_SET:
        while (count < n->most && at + count < text->n && has(p, &n->set, text, at + count))
            count++;
        for (; count >= n->least; count--) {
            if (fits(p, n->next, text, at + count, end))
                return true;
            if (!count)
                break;
        }
        return false;
    case NODE_EITHER:
        return fits(p, n->inner, text, at, end) ||
               (n->other >= 0 && fits(p, n->other, text, at, end));
    case NODE_NOT_BEFORE:
        return (at == text->n || !has(p, &n->set, text, at)) && fits(p, n->next, text, at, end);
    case NODE_END:
        return at == text->n && fits(p, n->next, text, at, end);
    case NODE_JOIN:
        return fits(p, n->next, text, at, end);
    }
    return false;
}

size_t pattern_match(const struct pattern *pattern, const struct pattern_text *text, size_t at)
{
    size_t end;
    return fits(pattern, pattern->first, text, at, &end) ? end - at : 0;
}
