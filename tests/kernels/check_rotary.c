/* Rotary embedding: sources of the angle x types x sizes x pairings, at near and far positions. */
#include "check_model.h"

#include "patience.h"

#include <reference/model.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct shape_case {
    uint32_t size[4], dim;
} shapes[] = {
    {{1, 1, 1, 2}, 0},   {{2, 3, 5, 8}, 0},    {{3, 2, 7, 11}, 6},
    {{2, 4, 3, 66}, 64}, {{1, 3, 70, 128}, 0},
};

static const enum vka_dtype mixes[][3] = {
    /* x, tables, y */
    {VKA_F32, VKA_F32, VKA_F32},
    {VKA_F16, VKA_F16, VKA_F16},
    {VKA_BF16, VKA_F32, VKA_BF16},
    {VKA_F32, VKA_BF16, VKA_F16},
};

enum source { BY_BASE, BY_FREQUENCIES, BY_TABLE, BY_ROWS, SOURCES };
#define TABLE 19u /* rows of a table by positions; of numbers, like those behind them */

struct rotary_case {
    struct vka_rotary_op op;
    struct operand x, positions, cos, sin, y;
    struct vka_tensor *cos_table, *sin_table; /* of cos and sin; NULL: all of them */
    double frequencies[64];
    double *want;
};

static enum vka_status add(struct vka_plan *plan, const void *op)
{
    return vka_plan_add_rotary(plan, op);
}

/* Positions of a table, now and then beyond it; or any of int32. */
static enum vka_status fill_positions(struct check *c, enum source source, struct rotary_case *t)
{
    for (size_t i = 0; i < t->positions.count; i++)
        t->positions.values[i] = source == BY_TABLE ? (double)rng_range(&c->rng, 0, TABLE - 1)
                                 : rng_chance(&c->rng, 30)
                                     ? (double)(int32_t)rng_next(&c->rng)
                                     : (double)rng_range(&c->rng, 0, 4096) - 40;
    if (source == BY_TABLE && t->positions.count > 4) {
        t->positions.values[1] = TABLE;
        t->positions.values[3] = -1;
    }
    return t->positions.view ? operand_write(&t->positions) : VKA_OK;
}

static enum vka_status create(struct check *c, const struct shape_case *s,
                              const enum vka_dtype mix[3], enum source source, bool positions,
                              struct rotary_case *t)
{
    const uint32_t dim = s->dim ? s->dim : s->size[3];
    const uint32_t places[2] = {rng_chance(&c->rng, 50) ? 1 : s->size[0], s->size[2]};
    const uint32_t table[2] = {TABLE + 1, dim / 2}, rows[3] = {places[0], s->size[2], dim / 2};
    enum vka_status status = model_operand(c, mix[0], 4, s->size, &t->x);
    if (status == VKA_OK && positions)
        status = model_operand(c, VKA_I32, 2, places, &t->positions);
    if (status == VKA_OK && source >= BY_TABLE) {
        uint32_t rank = source == BY_TABLE ? 2 : 3;
        const uint32_t *size = source == BY_TABLE ? table : rows;
        status = model_operand(c, mix[1], rank, size, &t->cos);
        if (status == VKA_OK)
            status = model_operand(c, mix[1], rank, size, &t->sin);
        if (status == VKA_OK && source == BY_TABLE)
            status = vka_tensor_slice(t->cos.view, 0, 0, TABLE, &t->cos_table);
        if (status == VKA_OK && source == BY_TABLE)
            status = vka_tensor_slice(t->sin.view, 0, 0, TABLE, &t->sin_table);
    }
    if (status == VKA_OK)
        status = model_operand(c, mix[2], 4, s->size, &t->y);
    if (status == VKA_OK)
        status = model_fill(c, &t->x, -2, 2);
    if (status == VKA_OK)
        status = model_fill(c, &t->cos, -1, 1);
    if (status == VKA_OK)
        status = model_fill(c, &t->sin, -1, 1);
    if (status == VKA_OK)
        status = fill_positions(c, source, t);
    t->want = calloc(t->x.count, sizeof *t->want);
    for (uint32_t i = 0; i < dim / 2; i++)
        t->frequencies[i] = rng_uniform(&c->rng, -0.2, 1);
    t->op.input = t->x.view;
    t->op.positions = t->positions.view;
    t->op.cos = t->cos_table ? t->cos_table : t->cos.view;
    t->op.sin = t->sin_table ? t->sin_table : t->sin.view;
    t->op.output = t->y.view;
    t->op.dim = s->dim;
    t->op.base = source == BY_BASE && rng_chance(&c->rng, 50) ? 500000 : 0;
    t->op.frequencies = source == BY_FREQUENCIES ? t->frequencies : NULL;
    return status == VKA_OK && !t->want ? VKA_OUT_OF_HOST_MEMORY : status;
}

