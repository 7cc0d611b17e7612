/* Reads regular expressions. SPDX-License-Identifier: MIT */
#include "pattern.h"
#include "letters.h"

#include <string.h>

struct reader {
    struct pattern *pattern;
    const char *utf8;
    size_t size, at;
    bool any_case, failed;
};

/* Nodes that follow each other, from the first to the last. */
struct chain {
    int first, last;
};

static bool take(struct reader *r, const char *word)
{
    size_t n = strlen(word);
    bool found = r->size - r->at >= n && !memcmp(r->utf8 + r->at, word, n);
    r->at += found ? n : 0;
    return found;
}

static uint32_t take_point(struct reader *r)
{
    uint32_t c = 0;
    if (r->at == r->size || !letters_read(r->utf8, r->size, &r->at, &c))
        r->failed = true;
    return c;
}

static int add_node(struct reader *r, enum pattern_kind kind)
{
    if (r->pattern->n_node == PATTERN_MOST_NODES) {
        r->failed = true;
        return 0;
    }
    r->pattern->nodes[r->pattern->n_node] =
        (struct pattern_node){.kind = kind, .least = 1, .most = 1, .other = -1, .next = -1};
    return r->pattern->n_node++;
}

static void add_range(struct reader *r, struct pattern_set *set, uint32_t first, uint32_t last)
{
    struct pattern *p = r->pattern;
    if (p->n_range == PATTERN_MOST_RANGES || last < first) {
        r->failed = true;
        return;
    }
    if (!set->n_range)
        set->first = (uint16_t)p->n_range;
    set->n_range++;
    p->ranges[p->n_range].first = first;
    p->ranges[p->n_range++].last = last;
}

