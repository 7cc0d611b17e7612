/* Results of attention over slices of the keys, merged by their log-sum-exps. */
#include "core/dtype.h"
#include "op/common/axes.h"
#include "op/common/check.h"
#include "op/common/copy.h"
#include "op/common/nonfinite.h"
#include "plan/settle.h"

#include <stdio.h>

static const char caller[] = "vka_plan_add_merge";

/* A pass: up to two slices, and what the pass before made of those before. All of rank 4 and the
 * sizes of the output; log-sum-exps have stride 0 along axis 3. Storage NULL: absent. */
struct merge {
    struct axes_job axes;
    struct vka_tensor x[2], l[2], from, y, log_sum; /* y: the output, or the state for the next */
    uint32_t count, state;                          /* of slices; SLICES_ bits */
};

static struct work work_of(const uint32_t size[4])
{
    double n = (double)size[0] * size[1] * size[2] * divide_up(size[3], 4);
    double each = 24 * WORK_MOVE;
    return (struct work){n * each, each * ITEM_LANES * ITEMS_EACH, 6 * ITEMS_EACH};
}

static void bind(const struct vka_plan *plan, struct pass *pass, uint32_t slot,
                 const struct vka_tensor *whole, const struct vka_tensor *other,
                 const struct slice *slice, bool write, struct strided_params *to)
{
    const struct vka_tensor t = tensor_slice(whole->storage ? whole : other, slice);
    uint32_t offset;
    *to = axes_strides(&t.shape);
    plan_bind(plan, pass, slot, &t, write && whole->storage, &offset);
    to->offset = offset;
}

/* The state of a row: its columns, then two floats that a view of the columns leaves out. */
static struct vka_tensor with_sums(const struct vka_tensor *state)
{
    struct vka_tensor t = *state;
    t.shape.size[3] += 2;
    return t;
}

static void fill_pass(const struct vka_plan *plan, const struct merge *m, const struct slice *slice,
                      struct pass *pass, struct slices_params *p)
{
    const uint32_t *size = slice->size;
    struct slice wide = *slice;
    *p = (struct slices_params){size[0], size[1], size[2], size[3], .l = {0}};
    wide.size[3] += 2;
    pass->name = "merge slices";
    pass->reason = "by log-sum-exp";
    pass->key = (struct pipeline_key){.kernel = KERNEL_merge_slices, .n_spec = SLICES_SPECS};
    pass->key.spec[SLICES_COUNT] = m->count;
    pass->key.spec[SLICES_X0_TYPE] = m->x[0].dtype;
    pass->key.spec[SLICES_X1_TYPE] = m->x[m->count - 1].dtype;
    pass->key.spec[SLICES_Y_TYPE] = m->y.dtype;
    pass->key.spec[SLICES_STATE] = m->state;
    pass->key.spec[SLICES_LOG_SUM] = m->log_sum.storage != NULL;
    bind(plan, pass, 0, &m->x[0], &m->x[0], slice, false, &p->x0);
    bind(plan, pass, 1, &m->x[1], &m->x[0], slice, false, &p->x1);
    bind(plan, pass, 2, &m->l[0], &m->l[0], slice, false, &p->l0);
    bind(plan, pass, 3, &m->l[1], &m->l[0], slice, false, &p->l1);
    struct vka_tensor from = m->from.storage ? with_sums(&m->from) : m->from;
    bind(plan, pass, 4, &from, &m->x[0], m->from.storage ? &wide : slice, false, &p->state);
    struct vka_tensor y = m->state & SLICES_STORE ? with_sums(&m->y) : m->y;
    bind(plan, pass, 5, &y, &y, m->state & SLICES_STORE ? &wide : slice, true, &p->y);
    const struct vka_tensor stored = tensor_slice(&m->y, slice);
    pass->key.spec[SLICES_PAIRS] = axes_are_pairs(&stored, p->y.offset);
    bind(plan, pass, 6, &m->log_sum, &m->x[0], slice, true, &p->l);
    axes_set_grid(pass, (double)size[0] * size[1] * size[2] * divide_up(size[3], 4));
    pass->work = work_of(size);
    snprintf(pass->detail, sizeof pass->detail, "%u slices of %ux%ux%ux%u, %s->%s", m->count,
             size[0], size[1], size[2], size[3], vka_dtype_name(m->x[0].dtype),
             vka_dtype_name(m->y.dtype));
}

/* For axes_judge: without parameters, which always fit. */
static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    struct slices_params p;
    fill_pass(plan, job, slice, pass, &p);
    plan_bind(plan, pass, 7, &((const struct merge *)job)->l[0], false, NULL);
}

static enum vka_status add_slice(struct vka_plan *plan, const void *job, const struct slice *slice)
{
    struct pass pass = {0};
    struct slices_params p;
    struct vka_tensor parameters;
    fill_pass(plan, job, slice, &pass, &p);
    ENSURE(plan_constant(plan, sizeof p / 4, &p, &parameters));
    plan_bind(plan, &pass, 7, &parameters, false, NULL);
    return plan_add_pass(plan, &pass);
}

