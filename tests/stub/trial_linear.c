/* Products with weights of every type, and layers of them. */
#include "trial.h"

#include "problems/operand.h"
#include "problems/types.h"

#include <gpu/device.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Block types more often than not. */
static enum vka_dtype draw_weight(struct trial *t)
{
    return rng_chance(&t->rng, 45)   ? type_draw_float(&t->rng)
           : rng_chance(&t->rng, 15) ? VKA_I8
                                     : type_draw(&t->rng, dtype_is_block);
}

/* A width of whole blocks of the type. */
static uint32_t whole_blocks(enum vka_dtype type, uint32_t n)
{
    uint32_t values = 1;
    vka_dtype_block(type, &values, NULL);
    return (n + values - 1) / values * values;
}

/* ---- Products -------------------------------------------------------------------------------- */

struct product {
    uint32_t rank, m[3], n, k;
    enum vka_dtype input, weight, output, activations;
    bool bias, relu, accumulate, nonfinite;
    struct operand x, y;
    struct vka_tensor *w, *b, *scale;
};

static void draw_product(struct trial *t, struct product *p)
{
    p->rank = rng_range(&t->rng, 2, 4);
    p->weight = draw_weight(t);
    p->input = type_draw_float(&t->rng);
    p->output = type_draw_float(&t->rng);
    for (uint32_t i = 0; i + 1 < p->rank; i++)
        p->m[i] = trial_size(t, 1, i == 0 ? 100000 : 64);
    p->n = trial_size(t, 1, rng_chance(&t->rng, 20) ? 300000 : 20000);
    p->k = whole_blocks(p->weight, trial_size(t, 1, rng_chance(&t->rng, 20) ? 4000000 : 20000));
    for (int i = 0; i < 3; i++)
        p->m[i] = p->m[i] ? p->m[i] : 1;
    if (rng_chance(&t->rng, 12)) { /* one row, all of whose elements have to be in reach */
        p->m[0] = p->m[1] = p->m[2] = 1;
        p->k = whole_blocks(p->weight, trial_size(t, 16385, 4000000));
    } else if (trial_giant(t)) { /* inputs or outputs of 2 to 16 GiB */
        const uint32_t width = p->k > p->n ? p->k : p->n;
        p->m[1] = p->m[2] = 1;
        p->m[0] = trial_size(t, (1u << 30) / width + 1, UINT32_MAX / width);
    }
    while ((double)p->m[0] * p->m[1] * p->m[2] * ((double)p->k + p->n) > 4e9) {
        uint32_t *axis = &p->m[rng_range(&t->rng, 0, 2)];
        *axis = (*axis + 1) / 2;
        p->k = whole_blocks(p->weight, (p->k + 1) / 2);
    }
    p->bias = rng_chance(&t->rng, 50);
    p->relu = rng_chance(&t->rng, 15);
    p->accumulate = rng_chance(&t->rng, 15);
    p->nonfinite = rng_chance(&t->rng, 15);
    p->activations = dtype_has_integers(p->weight) && rng_chance(&t->rng, 30) ? VKA_I8 : VKA_F32;
    snprintf(t->text, sizeof t->text,
             "[%u %u %u of %u][%u] %s times %s [%u] to %s%s%s%s%s, activations %s", p->m[0],
             p->m[1], p->m[2], p->rank - 1, p->k, vka_dtype_name(p->input),
             vka_dtype_name(p->weight), p->n, vka_dtype_name(p->output), p->bias ? ", bias" : "",
             p->relu ? ", relu" : "", p->accumulate ? ", accumulated" : "",
             p->nonfinite ? ", counted" : "", vka_dtype_name(p->activations));
}

static enum vka_status create_product(struct trial *t, struct product *p)
{
    uint32_t in[4], out[4];
    const bool scattered = rng_chance(&t->rng, 30);
    for (uint32_t i = 0; i + 1 < p->rank; i++)
        in[i] = out[i] = p->m[i];
    in[p->rank - 1] = p->k;
    out[p->rank - 1] = p->n;
    struct layout layout = scattered ? layout_random(&t->rng, p->rank) : layout_dense();
    enum vka_status status = operand_create_empty(t->device, p->input, p->rank, in, &layout, &p->x);
    if (status == VKA_OK)
        status = vka_tensor_create(t->device, p->weight, 2, (const uint32_t[]){p->n, p->k}, &p->w);
    if (status == VKA_OK && p->bias)
        status = vka_tensor_create(t->device, type_draw_float(&t->rng), 1, &p->n, &p->b);
    if (status == VKA_OK &&
        (p->weight == VKA_I8 || (dtype_is_block(p->weight) && rng_chance(&t->rng, 20))))
        status = vka_tensor_create(t->device, VKA_F32, 1, &p->n, &p->scale);
    layout = scattered ? layout_random(&t->rng, p->rank) : layout_dense();
    if (status == VKA_OK)
        status = operand_create_empty(t->device, p->output, p->rank, out, &layout, &p->y);
    return status;
}

