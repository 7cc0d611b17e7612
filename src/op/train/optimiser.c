/* Steps of SGD, Adam and AdamW. */
#include "core/dtype.h"
#include "op/common/check.h"
#include "op/common/copy.h"
#include "op/train/scalars.h"
#include "op/train/check.h"
#include "plan/settle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

_Static_assert(OPTIMISER_SGD == VKA_SGD && OPTIMISER_ADAM == VKA_ADAM &&
                   OPTIMISER_ADAMW == VKA_ADAMW,
               "the kernel's numbers");

static const char caller[] = "vka_plan_add_optimiser";

/* A parameter: all of rank 4. m and v are w where they are not read. */
struct step {
    struct axes_job axes;
    const struct vka_optimiser_op *op;
    struct vka_tensor w, g, m, v, rates;
    uint32_t momentum;
    double beta1, beta2;
};

static struct work work_of(const uint32_t size[4])
{
    double n = (double)size[0] * size[1] * size[2] * size[3], each = 6 * WORK_MOVE;
    return (struct work){n * each, 2 * ITEM_LANES * ITEMS_EACH * each, ITEMS_EACH + 1};
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    const struct step *step = job;
    const struct vka_optimiser_op *op = step->op;
    const uint32_t *size = slice->size;
    const struct vka_tensor w = tensor_slice(&step->w, slice), g = tensor_slice(&step->g, slice);
    const struct vka_tensor m = tensor_slice(&step->m, slice), v = tensor_slice(&step->v, slice);
    const bool adam = op->kind != VKA_SGD;
    struct optimiser_params p = {
        .size0 = size[0],
        .size1 = size[1],
        .size2 = size[2],
        .size3 = size[3],
        .w = axes_strides(&w.shape),
        .g = axes_strides(&g.shape),
        .m = axes_strides(&m.shape),
        .v = axes_strides(&v.shape),
        .momentum = (float)op->momentum,
        .rest1 = (float)(1 - step->beta1),
        .beta2 = (float)step->beta2,
        .rest2 = (float)(1 - step->beta2),
        .epsilon = (float)or_default(op->epsilon, op->given, VKA_GIVEN_EPSILON, 1e-8),
        .decay = (float)op->weight_decay,
    };
    pass->name = adam ? "adam" : "sgd";
    pass->reason = "element by element";
    pass->key = (struct pipeline_key){.kernel = KERNEL_optimiser, .n_spec = OPTIMISER_SPECS};
    plan_bind(plan, pass, 0, &w, true, &p.w.offset);
    plan_bind(plan, pass, 1, &g, false, &p.g.offset);
    plan_bind(plan, pass, 2, &m, adam || step->momentum, &p.m.offset);
    plan_bind(plan, pass, 3, &v, adam, &p.v.offset);
    plan_bind(plan, pass, 4, &step->rates, false, &p.rate_offset);
    pass->key.spec[OPTIMISER_W_TYPE] = w.dtype;
    pass->key.spec[OPTIMISER_G_TYPE] = g.dtype;
    pass->key.spec[OPTIMISER_KIND] = op->kind;
    pass->key.spec[OPTIMISER_MOMENTUM] = step->momentum;
    pass_set_push(pass, &p, sizeof p);
    const bool pairs = axes_are_pairs(&w, p.w.offset);
    pass->key.spec[OPTIMISER_PAIRS] = pairs;
    axes_set_grid(pass, (double)size[0] * size[1] * size[2] * (pairs ? size[3] / 2 : size[3]));
    pass->work = work_of(size);
    snprintf(pass->detail, sizeof pass->detail, "%ux%ux%ux%u, %s,%s", size[0], size[1], size[2],
             size[3], vka_dtype_name(w.dtype), vka_dtype_name(g.dtype));
}

/* Beyond it beta^step counts as 0 at every step. */
#define MOST_DECAY 1000.0

/* -log(beta), as the sum of two floats; of a beta of 0 a finite number, as infinities would cancel to
 * NaN. */
