/* Large layers: keys and queries are projected to 0, so that weights are equal; each value is one
 * feature of the input, and so is each output one of the concatenated heads. */
#include "large_known.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct run {
    const struct large_attention *a;
    struct large_known known;
    struct vka_layer *layer;
    struct large_tensor query, key, output;
    uint32_t output_dim;
    void *zero, *value, *projection; /* weights on the host */
};

static uint32_t feature_of(const struct large_attention *a, uint32_t column)
{
    return large_mix(column, 5) % 4 ? large_mix(column, 6) % a->key_dim
                                    : a->key_dim - 1 - column % a->key_dim;
}

static uint32_t column_of(const struct large_attention *a, uint32_t out)
{
    return large_mix(out, 9) % (a->n_kv_head * a->group * a->value_dim);
}

static void set_one(void *weights, enum vka_dtype dtype, size_t at)
{
    struct large_tensor t = {.dtype = dtype, .host = weights};
    large_store(&t, at, large_encode(dtype, 1));
}

static enum vka_status create_layer(struct vka_device *device, struct run *r)
{
    const struct large_attention *a = r->a;
    const size_t size = vka_dtype_size(a->k), H = a->n_kv_head * a->group, G = a->n_kv_head;
    const size_t values = G * a->value_dim, width = H * a->value_dim;
    size_t q = H * a->head_dim * a->query_dim, k = G * a->head_dim * a->key_dim;
    r->zero = calloc(q > k ? q : k, size);
    r->value = calloc(values * a->key_dim, size);
    r->projection = calloc(r->output_dim * width, size);
    if (!r->zero || !r->value || !r->projection)
        return VKA_OUT_OF_HOST_MEMORY;
    for (uint32_t o = 0; o < values; o++)
        set_one(r->value, a->k, (size_t)o * a->key_dim + feature_of(a, o));
    for (uint32_t o = 0; o < r->output_dim; o++)
        set_one(r->projection, a->k, (size_t)o * width + column_of(a, o));
    return vka_layer_create(device,
                            VKA_INFO(vka_layer_info, .n_head = (uint32_t)H,
                                     .n_kv_head = (uint32_t)G, .head_dim = a->head_dim,
                                     .value_dim = a->value_dim, .query_dim = a->query_dim,
                                     .key_dim = a->key_dim, .output_dim = r->output_dim,
                                     .dtype = a->k, .query.weight = r->zero, .key.weight = r->zero,
                                     .value.weight = r->value, .output.weight = r->projection),
                            &r->layer);
}

static enum vka_status create(struct vka_device *device, struct run *r)
{
    const struct large_attention *a = r->a;
    const struct kernel_set disabled = device->caps.without;
    set_join(&device->caps.without, a->disabled_kernels); /* weights are packed for the others */
    enum vka_status status = create_layer(device, r);
    device->caps.without = disabled;
    free(r->zero);
    free(r->value);
    free(r->projection);
    if (status == VKA_OK)
        status = large_tensor_create(
            device, a->q, 3, (const uint32_t[]){a->batch, a->n_q, a->query_dim}, 0, &r->query);
    if (status == VKA_OK)
        status = large_tensor_create(
            device, a->v, 3, (const uint32_t[]){a->batch, a->n_new, a->key_dim}, 0, &r->key);
    if (status == VKA_OK)
        status =
            large_tensor_create(device, a->output, 3,
                                (const uint32_t[]){a->batch, a->n_q, r->output_dim}, 0, &r->output);
    return status;
}

static enum vka_status fill(struct run *r)
{
    const struct large_attention *a = r->a;
    struct large_attention as_values = *a;
    as_values.n_kv_head = 1; /* one head as wide as the input, whose features are the values' */
    as_values.value_dim = a->key_dim;
    r->known.a = &as_values;
    bool ok = large_host(&r->query) && large_fill_v(&r->known, &r->key, 0, a->n_new);
    r->known.a = a;
    for (uint64_t i = 0; ok && i < r->query.count; i++)
        large_store(&r->query, i, large_encode(a->q, (double)(i % 5) - 2));
    enum vka_status status = ok ? large_upload(&r->query) : VKA_OUT_OF_HOST_MEMORY;
    if (status == VKA_OK)
        status = large_upload(&r->key);
    if (status == VKA_OK)
        status = large_blank(&r->output);
    return status;
}

static bool judge(struct run *r, struct large_result *result)
{
    const struct large_attention *a = r->a;
    /* what lies between the passes may be of the weights' type */
    struct large_verdict v =
        large_verdict("output", a->k > a->output ? a->k : a->output, result->kernels);
    double *want = malloc(r->output_dim * sizeof *want);
    for (uint32_t b = 0; want && b < a->batch; b++)
        for (uint32_t i = 0; i < a->n_q; i++) {
            struct large_row row = large_row_at(a, b, 0, i, 0, a->n_new);
            struct large_softmax s = large_softmax_of(&r->known, &row);
            for (uint32_t o = 0; o < r->output_dim; o++) {
                uint32_t column = column_of(a, o), head = column / a->value_dim;
                uint32_t feature =
                    feature_of(a, head / a->group * a->value_dim + column % a->value_dim);
                want[o] = large_factor(feature) * s.ramp + large_term(feature, b) * s.sum;
            }
            large_judge(&v, &r->output, ((uint64_t)b * a->n_q + i) * r->output_dim, r->output_dim,
                        want, false);
        }
    bool ok = want && large_judged(&v, result);
    free(want);
    return ok;
}

bool large_check_layer(struct vka_device *device, const struct large_problem *p,
                       struct large_result *result)
{
    const struct large_attention *a = &p->a;
    struct run r = {.a = a, .output_dim = 1 + large_mix((uint32_t)a->seed, 1) % 64};
    struct vka_plan *plan = NULL;
    large_known_open(&r.known, a, a->n_new);
    enum vka_status status = create(device, &r);
    struct vka_layer_op op = {.struct_size = sizeof op,
                              .layer = r.layer,
                              .query = r.query.view,
                              .key = r.key.view,
                              .output = r.output.view,
                              .attention = {.causal = a->causal,
                                            .window = a->window,
                                            .window_left = a->window_left,
                                            .window_right = a->window_right,
                                            .masked_row = VKA_MASKED_ZERO}};
    if (status == VKA_OK)
        status = large_finish(device, p, false, &(struct large_add){.layer = &op}, &plan, result);
    if (status == VKA_OK && !p->judge)
        status = fill(&r);
    if (status == VKA_OK)
        status = large_run(plan);
    if (status == VKA_OK && !p->judge)
        status = large_download(&r.output);
    bool ok =
        status == VKA_OK ? p->judge || judge(&r, result) : large_failed(device, status, result);
    vka_plan_destroy(&plan);
    vka_layer_destroy(&r.layer);
    large_tensor_destroy(&r.query);
    large_tensor_destroy(&r.key);
    large_tensor_destroy(&r.output);
    large_known_close(&r.known);
    return ok;
}
