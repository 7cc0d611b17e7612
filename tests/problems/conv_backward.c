#include "conv_backward.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <reference/state.h>

#include "types.h"

struct conv_kind conv_kind_draw(struct rng *rng)
{
    static const enum vka_activation functions[] = {VKA_IDENTITY, VKA_SILU, VKA_SILU, VKA_GELU,
                                                    VKA_TANH};
    struct conv_kind kind = {
        .width = rng_chance(rng, 50) ? 4 : rng_range(rng, 1, 16),
        .activation = functions[rng_range(rng, 0, 4)],
        .bias = rng_chance(rng, 60),
        .past = rng_chance(rng, 60),
        .present = rng_chance(rng, 50),
        .lengths = rng_chance(rng, 60),
        .x = type_draw(rng, dtype_is_float),
        .weight = type_draw(rng, dtype_is_float),
        .past_type = type_draw(rng, dtype_is_float),
        .dy = type_draw(rng, dtype_is_float),
        .present_type = type_draw(rng, dtype_is_float),
        .gradient = type_draw(rng, dtype_is_float),
    };
    kind.past &= kind.width > 1;
    kind.present &= kind.width > 1;
    return kind;
}

/* Rows of one tile and of several, of one split of a sum and of several; many short sequences. */
struct conv_sizes conv_sizes_draw(struct rng *rng)
{
    static const uint32_t most[] = {3, 20, 100, 300, 800};
    struct conv_sizes sizes = {
        .batch = rng_chance(rng, 20) ? rng_range(rng, 1, 300) : rng_range(rng, 1, 4),
        .channels = rng_chance(rng, 50) ? rng_range(rng, 1, 8) : rng_range(rng, 1, 70),
        .dilation = rng_chance(rng, 50) ? 0 : rng_range(rng, 1, rng_chance(rng, 30) ? 60 : 5),
    };
    sizes.n = rng_range(rng, 1, sizes.batch > 4 ? 6 : most[rng_range(rng, 0, 4)]);
    return sizes;
}

static size_t length_of(const struct conv_problem *p, uint32_t sequence)
{
    const uint32_t n = p->x.size[1];
    if (!p->lengths.view)
        return n;
    const double length = p->lengths.values[p->lengths.count == 1 ? 0 : sequence];
    return (size_t)fmin(fmax(length, 0), n);
}

static enum vka_status make(struct vka_device *device, struct rng *rng, enum vka_dtype dtype,
                            uint32_t rank, const uint32_t *size, struct operand *o)
{
    const struct layout layout = layout_random(rng, rank);
    return operand_create(device, dtype, rank, size, &layout, o);
}

static enum vka_status fill(struct rng *rng, double low, double high, struct operand *o)
{
    if (!o->view)
        return VKA_OK;
    for (size_t i = 0; i < o->count; i++)
        o->values[i] = operand_round(o->dtype, rng_uniform(rng, low, high));
    return operand_write(o);
}

/* Values of rows that their sequences have; the others are NaN. */
static enum vka_status fill_rows(const struct conv_problem *p, struct rng *rng, struct operand *o)
{
    const size_t channels = o->size[2], n = o->size[1];
    for (size_t i = 0; i < o->count; i++) {
        const size_t row = i / channels;
        const bool there = row % n < length_of(p, (uint32_t)(row / n));
        o->values[i] = there ? operand_round(o->dtype, rng_uniform(rng, -1, 1.5)) : NAN;
    }
    return operand_write(o);
}

static enum vka_status make_lengths(struct vka_device *device, struct rng *rng, uint32_t batch,
                                    uint32_t n, struct operand *o)
{
    const uint32_t count = rng_chance(rng, 20) ? 1 : batch;
    const struct layout dense = layout_dense();
    const enum vka_status status = operand_create(device, VKA_I32, 1, &count, &dense, o);
    for (size_t i = 0; i < count && status == VKA_OK; i++)
        o->values[i] = (double)rng_range(rng, 0, n + 2) - 1;
    return status == VKA_OK ? operand_write(o) : status;
}

/* The gradients, all of which are wanted. */
static enum vka_status make_gradients(struct vka_device *device, struct rng *rng,
                                      enum vka_dtype dtype, struct conv_problem *p)
{
    const struct operand *like[CONV_GRADIENTS] = {&p->x, &p->weight, &p->bias, &p->past};
    struct vka_gradient *gradients[CONV_GRADIENTS] = {&p->op.input_gradient, &p->op.weight_gradient,
                                                      &p->op.bias_gradient, &p->op.past_gradient};
    enum vka_status status = VKA_OK;
    for (int i = 0; i < CONV_GRADIENTS && status == VKA_OK; i++) {
        if (!like[i]->view)
            continue;
        status = make(device, rng, dtype, like[i]->rank, like[i]->size, &p->made[i]);
        gradients[i]->tensor = p->made[i].view;
        p->want[i] = calloc(like[i]->count, sizeof(double));
        if (!p->want[i])
            status = VKA_OUT_OF_HOST_MEMORY;
    }
    return status;
}