static void split_decay(double beta, float *high, float *low)
{
    double decay = beta > 0 ? -log(beta) : MOST_DECAY;
    *high = (float)decay;
    *low = (float)(decay - (double)*high);
}

/* The rates of this step, for all parameters. */
static enum vka_status add_rates(struct vka_plan *plan, const struct step *step)
{
    const struct vka_optimiser_op *op = step->op;
    struct scalars scalars = {
        .name = "rates",
        .kind = op->kind == VKA_SGD ? SCALARS_RATE : SCALARS_ADAM,
        .factor = op->rate != NULL,
        .x = op->rate,
        .y = op->step,
        .z = &step->rates,
        .params.rate = (float)op->learning_rate,
    };
    if (op->kind != VKA_SGD) {
        split_decay(step->beta1, &scalars.params.first_high, &scalars.params.first_low);
        split_decay(step->beta2, &scalars.params.second_high, &scalars.params.second_low);
    }
    return plan_scalars(plan, &scalars);
}

static enum vka_status add_parameter(struct vka_plan *plan, struct step *step,
                                     const struct vka_parameter *p)
{
    step->w = tensor_rank4(p->parameter);
    step->g = tensor_rank4(p->gradient);
    step->m = tensor_rank4(p->first_moment ? p->first_moment : p->parameter);
    step->v = tensor_rank4(p->second_moment ? p->second_moment : p->parameter);
    step->axes = (struct axes_job){{&step->w, &step->g, &step->m, &step->v}};
    struct shape *shapes[] = {&step->w.shape, &step->g.shape, &step->m.shape, &step->v.shape};
    axes_merge(shapes, 4, 0, 4);
    const struct cut cut = {
        .job = step,
        .multiple = {1, 1, 1, ITEM_LANES * ITEMS_EACH},
        .least = {1, 1, 1, 2},
        .kernel = KERNEL_optimiser,
        .whole = work_of(step->w.shape.size),
        .probe = plan_probe_moves,
        .make = make_pass,
        .judge = axes_judge,
    };
    return plan_cut(plan, &cut, step->w.shape.size);
}

static enum vka_status check_numbers(struct log *log, const struct vka_optimiser_op *op)
{
    const struct {
        const char *name;
        double value, below;
    } numbers[] = {{"learning_rate", op->learning_rate, HUGE_VAL},
                   {"momentum", op->momentum, HUGE_VAL},
                   {"beta1", op->beta1, 1},
                   {"beta2", op->beta2, 1},
                   {"epsilon", op->epsilon, HUGE_VAL},
                   {"weight_decay", op->weight_decay, HUGE_VAL}};
    for (size_t i = 0; i < COUNTOF(numbers); i++)
        ENSURE_ARG(numbers[i].value >= 0 && numbers[i].value < numbers[i].below,
                   "%s: %s is %g, not a number from 0%s", caller, numbers[i].name, numbers[i].value,
                   numbers[i].below == 1 ? " and below 1" : " on");
    ENSURE_ARG(op->learning_rate > 0, "%s: learning_rate is 0", caller);
    ENSURE_ARG(!op->nesterov || op->momentum > 0, "%s: nesterov is set, but momentum is 0", caller);
    ENSURE_ARG(op->kind == VKA_SGD || (op->momentum == 0 && !op->nesterov),
               "%s: momentum is of sgd alone", caller);
    return VKA_OK;
}

static enum vka_status check_moment(struct vka_device *device, const char *name, bool needed,
                                    const struct vka_tensor *t, const struct vka_tensor *like)
{
    struct log *log = &device->log;
    if (!needed) {
        ENSURE_ARG(!t, "%s: %s is given, but this optimiser keeps none", caller, name);
        return VKA_OK;
    }
    ENSURE(check_tensor(device, caller, name, t, CHECK_F32 | CHECK_WRITTEN));
    return check_shape(device, caller, name, t, like->shape.rank, like->shape.size);
}

