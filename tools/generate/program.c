#include "program.h"

/* Makes the tensors of a program, and remembers the first failure, so that the lines that build the
 * model read as the model. */
struct builder {
    struct vka_device *device;
    struct program *program;
    enum vka_status status;
};

static struct vka_tensor **slot(struct builder *b)
{
    if (b->status == VKA_OK && b->program->n_tensor == PROGRAM_TENSORS)
        b->status = VKA_INTERNAL;
    return b->status == VKA_OK ? &b->program->tensors[b->program->n_tensor++] : NULL;
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
    return make(b, VKA_F32, 3, (const uint32_t[]){1, b->program->rows, width});
}

static struct vka_tensor *reshape(struct builder *b, struct vka_tensor *tensor, uint32_t rank,
                                  const uint32_t *shape)
{
    struct vka_tensor **t = slot(b);
    if (t)
        b->status = vka_tensor_reshape(tensor, rank, shape, t);
    return t ? *t : NULL;
}

/* View [1][n_head][rows][dim] of [1][rows][n_head * dim]. */
static struct vka_tensor *heads_of(struct builder *b, struct vka_tensor *tensor, uint32_t n_head,
                                   uint32_t dim)
{
    struct vka_tensor *split =
        reshape(b, tensor, 4, (const uint32_t[]){1, b->program->rows, n_head, dim});
    struct vka_tensor **t = slot(b);
    if (t)
        b->status = vka_tensor_permute(split, (const uint32_t[]){0, 2, 1, 3}, t);
    return t ? *t : NULL;
}

static void add_linear(struct builder *b, struct vka_tensor *input, struct vka_tensor *weight,
                       bool accumulate, struct vka_tensor *output)
{
    if (b->status == VKA_OK)
        b->status = vka_plan_add_linear(b->program->plan,
                                        VKA_INFO(vka_linear_op, .input = input, .weight = weight,
                                                 .output = output, .accumulate = accumulate));
}

/* output = input weight^T */
static void linear(struct builder *b, struct vka_tensor *input, struct vka_tensor *weight,
                   struct vka_tensor *output)
{
    add_linear(b, input, weight, false, output);
}

/* x += input weight^T */
static void residual(struct builder *b, struct vka_tensor *input, struct vka_tensor *weight,
                     struct vka_tensor *x)
{
    add_linear(b, input, weight, true, x);
}

static void norm(struct builder *b, const struct llama *m, struct vka_tensor *x,
                 struct vka_tensor *weight, struct vka_tensor *output)
{
    if (b->status == VKA_OK)
        b->status = vka_plan_add_norm(b->program->plan,
                                      VKA_INFO(vka_norm_op, .epsilon = m->epsilon, .input = x,
                                               .weight = weight, .output = output));
}

static void gather(struct builder *b, struct vka_tensor *table, struct vka_tensor *ids,
                   struct vka_tensor *output)
{
    if (b->status == VKA_OK)
        b->status = vka_plan_add_gather(b->program->plan, VKA_INFO(vka_gather_op, .table = table,
                                                                   .ids = ids, .output = output));
}

/* Rows between the operations, shared by all blocks. */
struct rows {
    struct vka_tensor *x, *normed;              /* [1][rows][width] */
    struct vka_tensor *q, *k, *v, *context;     /* projections */
    struct vka_tensor *qh, *kh, *vh, *contexth; /* the same by heads */
    struct vka_tensor *gate, *up;               /* [1][rows][ffn_width] */
};

static struct rows make_rows(struct builder *b, const struct llama *m)
{
    uint32_t heads = m->n_head * m->head_dim, kv = m->n_kv_head * m->head_dim;
    struct rows r = {.x = rows_of(b, m->width),
                     .normed = rows_of(b, m->width),
                     .q = rows_of(b, heads),
                     .k = rows_of(b, kv),
                     .v = rows_of(b, kv),
                     .context = rows_of(b, heads),
                     .gate = rows_of(b, m->ffn_width),
                     .up = rows_of(b, m->ffn_width)};
    r.qh = heads_of(b, r.q, m->n_head, m->head_dim);
    r.kh = heads_of(b, r.k, m->n_kv_head, m->head_dim);
    r.vh = heads_of(b, r.v, m->n_kv_head, m->head_dim);
    r.contexth = heads_of(b, r.context, m->n_head, m->head_dim);
    return r;
}

