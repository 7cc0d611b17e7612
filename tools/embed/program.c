#include "program.h"

#include <math.h>
#include <stdlib.h>

/* Makes the tensors of a program, and remembers the first failure, so that the lines that build the
 * model read as the model. */
struct builder {
    struct vka_device *device;
    struct embed *e;
    const struct bert *m;
    enum vka_status status;
};

static struct vka_tensor **slot(struct builder *b)
{
    if (b->status == VKA_OK && b->e->n_tensor == EMBED_TENSORS)
        b->status = VKA_INTERNAL;
    return b->status == VKA_OK ? &b->e->tensors[b->e->n_tensor++] : NULL;
}

static struct vka_tensor *make(struct builder *b, enum vka_dtype dtype, uint32_t rank,
                               const uint32_t *shape)
{
    struct vka_tensor **t = slot(b);
    if (t)
        b->status = vka_tensor_create(b->device, dtype, rank, shape, t);
    return t ? *t : NULL;
}

static struct vka_tensor *rows_of(struct builder *b, uint32_t width)
{
    return make(b, VKA_F32, 3, (const uint32_t[]){b->e->info.batch, b->e->info.rows, width});
}

static struct vka_tensor *reshape(struct builder *b, struct vka_tensor *tensor, uint32_t rank,
                                  const uint32_t *shape)
{
    struct vka_tensor **t = slot(b);
    if (t)
        b->status = vka_tensor_reshape(tensor, rank, shape, t);
    return t ? *t : NULL;
}

/* View [batch][n_head][rows][dim] of [batch][rows][width]. */
static struct vka_tensor *heads_of(struct builder *b, struct vka_tensor *tensor)
{
    const struct embed_info *i = &b->e->info;
    const uint32_t shape[] = {i->batch, i->rows, b->m->n_head, b->m->width / b->m->n_head};
    struct vka_tensor *split = reshape(b, tensor, 4, shape);
    struct vka_tensor **t = slot(b);
    if (t)
        b->status = vka_tensor_permute(split, (const uint32_t[]){0, 2, 1, 3}, t);
    return t ? *t : NULL;
}

/* A tensor of whole numbers first, first + 1, ... */
static struct vka_tensor *count(struct builder *b, uint32_t n)
{
    struct vka_tensor *t = make(b, VKA_I32, 2, (const uint32_t[]){1, n});
    int32_t *numbers = malloc(n * sizeof *numbers);
    for (uint32_t i = 0; numbers && i < n; i++)
        numbers[i] = (int32_t)i;
    if (!numbers && b->status == VKA_OK)
        b->status = VKA_OUT_OF_HOST_MEMORY;
    if (b->status == VKA_OK)
        b->status = vka_tensor_write(t, numbers, n * sizeof *numbers);
    free(numbers);
    return t;
}

static void linear(struct builder *b, struct vka_tensor *input, const struct bert_linear *by,
                   struct vka_tensor *output)
{
    if (b->status == VKA_OK)
        b->status = vka_plan_add_linear(b->e->plan, VKA_INFO(vka_linear_op, .input = input,
                                                             .weight = by->weight, .bias = by->bias,
                                                             .output = output));
}

/* output = norm(x + residual); residual may be NULL. */
static void norm(struct builder *b, struct vka_tensor *x, struct vka_tensor *residual,
                 const struct bert_linear *by, struct vka_tensor *output)
{
    if (b->status == VKA_OK)
        b->status = vka_plan_add_norm(
            b->e->plan, VKA_INFO(vka_norm_op, .kind = VKA_LAYER_NORM, .epsilon = b->m->epsilon,
                                 .input = x, .residual = residual, .weight = by->weight,
                                 .bias = by->bias, .output = output));
}

static void gather(struct builder *b, struct vka_tensor *table, struct vka_tensor *ids,
                   struct vka_tensor *output)
{
    if (b->status == VKA_OK)
        b->status = vka_plan_add_gather(
            b->e->plan, VKA_INFO(vka_gather_op, .table = table, .ids = ids, .output = output));
}

static void add(struct builder *b, struct vka_tensor *x, struct vka_tensor *more)
{
    if (b->status == VKA_OK)
        b->status = vka_plan_add_binary(
            b->e->plan, VKA_INFO(vka_binary_op, .kind = VKA_ADD, .a = x, .b = more, .output = x));
}

/* Words, positions and the type of a single text, 0. */
static void add_beginning(struct builder *b, struct vka_tensor *x)
{
    const struct bert *m = b->m;
    uint32_t rows = b->e->info.rows;
    struct vka_tensor *places = make(b, VKA_F32, 3, (const uint32_t[]){1, rows, m->width});
    struct vka_tensor *type = make(b, VKA_F32, 3, (const uint32_t[]){1, 1, m->width});
    gather(b, m->tokens, b->e->ids, x);
    gather(b, m->positions, count(b, rows), places);
    gather(b, m->types, count(b, 1), type);
    add(b, x, type);
    add(b, x, places);
    norm(b, x, NULL, &m->norm, x);
}

