/* q4_K, q5_K and q6_K, for the least squared error that a search finds: first each subblock of a
 * block gets the scale (and minimum) of float32 that fit it best; then those of all subblocks
 * become numbers of a few bits times one float16, and each subblock takes the neighbours of its
 * numbers that fit best; then the float16 are fitted to what was taken, once more. */
#include "core/encode_k.h"
#include "core/convert.h"

#include <math.h>
#include <string.h>

enum {
    VALUES = 256,
    LANES = 8,  /* of sums, so that compilers can take vectors and the order of additions is one */
    STEPS = 10, /* candidates on either side of the scale that spans a subblock */
    MOST_SUBBLOCKS = 16,
    ROUNDS = 2, /* of fitting a block */
};

/* The largest magnitude that is tried: a scale for it is beyond float16 anyway. */
#define TOO_LARGE 1e9f

/* Levels of a subblock: level = min(max(round(x * inverse + shift), 0), top) - center. */
struct grid {
    float inverse, shift, top, center;
};

/* What is summed over the values of a subblock and their levels. */
struct sums {
    float u, uu, xu; /* levels, their squares, their products with values */
};

static float level_of(float x, const struct grid *g)
{
    float v = x * g->inverse + g->shift + 0.5f;
    v = v > 0 ? v : 0;
    v = v < g->top ? v : g->top;
    return (float)(int)v - g->center;
}

static struct sums sum_levels(const float *x, int n, const struct grid *g)
{
    float u[LANES] = {0}, uu[LANES] = {0}, xu[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            const float level = level_of(x[i + j], g);
            u[j] += level;
            uu[j] += level * level;
            xu[j] += x[i + j] * level;
        }
    struct sums s = {0};
    for (int j = 0; j < LANES; j++) {
        s.u += u[j];
        s.uu += uu[j];
        s.xu += xu[j];
    }
    return s;
}

static float inverse_of(float scale)
{
    return fabsf(scale) < 1e-30f ? 0 : 1 / scale;
}

static float half_value(uint16_t bits)
{
    return dtype_to_float(&bits, 0, VKA_F16);
}

/* The float16 of `scale` >= 0 whose product with `most` reaches that of `scale`, but for a rounding:
 * below 2^-14 the nearest one may be far smaller, or 0. */
static uint16_t half_of(float scale)
{
    uint16_t bits = dtype_to_f16(scale);
    return bits < 0x7c00 && half_value(bits) < scale * 0.99f ? bits + 1 : bits;
}

static void put_half(uint8_t *bytes, uint16_t bits)
{
    bytes[0] = (uint8_t)bits;
    bytes[1] = (uint8_t)(bits >> 8);
}

/* ---- A block --------------------------------------------------------------------------------- */

/* Neighbours of a row that share a number s, and of affine types a number m: value = d * s * level -
 * least * m. */
struct subblock {
    float scale, least; /* of float32, that fit it best */
    int s, m;
    struct sums sums; /* with the levels that s and m give */
    float x, xx;      /* values and their squares */
};

struct fit {
    int n_subblock, size; /* subblocks, and values of each */
    float top, center;    /* levels are -center to top - center */
    int low, high;        /* limits of s; m is 0 to 63 */
    bool affine;
    uint16_t d, least;
    double error; /* squared, of the block */
    struct subblock subblocks[MOST_SUBBLOCKS];
};

static const struct fit q4_K = {.n_subblock = 8, .size = 32, .top = 15, .high = 63, .affine = true};
static const struct fit q5_K = {.n_subblock = 8, .size = 32, .top = 31, .high = 63, .affine = true};
static const struct fit q6_K = {
    .n_subblock = 16, .size = 16, .top = 63, .center = 32, .low = -128, .high = 127};

static double error_of(const struct subblock *p, int n, double a, double b, const struct sums *s)
{
    return (double)p->xx + a * a * (double)s->uu + n * b * b - 2 * a * (double)s->xu +
           2 * b * (double)p->x - 2 * a * b * (double)s->u;
}

