/* Large attention: whole, with a past, ragged. */
#include "large_known.h"

#include <gpu/kernels.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    Q = 0,
    K,
    V,
    PAST_K,
    PAST_V,
    MASK,
    LENGTH,
    OFFSET,
    SINK,
    ALIBI,
    Q_START,
    KV_START,
    OUTPUT, /* from here on written by the plan */
    SCORES,
    PRESENT_K,
    PRESENT_V,
    TENSORS
};

struct run {
    const struct large_attention *a;
    struct large_known known;
    struct large_tensor t[TENSORS]; /* view NULL: not part of the problem */
    uint32_t n_sequence;            /* of a ragged batch, else the batch */
};

/* ---- Tensors --------------------------------------------------------------------------------- */

static enum vka_status create(struct vka_device *device, struct run *r)
{
    const struct large_attention *a = r->a;
    const uint32_t B = a->batch, G = a->n_kv_head, H = G * a->group, S = r->n_sequence;
    const uint32_t D = a->head_dim, E = a->value_dim, P = a->n_past, N = a->n_new;
    const enum large_layout kv = a->shared_kv ? LARGE_SHARED : a->swapped ? LARGE_SWAPPED : 0;
    const enum large_layout rows = a->swapped ? LARGE_SWAPPED : LARGE_DENSE;
    const struct {
        bool wanted;
        enum vka_dtype dtype;
        enum large_layout layout;
        uint32_t rank, size[4];
    } list[TENSORS] = {
        [Q] = {true, a->q, rows, 4, {B, H, a->n_q, D}},
        [K] = {true, a->k, kv, 4, {B, G, N, D}},
        [V] = {true, a->v, kv, 4, {B, G, N, E}},
        [PAST_K] = {P > 0, a->k, kv, 4, {B, G, P, D}},
        [PAST_V] = {P > 0, a->v, kv, 4, {B, G, P, E}},
        [LENGTH] = {a->lengths, VKA_I32, 0, 1, {S}},
        [OFFSET] = {a->offsets, VKA_I32, 0, 1, {S}},
        [SINK] = {a->sink, VKA_F32, 0, 1, {H}},
        [ALIBI] = {a->alibi, VKA_F32, 0, 1, {H}},
        [Q_START] = {a->n_sequence > 0, VKA_I32, 0, 1, {S + 1}},
        [KV_START] = {a->n_sequence > 0, VKA_I32, 0, 1, {S + 1}},
        [OUTPUT] = {true, a->output, rows, 4, {B, H, a->n_q, E}},
        [SCORES] = {a->scores_kind > 0, a->scores, 0, 4, {B, H, a->n_q, P + N}},
        [PRESENT_K] = {a->present, a->k, 0, 4, {B, G, P + N, D}},
        [PRESENT_V] = {a->present, a->v, 0, 4, {B, G, P + N, E}},
    };
    enum vka_status status = VKA_OK;
    if (a->mask_rank)
        status = large_tensor_create(device, a->mask, a->mask_rank, a->mask_shape, 0, &r->t[MASK]);
    for (int i = 0; i < TENSORS && status == VKA_OK; i++)
        if (list[i].wanted)
            status = large_tensor_create(device, list[i].dtype, list[i].rank, list[i].size,
                                         list[i].layout, &r->t[i]);
    return status;
}

/* Where sequence s begins among n rows: two long sequences, the others of 1 to 3 rows, and some
 * rows before the first and behind the last that belong to none. With too few rows for that, all
 * sequences have 0, 1 or 2. */
static uint32_t start_of(uint32_t s, uint32_t n_sequence, uint32_t n, uint32_t first_thirds)
{
    const uint64_t outside = n / 8;
    if (n < 4 * ((uint64_t)n_sequence + 2))
        return (uint32_t)((uint64_t)s * n / n_sequence);
    uint64_t rest = n - outside - outside / 2 - 2 * (uint64_t)n_sequence;
    uint64_t first = rest * first_thirds / 3, at = outside + 2 * (uint64_t)s - (s % 3 == 1);
    at += s > n_sequence / 3 ? first : 0;
    at += s > n_sequence / 2 ? rest - first : 0;
    return (uint32_t)at;
}

