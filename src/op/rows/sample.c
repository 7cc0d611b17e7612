/* Drawing from rows of logits. */
#include "op/rows/argmax.h"
#include "core/dtype.h"
#include "op/common/axes.h"
#include "op/common/check.h"
#include "op/common/copy.h"
#include "plan/settle.h"
#include "params/each.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#define LEAST_LOGITS (2 * SAMPLE_LANES) /* that take as long as the reductions of a row */
#define MOST_LOGITS (1u << 24)          /* the kernel counts them in floats */

struct sample {
    struct axes_job axes;
    const struct vka_sample_op *op;
    struct vka_tensor x; /* of rank 4: [1][1][rows][n] */
    struct vka_tensor y; /* the same sizes, with stride 0 along axis 3 */
};

static struct work work_of(const struct sample *sample, double rows)
{
    const double size = sample->x.shape.size[3];
    const double n = size < LEAST_LOGITS ? LEAST_LOGITS : size;
    const double row = WORK_SCORE * SAMPLE_PASSES * n;
    return (struct work){rows * row, row, SAMPLE_PASSES * (n / (SAMPLE_LANES * SAMPLE_EACH) + 10)};
}

/* A pass over rows, or with `advance` the one that adds 1 to the step. */
static void make(const struct vka_plan *plan, const struct sample *sample,
                 const struct slice *slice, bool advance, struct pass *pass)
{
    const struct vka_sample_op *op = sample->op;
    const struct vka_tensor x = tensor_slice(&sample->x, slice),
                            y = tensor_slice(&sample->y, slice);
    struct sample_params p = {
        .n = x.shape.size[3],
        .x_row = (uint32_t)x.shape.stride[2],
        .x_col = (uint32_t)x.shape.stride[3],
        .y_row = (uint32_t)y.shape.stride[2],
        .row_first = slice->first[2],
        .temperature = op->temperature,
        /* a device may take a subnormal for 0, which means all */
        .top_p = op->top_p > 0 ? fmaxf(op->top_p, FLT_MIN) : 0,
        .min_p = op->min_p,
        .top_k = op->top_k,
        .n_step = op->step ? op->step->shape.size[0] : 0,
        .seed_low = (uint32_t)op->seed,
        .seed_high = (uint32_t)(op->seed >> 32),
    };
    pass->name = advance ? "sample step" : "sample";
    pass->reason = "a workgroup a row";
    pass->key = (struct pipeline_key){.kernel = KERNEL_sample, .n_spec = SAMPLE_SPECS};
    pass->key.spec[SAMPLE_TYPE] = x.dtype;
    pass->key.spec[SAMPLE_STEP] = op->step != NULL;
    pass->key.spec[SAMPLE_ADVANCE] = advance;
    pass->key.spec[SAMPLE_SEEDS] = op->seeds != NULL;
    plan_bind(plan, pass, 0, &x, false, &p.x_offset);
    plan_bind(plan, pass, 1, op->step ? op->step : &x, advance, &p.step_offset);
    plan_bind(plan, pass, 2, &y, !advance, &p.y_offset);
    plan_bind(plan, pass, 3, op->seeds ? op->seeds : &x, false, &p.seeds_offset);
    if (op->seeds) {
        p.seeds_row = (uint32_t)op->seeds->shape.stride[0];
        p.seeds_col = (uint32_t)op->seeds->shape.stride[1];
    }
    pass_set_push(pass, &p, sizeof p);
    pass->groups[0] = advance ? 1 : slice->size[2];
    pass->groups[1] = pass->groups[2] = 1;
    pass->work = work_of(sample, slice->size[2]);
    if (advance)
        pass->work = (struct work){1, 1, 1};
    snprintf(pass->detail, sizeof pass->detail, "%u rows of %u, %s, temperature %g, top %u, %g, %g",
             slice->size[2], p.n, vka_dtype_name(x.dtype), (double)p.temperature, p.top_k,
             (double)p.top_p, (double)p.min_p);
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    make(plan, job, slice, false, pass);
}

