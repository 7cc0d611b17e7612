/* What quantises: keys and values of caches, and activations of products. Rows of blocks whose values
 * lie within 8 units of where a quantum changes, and whose largest ones lie so near to where a scale does. */
#include "patience.h"
#include "functions.h"
#include "gpu/device.h"
#include "problems/types.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <reference/reference.h>

#define ROWS 4096u
#define WIDTH 32u /* values of a row: a block of a cache, two of activations */
#define ULPS 8
#define MOST_PRINTED 4u
#define NEAR 1e-6 /* of what was stored: a quantum is a hundredth at least */

/* Values to quantise, in rows of which each block begins with its largest magnitude. */
struct rows {
    float x[ROWS * WIDTH];
    double want[ROWS * WIDTH];
    size_t n; /* values */
    uint32_t block;
};

static float moved(float x, int ulps)
{
    for (; ulps > 0; ulps--)
        x = nextafterf(x, INFINITY);
    for (; ulps < 0; ulps++)
        x = nextafterf(x, -INFINITY);
    return x;
}

static void put(struct rows *r, float peak, float x)
{
    if (r->n < ROWS * WIDTH && r->n % r->block == 0)
        r->x[r->n++] = peak;
    if (r->n < ROWS * WIDTH)
        r->x[r->n++] = x;
}

/* Fills the block that was begun. */
static void end_block(struct rows *r)
{
    while (r->n % r->block != 0)
        r->x[r->n++] = 0;
}

/* Values about all halves between multiples of d up to `most`, in blocks of the peak. */
static void put_ties(struct rows *r, float peak, double d, int most)
{
    for (int k = 0; k < most; k++)
        for (int u = -ULPS; u <= ULPS; u++) {
            float x = moved((float)((k + 0.5) * d), u);
            if (fabsf(x) <= fabsf(peak))
                put(r, peak, (k + u) % 2 ? -x : x);
        }
    end_block(r);
}

/* Blocks whose largest value is about x, of both signs. */
static void put_peaks(struct rows *r, float x, struct rng *rng)
{
    for (int u = -ULPS; u <= ULPS; u++) {
        float peak = moved(x, u) * (u % 2 ? -1.0f : 1.0f);
        for (uint32_t i = 1; i < r->block; i++)
            put(r, peak, peak * (float)rng_uniform(rng, -1, 1));
        end_block(r);
    }
}

/* Odd values first, in the middle and last; and two largest magnitudes of both signs, of which the
 * first gives a block its sign. */
static void put_odd(struct rows *r)
{
    const float odd[] = {NAN, INFINITY, -INFINITY, 0, 3e38f, 1e-38f, 1e-45f};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        for (uint32_t half = 0; half < 3; half++) {
            const uint32_t at = half * (r->block - 1) / 2;
            float *block = r->x + r->n;
            put(r, 2e-3f, 1e-3f);
            end_block(r);
            block[at] = odd[i];
            block[(at + r->block / 2) % r->block] = -3e-3f;
        }
    for (int i = 0; i < 2; i++) {
        const float peak = i ? -0.7f : 0.7f;
        put(r, peak, -peak);
        put(r, peak, 0.35f);
        end_block(r);
    }
}

/* What is left. */
static void put_rest(struct rows *r, struct rng *rng)
{
    while (r->n < ROWS * WIDTH) {
        float peak = (float)ldexp(rng_uniform(rng, 1, 2), (int)rng_range(rng, 0, 40) - 30);
        for (uint32_t i = 1; i < r->block; i++)
            put(r, peak, peak * (float)rng_uniform(rng, -1, 1));
    }
}

