/* A problem as one line. */
#include "large_problem.h"

#include <stdio.h>

/* Appends to text where the condition holds. */
#define SAY(condition, ...)                     \
    if ((condition) && length < LARGE_TEXT - 1) \
    length += (size_t)snprintf(text + length, LARGE_TEXT - length, __VA_ARGS__)

static const char *const patterns[] = {"hash", "rise", "step"};

static size_t say_attention(const struct large_attention *a, char *text, size_t length)
{
    static const char *const kinds[] = {"mean", "hot", "levels"};
    SAY(true, " %s %s", kinds[a->kind], patterns[a->pattern]);
    SAY(a->swapped, " swapped");
    SAY(a->shared_kv, " shared");
    SAY(a->nonfinite, " nonfinite");
    SAY(a->mask_ranges, " ranges");
    SAY(a->range != 0, " range %g", (double)a->range);
    SAY(a->runs, " runs %u", a->runs);
    SAY(a->query_dim, " widths %u,%u", a->query_dim, a->key_dim);
    if (a->kind == LARGE_HOT)
        for (int i = 0; i < 2 * LARGE_HOT_KEYS; i++)
            SAY(true, "%s%lld", i ? "," : " hot ",
                (long long)a->hot[i / LARGE_HOT_KEYS][i % LARGE_HOT_KEYS]);
    return length;
}

static size_t say_linear(const struct large_linear *l, char *text, size_t length)
{
    static const char *const kinds[] = {"exact", "ramp", "one-hot"};
    SAY(true, " %s %s: m", kinds[l->kind], patterns[l->pattern]);
    for (uint32_t i = 0; i + 1 < l->rank; i++)
        SAY(true, "%s%u", i ? "x" : " ", l->m[i]);
    SAY(true, " n %u k %u types %s %s %s", l->n, l->k, vka_dtype_name(l->input),
        vka_dtype_name(l->weight), vka_dtype_name(l->output));
    SAY(l->has_bias, " bias %s", vka_dtype_name(l->bias));
    SAY(l->relu, " relu");
    SAY(l->nonfinite, " nonfinite");
    SAY(l->planted, " planted");
    return length;
}

const char *large_text(const struct large_problem *p, char text[LARGE_TEXT])
{
    static const char *const ops[] = {"attention", "cache", "ragged", "linear", "rope", "layer"};
    char problem[PROBLEM_TEXT];
    size_t length = 0;
    SAY(true, "%s", ops[p->op]);
    length = p->op == LARGE_LINEAR ? say_linear(&p->l, text, length)
                                   : say_attention(&p->a, text, length);
    SAY(true, ": %s", problem_text(&p->a.p, problem));
    return text;
}
