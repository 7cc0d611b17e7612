/* Large attention: whole, with a past, ragged. */
#include "large_attention.h"

static enum vka_status create(struct vka_device *device, struct large_whole *r)
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
    } list[AT_TENSORS] = {
        [AT_Q] = {true, a->q, rows, 4, {B, H, a->n_q, D}},
        [AT_K] = {true, a->k, kv, 4, {B, G, N, D}},
        [AT_V] = {true, a->v, kv, 4, {B, G, N, E}},
        [AT_PAST_K] = {P > 0, a->k, kv, 4, {B, G, P, D}},
        [AT_PAST_V] = {P > 0, a->v, kv, 4, {B, G, P, E}},
        [AT_LENGTH] = {a->lengths, VKA_I32, 0, 1, {S}},
        [AT_OFFSET] = {a->offsets, VKA_I32, 0, 1, {S}},
        [AT_SINK] = {a->sink, VKA_F32, 0, 1, {H}},
        [AT_ALIBI] = {a->alibi, VKA_F32, 0, 1, {H}},
        [AT_Q_START] = {a->n_sequence > 0, VKA_I32, 0, 1, {S + 1}},
        [AT_KV_START] = {a->n_sequence > 0, VKA_I32, 0, 1, {S + 1}},
        [AT_OUTPUT] = {true, a->output, rows, 4, {B, H, a->n_q, E}},
        [AT_SCORES] = {a->scores_kind > 0, a->scores, 0, 4, {B, H, a->n_q, P + N}},
        [AT_PRESENT_K] = {a->present, a->k, 0, 4, {B, G, P + N, D}},
        [AT_PRESENT_V] = {a->present, a->v, 0, 4, {B, G, P + N, E}},
    };
    enum vka_status status = VKA_OK;
    if (a->mask_rank)
        status =
            large_tensor_create(device, a->mask, a->mask_rank, a->mask_shape, 0, &r->t[AT_MASK]);
    for (int i = 0; i < AT_TENSORS && status == VKA_OK; i++)
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

static void fill_small(struct large_whole *r)
{
    const struct large_attention *a = r->a;
    const uint32_t n_kv = a->n_past + a->n_new, H = a->n_kv_head * a->group;
    for (uint32_t s = 0; s < r->n_sequence; s++) {
        uint32_t x = large_mix(s, 7);
        if (a->lengths)
            large_store(&r->t[AT_LENGTH], s,
                        x % 16 == 0  ? 0
                        : x % 16 < 4 ? n_kv
                                     : x / 16 % (n_kv + 1));
        if (a->offsets)
            large_store(&r->t[AT_OFFSET], s, large_mix(s, 8) % n_kv);
    }
    for (uint32_t h = 0; h < H; h++) {
        if (a->sink)
            large_store(&r->t[AT_SINK], h, large_encode(VKA_F32, (double)large_sink(&r->known, h)));
        if (a->alibi)
            large_store(&r->t[AT_ALIBI], h,
                        large_encode(VKA_F32, (double)large_slope(&r->known, h)));
    }
    for (uint32_t s = 0; s <= a->n_sequence && a->n_sequence; s++) {
        large_store(&r->t[AT_Q_START], s, start_of(s, a->n_sequence, a->n_q, 1));
        large_store(&r->t[AT_KV_START], s, start_of(s, a->n_sequence, a->n_new, 2));
    }
}

static enum vka_status fill(struct large_whole *r)
{
    const struct large_attention *a = r->a;
    const uint32_t P = a->n_past, N = a->n_new;
    struct large_tensor *t = r->t;
    enum vka_status status = VKA_OK;
    for (int i = AT_LENGTH; i <= AT_KV_START; i++)
        if (t[i].view && !large_host(&t[i]))
            return VKA_OUT_OF_HOST_MEMORY;
    fill_small(r);
    for (int i = 0; i < AT_TENSORS && status == VKA_OK; i++) {
        bool ok = true;
        if (!t[i].view)
            continue;
        if (i == AT_Q)
            ok = large_fill_q(a, &t[i]);
        else if (i == AT_K || i == AT_PAST_K)
            ok = large_fill_k(&r->known, &t[i], i == AT_K ? P : 0, i == AT_K ? N : P);
        else if (i == AT_V || i == AT_PAST_V)
            ok = large_fill_v(&r->known, &t[i], i == AT_V ? P : 0, i == AT_V ? N : P);
        else if (i == AT_MASK)
            ok = large_fill_mask(&r->known, &t[i]);
        if (!ok)
            return VKA_OUT_OF_HOST_MEMORY;
        if (i >= AT_OUTPUT)
            status = large_blank(&t[i]);
        else if (i < AT_LENGTH || i > AT_KV_START)
            status = large_upload(&t[i]);
        else /* what the host needs for the verdict */
            status = vka_tensor_write(t[i].view, t[i].host, vka_tensor_size(t[i].view));
    }
    return status;
}

bool large_check_attention(struct vka_device *device, const struct large_problem *p,
                           struct large_result *result)
{
    const struct large_attention *a = &p->a;
    struct large_whole r = {.a = a, .n_sequence = a->n_sequence ? a->n_sequence : a->batch};
    struct large_tensor *t = r.t;
    struct vka_plan *plan = NULL;
    bool ok = false;
    large_known_open(&r.known, a, a->n_past + a->n_new);
    enum vka_status status = create(device, &r);
    struct vka_attention_op op = {
        .struct_size = sizeof op,
        .q = t[AT_Q].view,
        .k = t[AT_K].view,
        .v = t[AT_V].view,
        .output = t[AT_OUTPUT].view,
        .past_key = t[AT_PAST_K].view,
        .past_value = t[AT_PAST_V].view,
        .present_key = t[AT_PRESENT_K].view,
        .present_value = t[AT_PRESENT_V].view,
        .q_start = t[AT_Q_START].view,
        .kv_start = t[AT_KV_START].view,
        .options = {.mask = t[AT_MASK].view,
                    .kv_length = t[AT_LENGTH].view,
                    .query_offset = t[AT_OFFSET].view,
                    .causal = a->causal,
                    .window = a->window,
                    .window_left = a->window_left,
                    .window_right = a->window_right,
                    .scale = a->scale,
                    .softcap = a->softcap,
                    .masked_row = a->masked_row,
                    .scores_kind = a->scores_kind,
                    .scores = t[AT_SCORES].view,
                    .rope = a->rope,
                    .sink = t[AT_SINK].view,
                    .alibi = t[AT_ALIBI].view},
    };
    /* before the data are filled in, which takes longer than a refusal */
    if (status == VKA_OK)
        status = large_finish(device, p, a->nonfinite, &(struct large_add){.attention = &op}, &plan,
                              result);
    if (status == VKA_OK && !p->judge)
        status = fill(&r);
    if (status == VKA_OK)
        status = large_run(plan);
    ok = status == VKA_OK ? p->judge || large_judge_whole(device, &r, result)
                          : large_failed(device, status, result);
    ok = ok && (!a->nonfinite || p->judge || large_judge_nonfinite(plan, a, result));
    vka_plan_destroy(&plan);
    for (int i = 0; i < AT_TENSORS; i++)
        large_tensor_destroy(&r.t[i]);
    large_known_close(&r.known);
    return ok;
}
