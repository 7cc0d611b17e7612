/* Convolution along one axis, as a linear operation: the rows that an output row sees, one behind the
 * other, are one row of a view whose rows overlap. Where the input is not laid out so, or where rows
 * of padding are seen, they are copied first. */
#include <vkattn/vkattn_model.h>

#include "core/dtype.h"
#include "op/common/check.h"
#include "op/common/element.h"
#include "op/common/nonfinite.h"
#include "op/common/copy.h"
#include "op/matmul/linear.h"
#include "plan/cut.h"

static const char *const caller = "vka_plan_add_conv1d";

struct conv {
    struct vka_tensor x, y;   /* [batch][1][length][in], [batch][1][rows][out] */
    struct vka_tensor weight; /* [out][width * in] */
    const struct vka_tensor *bias;
    uint32_t width, in, stride, before;
};

static enum vka_status check_weight(struct vka_plan *plan, const struct vka_conv1d_op *op)
{
    struct log *log = &plan->device->log;
    char text[SHAPE_TEXT];
    ENSURE(check_tensor(plan->device, caller, "weight", op->weight, CHECK_FLOAT));
    const struct shape *x = &op->input->shape, *w = &op->weight->shape;
    ENSURE_ARG(w->rank == 3 && w->size[2] == x->size[2],
               "%s: weight is %s, not [out, width, %u] of the input's features", caller,
               shape_text(w, text), x->size[2]);
    ENSURE_ARG(w->size[1] == 1 || w->size[2] == 1 || w->stride[1] == w->stride[2] * w->size[2],
               "%s: the width and features of weight are not contiguous", caller);
    ENSURE_ARG((uint64_t)w->size[1] * w->size[2] <= UINT32_MAX,
               "%s: weight has %u * %u values a row", caller, w->size[1], w->size[2]);
    if (op->bias) {
        ENSURE(check_tensor(plan->device, caller, "bias", op->bias, CHECK_FLOAT));
        ENSURE(check_shape(plan->device, caller, "bias", op->bias, 1, &w->size[0]));
        ENSURE_ARG(w->size[0] == 1 || op->bias->shape.stride[0] == 1, "%s: bias is not contiguous",
                   caller);
    }
    return VKA_OK;
}

static enum vka_status check(struct vka_plan *plan, const struct vka_conv1d_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    ENSURE(check_tensor(device, caller, "input", op->input, CHECK_FLOAT));
    ENSURE_ARG(op->input->shape.rank == 3, "%s: input has rank %u, not 3", caller,
               op->input->shape.rank);
    ENSURE(check_weight(plan, op));
    ENSURE(check_tensor(device, caller, "output", op->output, CHECK_FLOAT | CHECK_WRITTEN));
    const uint32_t *x = op->input->shape.size, *w = op->weight->shape.size;
    uint32_t stride = op->stride ? op->stride : 1;
    uint64_t length = (uint64_t)x[1] + op->padding_before + op->padding_after;
    ENSURE_ARG(length >= w[1] && length <= INT32_MAX,
               "%s: input and padding have %llu rows, not %u (the weight's width) to 2^31 - 1",
               caller, (unsigned long long)length, w[1]);
    const uint32_t size[] = {x[0], (uint32_t)((length - w[1]) / stride + 1), w[0]};
    ENSURE(check_shape(device, caller, "output", op->output, 3, size));
    ENSURE_ARG((unsigned)op->activation < VKA_ACTIVATION_COUNT, "%s: activation is %d", caller,
               (int)op->activation);
    const struct vka_tensor *inputs[] = {op->input, op->weight, op->bias};
    return check_no_overlap(device, caller, "output", op->output, inputs, COUNTOF(inputs));
}

/* The rows of input and padding that a slice of the output sees: the first, and how many. */
static int64_t rows_of(const struct conv *c, const struct slice *slice, uint32_t *count)
{
    *count = (slice->size[2] - 1) * c->stride + c->width;
    return (int64_t)slice->first[2] * c->stride - c->before;
}

/* Whether the rows lie in the input, one behind the other. */
static bool is_view(const struct conv *c, int64_t first, uint32_t count)
{
    const struct shape *x = &c->x.shape;
    bool close = c->width == 1 || c->in == 1 || x->stride[2] == x->stride[3] * c->in;
    return close && first >= 0 && first + count <= x->size[2];
}

/* Fills rows [batch][1][first .. first + count - 1][in] with zeros. */
static enum vka_status add_zeros(struct vka_plan *plan, const struct vka_tensor *rows,
                                 uint32_t first, uint32_t count)
{
    struct vka_tensor zero, to = *rows;
    if (count == 0)
        return VKA_OK;
    to = tensor_slice_along(rows, 2, first, count);
    ENSURE(plan_constant(plan, 1, &(const uint32_t){0}, &zero));
    zero.dtype = rows->dtype; /* in which no bits are set in 0 either */
    zero.shape.offset = zero.shape.offset * 4 / vka_dtype_size(zero.dtype);
    for (uint32_t i = 0; i < 4; i++) {
        zero.shape.size[i] = to.shape.size[i];
        zero.shape.stride[i] = 0;
    }
    return plan_copy(plan, "pad", &zero, &to);
}

