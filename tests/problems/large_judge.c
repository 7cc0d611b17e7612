/* Whether large attention gave what it should. */
#include "large_attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int32_t integer_at(const struct large_tensor *t, uint32_t i)
{
    return ((const int32_t *)t->host)[i];
}

/* The row of query i of a sequence, in keys of the tables. */
static struct large_row row_of(const struct large_whole *r, uint32_t sequence, uint32_t head,
                               uint32_t i)
{
    const struct large_attention *a = r->a;
    int64_t start = 0, offset = a->n_past, n_kv = a->n_past + a->n_new;
    if (a->n_sequence) {
        start = integer_at(&r->t[OPERAND_KV_START], sequence);
        n_kv = integer_at(&r->t[OPERAND_KV_START], sequence + 1) - start;
    }
    int64_t length = a->lengths ? integer_at(&r->t[OPERAND_LENGTH], sequence) : n_kv;
    offset = a->offsets ? integer_at(&r->t[OPERAND_OFFSET], sequence) : offset;
    struct large_row row =
        large_row_at(a, sequence, head, i, offset, length < n_kv ? length : n_kv);
    row.position += start;
    row.first += start;
    row.end += start;
    return row;
}

/* Rows of a ragged batch that no sequence has keep what they had. */
static bool untouched(const struct large_tensor *t, uint64_t at, uint64_t width)
{
    size_t size = vka_dtype_size(t->dtype);
    const uint8_t *bytes = (const uint8_t *)t->host + at * size;
    for (size_t i = 0; i < width * size; i++)
        if (bytes[i] != 0xff)
            return false;
    return true;
}

static bool judge_ragged(struct large_whole *r, uint32_t head, struct large_verdict *v,
                         double *want, struct large_result *result)
{
    const struct large_attention *a = r->a;
    uint32_t s = 0;
    for (uint32_t i = 0; i < a->n_q; i++) {
        uint64_t at = ((uint64_t)head * a->n_q + i) * a->value_dim;
        while (s < a->n_sequence && (int64_t)i >= integer_at(&r->t[OPERAND_Q_START], s + 1))
            s++;
        if (s == a->n_sequence || (int64_t)i < integer_at(&r->t[OPERAND_Q_START], 0)) {
            if (untouched(&r->t[OPERAND_OUTPUT], at, a->value_dim))
                continue;
            snprintf(result->why, LARGE_WHY, "row %u, of no sequence, was written", i);
            return false;
        }
        struct large_row row =
            row_of(r, s, head, i - (uint32_t)integer_at(&r->t[OPERAND_Q_START], s));
        /* the one batch element that the values' terms know, the query that q was filled for */
        row.batch = 0;
        row.query = i;
        bool exact = large_context(&r->known, &row, want);
        large_judge(v, &r->t[OPERAND_OUTPUT], at, a->value_dim, want, exact);
    }
    return true;
}

static void judge_rows(struct large_whole *r, uint32_t b, uint32_t h, struct large_verdict v[3],
                       double *want)
{
    const struct large_attention *a = r->a;
    const uint32_t n_kv = a->n_past + a->n_new, H = a->n_kv_head * a->group;
    for (uint32_t i = 0; i < a->n_q; i++) {
        uint64_t at = ((uint64_t)b * H + h) * a->n_q + i;
        struct large_row row = row_of(r, b, h, i);
        bool exact = large_context(&r->known, &row, want);
        large_judge(&v[0], &r->t[OPERAND_OUTPUT], at * a->value_dim, a->value_dim, want, exact);
        if (!a->scores_kind)
            continue;
        large_scores(&r->known, &row, want);
        large_judge(&v[1], &r->t[OPERAND_SCORES], at * n_kv, n_kv, want, false);
        if (a->scores_kind != VKA_SCORES_SOFTMAX || a->scores != VKA_F32)
            continue;
        double sum[2] = {0, 0};
        for (uint32_t j = 0; j < n_kv; j++) {
            sum[0] += large_load(&r->t[OPERAND_SCORES], at * n_kv + j);
            sum[1] += want[j];
        }
        bool right = isnan(sum[1]) ? isnan(sum[0]) : fabs(sum[0] - sum[1]) <= 3e-6 * sum[1];
        v[2].failed += !right;
        v[2].rows++;
        v[2].got = right ? v[2].got : sum[0];
        v[2].want = right ? v[2].want : sum[1];
    }
}