static void add_blocks(struct builder *b, struct vka_tensor *x)
{
    const struct bert *m = b->m;
    struct vka_tensor *y = rows_of(b, m->width), *added = rows_of(b, m->width);
    struct vka_tensor *q = rows_of(b, m->width), *k = rows_of(b, m->width);
    struct vka_tensor *v = rows_of(b, m->width), *context = rows_of(b, m->width);
    struct vka_tensor *inner = rows_of(b, m->ffn_width);
    struct vka_tensor *qh = heads_of(b, q), *kh = heads_of(b, k), *vh = heads_of(b, v);
    struct vka_tensor *contexth = heads_of(b, context);
    for (uint32_t i = 0; i < m->n_block; i++) {
        const struct bert_block *w = &m->blocks[i];
        linear(b, x, &w->q, q);
        linear(b, x, &w->k, k);
        linear(b, x, &w->v, v);
        if (b->status == VKA_OK)
            b->status = vka_plan_add_attention(
                b->e->plan, VKA_INFO(vka_attention_op, .q = qh, .k = kh, .v = vh,
                                     .output = contexth, .options.kv_length = b->e->lengths));
        linear(b, context, &w->o, added);
        norm(b, added, x, &w->attn_norm, y);
        linear(b, y, &w->up, inner);
        if (b->status == VKA_OK)
            b->status =
                vka_plan_add_activation(b->e->plan, VKA_INFO(vka_activation_op, .kind = VKA_GELU,
                                                             .input = inner, .output = inner));
        linear(b, inner, &w->down, added);
        norm(b, added, y, &w->norm, x);
    }
}

static void pool(struct builder *b, struct vka_tensor *x)
{
    const struct embed_info *i = &b->e->info;
    struct vka_tensor **first = i->first_row ? slot(b) : NULL;
    if (first)
        b->status = vka_tensor_slice(x, 1, 0, 1, first);
    if (b->status != VKA_OK)
        return;
    if (first) {
        struct vka_tensor *rows = reshape(b, *first, 2, (const uint32_t[]){i->batch, b->m->width});
        if (b->status == VKA_OK)
            b->status = vka_plan_add_activation(b->e->plan,
                                                VKA_INFO(vka_activation_op, .kind = VKA_IDENTITY,
                                                         .input = rows, .output = b->e->output));
    } else {
        b->status = vka_plan_add_pool(
            b->e->plan,
            VKA_INFO(vka_pool_op, .input = x, .lengths = b->e->lengths, .output = b->e->output));
    }
}

/* x / |x|: the RMS norm divided by sqrt(width). */
static void normalise(struct builder *b)
{
    uint32_t width = b->m->width;
    struct vka_tensor *weight = make(b, VKA_F32, 1, (const uint32_t[]){width});
    float *values = malloc(width * sizeof *values);
    for (uint32_t i = 0; values && i < width; i++)
        values[i] = (float)(1 / sqrt((double)width));
    if (!values && b->status == VKA_OK)
        b->status = VKA_OUT_OF_HOST_MEMORY;
    if (b->status == VKA_OK)
        b->status = vka_tensor_write(weight, values, width * sizeof *values);
    free(values);
    if (b->status == VKA_OK)
        b->status = vka_plan_add_norm(
            b->e->plan, VKA_INFO(vka_norm_op, .kind = VKA_RMS_NORM, .epsilon = 1e-24f,
                                 .input = b->e->output, .weight = weight, .output = b->e->output));
}

enum vka_status embed_create(struct vka_device *device, const struct bert *m,
                             const struct embed_info *info, struct embed *e)
{
    *e = (struct embed){.info = *info};
    struct builder b = {device, e, m, VKA_OK};
    b.status =
        vka_plan_create(device, VKA_INFO(vka_plan_info, .submit_budget = info->budget), &e->plan);
    e->ids = make(&b, VKA_I32, 2, (const uint32_t[]){info->batch, info->rows});
    e->lengths = make(&b, VKA_I32, 1, &info->batch);
    e->output = make(&b, VKA_F32, 2, (const uint32_t[]){info->batch, m->width});
    struct vka_tensor *x = rows_of(&b, m->width);
    add_beginning(&b, x);
    add_blocks(&b, x);
    pool(&b, x);
    if (!info->plain)
        normalise(&b);
    return b.status == VKA_OK ? vka_plan_finish(e->plan) : b.status;
}

void embed_free(struct embed *e)
{
    vka_plan_destroy(&e->plan);
    while (e->n_tensor > 0)
        vka_tensor_destroy(&e->tensors[--e->n_tensor]);
}