static enum vka_status add_step(struct vka_plan *plan, struct merge *m)
{
    const struct vka_tensor *const all[] = {&m->x[0], &m->y, m->count > 1 ? &m->x[1] : NULL,
                                            m->from.storage ? &m->from : NULL};
    for (int i = 0; i < AXES_TENSORS; i++)
        m->axes.tensors[i] = all[i];
    const struct cut cut = {
        .job = m,
        .multiple = {1, 1, 1, CUT_NEVER},
        .least = {1, 1, 1, CUT_NEVER},
        .kernel = KERNEL_merge_slices,
        .whole = work_of(m->y.shape.size),
        .probe = plan_probe_moves,
        .make = make_pass,
        .judge = axes_judge,
        .add = add_slice,
    };
    return plan_cut(plan, &cut, m->y.shape.size);
}

static enum vka_status check_log_sum(struct vka_plan *plan, const char *name,
                                     const struct vka_tensor *t, const struct shape *y,
                                     unsigned flags)
{
    ENSURE(check_tensor(plan->device, caller, name, t, CHECK_F32 | flags));
    return check_shape(plan->device, caller, name, t, y->rank - 1, y->size);
}

static enum vka_status check(struct vka_plan *plan, const struct vka_merge_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    ENSURE_ARG(op->n_slice >= 1 && op->n_slice <= VKA_MERGE_SLICES,
               "%s: n_slice is %u, not 1 to %u", caller, op->n_slice, VKA_MERGE_SLICES);
    ENSURE_ARG(op->slices && op->log_sum_exps, "%s: slices or log_sum_exps is NULL", caller);
    ENSURE(check_tensor(device, caller, "output", op->output, CHECK_FLOAT | CHECK_WRITTEN));
    const struct shape *y = &op->output->shape;
    ENSURE_ARG(y->rank >= 2, "%s: output has rank %u, not 2 to 4", caller, y->rank);
    if (op->log_sum_exp) {
        const struct vka_tensor *output = op->output;
        ENSURE(check_log_sum(plan, "log_sum_exp", op->log_sum_exp, y, CHECK_WRITTEN));
        ENSURE(check_no_overlap(device, caller, "log_sum_exp", op->log_sum_exp, &output, 1));
    }
    for (uint32_t i = 0; i < op->n_slice; i++) {
        const struct vka_tensor *in[] = {op->slices[i], op->log_sum_exps[i]};
        ENSURE(check_tensor(device, caller, "a slice", in[0], CHECK_FLOAT));
        ENSURE(check_shape(device, caller, "a slice", in[0], y->rank, y->size));
        ENSURE(check_log_sum(plan, "one of log_sum_exps", in[1], y, 0));
        ENSURE(check_no_overlap(device, caller, "output", op->output, in, 2));
        if (op->log_sum_exp)
            ENSURE(check_no_overlap(device, caller, "log_sum_exp", op->log_sum_exp, in, 2));
    }
    return VKA_OK;
}

/* [...] at rank 4, as large as the output: stride 0 along its last axis. */
static struct vka_tensor spread(const struct vka_tensor *log_sum, const struct vka_tensor *output)
{
    struct vka_tensor t = axes_append_one(log_sum);
    t.shape.size[3] = output->shape.size[output->shape.rank - 1];
    return t;
}

static enum vka_status add_merge(struct vka_plan *plan, const void *given)
{
    const struct vka_merge_op *op = given;
    ENSURE(check(plan, op));
    const struct vka_tensor y = tensor_rank4(op->output);
    struct vka_tensor states[2] = {{0}, {0}};
    ENSURE(plan_settle_kernel(plan, KERNEL_merge_slices));
    for (uint32_t i = 0, nth = 0; i < op->n_slice; nth++) {
        struct merge m = {.y = y};
        for (; m.count < 2 && i < op->n_slice; i++, m.count++) {
            m.x[m.count] = tensor_rank4(op->slices[i]);
            m.l[m.count] = spread(op->log_sum_exps[i], op->output);
        }
        if (nth) {
            m.state |= SLICES_LOAD;
            m.from = states[(nth + 1) % 2];
        }
        if (i < op->n_slice) {
            uint32_t size[4] = {y.shape.size[0], y.shape.size[1], y.shape.size[2],
                                y.shape.size[3] + 2};
            struct vka_tensor *state = &states[nth % 2];
            if (!state->storage)
                ENSURE(plan_scratch(plan, VKA_F32, size, state));
            state->shape.size[3] = y.shape.size[3];
            m.y = *state;
            m.state |= SLICES_STORE;
        } else if (op->log_sum_exp) {
            m.log_sum = spread(op->log_sum_exp, op->output);
        }
        ENSURE(add_step(plan, &m));
    }
    ENSURE(plan_count_nonfinite(plan, "output", op->output));
    return plan_count_nonfinite(plan, "log_sum_exp", op->log_sum_exp);
}

enum vka_status vka_plan_add_merge(struct vka_plan *plan, const struct vka_merge_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add_merge);
}
