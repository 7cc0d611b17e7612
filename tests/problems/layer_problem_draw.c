/* Draws layers over the whole contract of their gradients. */
#include "layer_problem.h"
#include "types.h"

#include <gpu/kernels.h>

#include <stdio.h>
#include <string.h>

/* Small ones as a rule: each size is met with each option, and a tenth fills several tiles. */
static bool is_small(const struct problem *p, bool larger)
{
    const uint32_t most = larger ? 150 : 20;
    const double scores = (double)p->batch * p->n_kv_head * p->group * p->n_q * p->n_new;
    return p->n_q <= most && p->n_new <= most && p->head_dim <= 24 && p->value_dim <= 24 &&
           scores <= (larger ? 1e5 : 4e3);
}

/* Attention whose operands are float32, as projections are. */
static void draw_attention(struct problem *p, uint64_t seed, struct rng *rng)
{
    const bool larger = rng_chance(rng, 10), fused = rng_chance(rng, 15);
    uint64_t draw = seed * 4096;
    do
        problem_backward_draw(p, draw++);
    while (!is_small(p, larger));
    const bool scattered = p->scattered;
    p->seed = seed;
    p->path = fused ? VKA_PATH_FUSED : VKA_PATH_UNFUSED;
    problem_share(p, 0);
    p->scattered = scattered;
    p->log_sum = rng_chance(rng, 30);
    p->poison_hidden = p->poison_visible = p->one_type = false;
}

/* Self-attention has as many keys as queries. */
static void set_self(struct problem *p)
{
    p->n_new = p->n_q;
    uint32_t *last = p->mask_rank ? &p->mask_shape[p->mask_rank - 1] : NULL;
    if (last && *last > p->n_new)
        *last = p->n_new;
}

/* Weights lie in tiles, transposed or as they are given, whichever the kernels that are left want. */
static struct kernel_set draw_kernels(struct rng *rng)
{
    const struct kernel_set packed = KERNEL_SET(KERNEL_matmul_address, KERNEL_matmul_texel);
    const struct kernel_set lanes = KERNEL_SET(KERNEL_matmul_lane4, KERNEL_matmul_lane8);
    const struct kernel_set sets[] = {NO_KERNELS, packed, set_union(packed, lanes)};
    return sets[rng_range(rng, 0, 2)];
}

void layer_problem_draw(struct layer_problem *l, uint64_t seed)
{
    struct rng rng = {seed ^ 0x1a7e4};
    struct problem *p = &l->p;
    *l = (struct layer_problem){.sharing = (enum layer_sharing)rng_range(&rng, 0, SHARE_COUNT - 1)};
    draw_attention(p, seed, &rng);
    if (l->sharing >= SHARE_SELF)
        set_self(p);
    for (int i = QUERY; i <= VALUE; i++)
        l->in[i] = rng_range(&rng, 1, 40);
    const bool one_width = rng_chance(&rng, 50);
    if (one_width || l->sharing == SHARE_SELF || l->sharing == SHARE_QUERY_KEY)
        l->in[KEY] = l->in[QUERY];
    if (one_width || l->sharing == SHARE_ENDS)
        l->in[VALUE] = l->in[QUERY];
    if (l->sharing == SHARE_KEY || l->sharing == SHARE_SELF)
        l->in[VALUE] = l->in[KEY];
    l->in[OUTPUT] = p->n_kv_head * p->group * p->value_dim;
    l->no_output = rng_chance(&rng, 20);
    l->out[QUERY] = p->n_kv_head * p->group * p->head_dim;
    l->out[KEY] = p->n_kv_head * p->head_dim;
    l->out[VALUE] = p->n_kv_head * p->value_dim;
    l->out[OUTPUT] = l->no_output ? l->in[OUTPUT] : rng_range(&rng, 1, 40);
    l->biases = rng_chance(&rng, 50) ? 15 : rng_range(&rng, 0, 15);
    if (l->no_output)
        l->biases &= ~8u;
    l->interleaved = rng_chance(&rng, 30);
    l->sequence_first = rng_chance(&rng, 40);
    l->in_tensors = rng_chance(&rng, 60);
    l->x = type_draw_float(&rng);
    l->w = type_draw_float(&rng);
    l->y = type_draw_float(&rng);
    l->cut = rng_chance(&rng, 30);
    p->disabled_kernels = draw_kernels(&rng);
}

const char *layer_problem_text(const struct layer_problem *l, char text[PROBLEM_TEXT])
{
    char attention[PROBLEM_TEXT];
    snprintf(text, PROBLEM_TEXT,
             "sharing %d, in %u %u %u, out %u, biases %u%s%s%s%s, x %s w %s y %s; %.400s",
             (int)l->sharing, l->in[QUERY], l->in[KEY], l->in[VALUE], l->out[OUTPUT], l->biases,
             l->interleaved ? ", interleaved" : "", l->sequence_first ? ", sequence first" : "",
             l->in_tensors ? ", tensors" : "", l->no_output ? ", no output" : "",
             vka_dtype_name(l->x), vka_dtype_name(l->w), vka_dtype_name(l->y),
             problem_text(&l->p, attention));
    return text;
}
