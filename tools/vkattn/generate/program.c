#include "program.h"

static void add_linear(struct graph *g, struct vka_tensor *input, const struct affine *by,
                       bool accumulate, struct vka_tensor *output)
{
    if (g->status == VKA_OK)
        g->status = vka_plan_add_linear(
            g->plan, VKA_INFO(vka_linear_op, .input = input, .weight = by->weight, .bias = by->bias,
                              .output = output, .accumulate = accumulate));
}

/* The columns of output, one after the other, are the products by n matrices, which may be NULL. */
static void linears(struct graph *g, struct vka_tensor *input, const struct affine *by, size_t n,
                    struct vka_tensor *output)
{
    uint32_t first = 0;
    for (size_t i = 0; i < n && g->status == VKA_OK; i++) {
        if (!by[i].weight)
            continue;
        uint32_t rows = vka_tensor_shape(by[i].weight, 0);
        struct vka_tensor *columns = NULL;
        g->status = vka_tensor_slice(output, 2, first, rows, &columns);
        add_linear(g, input, &by[i], false, columns);
        vka_tensor_destroy(&columns); /* the plan keeps what it needs */
        first += rows;
    }
}

static void norm(struct graph *g, const struct decoder *m, struct vka_tensor *x,
                 const struct affine *by, struct vka_tensor *output)
{
    if (g->status == VKA_OK)
        g->status = vka_plan_add_norm(
            g->plan,
            VKA_INFO(vka_norm_op, .kind = m->family->layer_norm ? VKA_LAYER_NORM : VKA_RMS_NORM,
                     .epsilon = m->epsilon, .input = x, .weight = by->weight, .bias = by->bias,
                     .output = output));
}

static void binary(struct graph *g, enum vka_binary kind, struct vka_tensor *a,
                   struct vka_tensor *b, struct vka_tensor *output)
{
    if (g->status == VKA_OK)
        g->status = vka_plan_add_binary(
            g->plan, VKA_INFO(vka_binary_op, .kind = kind, .a = a, .b = b, .output = output));
}

/* Rows between the operations, shared by all blocks. */
struct rows {
    struct vka_tensor *x, *normed, *added;   /* [1][rows][width]; added: NULL where x takes sums */
    struct vka_tensor *qkv, *context;        /* projections */
    struct vka_tensor *all_q, *all_k;        /* columns of qkv */
    struct vka_tensor *q, *k, *v, *contexth; /* by heads */
    struct vka_tensor *inner, *gate, *up;    /* [1][rows][..], and its halves; up NULL: one alone */
};

static struct rows make_rows(struct graph *g, const struct decoder *m)
{
    const struct family *f = m->family;
    uint32_t heads = m->n_head * m->head_dim, kv = m->n_kv_head * m->head_dim;
    struct rows r = {.x = graph_rows(g, m->width),
                     .normed = graph_rows(g, m->width),
                     .added = f->norms_after || m->residual_scale ? graph_rows(g, m->width) : NULL,
                     .qkv = graph_rows(g, heads + 2 * kv),
                     .context = graph_rows(g, heads),
                     .inner = graph_rows(g, f->gated ? 2 * m->ffn_width : m->ffn_width)};
    r.all_q = graph_slice(g, r.qkv, 2, 0, heads);
    r.all_k = graph_slice(g, r.qkv, 2, heads, kv);
    r.q = graph_heads(g, r.all_q, m->n_head, m->head_dim);
    r.k = graph_heads(g, r.all_k, m->n_kv_head, m->head_dim);
    r.v = graph_heads(g, graph_slice(g, r.qkv, 2, heads + kv, kv), m->n_kv_head, m->head_dim);
    r.contexth = graph_heads(g, r.context, m->n_head, m->head_dim);
    r.gate = graph_slice(g, r.inner, 2, 0, m->ffn_width);
    r.up = f->gated ? graph_slice(g, r.inner, 2, m->ffn_width, m->ffn_width) : NULL;
    return r;
}

/* Adds the product, or its norm, to x. */
static void join(struct graph *g, const struct decoder *m, const struct rows *r,
                 struct vka_tensor *input, const struct affine *by, const struct affine *after)
{
    add_linear(g, input, by, !r->added, r->added ? r->added : r->x);
    if (!r->added)
        return;
    if (m->family->norms_after)
        norm(g, m, r->added, after, r->added);
    if (m->residual_scale)
        binary(g, VKA_MULTIPLY, r->added, m->residual_scale, r->added);
    binary(g, VKA_ADD, r->x, r->added, r->x);
}

/* Whether block i sees all keys, not those of a window alone. */
static bool sees_all(const struct decoder *m, uint32_t i)
{
    if (m->full)
        return m->full[i];
    return !m->window || (m->full_every && (i + 1) % m->full_every == 0);
}

/* The rotary embedding of block i; dim 0: it has none. */
static struct vka_rope rope_of(const struct decoder *m, uint32_t i)
{
    const bool all = sees_all(m, i), local = !all && m->local_base > 0;
    if ((m->family->full_unrotated && m->window && all) ||
        (m->unrotated_every && (i + 1) % m->unrotated_every == 0))
        return (struct vka_rope){0};
    return (struct vka_rope){.dim = m->rope_dim,
                             .base = local            ? m->local_base
                                     : m->frequencies ? 0
                                                      : m->rope_base,
                             .frequencies = local ? NULL : m->frequencies,
                             .interleaved = m->family->interleaved};
}