/* Turns a new key of head_dim as the scores see it. */
static void rotate(const struct large_attention *a, int64_t position, double *x)
{
    const struct vka_rope *rope = &a->rope;
    double base = rope->base != 0 ? (double)rope->base : 10000;
    for (uint32_t i = 0; i < rope->dim / 2; i++) {
        uint32_t first = rope->interleaved ? 2 * i : i;
        uint32_t second = rope->interleaved ? 2 * i + 1 : i + rope->dim / 2;
        double angle = (double)position * pow(base, -2.0 * i / rope->dim);
        double u = x[first], v = x[second];
        x[first] = u * cos(angle) - v * sin(angle);
        x[second] = u * sin(angle) + v * cos(angle);
    }
}

/* Present keys and values are what was given, to the bit where they are not turned. */
static bool judge_present(struct large_whole *r, int which, const char *name,
                          struct large_result *result)
{
    const struct large_attention *a = r->a;
    const uint32_t n_kv = a->n_past + a->n_new;
    const uint32_t width = which == OPERAND_PRESENT_K ? a->head_dim : a->value_dim;
    struct large_tensor *got = &r->t[which];
    struct large_tensor all = {.dtype = got->dtype, .count = got->count};
    struct large_verdict v = large_verdict(name, got->dtype, result->kernels);
    double *want = malloc(width * sizeof *want);
    bool ok = want && large_download(got) == VKA_OK;
    ok = ok && (which == OPERAND_PRESENT_K ? large_fill_k(&r->known, &all, 0, n_kv)
                                           : large_fill_v(&r->known, &all, 0, n_kv));
    for (uint64_t row = 0; ok && row < got->count / width; row++) {
        uint64_t from = a->shared_kv ? row % n_kv : row; /* then every head is the first one */
        bool turned = which == OPERAND_PRESENT_K && a->rope.dim && row % n_kv >= a->n_past;
        for (uint32_t c = 0; c < width; c++)
            want[c] = large_load(&all, from * width + c);
        if (turned)
            rotate(a, (int64_t)(row % n_kv), want);
        large_judge(&v, got, row * width, width, want, !turned);
    }
    if (!ok)
        snprintf(result->why, LARGE_WHY, "%s: no memory, or a canary is gone", name);
    large_tensor_destroy(&all);
    free(want);
    return ok && large_judged(&v, result);
}

bool large_judge_whole(struct vka_device *device, struct large_whole *r,
                       struct large_result *result)
{
    const struct large_attention *a = r->a;
    const uint32_t n_kv = a->n_past + a->n_new, H = a->n_kv_head * a->group;
    struct large_verdict v[3] = {large_verdict("output", a->output, result->kernels),
                                 large_verdict("scores", a->scores, result->kernels),
                                 large_verdict("sum of a row's weights", VKA_F32, result->kernels)};
    uint32_t most = a->scores_kind && n_kv > a->value_dim ? n_kv : a->value_dim;
    double *want = malloc(most * sizeof *want);
    enum vka_status status = want ? large_download(&r->t[OPERAND_OUTPUT]) : VKA_OUT_OF_HOST_MEMORY;
    if (status == VKA_OK && a->scores_kind)
        status = large_download(&r->t[OPERAND_SCORES]);
    bool ok = status == VKA_OK || large_failed(device, status, result);
    for (uint32_t h = 0; ok && a->n_sequence && h < H; h++)
        ok = judge_ragged(r, h, &v[0], want, result);
    for (uint32_t b = 0; ok && !a->n_sequence && b < a->batch; b++)
        for (uint32_t h = 0; h < H; h++)
            judge_rows(r, b, h, v, want);
    for (int i = 0; i < 3 && ok; i++)
        ok = large_judged(&v[i], result);
    free(want);
    if (ok && r->known.no_memory)
        return large_failed(device, VKA_OUT_OF_HOST_MEMORY, result);
    return ok &&
           (!a->has_present || (judge_present(r, OPERAND_PRESENT_K, "present_key", result) &&
                                judge_present(r, OPERAND_PRESENT_V, "present_value", result)));
}

bool large_judge_nonfinite(struct vka_plan *plan, const struct large_attention *a,
                           struct large_result *result)
{
    struct vka_nonfinite_info info;
    if (a->masked_row == VKA_MASKED_NAN || a->scores_kind == VKA_SCORES_BIAS)
        return true;
    for (size_t i = 0; i < vka_plan_nonfinite_count(plan); i++)
        if (vka_plan_nonfinite(plan, i, &info) != VKA_OK || info.nan || info.inf) {
            snprintf(result->why, LARGE_WHY, "%llu NaN and %llu Inf counted in %s, where none are",
                     (unsigned long long)info.nan, (unsigned long long)info.inf, info.name);
            return false;
        }
    return true;
}
