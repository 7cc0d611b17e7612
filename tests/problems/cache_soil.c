#include "cache_soil.h"

#include <core/arith.h>
#include <core/dtype.h>
#include <gpu/command.h>
#include <op/cache/cache.h>
#include <op/cache/pages.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "patience.h"
#include "core/dtype.h"

/* Rows of a batch element, or of a page, that sequences hold, from its first on. */
static uint32_t held_rows(const struct vka_cache *cache, uint32_t outer)
{
    const uint32_t *length = cache_length_words(cache);
    if (!cache->table_row)
        return length[outer];
    const uint32_t *table = cache_table_words(cache), size = cache->info.page_size;
    uint32_t held = 0;
    for (uint32_t b = 0; b < cache->info.batch; b++)
        for (uint32_t e = 0; e < cache->table_row && e * size < length[b]; e++) {
            const uint32_t rows = length[b] - e * size < size ? length[b] - e * size : size;
            if (table[b * cache->table_row + e] == outer && rows > held)
                held = rows;
        }
    return held;
}

/* One element of a float type. */
static void soil_float(enum vka_dtype dtype, enum soil soil, struct rng *rng, uint8_t *to)
{
    const double largest = dtype == VKA_F16 ? 65504 : 1e30;
    const double sign = rng_chance(rng, 50) ? 1 : -1;
    operand_encode(dtype,
                   soil == SOIL_NAN       ? (double)NAN
                   : soil == SOIL_LARGEST ? sign * largest
                                          : rng_uniform(rng, -1.5, 1.5),
                   to);
}

/* A byte of float8, or of integers whose block has a scale of its own. */
static uint8_t soil_byte(enum vka_dtype dtype, enum soil soil, struct rng *rng)
{
    const uint8_t most[SOIL_COUNT] = {[SOIL_NAN] = 0x7f, [SOIL_LARGEST] = 0x7e}; /* of e4m3 */
    if (soil == SOIL_LIVE)
        return (uint8_t)(rng_range(rng, 0, 255) & (dtype_is_head_scaled(dtype) ? 0xb7 : 0xff));
    return dtype_is_head_scaled(dtype) ? most[soil] : 0x7f;
}

/* Soils elements first .. first + n - 1 of cached rows in `data`, all bytes of their storage. */
static void soil_row(const struct cached_rows *cached, enum soil soil, struct rng *rng,
                     uint64_t first, uint64_t n, uint8_t *data)
{
    const size_t size = vka_dtype_size(cached->rows.dtype);
    for (uint64_t e = first; e < first + n; e++)
        if (cached->scales)
            data[e] = soil_byte(cached->dtype, soil, rng);
        else
            soil_float(cached->dtype, soil, rng, data + e * size);
    if (!cached->scales || dtype_is_head_scaled(cached->dtype)) /* whose scales are the heads' */
        return;
    const uint64_t values = cached->byte_values; /* of an element */
    for (uint64_t block = first * values / 32; block < (first + n) * values / 32; block++) {
        uint8_t *scale = data + 2 * (cached->scales + block);
        soil_float(VKA_F16, soil, rng, scale);
        if (soil == SOIL_LIVE)
            operand_encode(VKA_F16, rng_uniform(rng, -0.02, 0.02), scale);
    }
}

static enum vka_status soil_rows(const struct vka_cache *cache, const struct cached_rows *cached,
                                 enum soil soil, struct rng *rng)
{
    const struct shape *s = &cached->rows.shape;
    const struct memory_range *range = &cached->rows.storage->range;
    const size_t bytes = ((size_t)cached->rows.storage->bytes + 3) / 4 * 4;
    const uint64_t n_row = s->stride[1] / s->stride[2]; /* those that pad a batch element too */
    uint8_t *mapped = memory_mapped(range), *data = mapped ? mapped : malloc(bytes);
    enum vka_status status = VKA_OK;
    if (!data)
        return VKA_OUT_OF_HOST_MEMORY;
    if (!mapped)
        status = queue_read(cache->device, range, 0, data, bytes);
    for (uint32_t outer = 0; outer < s->size[0]; outer++) {
        const uint32_t held = held_rows(cache, outer);
        for (uint32_t h = 0; h < s->size[1]; h++)
            soil_row(cached, soil, rng,
                     outer * s->stride[0] + h * s->stride[1] + held * s->stride[2],
                     (n_row - held) * s->stride[2], data);
    }
    if (status == VKA_OK && !mapped)
        status = queue_write(cache->device, range, 0, data, bytes);
    if (!mapped)
        free(data);
    return status;
}

