/* Causal convolutions: shapes x what rows a sequence has x past, with types drawn; what is not a row of
 * a sequence is NaN. */
#include "check_model.h"

#include <reference/state.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum rows { DENSE, LENGTHS, RAGGED, N_ROWS };

static const struct conv_shape {
    uint32_t batch, n, channels, width, dilation;
} shapes[] = {
    {1, 1, 1, 1, 0},   {2, 1, 130, 4, 0},  {3, 7, 5, 3, 1},    {2, 130, 66, 4, 0},
    {4, 33, 9, 16, 1}, {1, 300, 12, 4, 7}, {3, 20, 33, 2, 40}, {2, 1100, 2, 4, 1},
};

static const enum vka_dtype mixes[][4] = {
    /* x, weight and bias, past and present, y */
    {VKA_F32, VKA_F32, VKA_F32, VKA_F32},
    {VKA_F16, VKA_F16, VKA_F16, VKA_F16},
    {VKA_BF16, VKA_F32, VKA_F32, VKA_BF16},
    {VKA_F32, VKA_BF16, VKA_BF16, VKA_F16},
};

struct conv_case {
    struct vka_causal_conv_op op;
    struct operand x, w, bias, past, present, starts, y;
    double *want, *kept; /* of y; of present */
    uint32_t n_sequence;
};

static enum vka_status add(struct vka_plan *plan, const void *op)
{
    return vka_plan_add_causal_conv(plan, op);
}

/* First row and rows of a sequence, in rows of x. */
static void find_rows(const struct conv_case *t, const struct conv_shape *s, enum rows rows,
                      size_t sequence, size_t *first, size_t *n)
{
    const double *starts = t->starts.values;
    *first = rows == RAGGED ? (size_t)starts[sequence] : sequence * s->n;
    *n = s->n;
    if (rows == RAGGED)
        *n = (size_t)(starts[sequence + 1] - starts[sequence]);
    else if (rows == LENGTHS)
        *n = (size_t)fmin(fmax(starts[sequence], 0), s->n);
}

static void oracle(struct conv_case *t, const struct conv_shape *s, enum rows rows)
{
    const struct ref_causal_conv c = {0, s->channels, s->width, s->dilation ? s->dilation : 1,
                                      t->op.activation};
    const size_t kept = s->channels * (c.width - 1) * c.dilation;
    for (size_t i = 0; i < t->n_sequence; i++) {
        size_t first, n;
        struct ref_causal_conv own = c;
        find_rows(t, s, rows, i, &first, &n);
        own.n = n;
        ref_causal_conv(&own, t->x.values + first * s->channels, t->w.values,
                        t->bias.view ? t->bias.values : NULL,
                        t->past.view ? t->past.values + i * kept : NULL,
                        t->want + first * s->channels, t->kept + i * kept);
    }
}

static enum vka_status fill_starts(struct check *c, struct conv_case *t, const struct conv_shape *s,
                                   enum rows rows)
{
    if (rows == DENSE)
        return VKA_OK;
    for (size_t i = 0; i < t->starts.count && rows == LENGTHS; i++)
        t->starts.values[i] = (double)rng_range(&c->rng, 0, s->n + 2) - 1;
    if (rows == RAGGED) { /* all rows are of a sequence, of which some have none */
        t->starts.values[0] = 0;
        for (size_t i = 1; i < t->starts.count; i++)
            t->starts.values[i] =
                (double)rng_range(&c->rng, (uint64_t)t->starts.values[i - 1], s->n);
        t->starts.values[t->starts.count - 1] = s->n;
    }
    const double first = t->starts.values[0];
    if (rows == RAGGED)
        t->starts.values[0] = -3; /* counts as 0 */
    const enum vka_status status = operand_write(&t->starts);
    t->starts.values[0] = first;
    return status;
}

/* Rows from a length on are NaN. */
static enum vka_status fill_rows(struct check *c, struct conv_case *t, const struct conv_shape *s,
                                 enum rows rows)
{
    for (size_t i = 0; i < t->x.count; i++)
        t->x.values[i] = rows == LENGTHS ? NAN : rng_uniform(&c->rng, -1, 1);
    for (size_t i = 0; rows == LENGTHS && i < t->n_sequence; i++) {
        size_t first, n;
        find_rows(t, s, rows, i, &first, &n);
        for (size_t j = 0; j < n * s->channels; j++)
            t->x.values[first * s->channels + j] = rng_uniform(&c->rng, -1, 1);
    }
    for (size_t i = 0; i < t->x.count; i++)
        t->x.values[i] = operand_round(t->x.dtype, t->x.values[i]);
    return operand_write(&t->x);
}

