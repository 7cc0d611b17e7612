/* Operations around attention on millions of rows, and gradients of products. */
#include "trial.h"

#include "problems/operand.h"
#include "problems/types.h"

#include <gpu/device.h>
#include <vkattn/vkattn_model.h>
#include <vkattn/vkattn_train.h>

#include <stdio.h>
#include <string.h>

#define MOST_SCATTERED 4e9 /* elements */

enum op { NORM = 0, ACTIVATION, BINARY, GATHER, ROTARY, ARGMAX, CONV1D, LINEAR_BACKWARD, OPS };

static const char *const names[OPS] = {"norm",   "activation", "binary", "gather",
                                       "rotary", "argmax",     "conv1d", "linear backward"};

/* Input, output, weight, bias, integers; gradients of the output and of the weight. */
enum { X = 0, Y, W, B, I, D, G, OPERANDS };

struct job {
    enum op op;
    bool in_place, nonfinite;
    struct operand o[OPERANDS];
};

/* Scattered or not; dense where it has more elements than an axis can. */
static enum vka_status create(struct trial *t, struct job *j, int which, enum vka_dtype dtype,
                              uint32_t rank, const uint32_t *size)
{
    double count = 1;
    for (uint32_t i = 0; i < rank; i++)
        count *= size[i];
    if (count > MOST_SCATTERED)
        return vka_tensor_create(t->device, dtype, rank, size, &j->o[which].view);
    const struct layout layout =
        rank > 1 && rng_chance(&t->rng, 30) ? layout_random(&t->rng, rank) : layout_dense();
    return operand_create_empty(t->device, dtype, rank, size, &layout, &j->o[which]);
}

static enum vka_status create_dense(struct trial *t, struct job *j, int which, enum vka_dtype dtype,
                                    uint32_t rank, const uint32_t *size)
{
    const struct layout layout = layout_dense();
    return operand_create_empty(t->device, dtype, rank, size, &layout, &j->o[which]);
}

/* Sizes of X: up to 2^30 elements, of giants to 2^34. */
static void draw_sizes(struct trial *t, uint32_t size[4])
{
    size[3] = trial_size(t, 1, rng_chance(&t->rng, 20) ? 1000000 : 4096);
    size[2] = trial_size(t, 1, rng_chance(&t->rng, 30) ? 1000000 : 1000);
    size[1] = trial_size(t, 1, 64);
    size[0] = trial_size(t, 1, 16);
    const bool giant = trial_giant(t);
    if (giant)
        size[2] = trial_size(t, 1u << 30, UINT32_MAX) / size[3];
    const double most = giant ? 0x1p34 : 0x1p30;
    while ((double)size[0] * size[1] * size[2] * size[3] > most) {
        uint32_t *axis = &size[rng_range(&t->rng, 0, 3)];
        *axis = (*axis + 1) / 2;
    }
}

static enum vka_status create_others(struct trial *t, struct job *j, uint32_t size[4])
{
    const uint32_t width = size[3], out = trial_size(t, 1, 2048);
    const uint32_t rows = size[2], taps = rows < 3 ? 1 : 3;
    enum vka_status status = VKA_OK;
    switch (j->op) {
    case NORM:
        status = create_dense(t, j, W, type_draw_float(&t->rng), 1, &width);
        break;
    case BINARY:
    case ACTIVATION: /* the second input repeats along some axes */
        for (int i = 0; i < 4; i++)
            size[i] = rng_chance(&t->rng, 30) ? 1 : size[i];
        status = create(t, j, W, type_draw_float(&t->rng), 4, size);
        break;
    case GATHER:
        status = create_dense(t, j, I, VKA_I32, 2, (const uint32_t[]){size[1], size[0]});
        break;
    case ROTARY:
        status = create_dense(t, j, I, VKA_I32, 2, (const uint32_t[]){size[0], rows});
        break;
    case CONV1D:
        status = create_dense(t, j, W, type_draw_float(&t->rng), 3,
                              (const uint32_t[]){out, taps, width});
        if (status == VKA_OK)
            status = create(t, j, Y, type_draw_float(&t->rng), 3,
                            (const uint32_t[]){size[1], rows - taps + 1, out});
        break;
    case LINEAR_BACKWARD:
        status = create_dense(t, j, W, type_draw_float(&t->rng), 2, (const uint32_t[]){out, width});
        if (status == VKA_OK)
            status = create_dense(t, j, B, type_draw_float(&t->rng), 1, &out);
        if (status == VKA_OK)
            status = create(t, j, G, type_draw_float(&t->rng), 2, (const uint32_t[]){out, width});
        if (status == VKA_OK)
            status = create(t, j, D, type_draw_float(&t->rng), 2, (const uint32_t[]){rows, out});
        break;
    case ARGMAX:
    case OPS:
        break;
    }
    return status;
}

