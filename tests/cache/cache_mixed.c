#include "cache_mixed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <op/cache/cache.h>

#include "problems/cache_soil.h"

size_t mixed_count(const struct mixed_sizes *s, uint32_t layer, int which)
{
    const struct mixed_layer *l = &s->layers[layer];
    if (l->keys)
        return (size_t)l->n_kv_head * s->capacity * (which ? l->value_dim : l->head_dim);
    return which ? (size_t)l->channels * mixed_keep(l)
                 : (size_t)l->n_state * l->head_dim * l->value_dim;
}

/* ---- Sizes ------------------------------------------------------------------------------------ */

static uint32_t draw_dim(struct rng *rng)
{
    static const uint32_t dims[] = {1, 2, 3, 4, 5, 8, 16, 20, 33, 64, 70, 128};
    return dims[rng_range(rng, 0, sizeof dims / sizeof *dims - 1)];
}

static struct mixed_layer draw_layer(struct rng *rng)
{
    static const enum vka_dtype cached[] = {VKA_F32, VKA_F16, VKA_BF16, VKA_Q8_0};
    static const enum vka_dtype floats[] = {VKA_F32, VKA_F32, VKA_F16, VKA_BF16};
    struct mixed_layer l = {.keys = rng_chance(rng, 35),
                            .head_dim = draw_dim(rng),
                            .value_dim = draw_dim(rng),
                            .n_kv_head = rng_range(rng, 1, 2),
                            .io_dtype = floats[rng_range(rng, 0, 3)]};
    if (l.keys) {
        l.key_dtype = cached[rng_range(rng, 0, 3)];
        l.value_dtype = cached[rng_range(rng, 0, 3)];
        l.n_head = l.n_kv_head * rng_range(rng, 1, 2);
        return l;
    }
    const uint32_t kind = rng_range(rng, 1, 3);
    if (kind & 1) {
        l.n_state = l.n_kv_head * rng_range(rng, 1, 3);
        l.n_head = l.n_state * rng_range(rng, 1, 3);
        if (rng_chance(rng, 50))
            for (l.n_head = rng_range(rng, 1, l.n_state); l.n_state % l.n_head != 0;)
                l.n_head--;
        l.rule = (enum vka_rule)rng_range(rng, 0, VKA_RULE_COUNT - 1);
        l.key_decay = rng_chance(rng, 50);
        l.shared_beta = rng_chance(rng, 30);
    }
    if (kind & 2) {
        l.channels = rng_chance(rng, 20) ? rng_range(rng, 100, 300) : rng_range(rng, 1, 20);
        l.width = rng_chance(rng, 60) ? rng_range(rng, 2, 4) : rng_range(rng, 2, 16);
        l.dilation = rng_chance(rng, 70) ? 1 : rng_range(rng, 2, 5);
        l.activation = rng_chance(rng, 50) ? VKA_SILU : VKA_IDENTITY;
    }
    return l;
}

struct mixed_sizes mixed_draw(struct rng *rng, const struct mixed_sizes *shared)
{
    struct mixed_sizes s = {
        .batch = rng_range(rng, 1, MIXED_BATCH),
        .n_layer = rng_range(rng, 1, shared ? shared->n_layer : MIXED_LAYERS),
        .capacity = rng_chance(rng, 45) ? rng_range(rng, 100, 300) : rng_range(rng, 1, 70),
        .page_size = rng_chance(rng, 40) ? 16 * rng_range(rng, 1, 2) : 0,
    };
    for (uint32_t i = 0; i < s.n_layer; i++) {
        struct mixed_layer *l = &s.layers[i];
        *l = shared ? shared->layers[i] : draw_layer(rng);
        if (shared && l->channels) { /* of which no pipeline is made */
            l->channels = rng_range(rng, 1, 40);
            l->dilation = rng_range(rng, 1, 4);
        }
        s.has_state |= !l->keys;
    }
    return s;
}

/* ---- The cache and its copy ------------------------------------------------------------------- */

bool mixed_open(struct mixed *m, struct vka_device *device, const struct mixed_sizes *s)
{
    struct vka_cache_layer_info layers[MIXED_LAYERS] = {{0}};
    *m = (struct mixed){.device = device, .sizes = *s};
    for (uint32_t i = 0; i < s->n_layer; i++) {
        const struct mixed_layer *l = &s->layers[i];
        const bool heads = l->keys || l->n_state;
        layers[i] = (struct vka_cache_layer_info){
            .struct_size = sizeof *layers,
            .n_kv_head = l->keys ? l->n_kv_head : 0,
            .n_state = l->n_state,
            .head_dim = heads ? l->head_dim : 0,
            .value_dim = heads ? l->value_dim : 0,
            .key_dtype = l->key_dtype,
            .value_dtype = l->value_dtype,
            .channels = l->channels,
            .conv_rows = mixed_keep(l),
        };
        for (int which = 0; which < 2; which++) {
            m->contents[i][which] = calloc(s->batch * mixed_count(s, i, which) + 1, sizeof(double));
            if (!m->contents[i][which])
                abort();
        }
    }
    if (vka_cache_create(device,
                         VKA_INFO(vka_cache_info, .batch = s->batch, .n_layer = s->n_layer,
                                  .capacity = s->capacity, .page_size = s->page_size,
                                  .layers = layers),
                         &m->cache) != VKA_OK)
        return false;
    return cache_soil(m->cache, (enum soil)(s->capacity % SOIL_COUNT)) == VKA_OK;
}