static enum vka_status create(struct check *c, const struct conv_shape *s,
                              const enum vka_dtype mix[4], enum rows rows, bool past,
                              struct conv_case *t)
{
    check_turn(c);
    const uint32_t batch = rows == RAGGED ? 1 : s->batch;
    const uint32_t keep = (s->width - 1) * (s->dilation ? s->dilation : 1);
    const uint32_t x[3] = {batch, s->n, s->channels}, w[2] = {s->channels, s->width};
    const uint32_t kept[3] = {s->batch, s->channels, keep};
    const uint32_t starts = rows == RAGGED ? s->batch + 1 : s->batch;
    const struct layout dense = layout_dense();
    t->n_sequence = s->batch;
    enum vka_status status = model_operand(c, mix[0], 3, x, &t->x);
    if (status == VKA_OK)
        status = model_operand(c, mix[1], 2, w, &t->w);
    if (status == VKA_OK && past)
        status = model_operand(c, mix[1], 1, w, &t->bias);
    if (status == VKA_OK && past && keep)
        status = model_operand(c, mix[2], 3, kept, &t->past);
    if (status == VKA_OK && keep)
        status = model_operand(c, mix[2], 3, kept, &t->present);
    if (status == VKA_OK && rows != DENSE)
        status = operand_create(c->device, VKA_I32, 1, &starts, &dense, &t->starts);
    if (status == VKA_OK)
        status = model_operand(c, mix[3], 3, x, &t->y);
    t->want = calloc(t->x.count + 1, sizeof *t->want);
    t->kept = calloc((size_t)s->batch * s->channels * keep + 1, sizeof *t->kept);
    if (!t->want || !t->kept)
        status = VKA_OUT_OF_HOST_MEMORY;
    if (status == VKA_OK)
        status = fill_starts(c, t, s, rows);
    if (status == VKA_OK)
        status = fill_rows(c, t, s, rows);
    if (status == VKA_OK)
        status = model_fill(c, &t->w, -1, 2);
    if (status == VKA_OK)
        status = model_fill(c, &t->bias, -1, 1);
    return status == VKA_OK ? model_fill(c, &t->past, -1, 1) : status;
}

static void destroy(struct conv_case *t)
{
    struct operand *all[] = {&t->x, &t->w, &t->bias, &t->past, &t->present, &t->starts, &t->y};
    for (size_t i = 0; i < COUNTOF(all); i++)
        operand_destroy(all[i]);
    free(t->want);
    free(t->kept);
}

static void run_problem(struct check *c, const struct conv_shape *s, const enum vka_dtype mix[4],
                        enum rows rows, bool past)
{
    static const char *const names[] = {"", ", lengths", ", ragged"};
    struct conv_case t = {.op = {.struct_size = sizeof t.op}};
    char text[CASE_TEXT];
    enum vka_status status = create(c, s, mix, rows, past, &t);
    t.op.input = t.x.view;
    t.op.weight = t.w.view;
    t.op.bias = t.bias.view;
    t.op.dilation = s->dilation;
    t.op.activation = past ? VKA_SILU : VKA_IDENTITY;
    t.op.past = t.past.view;
    t.op.present = t.present.view;
    t.op.lengths = rows == LENGTHS ? t.starts.view : NULL;
    t.op.q_start = rows == RAGGED ? t.starts.view : NULL;
    t.op.output = t.y.view;
    if (status == VKA_OK)
        oracle(&t, s, rows);
    snprintf(text, sizeof text, "%ux%ux%u, width %u, dilation %u, %s -> %s%s%s", s->batch, s->n,
             s->channels, s->width, s->dilation, vka_dtype_name(mix[0]), vka_dtype_name(mix[3]),
             names[rows], past ? ", past" : "");
    model_check(c, status, add, &t.op, &t.y, t.want, text);
    if (t.present.view)
        model_check(c, status, add, &t.op, &t.present, t.kept, text);
    destroy(&t);
}

/* Other sizes of the same width. */
static struct conv_shape vary(const struct check *c, const struct conv_shape *s)
{
    struct rng rng = c->rng;
    struct conv_shape v = *s;
    if (c->turn == 0)
        return v;
    rng.state = rng_next(&rng) + c->turn;
    v.batch = (uint32_t)rng_range(&rng, 1, 4);
    v.n = (uint32_t)rng_range(&rng, 1, 2 * s->n + 1);
    v.channels = (uint32_t)rng_range(&rng, 1, 40);
    v.dilation = s->width > 1 ? (uint32_t)rng_range(&rng, 0, 9) : 0;
    return v;
}

/* Problems of a case, which share types and width. */
static void run_case(struct check *c, const struct conv_shape *s, enum rows rows, bool past)
{
    const struct rng first = c->rng;
    for (c->turn = 0; c->turn < c->each; c->turn++) {
        const struct conv_shape shape = vary(c, s);
        run_problem(c, &shape, mixes[rng_range(&c->rng, 0, COUNTOF(mixes) - 1)], rows, past);
        c->rng = first;
    }
    c->turn = 0;
}

void check_conv(struct check *c)
{
    for (size_t s = 0; s < COUNTOF(shapes); s++)
        for (int rows = 0; rows < N_ROWS; rows++)
            for (int past = 0; past < 2; past++)
                if (check_case(c))
                    run_case(c, &shapes[s], (enum rows)rows, past);
}

void bench_conv(struct check *c)
{
    const uint32_t x_size[3] = {1, 512, 8192}, w_size[2] = {8192, 4};
    struct operand x = {0}, w = {0}, y = {0};
    enum vka_status status = model_halves(c, 3, x_size, 2, (struct operand *[]){&x, &y});
    if (status == VKA_OK)
        status = model_halves(c, 2, w_size, 1, (struct operand *[]){&w});
    model_time(c, status, add,
               VKA_INFO(vka_causal_conv_op, .input = x.view, .weight = w.view,
                        .activation = VKA_SILU, .output = y.view),
               4.0 * (double)x.count, "512x8192 f16, width 4");
    operand_destroy(&x);
    operand_destroy(&w);
    operand_destroy(&y);
}
