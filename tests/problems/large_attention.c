/* Large attention: whole, with a past, ragged. */
#include "large_attention.h"

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
            large_store(&r->t[OPERAND_LENGTH], s,
                        x % 16 == 0  ? 0
                        : x % 16 < 4 ? n_kv
                                     : x / 16 % (n_kv + 1));
        if (a->offsets)
            large_store(&r->t[OPERAND_OFFSET], s, large_mix(s, 8) % n_kv);
    }
    for (uint32_t h = 0; h < H; h++) {
        if (a->sink)
            large_store(&r->t[OPERAND_SINK], h,
                        large_encode(VKA_F32, (double)large_sink(&r->known, h)));
        if (a->alibi)
            large_store(&r->t[OPERAND_ALIBI], h,
                        large_encode(VKA_F32, (double)large_slope(&r->known, h)));
    }
    for (uint32_t s = 0; s <= a->n_sequence && a->n_sequence; s++) {
        large_store(&r->t[OPERAND_Q_START], s, start_of(s, a->n_sequence, a->n_q, 1));
        large_store(&r->t[OPERAND_KV_START], s, start_of(s, a->n_sequence, a->n_new, 2));
    }
}

static enum vka_status fill(struct large_whole *r)
{
    const struct large_attention *a = r->a;
    const uint32_t P = a->n_past, N = a->n_new;
    struct large_tensor *t = r->t;
    enum vka_status status = VKA_OK;
    for (int i = OPERAND_LENGTH; i <= OPERAND_ALIBI; i++)
        if (t[i].view && !large_host(&t[i]))
            return VKA_OUT_OF_HOST_MEMORY;
    fill_small(r);
    for (int i = 0; i < OPERAND_COUNT && status == VKA_OK; i++) {
        bool ok = true;
        if (!t[i].view)
            continue;
        if (i == OPERAND_Q)
            ok = large_fill_q(a, &t[i]);
        else if (i == OPERAND_K || i == OPERAND_PAST_K)
            ok = large_fill_k(&r->known, &t[i], i == OPERAND_K ? P : 0, i == OPERAND_K ? N : P);
        else if (i == OPERAND_V || i == OPERAND_PAST_V)
            ok = large_fill_v(&r->known, &t[i], i == OPERAND_V ? P : 0, i == OPERAND_V ? N : P);
        else if (i == OPERAND_MASK)
            ok = large_fill_mask(&r->known, &t[i]);
        if (!ok)
            return VKA_OUT_OF_HOST_MEMORY;
        if (i >= OPERAND_OUTPUT)
            status = large_blank(&t[i]);
        else if (i < OPERAND_LENGTH || i > OPERAND_ALIBI)
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
    struct vka_plan *plan = NULL;
    bool ok = false;
    large_known_open(&r.known, a, a->n_past + a->n_new);
    enum vka_status status = large_tensors_create(device, a, r.t);
    const struct vka_attention_op op = large_op(a, r.t);
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
    for (int i = 0; i < OPERAND_COUNT; i++)
        large_tensor_destroy(&r.t[i]);
    large_known_close(&r.known);
    return ok;
}
