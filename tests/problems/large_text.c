/* A problem as one line. */
#include "large_problem.h"

#include <gpu/kernels.h>

#include <stdio.h>

/* Appends to text where the condition holds. */
#define SAY(condition, ...)                     \
    if ((condition) && length < LARGE_TEXT - 1) \
    length += (size_t)snprintf(text + length, LARGE_TEXT - length, __VA_ARGS__)

static const char *const patterns[] = {"hash", "rise", "step"};

static size_t say_options(const struct large_attention *a, char *text, size_t length)
{
    static const char *const rows[] = {"zero", "uniform", "nan"};
    static const char *const scores[] = {"none", "raw", "softcap", "bias", "softmax"};
    SAY(a->swapped, " swapped");
    SAY(a->shared_kv, " shared");
    SAY(a->present, " present");
    SAY(a->nonfinite, " nonfinite");
    SAY(a->causal, " causal");
    SAY(a->window, " window %d,%d", a->window_left, a->window_right);
    SAY(a->lengths, " lengths");
    SAY(a->offsets, " offsets");
    SAY(a->mask_rank, " mask %s%s", vka_dtype_name(a->mask), a->mask_stretches ? " stretches" : "");
    for (uint32_t i = 0; i < a->mask_rank; i++)
        SAY(true, "%s%u", i ? "x" : " ", a->mask_shape[i]);
    SAY(a->scale != 0, " scale %.9g", (double)a->scale);
    SAY(a->softcap != 0, " softcap %.9g", (double)a->softcap);
    SAY(a->sink, " sink");
    SAY(a->alibi, " alibi");
    SAY(a->scores_kind, " scores %s %s", scores[a->scores_kind], vka_dtype_name(a->scores));
    SAY(true, " masked row %s", rows[a->masked_row]);
    SAY(a->capacity, " capacity %u page_size %u runs %u", a->capacity, a->page_size, a->runs);
    SAY(a->n_sequence, " sequences %u", a->n_sequence);
    SAY(a->rope.dim, " rope %u base %g%s", a->rope.dim, (double)a->rope.base,
        a->rope.interleaved ? " interleaved" : "");
    SAY(a->query_dim, " widths %u,%u", a->query_dim, a->key_dim);
    return length;
}

static size_t say_attention(const struct large_attention *a, char *text, size_t length)
{
    static const char *const kinds[] = {"mean", "hot", "levels"};
    SAY(true, " %s %s: batch %u heads %u/%u n_q %u n_kv %u+%u dims %u,%u types %s %s %s %s",
        kinds[a->kind], patterns[a->pattern], a->batch, a->n_kv_head * a->group, a->n_kv_head,
        a->n_q, a->n_past, a->n_new, a->head_dim, a->value_dim, vka_dtype_name(a->q),
        vka_dtype_name(a->k), vka_dtype_name(a->v), vka_dtype_name(a->output));
    length = say_options(a, text, length);
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
    static const char *const paths[] = {"auto", "unfused", "fused"};
    size_t length = 0;
    text[0] = '\0';
    SAY(true, "%s %s", ops[p->op], paths[p->path]);
    length = p->op == LARGE_LINEAR ? say_linear(&p->l, text, length)
                                   : say_attention(&p->a, text, length);
    for (int k = 0; k < KERNEL_COUNT; k++)
        SAY(p->disabled_kernels >> k & 1, "%s%s",
            p->disabled_kernels & ((1ull << k) - 1) ? "," : " not ", kernel_table[k].name);
    SAY(p->submit_budget == VKA_NO_BUDGET, " no budget");
    SAY(p->submit_budget && p->submit_budget != VKA_NO_BUDGET, " budget %llu",
        (unsigned long long)p->submit_budget);
    SAY(p->workspace_limit, " workspace %llu", (unsigned long long)p->workspace_limit);
    return text;
}