static void fill_small(struct run *r)
{
    const struct large_attention *a = r->a;
    const uint32_t n_kv = a->n_past + a->n_new, H = a->n_kv_head * a->group;
    for (uint32_t s = 0; s < r->n_sequence; s++) {
        uint32_t x = large_mix(s, 7);
        if (a->lengths)
            large_store(&r->t[LENGTH], s,
                        x % 16 == 0  ? 0
                        : x % 16 < 4 ? n_kv
                                     : x / 16 % (n_kv + 1));
        if (a->offsets)
            large_store(&r->t[OFFSET], s, large_mix(s, 8) % n_kv);
    }
    for (uint32_t h = 0; h < H; h++) {
        if (a->sink)
            large_store(&r->t[SINK], h, large_encode(VKA_F32, (double)large_sink(&r->known, h)));
        if (a->alibi)
            large_store(&r->t[ALIBI], h, large_encode(VKA_F32, (double)large_slope(&r->known, h)));
    }
    for (uint32_t s = 0; s <= a->n_sequence && a->n_sequence; s++) {
        large_store(&r->t[Q_START], s, start_of(s, a->n_sequence, a->n_q, 1));
        large_store(&r->t[KV_START], s, start_of(s, a->n_sequence, a->n_new, 2));
    }
}

static enum vka_status fill(struct run *r)
{
    const struct large_attention *a = r->a;
    const uint32_t P = a->n_past, N = a->n_new;
    struct large_tensor *t = r->t;
    enum vka_status status = VKA_OK;
    for (int i = LENGTH; i <= KV_START; i++)
        if (t[i].view && !large_host(&t[i]))
            return VKA_OUT_OF_HOST_MEMORY;
    fill_small(r);
    for (int i = 0; i < TENSORS && status == VKA_OK; i++) {
        bool ok = true;
        if (!t[i].view)
            continue;
        if (i == Q)
            ok = large_fill_q(a, &t[i]);
        else if (i == K || i == PAST_K)
            ok = large_fill_k(&r->known, &t[i], i == K ? P : 0, i == K ? N : P);
        else if (i == V || i == PAST_V)
            ok = large_fill_v(&r->known, &t[i], i == V ? P : 0, i == V ? N : P);
        else if (i == MASK)
            ok = large_fill_mask(&r->known, &t[i]);
        if (!ok)
            return VKA_OUT_OF_HOST_MEMORY;
        if (i >= OUTPUT)
            status = large_blank(&t[i]);
        else if (i < LENGTH || i > KV_START)
            status = large_upload(&t[i]);
        else /* what the host needs for the verdict */
            status = vka_tensor_write(t[i].view, t[i].host, vka_tensor_size(t[i].view));
    }
    return status;
}

/* ---- The verdict ----------------------------------------------------------------------------- */

static int32_t integer_at(const struct large_tensor *t, uint32_t i)
{
    return ((const int32_t *)t->host)[i];
}