/* The scale and minimum that fit levels best. */
static void fit_levels(const struct fit *f, const struct subblock *p, const struct sums *s,
                       float *scale, float *least)
{
    const float n = (float)f->size, det = n * s->uu - s->u * s->u;
    *scale = s->uu > 0 ? s->xu / s->uu : 0;
    *least = 0;
    if (f->affine && det > 0 && s->u * s->xu > s->uu * p->x) {
        *scale = (n * s->xu - s->u * p->x) / det;
        *least = (s->u * s->xu - s->uu * p->x) / det;
    } else if (f->affine && s->uu == 0 && p->x < 0) {
        *least = -p->x / n;
    }
}

/* Searches for the scale and minimum of a subblock, around those by which its levels span it. */
static void fit_subblock(const struct fit *f, const float *x, struct subblock *p)
{
    float low = 0, high = 0, most = 0, x_sum[LANES] = {0}, xx[LANES] = {0};
    for (int i = 0; i < f->size; i++) {
        low = x[i] < low ? x[i] : low;
        high = i == 0 || x[i] > high ? x[i] : high;
        most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
        x_sum[i % LANES] += x[i];
        xx[i % LANES] += x[i] * x[i];
    }
    for (int j = 0; j < LANES; j++) {
        p->x += x_sum[j];
        p->xx += xx[j];
    }
    double best = INFINITY;
    const float inverse = f->affine ? inverse_of(high - low) : -inverse_of(most);
    const float span = f->affine ? f->top : f->center;
    for (int t = -STEPS; t <= STEPS; t++) {
        struct grid g = {(span + 0.1f * (float)t) * inverse, f->center, f->top, f->center};
        float scale, least;
        if (f->affine)
            g.shift = -low * g.inverse;
        const struct sums s = sum_levels(x, f->size, &g);
        fit_levels(f, p, &s, &scale, &least);
        const double error = error_of(p, f->size, (double)scale, (double)least, &s);
        if (error < best) {
            best = error;
            p->scale = scale;
            p->least = least;
        }
    }
}

static struct grid grid_of(const struct fit *f, int s, int m)
{
    const float a = half_value(f->d) * (float)s, inverse = inverse_of(a);
    return (struct grid){inverse, half_value(f->least) * (float)m * inverse + f->center, f->top,
                         f->center};
}

static int nearest(float x, int low, int high)
{
    x = x < (float)low ? (float)low : x > (float)high ? (float)high : x;
    return (int)(x < 0 ? x - 0.5f : x + 0.5f);
}

/* Chooses s and m of a subblock, given d and least of the block; returns the squared error. */
static double choose_numbers(const struct fit *f, const float *x, struct subblock *p)
{
    const float d = half_value(f->d), least = half_value(f->least);
    const int s0 = nearest(p->scale * inverse_of(d), f->low, f->high);
    const int m0 = nearest(p->least * inverse_of(least), 0, f->affine ? 63 : 0);
    double best = INFINITY;
    for (int s = s0 - 1; s <= s0 + 1; s++)
        for (int m = m0 - 1; m <= m0 + 1; m++) {
            if (s < f->low || s > f->high || m < 0 || m > (f->affine ? 63 : 0))
                continue;
            const struct grid g = grid_of(f, s, m);
            const struct sums sums = sum_levels(x, f->size, &g);
            const double error =
                error_of(p, f->size, (double)(d * (float)s), (double)(least * (float)m), &sums);
            if (error < best) {
                best = error;
                p->s = s;
                p->m = m;
                p->sums = sums;
            }
        }
    return best;
}

/* d and least that fit the numbers and levels of all subblocks best. */
static void fit_halves(struct fit *f)
{
    double ss = 0, sm = 0, mm = 0, sx = 0, mx = 0;
    for (int i = 0; i < f->n_subblock; i++) {
        const struct subblock *p = &f->subblocks[i];
        ss += (double)p->s * p->s * (double)p->sums.uu;
        sm += (double)p->s * p->m * (double)p->sums.u;
        mm += (double)p->m * p->m * f->size;
        sx += p->s * (double)p->sums.xu;
        mx -= p->m * (double)p->x;
    }
    const double det = ss * mm - sm * sm;
    double d = ss > 0 ? sx / ss : 0, least = 0;
    if (f->affine && det > 1e-9 * ss * mm) {
        d = (sx * mm + mx * sm) / det;
        least = (mx * ss + sx * sm) / det;
    }
    f->d = dtype_to_f16((float)(d > 0 ? d : 0));
    f->least = dtype_to_f16((float)(least > 0 ? least : 0));
}