static enum vka_status solve(struct conv_problem *p)
{
    const size_t channels = p->x.size[2], rows = p->x.size[1], width = p->weight.size[1];
    struct ref_causal_conv c = {0, channels, width, p->forward.dilation ? p->forward.dilation : 1,
                                p->forward.activation};
    const size_t keep = channels * (width - 1) * c.dilation;
    double *none[3] = {calloc(channels * rows, sizeof(double)), calloc(channels, sizeof(double)),
                       calloc(keep + 1, sizeof(double))};
    const bool ok = none[0] && none[1] && none[2];
    for (uint32_t i = 0; i < p->x.size[0] && ok; i++) {
        const size_t at = i * rows * channels;
        const struct ref_conv_gradients made = {
            p->want[CONV_DX] + at, p->want[CONV_DW], p->bias.view ? p->want[CONV_DB] : none[1],
            p->past.view ? p->want[CONV_DPAST] + i * keep : none[2]};
        c.n = length_of(p, i);
        ref_causal_conv_backward(&c, p->x.values + at, p->weight.values,
                                 p->bias.view ? p->bias.values : NULL,
                                 p->past.view ? p->past.values + i * keep : NULL, p->dy.values + at,
                                 p->present.view ? p->present.values + i * keep : NULL, &made);
    }
    for (int i = 0; i < 3; i++)
        free(none[i]);
    return ok ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
}

static void set_ops(const struct conv_kind *kind, const struct conv_sizes *s,
                    struct conv_problem *p)
{
    p->forward =
        *VKA_INFO(vka_causal_conv_op, .input = p->x.view, .weight = p->weight.view,
                  .bias = p->bias.view, .dilation = s->dilation, .activation = kind->activation,
                  .past = p->past.view, .lengths = p->lengths.view, .output = p->y.view);
    p->op.struct_size = sizeof p->op;
    p->op.forward = &p->forward;
    p->op.output_gradient = p->dy.view;
    p->op.present_gradient = p->present.view;
    snprintf(p->text, sizeof p->text,
             "%ux%ux%u, width %u, dilation %u, function %d%s%s%s%s, %s,%s,%s,%s->%s", s->batch,
             s->n, s->channels, kind->width, s->dilation, (int)kind->activation,
             kind->bias ? ", bias" : "", kind->past ? ", past" : "",
             kind->present ? ", present" : "", kind->lengths ? ", lengths" : "",
             vka_dtype_name(kind->x), vka_dtype_name(kind->weight), vka_dtype_name(kind->past_type),
             vka_dtype_name(kind->dy), vka_dtype_name(kind->gradient));
}

enum vka_status conv_problem_create(struct vka_device *device, struct rng *rng,
                                    const struct conv_kind *kind, const struct conv_sizes *sizes,
                                    struct conv_problem *p)
{
    const uint32_t keep = (kind->width - 1) * (sizes->dilation ? sizes->dilation : 1);
    const uint32_t x[3] = {sizes->batch, sizes->n, sizes->channels};
    const uint32_t w[2] = {sizes->channels, kind->width};
    const uint32_t kept[3] = {sizes->batch, sizes->channels, keep};
    enum vka_status status = make(device, rng, kind->x, 3, x, &p->x);
    if (status == VKA_OK)
        status = make(device, rng, kind->weight, 2, w, &p->weight);
    if (status == VKA_OK && kind->bias)
        status = make(device, rng, kind->weight, 1, w, &p->bias);
    if (status == VKA_OK && kind->past)
        status = make(device, rng, kind->past_type, 3, kept, &p->past);
    if (status == VKA_OK && kind->present)
        status = make(device, rng, kind->present_type, 3, kept, &p->present);
    if (status == VKA_OK && kind->lengths)
        status = make_lengths(device, rng, sizes->batch, sizes->n, &p->lengths);
    if (status == VKA_OK)
        status = make(device, rng, kind->x, 3, x, &p->y);
    if (status == VKA_OK)
        status = make(device, rng, kind->dy, 3, x, &p->dy);
    if (status == VKA_OK)
        status = fill_rows(p, rng, &p->x);
    if (status == VKA_OK)
        status = fill_rows(p, rng, &p->dy);
    struct operand *plain[] = {&p->weight, &p->bias, &p->past, &p->present};
    for (size_t i = 0; i < sizeof plain / sizeof *plain && status == VKA_OK; i++)
        status = fill(rng, -1, 1.5, plain[i]);
    if (status == VKA_OK)
        status = make_gradients(device, rng, kind->gradient, p);
    set_ops(kind, sizes, p);
    return status == VKA_OK ? solve(p) : status;
}

void conv_problem_destroy(struct conv_problem *p)
{
    struct operand *all[] = {&p->x, &p->weight, &p->bias,    &p->past,
                             &p->y, &p->dy,     &p->present, &p->lengths};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        operand_destroy(all[i]);
    for (int i = 0; i < CONV_GRADIENTS; i++) {
        operand_destroy(&p->made[i]);
        free(p->want[i]);
    }
}
