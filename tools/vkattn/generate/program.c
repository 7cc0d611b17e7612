#include "program.h"

static void add_linear(struct graph *g, struct vka_tensor *input, struct vka_tensor *weight,
                       bool accumulate, struct vka_tensor *output)
{
    if (g->status == VKA_OK)
        g->status =
            vka_plan_add_linear(g->plan, VKA_INFO(vka_linear_op, .input = input, .weight = weight,
                                                  .output = output, .accumulate = accumulate));
}

/* output = input weight^T */
static void linear(struct graph *g, struct vka_tensor *input, struct vka_tensor *weight,
                   struct vka_tensor *output)
{
    add_linear(g, input, weight, false, output);
}

/* The columns of output, one after the other, are the products by n weights, which may be NULL. */
static void linears(struct graph *g, struct vka_tensor *input, struct vka_tensor *const *weights,
                    size_t n, struct vka_tensor *output)
{
    uint32_t first = 0;
    for (size_t i = 0; i < n && g->status == VKA_OK; i++) {
        if (!weights[i])
            continue;
        uint32_t rows = vka_tensor_shape(weights[i], 0);
        struct vka_tensor *columns = NULL;
        g->status = vka_tensor_slice(output, 2, first, rows, &columns);
        linear(g, input, weights[i], columns);
        vka_tensor_destroy(&columns); /* the plan keeps what it needs */
        first += rows;
    }
}

/* x += input weight^T */
static void residual(struct graph *g, struct vka_tensor *input, struct vka_tensor *weight,
                     struct vka_tensor *x)
{
    add_linear(g, input, weight, true, x);
}

static void norm(struct graph *g, const struct llama *m, struct vka_tensor *x,
                 struct vka_tensor *weight, struct vka_tensor *output)
{
    if (g->status == VKA_OK)
        g->status =
            vka_plan_add_norm(g->plan, VKA_INFO(vka_norm_op, .epsilon = m->epsilon, .input = x,
                                                .weight = weight, .output = output));
}

/* Rows between the operations, shared by all blocks. */
struct rows {
    struct vka_tensor *x, *normed;           /* [1][rows][width] */
    struct vka_tensor *qkv, *context;        /* projections */
    struct vka_tensor *q, *k, *v, *contexth; /* the same by heads */
    struct vka_tensor *gate_up, *gate, *up;  /* [1][rows][2 * ffn_width], and its halves */
};

static struct rows make_rows(struct graph *g, const struct llama *m)
{
    uint32_t heads = m->n_head * m->head_dim, kv = m->n_kv_head * m->head_dim;
    struct rows r = {.x = graph_rows(g, m->width),
                     .normed = graph_rows(g, m->width),
                     .qkv = graph_rows(g, heads + 2 * kv),
                     .context = graph_rows(g, heads),
                     .gate_up = graph_rows(g, 2 * m->ffn_width)};
    r.q = graph_heads(g, graph_slice(g, r.qkv, 2, 0, heads), m->n_head, m->head_dim);
    r.k = graph_heads(g, graph_slice(g, r.qkv, 2, heads, kv), m->n_kv_head, m->head_dim);
    r.v = graph_heads(g, graph_slice(g, r.qkv, 2, heads + kv, kv), m->n_kv_head, m->head_dim);
    r.contexth = graph_heads(g, r.context, m->n_head, m->head_dim);
    r.gate = graph_slice(g, r.gate_up, 2, 0, m->ffn_width);
    r.up = graph_slice(g, r.gate_up, 2, m->ffn_width, m->ffn_width);
    return r;
}

static void add_block(struct program *p, const struct llama *m, uint32_t i, const struct rows *r,
                      struct vka_cache *cache)
{
    struct graph *g = &p->graph;
    const struct llama_block *w = &m->blocks[i];
    norm(g, m, r->x, w->attn_norm, r->normed);
    linears(g, r->normed, w->qkv, 3, r->qkv);
    if (g->status == VKA_OK)
        g->status = vka_plan_add_attention(
            g->plan,
            VKA_INFO(vka_attention_op, .q = r->q, .k = r->k, .v = r->v, .output = r->contexth,
                     .cache = cache, .cache_layer = i, .n_append = p->n_append,
                     .options.causal = true,
                     .options.rope = {
                         .dim = m->head_dim, .base = m->rope_base, .interleaved = m->interleaved}));
    residual(g, r->context, w->o, r->x);
    norm(g, m, r->x, w->ffn_norm, r->normed);
    linears(g, r->normed, w->gate_up, 2, r->gate_up);
    if (g->status == VKA_OK)
        g->status = vka_plan_add_activation(g->plan, VKA_INFO(vka_activation_op, .kind = VKA_SILU,
                                                              .input = r->gate, .multiplier = r->up,
                                                              .output = r->gate));
    residual(g, r->gate, w->down, r->x);
}

/* The logits of the last row that counts, and one of them that is taken. */
static void add_end(struct program *p, const struct llama *m, const struct rows *r,
                    const struct sampling *sampling, struct vka_tensor *next)
{
    struct graph *g = &p->graph;
    struct vka_tensor *row = graph_make(g, VKA_F32, 2, (const uint32_t[]){1, m->width});
    struct vka_tensor *logits = graph_make(g, VKA_F32, 2, (const uint32_t[]){1, m->n_token});
    norm(g, m, r->x, m->norm, r->normed);
    struct vka_tensor *table =
        graph_reshape(g, r->normed, 2, (const uint32_t[]){g->rows, m->width});
    graph_gather(g, table, p->last, row);
    linear(g, row, m->head, logits);
    if (g->status == VKA_OK)
        g->status =
            vka_plan_add_sample(g->plan, VKA_INFO(vka_sample_op, .logits = logits, .output = next,
                                                  .temperature = sampling->temperature,
                                                  .seed = sampling->seed, .step = sampling->step));
}

enum vka_status program_create(struct vka_device *device, const struct llama *m,
                               struct vka_cache *cache, const struct sampling *sampling,
                               struct vka_tensor *next, uint32_t rows, uint64_t budget,
                               struct program *p)
{
    struct graph *g = &p->graph;
    *p = (struct program){0};
    graph_begin(device, 1, rows, budget, g);
    if (rows > 1) {
        p->ids = graph_make(g, VKA_I32, 2, (const uint32_t[]){1, rows});
        p->n_append = graph_make(g, VKA_I32, 1, (const uint32_t[]){1});
    } else {
        p->ids = graph_reshape(g, next, 2, (const uint32_t[]){1, 1});
    }
    p->last = graph_make(g, VKA_I32, 1, (const uint32_t[]){1});
    if (g->status == VKA_OK)
        g->status = vka_tensor_write(p->last, (const int32_t[]){0}, 4);
    const struct rows r = make_rows(g, m);
    graph_gather(g, m->embedding, p->ids, r.x);
    for (uint32_t i = 0; i < m->n_block; i++)
        add_block(p, m, i, &r, cache);
    add_end(p, m, &r, sampling, next);
    return graph_finish(g);
}

void program_free(struct program *p)
{
    graph_free(&p->graph);
}
