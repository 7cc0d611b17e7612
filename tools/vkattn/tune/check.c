#include "check.h"

#include "trial.h"

#include <reference/reference.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes that are not multiples of any tile, and sizes that are multiples of most. */
static const struct bench_options products[] = {
    {.op = BENCH_MATMUL, .m = 37, .n = 70, .k = 53},
    {.op = BENCH_MATMUL, .m = 128, .n = 132, .k = 64},
};

#define ATTENTION(b, h, g, q, kv, d, v, c)                                                    \
    {                                                                                         \
        .op = BENCH_ATTENTION, .batch = b, .n_head = h, .n_kv_head = g, .n_q = q, .n_kv = kv, \
        .head_dim = d, .value_dim = v, .causal = c, .path = VKA_PATH_FUSED                    \
    }
static const struct bench_options attentions[] = {
    ATTENTION(2, 4, 2, 37, 83, 20, 13, false),
    ATTENTION(1, 2, 2, 70, 70, 16, 16, true),
};

static bool check_product(const struct bench_options *o, const struct trial *t)
{
    double *want = calloc((size_t)o->m * o->n, sizeof *want);
    bool right = false;
    if (want) {
        ref_linear(t->data[0], t->data[1], NULL, o->m, o->k, o->n, false, want);
        right = trial_agrees(t->data[3], want, t->count[3], o->n, o->dtype);
    }
    free(want);
    return right;
}

static bool check_attention(const struct bench_options *o, const struct trial *t)
{
    double *want = calloc(t->count[3], sizeof *want);
    bool right = want && ref_attention(&(struct ref_attention){
                             .batch = o->batch,
                             .n_head = o->n_head,
                             .n_kv_head = o->n_kv_head,
                             .n_q = o->n_q,
                             .n_kv = o->n_kv,
                             .head_dim = o->head_dim,
                             .value_dim = o->value_dim,
                             .q = t->data[0],
                             .k = t->data[1],
                             .v = t->data[2],
                             .causal = o->causal,
                             .context = want,
                         }) == VKA_OK;
    right = right && trial_agrees(t->data[3], want, t->count[3], o->value_dim, o->dtype);
    free(want);
    return right;
}

/* Whether the plan uses the kernel for one of its problems. */
static bool uses(const struct trial *trial, const char *kernel)
{
    for (size_t i = 0; i < trial->n_problem; i++)
        if (!strcmp(trial->kernel[i], kernel))
            return true;
    return false;
}

static enum tool_exit check_one(struct tuning *tuning, const struct bench_options *o,
                                const char *kernel, const char *lines, bool *right)
{
    struct trial trial = {.lines = lines, .inputs = true};
    enum tool_exit code = trial_run(tuning, o, 0, &trial);
    if (code == TOOL_OK && trial.status == VKA_OK && uses(&trial, kernel))
        *right = o->op == BENCH_MATMUL ? check_product(o, &trial) : check_attention(o, &trial);
    else if (code == TOOL_OK && trial.status != VKA_UNSUPPORTED)
        *right = trial.status == VKA_OK; /* not used: nothing to check */
    trial_free(&trial);
    return code;
}

enum tool_exit tune_check(struct tuning *tuning, const char *kernel, int dtype, bool *right)
{
    const bool product = !strncmp(kernel, "matmul_", strlen("matmul_"));
    const struct bench_options *list = product ? products : attentions;
    const size_t n =
        product ? sizeof products / sizeof products[0] : sizeof attentions / sizeof attentions[0];
    char name[TUNE_NAME], lines[128];
    enum tool_exit code = TOOL_OK;
    snprintf(name, sizeof name, "%.40s %d", kernel, dtype);
    *right = true;
    for (size_t i = 0; i < tuning->n_checked; i++)
        if (!strcmp(tuning->checked[i], name))
            return TOOL_OK;
    snprintf(lines, sizeof lines, "kernel %s/* %.40s 0\n", product ? "matmul" : "attention",
             kernel);
    for (size_t i = 0; i < n && code == TOOL_OK && *right; i++) {
        struct bench_options o = list[i];
        o.dtype = dtype;
        code = check_one(tuning, &o, kernel, lines, right);
    }
    if (code == TOOL_OK && *right && tuning->n_checked < TUNE_CHECKED)
        memcpy(tuning->checked[tuning->n_checked++], name, sizeof name);
    return code;
}
