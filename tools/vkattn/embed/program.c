#include "program.h"
#include "t5.h"

#include <math.h>
#include <stdlib.h>

/* A tensor of whole numbers 0, 1, ..., n - 1. */
static struct vka_tensor *count(struct graph *g, uint32_t n)
{
    struct vka_tensor *t = graph_make(g, VKA_I32, 2, (const uint32_t[]){1, n});
    int32_t *numbers = malloc(n * sizeof *numbers);
    for (uint32_t i = 0; numbers && i < n; i++)
        numbers[i] = (int32_t)i;
    if (!numbers && g->status == VKA_OK)
        g->status = VKA_OUT_OF_HOST_MEMORY;
    if (g->status == VKA_OK)
        g->status = vka_tensor_write(t, numbers, n * sizeof *numbers);
    free(numbers);
    return t;
}

static void linear(struct graph *g, struct vka_tensor *input, const struct bert_linear *by,
                   struct vka_tensor *output)
{
    if (g->status == VKA_OK)
        g->status = vka_plan_add_linear(g->plan, VKA_INFO(vka_linear_op, .input = input,
                                                          .weight = by->weight, .bias = by->bias,
                                                          .output = output));
}

/* output = norm(x + residual); residual may be NULL. */
static void norm(struct graph *g, const struct bert *m, struct vka_tensor *x,
                 struct vka_tensor *residual, const struct bert_linear *by,
                 struct vka_tensor *output)
{
    if (g->status == VKA_OK)
        g->status = vka_plan_add_norm(g->plan, VKA_INFO(vka_norm_op, .kind = VKA_LAYER_NORM,
                                                        .epsilon = m->epsilon, .input = x,
                                                        .residual = residual, .weight = by->weight,
                                                        .bias = by->bias, .output = output));
}

static void add(struct graph *g, struct vka_tensor *x, struct vka_tensor *more)
{
    if (g->status == VKA_OK)
        g->status = vka_plan_add_binary(
            g->plan, VKA_INFO(vka_binary_op, .kind = VKA_ADD, .a = x, .b = more, .output = x));
}

/* Words, positions and the type of a single text, 0. */
static void add_beginning(struct embed *e, const struct bert *m, struct vka_tensor *x)
{
    struct graph *g = &e->graph;
    uint32_t rows = g->rows;
    struct vka_tensor *places =
        m->positions ? graph_make(g, VKA_F32, 3, (const uint32_t[]){1, rows, m->width}) : NULL;
    struct vka_tensor *type = graph_make(g, VKA_F32, 3, (const uint32_t[]){1, 1, m->width});
    graph_gather(g, m->tokens, e->ids, x);
    if (m->positions)
        graph_gather(g, m->positions, count(g, rows), places);
    graph_gather(g, m->types, count(g, 1), type);
    add(g, x, type);
    if (m->positions)
        add(g, x, places);
    norm(g, m, x, NULL, &m->norm, x);
}

/* Rows of queries, keys or values: columns of qkv, or tensors of their own. */
static struct vka_tensor *third(struct graph *g, const struct bert *m, struct vka_tensor *qkv,
                                uint32_t i)
{
    return qkv ? graph_slice(g, qkv, 2, i * m->width, m->width) : graph_rows(g, m->width);
}