static void make_blocks(struct rows *r, enum vka_dtype type, struct rng *rng)
{
    const bool q8 = type == VKA_Q8_0;
    put_odd(r);
    for (int i = 0; i < (q8 ? 20 : 80); i++) {
        float peak = (float)ldexp(rng_uniform(rng, 1, 2), i % 20 - 14) * (i % 3 ? 1.0f : -1.0f);
        float scale = q8 ? fabsf(peak) * (1.0f / 127) : peak * -0.125f;
        double d = fabs(ref_from_f16(ref_to_f16((double)scale)));
        put_ties(r, peak, d, q8 ? 127 : 8);
    }
    for (int i = 0; i < 60; i++) { /* halves between scales, of both sides of subnormal ones */
        const uint16_t bits = (uint16_t)(i < 40   ? i * 793
                                         : i < 50 ? 0x3fa + i - 40
                                                  : 0x7bff - i + 50);
        double tie =
            (ref_from_f16(bits) + (bits == 0x7bff ? 65536 : ref_from_f16((uint16_t)(bits + 1)))) /
            2;
        put_peaks(r, (float)(tie * (q8 ? 127 : 8)), rng);
    }
    put_rest(r, rng);
    ref_cache_row(type, 1, r->x, (size_t)ROWS * WIDTH, r->want);
}

/* About all halves between numbers of float8, and other numbers of all magnitudes. */
static void make_f8(struct rows *r, enum vka_dtype type, float scale)
{
    for (int i = 0; i < 127; i++) {
        double spacing = ldexp(1, (i < 16 ? -9 : i / 8 - 10)),
               x = i < 8 ? i * spacing : (8 + i % 8) * spacing;
        for (int u = -ULPS; u <= ULPS; u++) {
            r->x[r->n++] = moved((float)((x + spacing / 2) * (double)scale), u);
            r->x[r->n++] = -moved((float)(x * (double)scale), u);
        }
    }
    for (uint32_t i = 0; r->n < ROWS * WIDTH; i++) {
        const uint32_t bits = i * 32749u;
        memcpy(&r->x[r->n++], &bits, sizeof bits);
    }
    ref_cache_row(type, scale, r->x, (size_t)ROWS * WIDTH, r->want);
}

/* Blocks of 16; a row with NaN or Inf is NaN. */
static void make_activations(struct rows *r, struct rng *rng)
{
    r->block = 16;
    put_odd(r);
    for (int i = 0; i < 40; i++) {
        float peak = (float)ldexp(rng_uniform(rng, 1, 2), i * 5 - 100);
        double mantissa, scale;
        int exponent;
        mantissa = frexp((double)(peak * (1.0f / 127)), &exponent);
        scale = ldexp(ceil(ldexp(mantissa, 12)), exponent - 12);
        put_ties(r, peak, scale, 127);
    }
    for (int i = 0; i < 60; i++)
        put_peaks(r, (float)ldexp(127 * (2048 + 30 * i), i - 30), rng);
    put_rest(r, rng);
    for (size_t i = 0; i < ROWS * WIDTH; i += WIDTH) {
        double x[WIDTH];
        bool finite = true;
        for (uint32_t j = 0; j < WIDTH; j++) {
            x[j] = (double)r->x[i + j];
            finite &= isfinite(x[j]) != 0;
        }
        ref_activations(x, WIDTH, r->want + i);
        for (uint32_t j = 0; j < WIDTH && !finite; j++)
            r->want[i + j] = NAN;
    }
}

static bool judge(const struct rows *r, const float *got, const char *name)
{
    unsigned n_failed = 0;
    for (size_t i = 0; i < ROWS * WIDTH; i++) {
        double want = r->want[i], error = fabs((double)got[i] - want);
        if (isnan(want) ? isnan(got[i]) : error <= NEAR * fabs(want) + SMALLEST)
            continue;
        if (n_failed++ < MOST_PRINTED)
            printf("FAIL quantise %s: %a in a block of %a is %a, not %a\n", name, (double)r->x[i],
                   (double)r->x[i / r->block * r->block], (double)got[i], want);
    }
    printf("quantise_%-17s %9u results", name, ROWS * WIDTH);
    if (n_failed)
        printf(", %u FAILED", n_failed);
    printf("\n");
    return n_failed == 0;
}

