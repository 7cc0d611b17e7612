#include "problem_options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void problem_options_draw(struct rng *rng, struct problem_options *o)
{
    struct vka_attention_options *d = &o->drawn;
    *d = (struct vka_attention_options){.causal = true};
    if (rng_chance(rng, 25)) {
        d->window = true;
        d->window_left = (int32_t)rng_range(rng, 1, 12);
        d->window_right = -1;
    }
    if (rng_chance(rng, 50)) {
        d->rope.dim = 8;
        d->rope.interleaved = rng_chance(rng, 30);
    }
    d->scale = rng_chance(rng, 20) ? 0.25f : 0;
    d->softcap = rng_chance(rng, 20) ? 1.5f : 0;
    o->mask_dtype = rng_chance(rng, 70)   ? VKA_DTYPE_COUNT
                    : rng_chance(rng, 50) ? VKA_BOOL
                                          : VKA_F32;
    o->mask_heads = rng_chance(rng, 40);
    o->has_sink = rng_chance(rng, 20);
    o->has_alibi = rng_chance(rng, 20);
    o->has_norm = rng_chance(rng, 20);
}

/* F32 [count], each value from low to high. */
static enum vka_status vector(struct vka_device *device, struct rng *rng, uint32_t count,
                              double low, double high, struct vka_tensor **tensor)
{
    float *x = calloc(count, sizeof *x);
    if (!x)
        abort();
    for (uint32_t i = 0; i < count; i++)
        x[i] = (float)rng_uniform(rng, low, high);
    enum vka_status status = vka_tensor_create(device, VKA_F32, 1, &count, tensor);
    if (status == VKA_OK)
        status = vka_tensor_write(*tensor, x, count * sizeof *x);
    free(x);
    return status;
}

/* Hides a quarter of the keys. */
static enum vka_status create_mask(struct vka_device *device, struct rng *rng,
                                   struct problem_options *o)
{
    const uint32_t shape[] = {o->batch, o->mask_heads ? o->n_head : 1, 1, o->capacity};
    const size_t count = (size_t)shape[0] * shape[1] * o->capacity;
    const size_t size = vka_dtype_size(o->mask_dtype);
    float *x = calloc(count, sizeof *x);
    if (!x)
        abort();
    for (size_t i = 0; i < count; i++) {
        const bool visible = rng_chance(rng, 75);
        if (o->mask_dtype == VKA_BOOL)
            ((uint8_t *)x)[i] = visible;
        else
            x[i] = visible ? (float)rng_uniform(rng, -2, 2) : -INFINITY;
    }
    enum vka_status status = vka_tensor_create(device, o->mask_dtype, 4, shape, &o->mask);
    if (status == VKA_OK)
        status = vka_tensor_write(o->mask, x, count * size);
    free(x);
    return status;
}

enum vka_status problem_options_create(struct vka_device *device, struct rng *rng,
                                       struct problem_options *o)
{
    enum vka_status status = VKA_OK;
    if (o->has_sink)
        status = vector(device, rng, o->n_head, -1, 2, &o->sink);
    if (status == VKA_OK && o->has_alibi)
        status = vector(device, rng, o->n_head, 0, 0.5, &o->alibi);
    if (status == VKA_OK && o->has_norm)
        status = vector(device, rng, o->head_dim, 0.5, 1.5, &o->norm);
    if (status == VKA_OK && o->mask_dtype != VKA_DTYPE_COUNT)
        status = create_mask(device, rng, o);
    return status;
}

void problem_options_destroy(struct problem_options *o)
{
    vka_tensor_destroy(&o->sink);
    vka_tensor_destroy(&o->alibi);
    vka_tensor_destroy(&o->norm);
    vka_tensor_destroy(&o->mask);
}

enum vka_status problem_options_of(const struct problem_options *o, uint32_t first, uint32_t count,
                                   struct vka_attention_options *options, struct vka_tensor **mask)
{
    *mask = NULL;
    *options = o->drawn;
    options->sink = o->sink;
    options->alibi = o->alibi;
    options->q_norm = options->k_norm = o->norm;
    const enum vka_status status =
        o->mask ? vka_tensor_slice(o->mask, 0, first, count, mask) : VKA_OK;
    options->mask = *mask;
    return status;
}

void problem_options_text(const struct problem_options *o, char *text, size_t size)
{
    const struct vka_attention_options *d = &o->drawn;
    const char *mask = o->mask_dtype == VKA_DTYPE_COUNT ? "no" : vka_dtype_name(o->mask_dtype);
    snprintf(text, size, "window %d, rope %u%s, scale %g, softcap %g, %s mask%s%s%s%s",
             d->window ? (int)d->window_left : 0, d->rope.dim,
             d->rope.interleaved ? " of pairs" : "", (double)d->scale, (double)d->softcap, mask,
             o->mask_dtype != VKA_DTYPE_COUNT && o->mask_heads ? " of each head" : "",
             o->has_sink ? ", sink" : "", o->has_alibi ? ", alibi" : "",
             o->has_norm ? ", norms" : "");
}