static void add_blocks(struct embed *e, const struct bert *m, struct vka_tensor *x)
{
    struct graph *g = &e->graph;
    uint32_t heads = m->n_head, dim = m->width / heads;
    const struct vka_rope rope = {.dim = m->nomic ? dim : 0, .base = m->nomic ? m->rope_base : 0};
    struct vka_tensor *y = graph_rows(g, m->width), *added = graph_rows(g, m->width);
    struct vka_tensor *qkv = m->nomic ? graph_rows(g, 3 * m->width) : NULL;
    struct vka_tensor *q = third(g, m, qkv, 0), *k = third(g, m, qkv, 1), *v = third(g, m, qkv, 2);
    struct vka_tensor *context = graph_rows(g, m->width), *inner = graph_rows(g, m->ffn_width);
    struct vka_tensor *up = m->nomic ? graph_rows(g, m->ffn_width) : NULL;
    struct vka_tensor *qh = graph_heads(g, q, heads, dim), *kh = graph_heads(g, k, heads, dim);
    struct vka_tensor *vh = graph_heads(g, v, heads, dim);
    struct vka_tensor *contexth = graph_heads(g, context, heads, dim);
    for (uint32_t i = 0; i < m->n_block; i++) {
        const struct bert_block *w = &m->blocks[i];
        linear(g, x, &w->q, m->nomic ? qkv : q);
        if (!m->nomic) {
            linear(g, x, &w->k, k);
            linear(g, x, &w->v, v);
        }
        if (g->status == VKA_OK)
            g->status = vka_plan_add_attention(
                g->plan, VKA_INFO(vka_attention_op, .q = qh, .k = kh, .v = vh, .output = contexth,
                                  .options.kv_length = e->lengths, .options.rope = rope));
        linear(g, context, &w->o, added);
        norm(g, m, added, x, &w->attn_norm, y);
        linear(g, y, m->nomic ? &w->gate : &w->up, inner);
        if (m->nomic)
            linear(g, y, &w->up, up);
        if (g->status == VKA_OK)
            g->status = vka_plan_add_activation(
                g->plan, VKA_INFO(vka_activation_op, .kind = m->nomic ? VKA_SILU : VKA_GELU,
                                  .input = inner, .multiplier = up, .output = inner));
        linear(g, inner, &w->down, added);
        norm(g, m, added, y, &w->norm, x);
    }
}

static void pool(struct embed *e, const struct bert *m, struct vka_tensor *x)
{
    struct graph *g = &e->graph;
    if (e->info.first_row) {
        struct vka_tensor *first = graph_slice(g, x, 1, 0, 1);
        struct vka_tensor *rows =
            graph_reshape(g, first, 2, (const uint32_t[]){g->batch, m->width});
        if (g->status == VKA_OK)
            g->status =
                vka_plan_add_activation(g->plan, VKA_INFO(vka_activation_op, .kind = VKA_IDENTITY,
                                                          .input = rows, .output = e->output));
    } else if (g->status == VKA_OK) {
        g->status = vka_plan_add_pool(
            g->plan, VKA_INFO(vka_pool_op, .input = x, .lengths = e->lengths, .output = e->output));
    }
}

/* x / |x|: the RMS norm divided by sqrt(width). */
static void normalise(struct embed *e, uint32_t width)
{
    struct graph *g = &e->graph;
    struct vka_tensor *weight = graph_make(g, VKA_F32, 1, (const uint32_t[]){width});
    float *values = malloc(width * sizeof *values);
    for (uint32_t i = 0; values && i < width; i++)
        values[i] = (float)(1 / sqrt((double)width));
    if (!values && g->status == VKA_OK)
        g->status = VKA_OUT_OF_HOST_MEMORY;
    if (g->status == VKA_OK)
        g->status = vka_tensor_write(weight, values, width * sizeof *values);
    free(values);
    if (g->status == VKA_OK)
        g->status = vka_plan_add_norm(g->plan, VKA_INFO(vka_norm_op, .kind = VKA_RMS_NORM,
                                                        .epsilon = 1e-24f, .input = e->output,
                                                        .weight = weight, .output = e->output));
}

enum vka_status embed_create(struct vka_device *device, const struct bert *m,
                             const struct embed_info *info, struct embed *e)
{
    *e = (struct embed){.info = *info};
    struct graph *g = &e->graph;
    graph_begin(device, info->batch, info->rows, info->budget, g);
    e->ids = graph_make(g, VKA_I32, 2, (const uint32_t[]){info->batch, info->rows});
    e->lengths = graph_make(g, VKA_I32, 1, &info->batch);
    e->output = graph_make(g, VKA_F32, 2, (const uint32_t[]){info->batch, m->width});
    struct vka_tensor *x = graph_rows(g, m->width);
    if (m->n_bucket) {
        t5_add(g, m, e->ids, e->lengths, x);
    } else {
        add_beginning(e, m, x);
        add_blocks(e, m, x);
    }
    pool(e, m, x);
    if (!info->plain)
        normalise(e, m->width);
    return graph_finish(g);
}

void embed_free(struct embed *e)
{
    graph_free(&e->graph);
}