static enum vka_status create_all(struct trial *t, struct job *j)
{
    uint32_t size[4];
    draw_sizes(t, size);
    if (j->op == ROTARY)
        size[3] = 2 * ((size[3] % 512 + 2) / 2);
    snprintf(t->text, sizeof t->text, "%s of %u %u %u %u%s%s", names[j->op], size[0], size[1],
             size[2], size[3], j->in_place ? ", in place" : "", j->nonfinite ? ", counted" : "");
    const bool conv = j->op == CONV1D, product = j->op == LINEAR_BACKWARD, table = j->op == GATHER;
    const uint32_t skip = conv ? 1 : product || table ? 2 : 0; /* leading axes */
    enum vka_status status = create(t, j, X, type_draw_float(&t->rng), 4 - skip, size + skip);
    if (status == VKA_OK && (j->op == ARGMAX))
        status = create_dense(t, j, Y, VKA_I32, 3, size);
    else if (status == VKA_OK && table)
        status = create(t, j, Y, type_draw_float(&t->rng), 3,
                        (const uint32_t[]){size[1], size[0], size[3]});
    else if (status == VKA_OK && !conv && !j->in_place)
        status = create(t, j, Y, type_draw_float(&t->rng), 4 - skip, size + skip);
    return status == VKA_OK ? create_others(t, j, size) : status;
}

static enum vka_status add(struct vka_plan *plan, const struct job *j)
{
    struct vka_tensor *const x = j->o[X].view, *const w = j->o[W].view;
    struct vka_tensor *const y = j->in_place ? x : j->o[Y].view;
    switch (j->op) {
    case NORM:
        return vka_plan_add_norm(plan, VKA_INFO(vka_norm_op, .input = x, .weight = w, .output = y));
    case ACTIVATION:
        return vka_plan_add_activation(plan, VKA_INFO(vka_activation_op, .kind = VKA_SILU,
                                                      .input = x, .multiplier = w, .output = y));
    case BINARY:
        return vka_plan_add_binary(plan, VKA_INFO(vka_binary_op, .a = x, .b = w, .output = y));
    case GATHER:
        return vka_plan_add_gather(
            plan, VKA_INFO(vka_gather_op, .table = x, .ids = j->o[I].view, .output = y));
    case ROTARY:
        return vka_plan_add_rotary(
            plan, VKA_INFO(vka_rotary_op, .input = x, .positions = j->o[I].view, .output = y));
    case ARGMAX:
        return vka_plan_add_argmax(plan, VKA_INFO(vka_argmax_op, .input = x, .output = y));
    case CONV1D:
        return vka_plan_add_conv1d(plan,
                                   VKA_INFO(vka_conv1d_op, .input = x, .weight = w, .output = y));
    case LINEAR_BACKWARD:
        return vka_plan_add_linear_backward(
            plan, VKA_INFO(vka_linear_backward_op, .input = x, .weight = w,
                           .output_gradient = j->o[D].view, .input_gradient = {y, false},
                           .weight_gradient = {j->o[G].view, false},
                           .bias_gradient = {j->o[B].view, false}));
    case OPS:
        break;
    }
    return VKA_INVALID;
}

static enum vka_status plan_rows(struct trial *t, const void *job, uint64_t budget,
                                 struct vka_plan **plan)
{
    const struct job *j = job;
    enum vka_status status = vka_plan_create(
        t->device,
        VKA_INFO(vka_plan_info, .submit_budget = budget, .count_nonfinite = j->nonfinite), plan);
    if (status == VKA_OK)
        status = add(*plan, j);
    return status == VKA_OK ? vka_plan_finish(*plan) : status;
}

bool trial_rows(struct trial *t)
{
    struct job j = {.op = (enum op)rng_range(&t->rng, 0, OPS - 1),
                    .nonfinite = rng_chance(&t->rng, 15)};
    j.in_place = (j.op == NORM || j.op == ROTARY || j.op == BINARY) && rng_chance(&t->rng, 25);
    enum vka_status status = create_all(t, &j);
    bool ok = trial_passed(t, status);
    if (status == VKA_OK) {
        const struct trial_tensors tensors = {
            .inputs = {j.o[X].view, j.o[W].view, j.o[I].view, j.o[D].view},
            .outputs = {j.in_place ? j.o[X].view : j.o[Y].view, j.o[B].view, j.o[G].view},
            .exact = true,
        };
        ok = trial_run(t, plan_rows, &j, &tensors);
    }
    for (int i = 0; i < OPERANDS; i++)
        operand_destroy(&j.o[i]);
    return ok;
}