enum vka_status cache_soil(struct vka_cache *cache, enum soil soil)
{
    struct rng rng = {1 + (uint64_t)soil};
    enum vka_status status = VKA_OK;
    for (uint32_t l = 0; l < cache->info.n_layer && status == VKA_OK; l++) {
        if (cache_is_state(&cache->layers[l])) /* which has nothing behind a length */
            continue;
        status = soil_rows(cache, &cache->layers[l].k, soil, &rng);
        if (status == VKA_OK)
            status = soil_rows(cache, &cache->layers[l].v, soil, &rng);
    }
    return status;
}

void cache_soil_new(struct vka_cache *cache)
{
    static uint32_t n;
    if (cache_soil(cache, (enum soil)(n++ % SOIL_COUNT)) == VKA_OK)
        return;
    fprintf(stderr, "FAIL a new cache: %s\n", vka_device_error(cache->device));
    exit(1);
}

static void *host_words(const struct vka_cache *cache)
{
    return cache_length_words(cache); /* state and table begin with the lengths */
}

void *cache_before(struct vka_cache *cache)
{
    const size_t bytes = vka_tensor_size(&cache->words);
    void *before = malloc(bytes);
    uint32_t length;
    if (before && vka_cache_length(cache, 0, &length) == VKA_OK) /* waits for all runs */
        memcpy(before, host_words(cache), bytes);
    return before;
}

static const char *const soils[SOIL_COUNT] = {"NaN", "large numbers", "another sequence"};

static bool compare(const struct operand *o, size_t output, enum soil soil, const double *clean,
                    char why[WHY])
{
    for (size_t i = 0; i < o->count; i++) {
        const bool nan = isnan(o->values[i]) && isnan(clean[i]);
        if (nan || memcmp(&o->values[i], &clean[i], sizeof *clean) == 0)
            continue;
        snprintf(why, WHY, "output %zu[%zu] is %.9g with %s behind the lengths, not %.9g", output,
                 i, o->values[i], soils[soil], clean[i]);
        return false;
    }
    return true;
}

bool cache_soil_compare(struct vka_device *device, struct vka_cache *cache, const void *before,
                        struct vka_plan *plan, struct operand *const *outputs, size_t n,
                        char why[WHY])
{
    double *clean[COMPARE_MOST] = {NULL};
    enum vka_status status = before ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    bool same = true;
    for (size_t i = 0; i < n && status == VKA_OK; i++) {
        clean[i] = malloc(outputs[i]->count * sizeof **clean);
        status = clean[i] ? operand_read(outputs[i]) : VKA_OUT_OF_HOST_MEMORY;
        if (status == VKA_OK)
            memcpy(clean[i], outputs[i]->values, outputs[i]->count * sizeof **clean);
    }
    for (int soil = 0; soil < SOIL_COUNT && status == VKA_OK && same; soil++) {
        memcpy(host_words(cache), before, vka_tensor_size(&cache->words));
        status = cache_soil(cache, (enum soil)soil);
        if (status == VKA_OK)
            status = vka_plan_run(plan, PATIENCE);
        for (size_t i = 0; i < n && status == VKA_OK && same; i++) {
            status = operand_read(outputs[i]);
            same = status != VKA_OK || compare(outputs[i], i, (enum soil)soil, clean[i], why);
        }
    }
    for (size_t i = 0; i < n; i++)
        free(clean[i]);
    if (status != VKA_OK)
        snprintf(why, WHY, "%s: %s", vka_status_name(status), vka_device_error(device));
    return status == VKA_OK && same;
}
