/* Large caches: filled by a few long runs, cut back, then decoded from. */
#include "cache_soil.h"
#include "large_known.h"

#include <stdio.h>
#include <stdlib.h>

struct run {
    const struct large_problem *p;
    struct large_known known;
    struct vka_cache *cache;
    uint32_t *lengths; /* [batch], as the cache should have them */
};

static enum vka_status fill(struct run *r, const struct large_attention *a,
                            struct large_tensor t[OPERAND_COUNT])
{
    bool ok = large_fill_q(a, &t[OPERAND_Q]);
    r->known.a = a;
    r->known.first = r->lengths;
    ok = ok && large_fill_k(&r->known, &t[OPERAND_K], 0, a->n_new);
    ok = ok && large_fill_v(&r->known, &t[OPERAND_V], 0, a->n_new);
    for (int i = OPERAND_SINK; i <= OPERAND_ALIBI && ok; i++) {
        if (!t[i].view)
            continue;
        ok = large_host(&t[i]) != NULL;
        for (uint32_t h = 0; ok && h < t[i].count; h++)
            large_store(
                &t[i], h,
                large_encode(VKA_F32, (double)(i == OPERAND_SINK ? large_sink(&r->known, h)
                                                                 : large_slope(&r->known, h))));
    }
    enum vka_status status = ok ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    for (int i = 0; i < OPERAND_COUNT && status == VKA_OK; i++)
        if (t[i].view)
            status = i == OPERAND_OUTPUT ? large_blank(&t[i]) : large_upload(&t[i]);
    return status;
}

static bool judge(struct run *r, const struct large_attention *a, struct large_tensor *output,
                  struct large_result *result)
{
    const uint32_t H = a->n_kv_head * a->group;
    struct large_verdict v = large_verdict("output", a->output, result->kernels);
    double *want = malloc(a->value_dim * sizeof *want);
    for (uint32_t b = 0; want && b < a->batch; b++)
        for (uint32_t h = 0; h < H; h++)
            for (uint32_t i = 0; i < a->n_q; i++) {
                uint64_t at = ((uint64_t)b * H + h) * a->n_q + i;
                struct large_row row =
                    large_row_at(a, b, h, i, r->lengths[b], (int64_t)r->lengths[b] + a->n_new);
                bool exact = large_context(&r->known, &row, want);
                large_judge(&v, output, at * a->value_dim, a->value_dim, want, exact);
            }
    bool ok = want != NULL && large_judged(&v, result);
    free(want);
    return ok;
}

static bool lengths_agree(struct run *r, uint32_t batch, struct large_result *result)
{
    for (uint32_t b = 0; b < batch; b += 1 + batch / 16) {
        uint32_t length = 0;
        if (vka_cache_length(r->cache, b, &length) == VKA_OK && length == r->lengths[b])
            continue;
        snprintf(result->why, LARGE_WHY, "sequence %u holds %u keys, not %u", b, length,
                 r->lengths[b]);
        return false;
    }
    return true;
}

/* Runs one plan a few times, each appending n_new keys. */
static bool append(struct vka_device *device, struct run *r, const struct large_attention *a,
                   uint32_t runs, struct large_result *result)
{
    struct large_tensor t[OPERAND_COUNT] = {0};
    struct vka_plan *plan = NULL;
    enum vka_status status = large_tensors_create(device, a, t);
    struct vka_attention_op op = large_op(a, t);
    op.cache = r->cache;
    if (status == VKA_OK)
        status =
            large_finish(device, r->p, false, &(struct large_add){.attention = &op}, &plan, result);
    bool ok = status == VKA_OK;
    for (uint32_t i = 0; i < runs && ok && r->p->judge; i++) {
        status = large_run(plan);
        ok = status == VKA_OK;
    }
    for (uint32_t i = 0; i < runs && ok && !r->p->judge; i++) {
        status = fill(r, a, t);
        if (status == VKA_OK)
            status = large_run(plan);
        if (status == VKA_OK)
            status = large_download(&t[OPERAND_OUTPUT]);
        ok = status == VKA_OK && judge(r, a, &t[OPERAND_OUTPUT], result);
        for (uint32_t b = 0; b < a->batch; b++)
            r->lengths[b] += a->n_new;
        free(t[OPERAND_OUTPUT].host);
        t[OPERAND_OUTPUT].host = NULL;
        ok = ok && lengths_agree(r, a->batch, result);
    }
    if (status != VKA_OK)
        large_failed(device, status, result);
    vka_plan_destroy(&plan);
    for (int i = 0; i < OPERAND_COUNT; i++)
        large_tensor_destroy(&t[i]);
    return ok;
}

/* Pages from the last to the first. */
static enum vka_status turn_pages(struct run *r)
{
    const struct large_attention *a = &r->p->a;
    uint32_t count = (a->capacity + a->page_size - 1) / a->page_size;
    uint32_t *pages = malloc(count * sizeof *pages);
    enum vka_status status = pages ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    for (uint32_t b = 0; b < a->batch && status == VKA_OK; b++) {
        for (uint32_t i = 0; i < count; i++)
            pages[i] = (a->batch - b) * count - 1 - i;
        status = vka_cache_set_pages(r->cache, b, 0, count, pages);
    }
    free(pages);
    return status;
}

/* Leaves some sequences shorter, one empty. */
static enum vka_status cut_back(struct run *r)
{
    enum vka_status status = VKA_OK;
    const uint32_t batch = r->p->a.batch;
    for (uint32_t b = 0; b < batch && status == VKA_OK; b += 1 + batch / 3) {
        r->lengths[b] = b == 0 ? r->lengths[b] / 2 : b % 2 ? 0 : r->lengths[b] - 1;
        status = vka_cache_truncate(r->cache, b, r->lengths[b]);
    }
    return status;
}

bool large_check_cache(struct vka_device *device, const struct large_problem *p,
                       struct large_result *result)
{
    const struct large_attention *a = &p->a;
    struct run r = {.p = p, .lengths = calloc(a->batch, sizeof *r.lengths)};
    struct large_attention step = *a;
    large_known_open(&r.known, a, a->capacity);
    enum vka_status status = vka_cache_create(
        device,
        VKA_INFO(vka_cache_info, .batch = a->batch, .n_kv_head = a->n_kv_head,
                 .head_dim = a->head_dim, .value_dim = a->value_dim, .capacity = a->capacity,
                 .key_dtype = a->k, .value_dtype = a->k, .page_size = a->page_size),
        &r.cache);
    if (status == VKA_OK && !p->judge) /* gigabytes that nobody reads */
        cache_soil_new(r.cache);
    if (status == VKA_OK && !r.lengths)
        status = VKA_OUT_OF_HOST_MEMORY;
    if (status == VKA_OK && a->page_size && a->pattern != LARGE_RISE)
        status = turn_pages(&r);
    bool ok = status == VKA_OK && append(device, &r, a, a->runs, result);
    if (ok && !p->judge) /* a device that computes nothing holds nothing */
        status = cut_back(&r);
    step.n_new = 1;
    step.n_q = 1;
    ok = ok && status == VKA_OK && append(device, &r, &step, 2, result);
    if (status != VKA_OK)
        large_failed(device, status, result);
    vka_cache_destroy(&r.cache);
    large_known_close(&r.known);
    free(r.lengths);
    return ok;
}