static enum vka_status check_numbers(struct log *log, const char *caller,
                                     const struct vka_sample_op *op)
{
    ENSURE_ARG(op->temperature >= 0 && isfinite(op->temperature),
               "%s: temperature is %g, not a number from 0 on", caller, (double)op->temperature);
    ENSURE_ARG(op->top_p >= 0 && op->top_p <= 1, "%s: top_p is %g, not 0 to 1", caller,
               (double)op->top_p);
    ENSURE_ARG(op->min_p >= 0 && op->min_p <= 1, "%s: min_p is %g, not 0 to 1", caller,
               (double)op->min_p);
    return VKA_OK;
}

/* Steps and seeds: of all rows, or of each. */
static enum vka_status check_draws(struct vka_device *device, const char *caller,
                                   const struct vka_sample_op *op, uint32_t rows)
{
    const uint32_t one = 1, two[] = {rows, 2};
    const struct vka_tensor *inputs[] = {op->logits, op->seeds};
    if (op->seeds) {
        ENSURE(check_tensor(device, caller, "seeds", op->seeds, CHECK_I32));
        ENSURE(check_shape(device, caller, "seeds", op->seeds, 2, two));
    }
    if (!op->step)
        return VKA_OK;
    ENSURE(check_tensor(device, caller, "step", op->step, CHECK_I32));
    const bool each = op->step->shape.rank == 1 && op->step->shape.size[0] == rows;
    ENSURE(check_shape(device, caller, "step", op->step, 1, each ? &rows : &one));
    struct log *log = &device->log;
    ENSURE_ARG(op->step->shape.size[0] == 1 || op->step->shape.stride[0] == 1,
               "%s: step is not contiguous", caller);
    return check_no_overlap(device, caller, "step", op->step, inputs, 2);
}

static enum vka_status check(struct vka_plan *plan, const struct vka_sample_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    static const char *const caller = "vka_plan_add_sample";
    const uint32_t one = 1;
    ENSURE(check_numbers(log, caller, op));
    ENSURE(check_tensor(device, caller, "logits", op->logits, CHECK_FLOAT));
    const struct shape *x = &op->logits->shape;
    ENSURE_ARG(x->rank <= 2, "%s: logits has rank %u, not 1 or 2", caller, x->rank);
    ENSURE_ARG(x->size[x->rank - 1] <= MOST_LOGITS, "%s: logits has rows of %u, not at most %u",
               caller, x->size[x->rank - 1], MOST_LOGITS);
    ENSURE(check_tensor(device, caller, "output", op->output, CHECK_I32 | CHECK_WRITTEN));
    ENSURE(check_shape(device, caller, "output", op->output, 1, x->rank == 2 ? x->size : &one));
    ENSURE(check_draws(device, caller, op, x->rank == 2 ? x->size[0] : 1));
    const struct vka_tensor *inputs[] = {op->logits, op->step, op->seeds};
    return check_no_overlap(device, caller, "output", op->output, inputs, 3);
}

static enum vka_status add_rows(struct vka_plan *plan, struct sample *sample)
{
    const struct cut cut = {
        .job = sample,
        .multiple = {1, 1, 1, CUT_NEVER},
        .least = {1, 1, 1, CUT_NEVER},
        .kernel = KERNEL_sample,
        .whole = work_of(sample, sample->x.shape.size[2]),
        .probe = plan_probe_moves,
        .make = make_pass,
        .judge = axes_judge,
    };
    return plan_cut(plan, &cut, sample->x.shape.size);
}

static enum vka_status add_sample(struct vka_plan *plan, const void *given)
{
    const struct vka_sample_op *op = given;
    ENSURE(check(plan, op));
    struct sample sample = {.op = op, .x = tensor_rank4(op->logits)};
    struct pass pass = {0};
    sample.y = axes_append_one(op->output);
    if (op->temperature != 0 || op->step) /* the step is advanced by that kernel */
        ENSURE(plan_settle_kernel(plan, KERNEL_sample));
    if (op->temperature == 0) {
        ENSURE(plan_argmax(plan, &sample.x, &sample.y, true));
    } else {
        sample.y.shape.size[3] = sample.x.shape.size[3];
        sample.axes = (struct axes_job){{&sample.x, &sample.y}};
        ENSURE(add_rows(plan, &sample));
    }
    if (!op->step)
        return VKA_OK;
    const struct slice row = {{0}, {1, 1, 1, 1}};
    make(plan, &sample, &row, true, &pass);
    return plan_add_pass(plan, &pass);
}

enum vka_status vka_plan_add_sample(struct vka_plan *plan, const struct vka_sample_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add_sample);
}