static void fit_block(const float *x, struct fit *f)
{
    float s = 0, m = 0;
    for (int i = 0; i < f->n_subblock; i++) {
        struct subblock *p = &f->subblocks[i];
        fit_subblock(f, x + i * f->size, p);
        const float one = p->scale / (float)(p->scale < 0 ? f->low : f->high);
        s = one > s ? one : s;
        m = p->least / 63 > m ? p->least / 63 : m;
    }
    f->d = half_of(s);
    f->least = half_of(m);
    f->error = INFINITY;
    struct fit next = *f;
    for (int round = 0; round < ROUNDS; round++) {
        next.error = 0;
        for (int i = 0; i < f->n_subblock; i++)
            next.error += choose_numbers(&next, x + i * f->size, &next.subblocks[i]);
        if (!(next.error < f->error))
            break;
        *f = next;
        fit_halves(&next);
    }
}

/* Levels, from 0, of values with the numbers that were chosen. */
static void put_levels(const float *x, const struct fit *f, uint8_t levels[VALUES])
{
    for (int i = 0; i < VALUES; i++) {
        const struct subblock *p = &f->subblocks[i / f->size];
        const struct grid g = grid_of(f, p->s, p->m);
        levels[i] = (uint8_t)(level_of(x[i], &g) + f->center);
    }
}

static bool is_too_large(const float *x)
{
    float most = 0;
    for (int i = 0; i < VALUES; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most > TOO_LARGE;
}

/* Writes a block as decode_sixes() of block.c reads it; fifths NULL: levels have four bits. */
static void put_sixes(const float *x, struct fit f, uint8_t *b, uint8_t *fifths, uint8_t *nibbles)
{
    uint8_t levels[VALUES];
    if (is_too_large(x)) {
        put_half(b, 0x7c00);
        return;
    }
    fit_block(x, &f);
    put_levels(x, &f, levels);
    put_half(b, f.d);
    put_half(b + 2, f.least);
    for (int i = 0; i < 4; i++) {
        const struct subblock *low = &f.subblocks[i], *high = &f.subblocks[i + 4];
        b[4 + i] = (uint8_t)(low->s | high->s >> 4 << 6);
        b[8 + i] = (uint8_t)(low->m | high->m >> 4 << 6);
        b[12 + i] = (uint8_t)((high->s & 15) | (high->m & 15) << 4);
    }
    for (int i = 0; i < VALUES; i++) {
        nibbles[i / 64 * 32 + i % 32] |= (uint8_t)((levels[i] & 15) << (i / 32 % 2 * 4));
        if (fifths)
            fifths[i % 32] |= (uint8_t)(levels[i] >> 4 << i / 32);
    }
}

void encode_q4_K(const float *x, uint8_t *b)
{
    memset(b, 0, 144);
    put_sixes(x, q4_K, b, NULL, b + 16);
}

void encode_q5_K(const float *x, uint8_t *b)
{
    memset(b, 0, 176);
    put_sixes(x, q5_K, b, b + 16, b + 48);
}

void encode_q6_K(const float *x, uint8_t *b)
{
    struct fit f = q6_K;
    uint8_t levels[VALUES];
    memset(b, 0, 210);
    if (is_too_large(x)) {
        put_half(b + 208, 0x7c00);
        return;
    }
    fit_block(x, &f);
    put_levels(x, &f, levels);
    put_half(b + 208, f.d);
    for (int i = 0; i < f.n_subblock; i++)
        b[192 + i] = (uint8_t)f.subblocks[i].s;
    for (int i = 0; i < VALUES; i++) {
        const int half = i / 128, subblock = i % 128 / 32, at = i % 32;
        b[64 * half + 32 * (subblock % 2) + at] |=
            (uint8_t)((levels[i] & 15) << (subblock / 2 * 4));
        b[128 + 32 * half + at] |= (uint8_t)(levels[i] >> 4 << 2 * subblock);
    }
}