/* Takes \s or \p{..}, whose kinds a set has. */
static unsigned take_kinds(struct reader *r)
{
    static const struct {
        const char *name;
        unsigned kinds;
    } kinds[] = {
        {"\\s", KIND_SPACE},
        {"\\p{L}", KIND_LETTER},
        {"\\p{Lu}", KIND_UPPER},
        {"\\p{Ll}", KIND_LOWER},
        {"\\p{Lt}", KIND_TITLE},
        {"\\p{Lm}", KIND_MODIFIER},
        {"\\p{Lo}", KIND_OTHER_LETTER},
        {"\\p{M}", KIND_MARK},
        {"\\p{N}", KIND_NUMBER},
        {"\\p{P}", KIND_PUNCTUATION},
        {"\\p{S}", KIND_SYMBOL},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (take(r, kinds[i].name))
            return kinds[i].kinds;
    return 0;
}

/* A code point that stands for itself, or is written with a backslash. */
static uint32_t take_letter(struct reader *r)
{
    if (!take(r, "\\"))
        return take_point(r);
    uint32_t c = take_point(r);
    if (c == 'n')
        return '\n';
    if (c == 'r')
        return '\r';
    r->failed |= c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                 (c >= 'a' && c <= 'z'); /* of another meaning */
    return c;
}

static void read_brackets(struct reader *r, struct pattern_set *set)
{
    set->negated = take(r, "^");
    while (!r->failed && !take(r, "]")) {
        unsigned kinds = take_kinds(r);
        set->kinds |= kinds;
        if (kinds)
            continue;
        r->failed |= r->at < r->size && r->utf8[r->at] == '['; /* a set in a set */
        uint32_t first = take_letter(r), last = first;
        if (r->at + 1 < r->size && r->utf8[r->at] == '-' && r->utf8[r->at + 1] != ']') {
            r->at++;
            last = take_letter(r);
        }
        add_range(r, set, first, last);
    }
}

static void read_set(struct reader *r, struct pattern_set *set)
{
    *set = (struct pattern_set){0};
    if (take(r, "\\S")) {
        *set = (struct pattern_set){.kinds = KIND_SPACE, .negated = true};
        return;
    }
    if (take(r, "[")) {
        read_brackets(r, set);
        return;
    }
    set->kinds = take_kinds(r);
    if (set->kinds)
        return;
    r->failed |= r->at < r->size && strchr("?*+{}^.])", r->utf8[r->at]) != NULL;
    uint32_t c = take_letter(r);
    add_range(r, set, c, c);
    if (r->any_case && c >= 'a' && c <= 'z') {
        add_range(r, set, c - 32, c - 32);
        if (c == 's') /* the long s, and the sign of Kelvin */
            add_range(r, set, 0x17f, 0x17f);
        if (c == 'k')
            add_range(r, set, 0x212a, 0x212a);
    }
}

static uint32_t take_number(struct reader *r)
{
    uint32_t n = 0;
    size_t begin = r->at;
    for (; r->at < r->size && r->utf8[r->at] >= '0' && r->utf8[r->at] <= '9' && n < 1000; r->at++)
        n = 10 * n + (uint32_t)(r->utf8[r->at] - '0');
    r->failed |= r->at == begin;
    return n;
}

static void read_count(struct reader *r, struct pattern_node *node)
{
    if (take(r, "?")) {
        node->least = 0;
    } else if (take(r, "*") || take(r, "+")) {
        node->least = r->utf8[r->at - 1] == '+';
        node->most = UINT32_MAX;
    } else if (take(r, "{")) {
        node->least = node->most = take_number(r);
        if (take(r, ","))
            node->most = take_number(r);
        r->failed |= !take(r, "}") || node->most < node->least;
    }
}

static struct chain read_alternatives(struct reader *r, int depth);

static struct chain read_group(struct reader *r, int depth)
{
    bool outer = r->any_case;
    bool any_case = take(r, "(?i:");
    r->any_case |= any_case;
    r->failed |= depth > 4 || (!any_case && !take(r, "(?:"));
    if (r->failed)
        return (struct chain){0, 0};
    struct chain group = read_alternatives(r, depth + 1);
    r->any_case = outer;
    r->failed |= !take(r, ")");
    if (!r->failed && take(r, "?")) {
        int last = group.first;
        while (r->pattern->nodes[last].other >= 0)
            last = r->pattern->nodes[last].other;
        r->pattern->nodes[last].other = group.last;
    }
    return group;
}

static struct chain read_one(struct reader *r, int depth)
{
    bool not_before = take(r, "(?!");
    if (!not_before && r->utf8[r->at] == '(')
        return read_group(r, depth);
    int i = add_node(r, not_before ? NODE_NOT_BEFORE : take(r, "$") ? NODE_END : NODE_SET);
    struct pattern_node *node = &r->pattern->nodes[i];
    if (node->kind != NODE_END)
        read_set(r, &node->set);
    if (not_before)
        r->failed |= !take(r, ")");
    else if (node->kind == NODE_SET)
        read_count(r, node);
    return (struct chain){i, i};
}

/* What follows each other, and then `join`. */
static int read_sequence(struct reader *r, int join, int depth)
{
    int first = join, last = -1;
    while (!r->failed && r->at < r->size && r->utf8[r->at] != '|' && r->utf8[r->at] != ')') {
        struct chain one = read_one(r, depth);
        if (last < 0)
            first = one.first;
        else
            r->pattern->nodes[last].next = one.first;
        last = one.last;
        r->pattern->nodes[last].next = join;
    }
    return first;
}

static struct chain read_alternatives(struct reader *r, int depth)
{
    int join = add_node(r, NODE_JOIN), first = add_node(r, NODE_EITHER), last = first;
    r->pattern->nodes[first].inner = read_sequence(r, join, depth);
    while (!r->failed && take(r, "|")) {
        int either = add_node(r, NODE_EITHER);
        r->pattern->nodes[last].other = either;
        r->pattern->nodes[either].inner = read_sequence(r, join, depth);
        last = either;
    }
    return (struct chain){first, join};
}

bool pattern_read(const char *utf8, struct pattern *pattern)
{
    struct reader r = {.pattern = pattern, .utf8 = utf8, .size = strlen(utf8)};
    *pattern = (struct pattern){0};
    pattern->first = read_alternatives(&r, 0).first;
    return !r.failed && r.at == r.size;
}