static enum vka_status plan_product(struct trial *t, const void *job, uint64_t budget,
                                    struct vka_plan **plan)
{
    const struct product *p = job;
    enum vka_status status = vka_plan_create(
        t->device,
        VKA_INFO(vka_plan_info, .submit_budget = budget, .count_nonfinite = p->nonfinite), plan);
    if (status == VKA_OK)
        status = vka_plan_add_linear(
            *plan, VKA_INFO(vka_linear_op, .input = p->x.view, .weight = p->w, .bias = p->b,
                            .output = p->y.view, .relu_input = p->relu, .weight_scale = p->scale,
                            .accumulate = p->accumulate, .activations = p->activations));
    return status == VKA_OK ? vka_plan_finish(*plan) : status;
}

bool trial_linear(struct trial *t)
{
    struct product p = {0};
    draw_product(t, &p);
    enum vka_status status = create_product(t, &p);
    bool ok = trial_passed(t, status);
    if (status == VKA_OK)
        ok = trial_run(t, plan_product, &p,
                       &(struct trial_tensors){
                           .inputs = {p.x.view, p.w, p.b, p.scale},
                           .outputs = {p.y.view},
                           .exact = true,
                           .least = 2.0 * p.m[0] * p.m[1] * p.m[2] * p.n * p.k,
                       });
    operand_destroy(&p.x);
    operand_destroy(&p.y);
    vka_tensor_destroy(&p.w);
    vka_tensor_destroy(&p.b);
    vka_tensor_destroy(&p.scale);
    return ok;
}

/* ---- Layers ---------------------------------------------------------------------------------- */

struct layer {
    struct vka_layer_info info;
    struct vka_layer_op op;
    enum vka_path path;
    uint32_t batch, n_q, n_kv;
    bool causal;
    struct vka_tensor *tensors[8]; /* weights and biases, in turn */
    void *host[8];
    struct vka_layer *layer;
    struct vka_cache *cache;
    struct vka_tensor *query, *key, *output;
};

static void draw_layer(struct trial *t, struct layer *l, bool in_tensors)
{
    struct vka_layer_info *i = &l->info;
    const uint32_t wide = in_tensors ? 8192 : 512; /* weights on the host are read */
    const bool blocks = !in_tensors && rng_chance(&t->rng, 50);
    i->struct_size = sizeof *i;
    i->dtype = blocks ? type_draw(&t->rng, dtype_is_block) : type_draw_float(&t->rng);
    i->n_kv_head = rng_range(&t->rng, 1, in_tensors ? 16 : 4);
    i->n_head = i->n_kv_head * rng_range(&t->rng, 1, 4);
    i->head_dim = trial_size(t, 1, 128);
    i->value_dim = rng_chance(&t->rng, 60) ? i->head_dim : trial_size(t, 1, 128);
    if (blocks) { /* the concatenated heads are whole blocks too */
        i->value_dim = 128;
        i->n_head = i->n_kv_head = 2 * rng_range(&t->rng, 1, 2);
    }
    i->query_dim = whole_blocks(i->dtype, trial_size(t, 1, wide));
    i->key_dim =
        rng_chance(&t->rng, 60) ? i->query_dim : whole_blocks(i->dtype, trial_size(t, 1, wide));
    i->value_input_dim = i->key_dim;
    i->output_dim = trial_size(t, 1, wide);
    i->interleaved = rng_chance(&t->rng, 20);
    i->keep_weights = !in_tensors && rng_chance(&t->rng, 30);
    l->path = (enum vka_path)rng_range(&t->rng, 0, VKA_PATH_COUNT - 1);
    l->batch = trial_size(t, 1, 64);
    l->causal = rng_chance(&t->rng, 50);
    l->n_q = trial_size(t, 1, 16384 / l->batch + 1);
    l->n_kv = i->key_dim == i->query_dim && rng_chance(&t->rng, 50) ? 0 : trial_size(t, 1, 8192);
    snprintf(t->text, sizeof t->text,
             "layer of %s%s, heads %u/%u dims %u,%u widths %u %u %u, batch %u, %u queries, %u keys",
             vka_dtype_name(i->dtype), in_tensors ? " in tensors" : "", i->n_head, i->n_kv_head,
             i->head_dim, i->value_dim, i->query_dim, i->key_dim, i->output_dim, l->batch, l->n_q,
             l->n_kv);
}