/* Cosine and sine of pair i of a row. */
static void angle_of(const struct rotary_case *t, uint32_t dim, size_t batch, size_t row,
                     uint32_t i, double *cosine, double *sine)
{
    const struct operand *p = &t->positions;
    double position = (double)row;
    if (p->view)
        position = p->values[(p->size[0] > 1 ? batch : 0) * p->size[1] + row];
    if (!t->cos.view) {
        double base = t->op.base != 0 ? (double)t->op.base : 10000;
        double frequency = t->op.frequencies ? t->op.frequencies[i] : pow(base, -2.0 * i / dim);
        /* A double has 53 bits: reduced in two steps, far positions keep enough of them. */
        double turns = frequency / 6.283185307179586476925286766559;
        double high = floor(turns * 0x1p20) * 0x1p-20;
        double rest = fmod(position * high, 1) + fmod(position * (turns - high), 1);
        *cosine = cos(6.283185307179586476925286766559 * fmod(rest, 1));
        *sine = sin(6.283185307179586476925286766559 * fmod(rest, 1));
        return;
    }
    size_t at = p->view ? (size_t)position : (t->cos.size[0] > 1 ? batch : 0) * t->x.size[2] + row;
    bool inside = !p->view || (position >= 0 && position < TABLE);
    *cosine = inside ? t->cos.values[at * (dim / 2) + i] : NAN;
    *sine = inside ? t->sin.values[at * (dim / 2) + i] : NAN;
}

static void oracle(struct rotary_case *t)
{
    const uint32_t *size = t->x.size, dim = t->op.dim ? t->op.dim : size[3];
    const double factor = t->op.attention_factor != 0 ? (double)t->op.attention_factor : 1;
    for (size_t r = 0; r < (size_t)size[0] * size[1] * size[2]; r++) {
        const double *x = t->x.values + r * size[3];
        double *y = t->want + r * size[3], c, s;
        for (uint32_t d = dim; d < size[3]; d++)
            y[d] = x[d];
        for (uint32_t i = 0; i < dim / 2; i++) {
            uint32_t a = t->op.interleaved ? 2 * i : i;
            uint32_t b = t->op.interleaved ? 2 * i + 1 : i + dim / 2;
            angle_of(t, dim, r / size[2] / size[1], r % size[2], i, &c, &s);
            y[a] = factor * (x[a] * c - x[b] * s);
            y[b] = factor * (x[a] * s + x[b] * c);
        }
    }
}

static void run_case(struct check *c, const struct shape_case *s, const enum vka_dtype mix[3],
                     enum source source, bool positions)
{
    struct rotary_case t = {.op = {.struct_size = sizeof t.op}};
    char text[CASE_TEXT];
    t.op.interleaved = rng_chance(&c->rng, 50);
    t.op.attention_factor = rng_chance(&c->rng, 50) ? 0 : 1.25f;
    enum vka_status status = create(c, s, mix, source, positions, &t);
    if (status == VKA_OK)
        oracle(&t);
    snprintf(text, sizeof text, "%ux%ux%ux%u, dim %u, source %d%s%s, %s,%s->%s", s->size[0],
             s->size[1], s->size[2], s->size[3], s->dim, (int)source,
             positions ? ", positions" : "", t.op.interleaved ? ", interleaved" : "",
             vka_dtype_name(mix[0]), vka_dtype_name(mix[1]), vka_dtype_name(mix[2]));
    const long failed = c->n_failed;
    model_check(c, status, add, &t.op, &t.y, t.want, text);
    if (c->n_failed == failed && mix[0] == mix[2]) { /* in place */
        struct vka_plan *plan = NULL;
        char why[WHY];
        t.op.output = t.op.input;
        status = vka_plan_create(c->device, NULL, &plan);
        if (status == VKA_OK)
            status = add(plan, &t.op);
        if (status == VKA_OK)
            status = vka_plan_finish(plan);
        if (status == VKA_OK)
            status = vka_plan_run(plan, PATIENCE);
        if (status == VKA_OK)
            status = operand_read(&t.x);
        if (status != VKA_OK)
            check_fail(c, text, vka_device_error(c->device));
        else if (!compare_values(&t.x, t.want, compare_limit(mix[2]), "in place", text, &c->worst,
                                 why))
            check_fail(c, text, why);
        vka_plan_destroy(&plan);
    }
    vka_tensor_destroy(&t.cos_table);
    vka_tensor_destroy(&t.sin_table);
    struct operand *all[] = {&t.x, &t.positions, &t.cos, &t.sin, &t.y};
    for (size_t i = 0; i < COUNTOF(all); i++)
        operand_destroy(all[i]);
    free(t.want);
}

void check_rotary(struct check *c)
{
    for (size_t s = 0; s < COUNTOF(shapes); s++)
        for (size_t mix = 0; mix < COUNTOF(mixes); mix++)
            for (int source = 0; source < SOURCES; source++)
                for (int positions = source == BY_TABLE; positions < (source == BY_ROWS ? 1 : 2);
                     positions++)
                    for (int draw = 0; draw < 2; draw++)
                        if (check_case(c))
                            run_case(c, &shapes[s], mixes[mix], (enum source)source, positions);
}

void bench_rotary(struct check *c)
{
    const uint32_t size[4] = {1, 32, 512, 128};
    const struct layout dense = layout_dense();
    struct operand x = {0};
    enum vka_status status = operand_create(c->device, VKA_F16, 4, size, &dense, &x);
    model_time(c, status, add, VKA_INFO(vka_rotary_op, .input = x.view, .output = x.view),
               4.0 * (double)x.count, "32 heads, 512 rows of 128 f16");
    operand_destroy(&x);
}