/* The row of query i of a sequence, in keys of the tables. */
static struct large_row row_of(const struct run *r, uint32_t sequence, uint32_t head, uint32_t i)
{
    const struct large_attention *a = r->a;
    int64_t start = 0, offset = a->n_past, n_kv = a->n_past + a->n_new;
    if (a->n_sequence) {
        start = integer_at(&r->t[KV_START], sequence);
        n_kv = integer_at(&r->t[KV_START], sequence + 1) - start;
    }
    int64_t length = a->lengths ? integer_at(&r->t[LENGTH], sequence) : n_kv;
    offset = a->offsets ? integer_at(&r->t[OFFSET], sequence) : offset;
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

static bool judge_ragged(struct run *r, uint32_t head, struct large_verdict *v, double *want,
                         struct large_result *result)
{
    const struct large_attention *a = r->a;
    uint32_t s = 0;
    for (uint32_t i = 0; i < a->n_q; i++) {
        uint64_t at = ((uint64_t)head * a->n_q + i) * a->value_dim;
        while (s < a->n_sequence && (int64_t)i >= integer_at(&r->t[Q_START], s + 1))
            s++;
        if (s == a->n_sequence || (int64_t)i < integer_at(&r->t[Q_START], 0)) {
            if (untouched(&r->t[OUTPUT], at, a->value_dim))
                continue;
            snprintf(result->why, LARGE_WHY, "row %u, of no sequence, was written", i);
            return false;
        }
        struct large_row row = row_of(r, s, head, i - (uint32_t)integer_at(&r->t[Q_START], s));
        /* the one batch element that the values' terms know, the query that q was filled for */
        row.batch = 0;
        row.query = i;
        bool exact = large_context(&r->known, &row, want);
        large_judge(v, &r->t[OUTPUT], at, a->value_dim, want, exact);
    }
    return true;
}

static void judge_rows(struct run *r, uint32_t b, uint32_t h, struct large_verdict v[3],
                       double *want)
{
    const struct large_attention *a = r->a;
    const uint32_t n_kv = a->n_past + a->n_new, H = a->n_kv_head * a->group;
    for (uint32_t i = 0; i < a->n_q; i++) {
        uint64_t at = ((uint64_t)b * H + h) * a->n_q + i;
        struct large_row row = row_of(r, b, h, i);
        bool exact = large_context(&r->known, &row, want);
        large_judge(&v[0], &r->t[OUTPUT], at * a->value_dim, a->value_dim, want, exact);
        if (!a->scores_kind)
            continue;
        large_scores(&r->known, &row, want);
        large_judge(&v[1], &r->t[SCORES], at * n_kv, n_kv, want, false);
        if (a->scores_kind != VKA_SCORES_SOFTMAX || a->scores != VKA_F32)
            continue;
        double sum[2] = {0, 0};
        for (uint32_t j = 0; j < n_kv; j++) {
            sum[0] += large_load(&r->t[SCORES], at * n_kv + j);
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
static bool judge_present(struct run *r, int which, const char *name, struct large_result *result)
{
    const struct large_attention *a = r->a;
    const uint32_t n_kv = a->n_past + a->n_new;
    const uint32_t width = which == PRESENT_K ? a->head_dim : a->value_dim;
    struct large_tensor *got = &r->t[which];
    struct large_tensor all = {.dtype = got->dtype, .count = got->count};
    struct large_verdict v = large_verdict(name, got->dtype);
    double *want = malloc(width * sizeof *want);
    bool ok = want && large_download(got) == VKA_OK;
    ok = ok && (which == PRESENT_K ? large_fill_k(&r->known, &all, 0, n_kv)
                                   : large_fill_v(&r->known, &all, 0, n_kv));
    for (uint64_t row = 0; ok && row < got->count / width; row++) {
        uint64_t from = a->shared_kv ? row % n_kv : row; /* then every head is the first one */
        bool turned = which == PRESENT_K && a->rope.dim && row % n_kv >= a->n_past;
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

static bool judge(struct vka_device *device, struct run *r, struct large_result *result)
{
    const struct large_attention *a = r->a;
    const uint32_t n_kv = a->n_past + a->n_new, H = a->n_kv_head * a->group;
    struct large_verdict v[3] = {large_verdict("output", a->output),
                                 large_verdict("scores", a->scores),
                                 large_verdict("sum of a row's weights", VKA_F32)};
    uint32_t most = a->scores_kind && n_kv > a->value_dim ? n_kv : a->value_dim;
    double *want = malloc(most * sizeof *want);
    enum vka_status status = want ? large_download(&r->t[OUTPUT]) : VKA_OUT_OF_HOST_MEMORY;
    if (status == VKA_OK && a->scores_kind)
        status = large_download(&r->t[SCORES]);
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
    return ok && (!a->present || (judge_present(r, PRESENT_K, "present_key", result) &&
                                  judge_present(r, PRESENT_V, "present_value", result)));
}

static bool judge_nonfinite(struct vka_plan *plan, const struct large_attention *a,
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

bool large_check_attention(struct vka_device *device, const struct large_problem *p,
                           struct large_result *result)
{
    const struct large_attention *a = &p->a;
    struct run r = {.a = a, .n_sequence = a->n_sequence ? a->n_sequence : a->batch};
    struct large_tensor *t = r.t;
    struct vka_plan *plan = NULL;
    bool ok = false;
    large_known_open(&r.known, a, a->n_past + a->n_new);
    enum vka_status status = create(device, &r);
    struct vka_attention_op op = {
        .struct_size = sizeof op,
        .q = t[Q].view,
        .k = t[K].view,
        .v = t[V].view,
        .output = t[OUTPUT].view,
        .past_key = t[PAST_K].view,
        .past_value = t[PAST_V].view,
        .present_key = t[PRESENT_K].view,
        .present_value = t[PRESENT_V].view,
        .q_start = t[Q_START].view,
        .kv_start = t[KV_START].view,
        .options = {.mask = t[MASK].view,
                    .kv_length = t[LENGTH].view,
                    .query_offset = t[OFFSET].view,
                    .causal = a->causal,
                    .window = a->window,
                    .window_left = a->window_left,
                    .window_right = a->window_right,
                    .scale = a->scale,
                    .softcap = a->softcap,
                    .masked_row = a->masked_row,
                    .scores_kind = a->scores_kind,
                    .scores = t[SCORES].view,
                    .rope = a->rope,
                    .sink = t[SINK].view,
                    .alibi = t[ALIBI].view},
    };
    /* before the data are filled in, which takes longer than a refusal */
    if (status == VKA_OK)
        status = large_finish(device, p, a->nonfinite, &(struct large_add){.attention = &op}, &plan,
                              result);
    if (status == VKA_OK)
        status = fill(&r);
    if (status == VKA_OK)
        status = large_run(plan);
    ok = status == VKA_OK ? judge(device, &r, result) : large_failed(device, status, result);
    ok = ok && (!a->nonfinite || judge_nonfinite(plan, a, result));
    vka_plan_destroy(&plan);
    for (int i = 0; i < TENSORS; i++)
        large_tensor_destroy(&r.t[i]);
    large_known_close(&r.known);
    return ok;
}
