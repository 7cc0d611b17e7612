/* Steps with a cache, of sequences packed or not: the draws of test_random --ragged, with longer
 * sequences and more of them. */
#include "trial.h"

#include "problems/problem_data.h"

#include <core/dtype.h>
#include <gpu/device.h>
#include <kernel/tune.h>

#include <string.h>

struct job {
    struct problem p;
    uint32_t n_sequence; /* also where they are not packed, but a batch */
    struct vka_cache *cache;
    struct problem_data d;
};

/* Longer: what has a mask keeps its shape. */
static void lengthen(struct trial *t, struct problem *p)
{
    p->n_kv_head = trial_size(t, 1, 32);
    p->n_sequence = trial_size(t, 1, rng_chance(&t->rng, 20) ? 3000 : 16);
    p->n_q = trial_size(t, 1, 8192);
    p->capacity = trial_size(t, 1, 65536);
    if (p->n_q > p->capacity)
        p->n_q = p->capacity;
    p->n_new = p->n_q;
    const uint32_t full[4] = {1, p->n_kv_head * p->group, p->n_q, p->capacity};
    for (uint32_t i = 0; i < p->mask_rank; i++)
        if (p->mask_shape[i] != 1 || i + 1 == p->mask_rank)
            p->mask_shape[i] = full[4 - p->mask_rank + i];
}

static enum vka_status plan_steps(struct trial *t, const void *job, uint64_t budget,
                                  struct vka_plan **plan)
{
    const struct job *j = job;
    const struct problem *p = &j->p;
    struct vka_attention_op op;
    const struct kernel_set usual = t->device->caps.without;
    set_join(&t->device->caps.without, p->disabled_kernels);
    enum vka_status status = vka_plan_create(
        t->device,
        VKA_INFO(vka_plan_info, .path = p->n_sequence ? VKA_PATH_FUSED : VKA_PATH_AUTO,
                 .whole_n_q = p->whole_n_q, .submit_budget = budget),
        plan);
    problem_op(&j->d, &op);
    op.cache = j->cache;
    for (; op.cache_layer < p->n_layer && status == VKA_OK; op.cache_layer++)
        status = vka_plan_add_attention(*plan, &op);
    if (status == VKA_OK)
        status = vka_plan_finish(*plan);
    t->device->caps.without = usual;
    return status;
}

/* What the host does to a cache between steps. */
static enum vka_status use_cache(struct trial *t, const struct job *j)
{
    uint32_t length = 0;
    const uint32_t last = j->n_sequence - 1;
    enum vka_status status = vka_cache_length(j->cache, last, &length);
    if (status == VKA_OK)
        status = vka_cache_truncate(j->cache, last, 0);
    if (status == VKA_OK && last > 0 && rng_chance(&t->rng, 50))
        status = vka_cache_fork(j->cache, last, 0);
    return status;
}

bool trial_cache(struct trial *t)
{
    const bool packed = rng_chance(&t->rng, 60);
    struct job j = {.n_sequence = 0};
    ragged_draw(&j.p, t->seed);
    lengthen(t, &j.p);
    ragged_fit(t->device, &j.p);
    const bool fused = packed || dtype_is_scaled(j.p.cached_k) || dtype_is_scaled(j.p.cached_v);
    if (fused && j.p.capacity > TUNE_CHAIN) /* splits of so many keys have to be merged */
        j.p.disabled_kernels = set_minus(j.p.disabled_kernels, KERNEL_SET(KERNEL_attention_merge));
    j.n_sequence = j.p.n_sequence;
    if (!packed) {
        j.p.batch = j.p.n_sequence;
        j.p.n_sequence = 0;
    }
    problem_text(&j.p, t->text);
    const struct problem *p = &j.p;
    enum vka_status status = vka_cache_create(
        t->device,
        VKA_INFO(vka_cache_info, .batch = j.n_sequence, .n_layer = p->n_layer,
                 .n_kv_head = p->n_kv_head, .head_dim = p->head_dim, .value_dim = p->value_dim,
                 .capacity = p->capacity, .key_dtype = p->cached_k, .value_dtype = p->cached_v,
                 .no_hadamard = p->no_hadamard, .page_size = p->page_size),
        &j.cache);
    if (status == VKA_OK)
        status = problem_data_open(t->device, p, true, &j.d);
    bool ok = trial_passed(t, status);
    if (status == VKA_OK) {
        const struct trial_tensors tensors = {
            .inputs = {j.d.operands[OPERAND_Q].view, j.d.operands[OPERAND_K].view,
                       j.d.operands[OPERAND_V].view},
            .outputs = {j.d.operands[OPERAND_OUTPUT].view, j.d.operands[OPERAND_LOG_SUM].view},
            .exact = !p->causal && !p->window,
        };
        ok = trial_run(t, plan_steps, &j, &tensors);
        if (ok && !t->refused)
            ok = trial_passed(t, use_cache(t, &j)) && !t->refused;
    }
    problem_data_destroy(&j.d);
    vka_cache_destroy(&j.cache);
    return ok;
}