static enum vka_status create_weights(struct trial *t, struct layer *l, bool in_tensors)
{
    struct vka_layer_info *i = &l->info;
    const uint32_t shapes[4][2] = {{i->n_head * i->head_dim, i->query_dim},
                                   {i->n_kv_head * i->head_dim, i->key_dim},
                                   {i->n_kv_head * i->value_dim, i->value_input_dim},
                                   {i->output_dim, i->n_head * i->value_dim}};
    struct vka_linear_tensors *tensors[] = {&i->query_tensors, &i->key_tensors, &i->value_tensors,
                                            &i->output_tensors};
    struct vka_linear_weights *host[] = {&i->query, &i->key, &i->value, &i->output};
    enum vka_status status = VKA_OK;
    for (int j = 0; j < 4 && status == VKA_OK; j++) {
        if (in_tensors) {
            status = vka_tensor_create(t->device, i->dtype, 2, shapes[j], &l->tensors[2 * j]);
            if (status == VKA_OK && j % 2)
                status =
                    vka_tensor_create(t->device, i->dtype, 1, shapes[j], &l->tensors[2 * j + 1]);
            *tensors[j] = (struct vka_linear_tensors){l->tensors[2 * j], l->tensors[2 * j + 1]};
            continue;
        }
        l->host[2 * j] = calloc((size_t)shapes[j][0] * shapes[j][1] + 64, 4);
        l->host[2 * j + 1] = j % 2 ? calloc(shapes[j][0], 4) : NULL;
        *host[j] = (struct vka_linear_weights){l->host[2 * j], l->host[2 * j + 1]};
    }
    return status == VKA_OK ? vka_layer_create(t->device, i, &l->layer) : status;
}

static enum vka_status create_layer(struct trial *t, struct layer *l)
{
    const struct vka_layer_info *i = &l->info;
    const bool cached = rng_chance(&t->rng, 30);
    const enum vka_dtype io = type_draw_float(&t->rng);
    const uint32_t n_kv = l->n_kv ? l->n_kv : l->n_q;
    enum vka_status status = vka_tensor_create(
        t->device, io, 3, (const uint32_t[]){l->batch, l->n_q, i->query_dim}, &l->query);
    if (status == VKA_OK && l->n_kv)
        status = vka_tensor_create(t->device, io, 3,
                                   (const uint32_t[]){l->batch, l->n_kv, i->key_dim}, &l->key);
    if (status == VKA_OK)
        status = vka_tensor_create(t->device, type_draw_float(&t->rng), 3,
                                   (const uint32_t[]){l->batch, l->n_q, i->output_dim}, &l->output);
    if (status == VKA_OK && cached)
        status = vka_cache_create(
            t->device,
            VKA_INFO(vka_cache_info, .batch = l->batch, .n_kv_head = i->n_kv_head,
                     .head_dim = i->head_dim, .value_dim = i->value_dim, .capacity = 4 * n_kv,
                     .key_dtype = rng_chance(&t->rng, 30) ? VKA_Q8_0 : type_draw_float(&t->rng),
                     .value_dtype = type_draw_float(&t->rng),
                     .page_size = rng_chance(&t->rng, 50) ? 32 : 0),
            &l->cache);
    return status;
}

static enum vka_status plan_layer(struct trial *t, const void *job, uint64_t budget,
                                  struct vka_plan **plan)
{
    const struct layer *l = job;
    enum vka_status status = vka_plan_create(
        t->device, VKA_INFO(vka_plan_info, .path = l->path, .submit_budget = budget), plan);
    if (status == VKA_OK)
        status = vka_plan_add_layer(*plan,
                                    VKA_INFO(vka_layer_op, .layer = l->layer, .query = l->query,
                                             .key = l->key, .output = l->output, .cache = l->cache,
                                             .attention = {.causal = l->causal}));
    return status == VKA_OK ? vka_plan_finish(*plan) : status;
}

bool trial_layer(struct trial *t)
{
    struct layer l = {0};
    const bool in_tensors = rng_chance(&t->rng, 50);
    draw_layer(t, &l, in_tensors);
    enum vka_status status = create_weights(t, &l, in_tensors);
    if (status == VKA_OK)
        status = create_layer(t, &l);
    bool ok = trial_passed(t, status);
    if (status == VKA_OK)
        ok = trial_run(t, plan_layer, &l,
                       &(struct trial_tensors){
                           .inputs = {l.query, l.key}, .outputs = {l.output}, .exact = !l.causal});
    vka_layer_destroy(&l.layer);
    vka_cache_destroy(&l.cache);
    vka_tensor_destroy(&l.query);
    vka_tensor_destroy(&l.key);
    vka_tensor_destroy(&l.output);
    for (int i = 0; i < 8; i++) {
        vka_tensor_destroy(&l.tensors[i]);
        free(l.host[i]);
    }
    return ok;
}
