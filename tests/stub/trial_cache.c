/* Steps with a cache, of sequences packed or not: the draws of test_random --ragged, with longer
 * sequences and more of them. */
#include "trial.h"

#include "problems/operand.h"
#include "problems/ragged_problem.h"

#include <gpu/device.h>

#include <string.h>

enum {
    Q = 0,
    K,
    V,
    OUTPUT,
    LOG_SUM,
    MASK,
    Q_START,
    N_APPEND,
    SINK,
    ALIBI,
    Q_NORM,
    K_NORM,
    OPERANDS
};

#define MOST_LAYERS 2

struct job {
    struct ragged_problem p;
    bool packed;
    struct vka_cache *cache;
    struct operand o[OPERANDS];
};

/* Longer: what has a mask keeps its shape. */
static void lengthen(struct trial *t, struct ragged_problem *p)
{
    p->n_kv_head = trial_size(t, 1, 32);
    p->n_sequence = trial_size(t, 1, rng_chance(&t->rng, 20) ? 3000 : 16);
    p->n_row = trial_size(t, 1, 8192);
    p->capacity = trial_size(t, 1, 65536);
    if (p->n_row > p->capacity)
        p->n_row = p->capacity;
    const uint32_t full[4] = {1, p->n_kv_head * p->group, p->n_row, p->capacity};
    for (uint32_t i = 0; i < p->mask_rank; i++)
        if (p->mask_shape[i] != 1 || i + 1 == p->mask_rank)
            p->mask_shape[i] = full[4 - p->mask_rank + i];
}

static enum vka_status create(struct trial *t, struct job *j)
{
    const struct ragged_problem *p = &j->p;
    const uint32_t B = j->packed ? 1 : p->n_sequence, H = p->n_kv_head * p->group;
    const uint32_t *m = p->mask_shape;
    const struct {
        bool wanted;
        enum vka_dtype dtype;
        uint32_t rank, size[4];
    } list[OPERANDS] = {
        [Q] = {true, p->io, 4, {B, H, p->n_row, p->head_dim}},
        [K] = {true, p->io, 4, {B, p->n_kv_head, p->n_row, p->head_dim}},
        [V] = {true, p->io, 4, {B, p->n_kv_head, p->n_row, p->value_dim}},
        [OUTPUT] = {true, p->io, 4, {B, H, p->n_row, p->value_dim}},
        [LOG_SUM] = {p->log_sum, VKA_F32, 3, {B, H, p->n_row}},
        [MASK] = {p->mask_rank > 0, p->mask, p->mask_rank, {m[0], m[1], m[2], m[3]}},
        [Q_START] = {j->packed, VKA_I32, 1, {p->n_sequence + 1}},
        [N_APPEND] = {p->n_append, VKA_I32, 1, {p->n_sequence}},
        [SINK] = {p->sink, VKA_F32, 1, {H}},
        [ALIBI] = {p->alibi, VKA_F32, 1, {H}},
        [Q_NORM] = {p->q_norm, VKA_F32, 1, {p->head_dim}},
        [K_NORM] = {p->k_norm, VKA_F32, 1, {p->head_dim}},
    };
    enum vka_status status = VKA_OK;
    for (int i = 0; i < OPERANDS && status == VKA_OK; i++) {
        const struct layout layout = p->scattered && list[i].rank > 1
                                         ? layout_random(&t->rng, list[i].rank)
                                         : layout_dense();
        if (list[i].wanted)
            status = operand_create_empty(t->device, list[i].dtype, list[i].rank, list[i].size,
                                          &layout, &j->o[i]);
    }
    return status;
}

static enum vka_status plan_steps(struct trial *t, const void *job, uint64_t budget,
                                  struct vka_plan **plan)
{
    const struct job *j = job;
    const struct ragged_problem *p = &j->p;
    const struct operand *o = j->o;
    const uint64_t usual = t->device->caps.without;
    t->device->caps.without |= p->disabled_kernels;
    enum vka_status status =
        vka_plan_create(t->device,
                        VKA_INFO(vka_plan_info, .path = j->packed ? VKA_PATH_FUSED : VKA_PATH_AUTO,
                                 .whole_n_q = p->whole_n_q, .submit_budget = budget),
                        plan);
    for (uint32_t l = 0; l < p->n_layer && status == VKA_OK; l++)
        status = vka_plan_add_attention(
            *plan, VKA_INFO(vka_attention_op, .q = o[Q].view, .k = o[K].view, .v = o[V].view,
                            .output = o[OUTPUT].view, .cache = j->cache, .cache_layer = l,
                            .n_append = o[N_APPEND].view, .q_start = o[Q_START].view,
                            .options = {.mask = o[MASK].view,
                                        .causal = p->causal,
                                        .window = p->window,
                                        .window_left = p->window_left,
                                        .window_right = p->window_right,
                                        .softcap = p->softcap,
                                        .masked_row = p->masked_row,
                                        .log_sum_exp = o[LOG_SUM].view,
                                        .rope = p->rope,
                                        .q_norm = o[Q_NORM].view,
                                        .k_norm = o[K_NORM].view,
                                        .sink = o[SINK].view,
                                        .alibi = o[ALIBI].view,
                                        .dropout = p->dropout,
                                        .dropout_seed = p->dropout_seed}));
    if (status == VKA_OK)
        status = vka_plan_finish(*plan);
    t->device->caps.without = usual;
    return status;
}

/* What the host does to a cache between steps. */
static enum vka_status use_cache(struct trial *t, const struct job *j)
{
    uint32_t length = 0;
    const uint32_t last = j->p.n_sequence - 1;
    enum vka_status status = vka_cache_length(j->cache, last, &length);
    if (status == VKA_OK)
        status = vka_cache_truncate(j->cache, last, 0);
    if (status == VKA_OK && last > 0 && rng_chance(&t->rng, 50))
        status = vka_cache_fork(j->cache, last, 0);
    return status;
}

bool trial_cache(struct trial *t)
{
    struct job j = {.packed = rng_chance(&t->rng, 60)};
    ragged_draw(&j.p, t->seed, false);
    lengthen(t, &j.p);
    ragged_fit(t->device, &j.p);
    ragged_text(&j.p, t->text);
    const struct ragged_problem *p = &j.p;
    enum vka_status status = vka_cache_create(
        t->device,
        VKA_INFO(vka_cache_info, .batch = p->n_sequence, .n_layer = p->n_layer,
                 .n_kv_head = p->n_kv_head, .head_dim = p->head_dim, .value_dim = p->value_dim,
                 .capacity = p->capacity, .key_dtype = p->key, .value_dtype = p->value,
                 .no_hadamard = p->no_hadamard, .page_size = p->page_size),
        &j.cache);
    if (status == VKA_OK)
        status = create(t, &j);
    bool ok = trial_passed(t, status);
    if (status == VKA_OK) {
        const struct trial_tensors tensors = {
            .inputs = {j.o[Q].view, j.o[K].view, j.o[V].view},
            .outputs = {j.o[OUTPUT].view, j.o[LOG_SUM].view},
            .exact = !p->causal && !p->window,
        };
        ok = trial_run(t, plan_steps, &j, &tensors);
        if (ok && !t->refused)
            ok = trial_passed(t, use_cache(t, &j)) && !t->refused;
    }
    for (int i = 0; i < OPERANDS; i++)
        operand_destroy(&j.o[i]);
    vka_cache_destroy(&j.cache);
    return ok;
}
