/* Norms of the root of the mean square stand before what a block adds. Scores are not scaled; a
 * bias of each head goes by the distance of query and key, in buckets, one table for all blocks. */
#include "t5.h"

#include <math.h>
#include <stdlib.h>

enum { FURTHEST = 128 }; /* from which on distances share the last bucket */

/* The bucket of a key so far behind a query. Half of them are for keys that follow; near distances
 * have their own, further ones share them by their logarithm. */
static int32_t bucket_of(int32_t distance, int32_t count)
{
    const int32_t half = count / 2, near = half / 2, far = abs(distance);
    const float ratio = (float)far / (float)near, most = (float)log((double)FURTHEST / near);
    int32_t place = far;
    if (far >= near) {
        place = near + (int32_t)(logf(ratio) / most * (float)(half - near));
        place = place < half - 1 ? place : half - 1;
    }
    return place + (distance > 0 ? half : 0);
}

/* The biases of all heads, float32 [1][n_head][rows][rows]. */
static struct vka_tensor *add_biases(struct graph *g, const struct bert *m)
{
    if (g->rows > UINT16_MAX && g->status == VKA_OK)
        g->status = VKA_UNSUPPORTED; /* n * n is no uint32_t */
    const uint32_t n = g->status == VKA_OK ? g->rows : 1, all = n * n;
    struct vka_tensor *ids = graph_make(g, VKA_I32, 2, (const uint32_t[]){1, all});
    struct vka_tensor *each = graph_make(g, VKA_F32, 3, (const uint32_t[]){1, all, m->n_head});
    int32_t *buckets = malloc(all * sizeof *buckets);
    for (uint32_t i = 0; buckets && i < all; i++)
        buckets[i] = bucket_of((int32_t)(i % n) - (int32_t)(i / n), (int32_t)m->n_bucket);
    if (!buckets && g->status == VKA_OK)
        g->status = VKA_OUT_OF_HOST_MEMORY;
    if (g->status == VKA_OK)
        g->status = vka_tensor_write(ids, buckets, all * sizeof *buckets);
    free(buckets);
    graph_gather(g, m->distances, ids, each);
    struct vka_tensor *table = graph_reshape(g, each, 4, (const uint32_t[]){1, n, n, m->n_head});
    return graph_permute(g, table, (const uint32_t[]){0, 3, 1, 2});
}

static void norm(struct graph *g, const struct bert *m, struct vka_tensor *x,
                 const struct bert_linear *by, struct vka_tensor *output)
{
    if (g->status == VKA_OK)
        g->status = vka_plan_add_norm(g->plan, VKA_INFO(vka_norm_op, .kind = VKA_RMS_NORM,
                                                        .epsilon = m->epsilon, .input = x,
                                                        .weight = by->weight, .output = output));
}

static void linear(struct graph *g, struct vka_tensor *input, const struct bert_linear *by,
                   bool accumulate, struct vka_tensor *output)
{
    if (g->status == VKA_OK)
        g->status = vka_plan_add_linear(g->plan, VKA_INFO(vka_linear_op, .input = input,
                                                          .weight = by->weight, .output = output,
                                                          .accumulate = accumulate));
}

void t5_add(struct graph *g, const struct bert *m, struct vka_tensor *ids,
            struct vka_tensor *lengths, struct vka_tensor *x)
{
    const uint32_t heads = m->n_head * m->head_dim;
    struct vka_tensor *biases = add_biases(g, m), *y = graph_rows(g, m->width);
    struct vka_tensor *qkv[] = {graph_rows(g, heads), graph_rows(g, heads), graph_rows(g, heads)};
    struct vka_tensor *context = graph_rows(g, heads), *inner = graph_rows(g, m->ffn_width);
    struct vka_tensor *up = m->gated ? graph_rows(g, m->ffn_width) : NULL, *by_head[4];
    for (int i = 0; i < 4; i++)
        by_head[i] = graph_heads(g, i < 3 ? qkv[i] : context, m->n_head, m->head_dim);
    graph_gather(g, m->tokens, ids, x);
    for (uint32_t i = 0; i < m->n_block; i++) {
        const struct bert_block *b = &m->blocks[i];
        const struct bert_linear *const by[] = {&b->q, &b->k, &b->v};
        norm(g, m, x, &b->attn_norm, y);
        for (int p = 0; p < 3; p++)
            linear(g, y, by[p], false, qkv[p]);
        if (g->status == VKA_OK)
            g->status = vka_plan_add_attention(
                g->plan,
                VKA_INFO(vka_attention_op, .q = by_head[0], .k = by_head[1], .v = by_head[2],
                         .output = by_head[3], .options.kv_length = lengths, .options.mask = biases,
                         .options.scale = 1));
        linear(g, context, &b->o, true, x);
        norm(g, m, x, &b->norm, y);
        linear(g, y, m->gated ? &b->gate : &b->up, false, inner);
        if (m->gated)
            linear(g, y, &b->up, false, up);
        if (g->status == VKA_OK)
            g->status = vka_plan_add_activation(
                g->plan, VKA_INFO(vka_activation_op, .kind = m->gated ? VKA_GELU_TANH : VKA_RELU,
                                  .input = inner, .multiplier = up, .output = inner));
        linear(g, inner, &b->down, true, x);
    }
    norm(g, m, x, &m->norm, x);
}