static enum vka_status check_parameter(struct vka_device *device, const struct vka_optimiser_op *op,
                                       const struct vka_parameter *p)
{
    const bool adam = op->kind != VKA_SGD;
    ENSURE(check_tensor(device, caller, "parameter", p->parameter, CHECK_FLOAT | CHECK_WRITTEN));
    ENSURE(check_tensor(device, caller, "gradient", p->gradient, CHECK_FLOAT));
    ENSURE(axes_check_like(device, caller, "gradient", p->gradient, p->parameter));
    ENSURE(check_moment(device, "first_moment", adam || op->momentum > 0, p->first_moment,
                        p->parameter));
    ENSURE(check_moment(device, "second_moment", adam, p->second_moment, p->parameter));
    const struct named_tensor written[] = {{"parameter", p->parameter},
                                           {"first_moment", p->first_moment},
                                           {"second_moment", p->second_moment}};
    const struct vka_tensor *const inputs[] = {p->gradient, op->step, op->rate};
    return train_check_apart(device, caller, written, COUNTOF(written), inputs, COUNTOF(inputs));
}

/* Two items with one moment would each move it, and those with one parameter both step. */
static enum vka_status check_apart(struct vka_device *device, const struct vka_optimiser_op *op)
{
    struct listed_tensor *list = calloc(op->n_parameter, 4 * sizeof *list);
    size_t n = 0;
    if (!list)
        return log_error(&device->log, VKA_OUT_OF_HOST_MEMORY, "%s: out of memory", caller);
    for (size_t i = 0; i < op->n_parameter; i++) {
        const struct vka_parameter *p = &op->parameters[i];
        const struct listed_tensor own[] = {{"parameter", i, true, p->parameter},
                                            {"gradient", i, false, p->gradient},
                                            {"first_moment", i, true, p->first_moment},
                                            {"second_moment", i, true, p->second_moment}};
        for (size_t k = 0; k < COUNTOF(own); k++)
            if (own[k].tensor)
                list[n++] = own[k];
    }
    const enum vka_status status = train_check_items(device, caller, list, n);
    free(list);
    return status;
}

static enum vka_status check(struct vka_plan *plan, const struct vka_optimiser_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    ENSURE_ARG((unsigned)op->kind < VKA_OPTIMISER_COUNT, "%s: kind is %d", caller, (int)op->kind);
    ENSURE_ARG(op->parameters && op->n_parameter, "%s: there are no parameters", caller);
    ENSURE(check_given(device, caller, op->given,
                       VKA_GIVEN_EPSILON | VKA_GIVEN_BETA1 | VKA_GIVEN_BETA2));
    ENSURE(check_numbers(log, op));
    ENSURE_ARG(op->kind != VKA_SGD || !op->step, "%s: step is given, but sgd needs none", caller);
    if (op->kind != VKA_SGD)
        ENSURE(train_check_number(device, caller, "step", op->step, CHECK_I32));
    if (op->rate)
        ENSURE(train_check_number(device, caller, "rate", op->rate, CHECK_F32));
    for (size_t i = 0; i < op->n_parameter; i++)
        ENSURE(check_parameter(device, op, &op->parameters[i]));
    return check_apart(device, op);
}

static enum vka_status add(struct vka_plan *plan, const void *given)
{
    const struct vka_optimiser_op *op = given;
    ENSURE(check(plan, op));
    struct step step = {
        .op = op,
        .momentum = op->momentum > 0 ? op->nesterov ? 2 : 1 : 0,
        .beta1 = or_default(op->beta1, op->given, VKA_GIVEN_BETA1, 0.9),
        .beta2 = or_default(op->beta2, op->given, VKA_GIVEN_BETA2, 0.999),
    };
    ENSURE(plan_settle_kernel(plan, KERNEL_optimiser));
    ENSURE(plan_scalar_scratch(plan, 3, &step.rates));
    ENSURE(add_rates(plan, &step));
    for (size_t i = 0; i < op->n_parameter; i++)
        ENSURE(add_parameter(plan, &step, &op->parameters[i]));
    return VKA_OK;
}

enum vka_status vka_plan_add_optimiser(struct vka_plan *plan, const struct vka_optimiser_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add);
}