/* Values that a cache keeps, each the result of a query that sees it alone. */
static enum vka_status add_cache(struct job *job, enum vka_dtype type, const float *scale,
                                 struct vka_cache **cache)
{
    const uint32_t size[4] = {1, 1, ROWS, WIDTH};
    const float zero = 0;
    struct vka_attention_op op = {.struct_size = sizeof op,
                                  .options = {.scale = 1, .window = true}};
    enum vka_status status =
        vka_cache_create(job->device,
                         VKA_INFO(vka_cache_info, .batch = 1, .n_kv_head = 1, .head_dim = WIDTH,
                                  .capacity = ROWS, .key_dtype = VKA_F32, .value_dtype = type,
                                  .value_scales = scale, .no_hadamard = true),
                         cache);
    if (status == VKA_OK)
        status = job_constant(job, 4, size, &zero, 1, &op.q);
    if (status == VKA_OK)
        status = job_tensor(job, VKA_F32, 4, size, &job->input);
    if (status == VKA_OK)
        status = job_output(job, VKA_F32, 4, size, 1, 1, &op.output);
    op.k = op.q;
    op.v = job->input;
    op.cache = *cache;
    return status == VKA_OK ? vka_plan_add_attention(job->plan, &op) : status;
}

/* The identity times quantised activations. */
static enum vka_status add_activations(struct job *job)
{
    const uint32_t rows[2] = {ROWS, WIDTH}, square[2] = {WIDTH, WIDTH};
    int8_t identity[WIDTH * WIDTH] = {0};
    const float one = 1;
    struct vka_linear_op op = {.struct_size = sizeof op, .activations = VKA_I8};
    for (uint32_t i = 0; i < WIDTH; i++)
        identity[i * (WIDTH + 1)] = 1;
    enum vka_status status = job_tensor(job, VKA_I8, 2, square, &op.weight);
    if (status == VKA_OK)
        status = vka_tensor_write(op.weight, identity, sizeof identity);
    if (status == VKA_OK)
        status = job_constant(job, 1, square, &one, 1, &op.weight_scale);
    if (status == VKA_OK)
        status = job_tensor(job, VKA_F32, 2, rows, &job->input);
    if (status == VKA_OK)
        status = job_output(job, VKA_F32, 2, rows, 1, 1, &op.output);
    op.input = job->input;
    return status == VKA_OK ? vka_plan_add_linear(job->plan, &op) : status;
}

/* type: of a cache's values; VKA_I8: of activations. */
static bool check_quantiser(struct vka_device *device, enum vka_dtype type, float scale,
                            const char *name)
{
    struct job job = {.device = device};
    struct vka_cache *cache = NULL;
    struct rows *r = calloc(1, sizeof *r);
    struct rng rng = {(uint64_t)type};
    float *got = calloc((size_t)ROWS * WIDTH, sizeof *got);
    bool ok = false;
    enum vka_status status =
        r && got ? vka_plan_create(device, NULL, &job.plan) : VKA_OUT_OF_HOST_MEMORY;
    if (r)
        r->block = WIDTH;
    if (status == VKA_OK)
        status = type == VKA_I8
                     ? add_activations(&job)
                     : add_cache(&job, type, dtype_is_head_scaled(type) ? &scale : NULL, &cache);
    if (status == VKA_OK)
        status = vka_plan_finish(job.plan);
    if (status == VKA_OK && type == VKA_I8)
        make_activations(r, &rng);
    else if (status == VKA_OK && dtype_is_head_scaled(type))
        make_f8(r, type, scale);
    else if (status == VKA_OK)
        make_blocks(r, type, &rng);
    if (status == VKA_OK)
        status = vka_tensor_write(job.input, r->x, sizeof r->x);
    if (status == VKA_OK)
        status = vka_plan_run(job.plan, PATIENCE);
    if (status == VKA_OK)
        status = vka_tensor_read(job.output[0].tensor, got, sizeof r->x);
    if (status == VKA_OK)
        ok = judge(r, got, name);
    else
        printf("FAIL quantise %s: %s: %s\n", name, vka_status_name(status),
               vka_device_error(device));
    job_destroy(&job);
    vka_cache_destroy(&cache);
    free(got);
    free(r);
    fflush(stdout);
    return ok;
}

bool check_quantisers(struct vka_device *device)
{
    bool ok = true;
    for (EACH_TYPE(type, dtype_is_scaled)) {
        char name[40];
        ok &= check_quantiser(device, type, 1, vka_dtype_name(type));
        if (!dtype_is_head_scaled(type))
            continue;
        snprintf(name, sizeof name, "%s_0.37", vka_dtype_name(type));
        ok &= check_quantiser(device, type, 0.37f, name);
    }
    return check_quantiser(device, VKA_I8, 1, "activations") && ok;
}