static void add_block(struct builder *b, const struct llama *m, uint32_t i, const struct rows *r,
                      struct vka_cache *cache)
{
    const struct llama_block *w = &m->blocks[i];
    norm(b, m, r->x, w->attn_norm, r->normed);
    linear(b, r->normed, w->q, r->q);
    linear(b, r->normed, w->k, r->k);
    linear(b, r->normed, w->v, r->v);
    if (b->status == VKA_OK)
        b->status = vka_plan_add_attention(
            b->program->plan,
            VKA_INFO(vka_attention_op, .q = r->qh, .k = r->kh, .v = r->vh, .output = r->contexth,
                     .cache = cache, .cache_layer = i, .n_append = b->program->n_append,
                     .options.causal = true,
                     .options.rope = {
                         .dim = m->head_dim, .base = m->rope_base, .interleaved = m->interleaved}));
    residual(b, r->context, w->o, r->x);
    norm(b, m, r->x, w->ffn_norm, r->normed);
    linear(b, r->normed, w->gate, r->gate);
    linear(b, r->normed, w->up, r->up);
    if (b->status == VKA_OK)
        b->status = vka_plan_add_activation(
            b->program->plan, VKA_INFO(vka_activation_op, .kind = VKA_SILU, .input = r->gate,
                                       .multiplier = r->up, .output = r->gate));
    residual(b, r->gate, w->down, r->x);
}

/* The logits of the last row that counts, and the largest of them. */
static void add_end(struct builder *b, const struct llama *m, const struct rows *r,
                    struct vka_tensor *next)
{
    struct program *p = b->program;
    struct vka_tensor *row = make(b, VKA_F32, 2, (const uint32_t[]){1, m->width});
    struct vka_tensor *logits = make(b, VKA_F32, 2, (const uint32_t[]){1, m->n_token});
    norm(b, m, r->x, m->norm, r->normed);
    struct vka_tensor *table = reshape(b, r->normed, 2, (const uint32_t[]){p->rows, m->width});
    gather(b, table, p->last, row);
    linear(b, row, m->head, logits);
    if (b->status == VKA_OK)
        b->status =
            vka_plan_add_argmax(p->plan, VKA_INFO(vka_argmax_op, .input = logits, .output = next));
}

enum vka_status program_create(struct vka_device *device, const struct llama *m,
                               struct vka_cache *cache, struct vka_tensor *next, uint32_t rows,
                               uint64_t budget, struct program *p)
{
    *p = (struct program){.rows = rows};
    struct builder b = {device, p, VKA_OK};
    b.status = vka_plan_create(device, VKA_INFO(vka_plan_info, .submit_budget = budget), &p->plan);
    if (rows > 1) {
        p->ids = make(&b, VKA_I32, 2, (const uint32_t[]){1, rows});
        p->n_append = make(&b, VKA_I32, 1, (const uint32_t[]){1});
    } else {
        p->ids = reshape(&b, next, 2, (const uint32_t[]){1, 1});
    }
    p->last = make(&b, VKA_I32, 1, (const uint32_t[]){1});
    if (b.status == VKA_OK)
        b.status = vka_tensor_write(p->last, (const int32_t[]){0}, 4);
    const struct rows r = make_rows(&b, m);
    gather(&b, m->embedding, p->ids, r.x);
    for (uint32_t i = 0; i < m->n_block; i++)
        add_block(&b, m, i, &r, cache);
    add_end(&b, m, &r, next);
    return b.status == VKA_OK ? vka_plan_finish(p->plan) : b.status;
}

void program_free(struct program *p)
{
    vka_plan_destroy(&p->plan);
    while (p->n_tensor > 0)
        vka_tensor_destroy(&p->tensors[--p->n_tensor]);
}