static void attend(struct program *p, const struct decoder *m, uint32_t i, const struct rows *r,
                   struct vka_cache *cache)
{
    const bool all = sees_all(m, i), each = !m->family->joint_norms;
    const struct decoder_block *w = &m->blocks[i];
    if (!each) {
        norm(&p->graph, m, r->all_q, &w->q_norm, r->all_q);
        norm(&p->graph, m, r->all_k, &w->k_norm, r->all_k);
    }
    const struct vka_attention_op op = {
        .struct_size = sizeof op,
        .q = r->q,
        .k = r->k,
        .v = r->v,
        .output = r->contexth,
        .cache = cache,
        .cache_layer = i,
        .n_append = p->n_append,
        .options = {.causal = true,
                    .window = !all,
                    .window_left = all ? 0 : (int32_t)m->window - 1,
                    .window_right = all ? 0 : -1,
                    .scale = m->scale,
                    .softcap = m->softcap,
                    .alibi = m->alibi,
                    .q_norm = each ? w->q_norm.weight : NULL,
                    .k_norm = each ? w->k_norm.weight : NULL,
                    .norm_epsilon = each && w->q_norm.weight ? m->epsilon : 0,
                    .rope = rope_of(m, i)}};
    if (p->graph.status == VKA_OK)
        p->graph.status = vka_plan_add_attention(p->graph.plan, &op);
}

static void add_block(struct program *p, const struct decoder *m, uint32_t i, const struct rows *r,
                      struct vka_cache *cache)
{
    struct graph *g = &p->graph;
    const struct family *f = m->family;
    const struct decoder_block *w = &m->blocks[i];
    struct vka_tensor *read = f->norms_before ? r->normed : r->x;
    if (f->norms_before)
        norm(g, m, r->x, &w->attn_norm, r->normed);
    linears(g, read, w->qkv, DECODER_MOST_STACKED, r->qkv);
    attend(p, m, i, r, cache);
    const bool more = f->norms_before && !f->one_norm;
    if (more && m->parallel) /* of x without what attention adds */
        norm(g, m, r->x, &w->ffn_norm, r->normed);
    join(g, m, r, r->context, &w->o, &w->attn_after);
    if (more && !m->parallel)
        norm(g, m, r->x, &w->ffn_norm, r->normed);
    linears(g, read, w->gate_up, 2, r->inner);
    if (g->status == VKA_OK)
        g->status = vka_plan_add_activation(
            g->plan, VKA_INFO(vka_activation_op, .kind = f->activation, .input = r->gate,
                              .multiplier = f->squared ? r->gate : r->up, .output = r->gate));
    join(g, m, r, r->gate, &w->down, &w->ffn_after);
}

/* Adds the embeddings of the positions: those that the host wrote, or `step` behind the first one. */
static void add_positions(struct program *p, const struct decoder *m, const struct rows *r,
                          const struct sampling *sampling)
{
    struct graph *g = &p->graph;
    struct vka_tensor *table = m->positions;
    if (g->rows > 1) {
        p->places = graph_make(g, VKA_I32, 2, (const uint32_t[]){1, g->rows});
    } else {
        p->places = graph_reshape(g, sampling->step, 2, (const uint32_t[]){1, 1});
        table = graph_slice(g, table, 0, sampling->first, m->n_position - sampling->first);
    }
    graph_gather(g, table, p->places, r->normed);
    binary(g, VKA_ADD, r->x, r->normed, r->x);
}

/* The embeddings of the ids. */
static void add_begin(struct program *p, const struct decoder *m, const struct rows *r,
                      const struct sampling *sampling)
{
    struct graph *g = &p->graph;
    if (g->status == VKA_OK)
        g->status = vka_plan_add_gather(g->plan, VKA_INFO(vka_gather_op, .table = m->embedding,
                                                          .ids = p->ids, .scale = m->embed_scale,
                                                          .output = r->x));
    if (m->positions)
        add_positions(p, m, r, sampling);
    if (m->family->embed_norm)
        norm(g, m, r->x, &m->embed_norm, r->x);
}

/* The logits of the last row that counts, and one of them that is taken. */
static void add_end(struct program *p, const struct decoder *m, const struct rows *r,
                    const struct sampling *sampling, struct vka_tensor *next)
{
    struct graph *g = &p->graph;
    struct vka_tensor *row = graph_make(g, VKA_F32, 2, (const uint32_t[]){1, m->width});
    struct vka_tensor *logits = graph_make(g, VKA_F32, 2, (const uint32_t[]){1, m->n_token});
    norm(g, m, r->x, &m->norm, r->normed);
    struct vka_tensor *table =
        graph_reshape(g, r->normed, 2, (const uint32_t[]){g->rows, m->width});
    graph_gather(g, table, p->last, row);
    add_linear(g, row, &m->head, false, logits);
    if (m->cap && g->status == VKA_OK)
        g->status = vka_plan_add_activation(g->plan, VKA_INFO(vka_activation_op, .kind = VKA_TANH,
                                                              .input = logits, .multiplier = m->cap,
                                                              .output = logits));
    if (g->status == VKA_OK)
        g->status =
            vka_plan_add_sample(g->plan, VKA_INFO(vka_sample_op, .logits = logits, .output = next,
                                                  .temperature = sampling->temperature,
                                                  .seed = sampling->seed, .step = sampling->step));
}

enum vka_status program_create(struct vka_device *device, const struct decoder *m,
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
    add_begin(p, m, &r, sampling);
    for (uint32_t i = 0; i < m->n_block; i++)
        add_block(p, m, i, &r, cache);
    add_end(p, m, &r, sampling, next);
    return graph_finish(g);
}

void program_free(struct program *p)
{
    graph_free(&p->graph);
}