/* Copies rows of input and padding, from `first` on, to scratch. */
static enum vka_status add_rows(struct vka_plan *plan, const struct conv *c,
                                const struct vka_tensor *x, int64_t first, uint32_t count,
                                struct vka_tensor *rows)
{
    int64_t length = x->shape.size[2], end = first + count;
    int64_t from = first > 0 ? first : 0, to = end < length ? end : length;
    uint32_t size[4] = {x->shape.size[0], 1, count, c->in};
    ENSURE(plan_scratch(plan, x->dtype, size, rows));
    if (to <= from) /* padding alone */
        return add_zeros(plan, rows, 0, count);
    ENSURE(add_zeros(plan, rows, 0, (uint32_t)(from - first)));
    ENSURE(add_zeros(plan, rows, (uint32_t)(to - first), (uint32_t)(end - to)));
    const struct vka_tensor source =
        tensor_slice_along(x, 2, (uint32_t)from, (uint32_t)(to - from));
    const struct vka_tensor copy =
        tensor_slice_along(rows, 2, (uint32_t)(from - first), (uint32_t)(to - from));
    return plan_copy(plan, "pad", &source, &copy);
}

static enum vka_status add_slice(struct vka_plan *plan, const void *job, const struct slice *slice)
{
    const struct conv *c = job;
    uint32_t count;
    int64_t first = rows_of(c, slice, &count);
    bool view = is_view(c, first, count);
    struct vka_tensor rows, x = tensor_slice_along(&c->x, 0, slice->first[0], slice->size[0]);
    if (view)
        rows = tensor_slice_along(&x, 2, (uint32_t)first, count);
    else
        ENSURE(add_rows(plan, c, &x, first, count, &rows));
    struct vka_tensor windows = rows;
    windows.shape.size[2] = slice->size[2];
    windows.shape.stride[2] *= c->stride;
    windows.shape.size[3] = c->width * c->in;
    if (c->in == 1) /* a row is one feature */
        windows.shape.stride[3] = rows.shape.stride[2];
    const struct vka_tensor y = tensor_slice(&c->y, slice);
    ENSURE(plan_linear(plan, &(struct linear){.name = "conv1d",
                                              .input = &windows,
                                              .weight = &c->weight,
                                              .bias = c->bias,
                                              .output = &y}));
    if (!view)
        plan_scratch_free(plan, &rows);
    return VKA_OK;
}

/* Halves until an allocation holds the rows that a slice sees. */
static int judge(const struct vka_plan *plan, const struct cut *cut, const struct slice *slice)
{
    const struct conv *c = cut->job;
    uint32_t count;
    int64_t first = rows_of(c, slice, &count);
    uint64_t bytes = (uint64_t)slice->size[0] * count * c->in * vka_dtype_size(c->x.dtype);
    if (is_view(c, first, count) || bytes <= plan->caps.properties.max_allocation)
        return CUT_FITS;
    return cut_first_axis(slice, cut->least);
}

static enum vka_status add_conv1d(struct vka_plan *plan, const void *given)
{
    const struct vka_conv1d_op *op = given;
    ENSURE(check(plan, op));
    const struct shape *w = &op->weight->shape;
    struct conv c = {
        .x = tensor_rank4(op->input),
        .y = tensor_rank4(op->output),
        .weight = *op->weight,
        .bias = op->bias,
        .width = w->size[1],
        .in = w->size[2],
        .stride = op->stride ? op->stride : 1,
        .before = op->padding_before,
    };
    struct shape *shapes[] = {&c.x.shape, &c.y.shape}; /* the batch before an axis of 1 */
    for (int i = 0; i < 2; i++) {
        shapes[i]->size[0] = shapes[i]->size[1];
        shapes[i]->stride[0] = shapes[i]->stride[1];
        shapes[i]->size[1] = 1;
    }
    c.weight.shape.rank = 2;
    c.weight.shape.size[1] = c.width * c.in;
    c.weight.shape.stride[1] = c.in == 1 ? w->stride[1] : w->stride[2];
    const struct cut cut = {
        .job = &c,
        .multiple = {1, 1, 1, CUT_NEVER},
        .least = {1, 1, 1, CUT_NEVER},
        .judge = judge,
        .add = add_slice,
    };
    ENSURE(plan_cut(plan, &cut, c.y.shape.size));
    if (op->activation != VKA_IDENTITY)
        ENSURE(plan_activate(plan, op->activation, op->output));
    return plan_count_nonfinite(plan, "output", op->output);
}

enum vka_status vka_plan_add_conv1d(struct vka_plan *plan, const struct vka_conv1d_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add_conv1d);
}