void mixed_close(struct mixed *m)
{
    for (uint32_t i = 0; i < 2 * m->sizes.n_layer; i++)
        free(m->contents[i / 2][i % 2]);
    vka_cache_destroy(&m->cache);
}

static void clear(struct mixed *m, uint32_t sequence)
{
    for (uint32_t i = 0; i < 2 * m->sizes.n_layer; i++) {
        const size_t n = mixed_count(&m->sizes, i / 2, i % 2);
        memset(m->contents[i / 2][i % 2] + sequence * n, 0, n * sizeof(double));
    }
    m->length[sequence] = 0;
    m->refused[sequence] = false;
}

void mixed_forget(struct mixed *m)
{
    for (uint32_t b = 0; b < m->sizes.batch; b++)
        clear(m, b);
}

bool mixed_truncate(struct mixed *m, uint32_t sequence, uint32_t length)
{
    const uint32_t before = m->length[sequence];
    const bool refuses = length > before || (m->sizes.has_state && length != 0 && length != before);
    if (vka_cache_truncate(m->cache, sequence, length) != (refuses ? VKA_INVALID : VKA_OK))
        return false;
    if (refuses)
        return true;
    if (length == 0)
        clear(m, sequence);
    m->length[sequence] = length;
    m->refused[sequence] = false;
    return true;
}

bool mixed_fork(struct mixed *m, uint32_t from, uint32_t to)
{
    if (vka_cache_fork(m->cache, from, to) != VKA_OK)
        return false;
    for (uint32_t i = 0; i < 2 * m->sizes.n_layer; i++) {
        const size_t n = mixed_count(&m->sizes, i / 2, i % 2);
        double *c = m->contents[i / 2][i % 2];
        memcpy(c + to * n, c + from * n, n * sizeof *c);
    }
    m->length[to] = m->length[from];
    m->refused[to] = false;
    return true;
}

/* ---- Comparison ------------------------------------------------------------------------------- */

/* A state tensor of the cache, whose sequence has `rows` rows of `width`: the error of a row is over the
 * mean of its sequence's. What a convolution keeps is what it was given. */
static bool compare_state(const struct mixed *m, struct vka_tensor *state, uint32_t layer,
                          int which, double *worst)
{
    const struct mixed_layer *l = &m->sizes.layers[layer];
    const size_t n = mixed_count(&m->sizes, layer, which), width = which ? 1 : l->value_dim;
    const size_t all = n * m->sizes.batch;
    float *got = calloc(all + 1, sizeof *got);
    bool ok = got && vka_tensor_read(state, got, vka_tensor_size(state)) == VKA_OK;
    for (size_t b = 0; ok && b < m->sizes.batch; b++) {
        const double *want = m->contents[layer][which] + b * n;
        double sum = 0, most = 0;
        for (size_t i = 0; i < n; i += width) {
            double error = 0;
            for (size_t j = i; j < i + width; j++) {
                const double e = (double)got[b * n + j] - want[j];
                error += e * e;
                sum += want[j] * want[j];
            }
            most = !(error <= most) ? error : most;
        }
        const double mean = sum * (double)width / (double)n, limit = which ? 0 : 1e-10;
        if (!(most <= limit * mean)) {
            fprintf(stderr, "%s of layer %u, sequence %zu: error %.3g of %.3g\n",
                    which ? "rows" : "states", layer, b, most, mean);
            ok = false;
        } else if (!which && mean > 0 && most / mean / limit > *worst) {
            *worst = most / mean / limit;
        }
    }
    free(got);
    return ok;
}

bool mixed_compare_cache(const struct mixed *m, double *worst)
{
    for (uint32_t b = 0; b < m->sizes.batch; b++) {
        uint32_t length = 0;
        if (vka_cache_length(m->cache, b, &length) != VKA_OK)
            return false;
        if (length != m->length[b]) {
            fprintf(stderr, "sequence %u has length %u, not %u\n", b, length, m->length[b]);
            return false;
        }
    }
    for (uint32_t i = 0; i < m->sizes.n_layer; i++) {
        struct cached_layer *layer = &m->cache->layers[i];
        if (layer->linear.storage && !compare_state(m, &layer->linear, i, 0, worst))
            return false;
        if (layer->conv.storage && !compare_state(m, &layer->conv, i, 1, worst))
            return false;
    }
    return true;
}
