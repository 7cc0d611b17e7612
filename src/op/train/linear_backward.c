/* Gradients of linear attention: checks, lengths of q and k, and where sums go. */
#include "op/train/linear_backward_passes.h"

#include "core/dtype.h"
#include "op/common/copy.h"
#include "op/common/nonfinite.h"
#include "op/rows/norm.h"
#include "op/train/check.h"
#include "op/train/norm.h"
#include "op/train/slope.h"
#include "op/train/sum.h"

#include <math.h>

static const char caller[] = "vka_plan_add_linear_attention_backward";

#define GRADIENTS 9
struct named_gradient {
    const char *name, *of;
    const struct vka_gradient *gradient;
    const struct vka_tensor *like; /* NULL: there is none */
};

static void list_gradients(const struct vka_linear_attention_backward_op *op,
                           struct named_gradient list[GRADIENTS])
{
    const struct vka_linear_attention_op *f = op->forward;
    const struct named_gradient all[GRADIENTS] = {
        {"q_gradient", "q", &op->q_gradient, f->q},
        {"k_gradient", "k", &op->k_gradient, f->k},
        {"v_gradient", "v", &op->v_gradient, f->v},
        {"decay_gradient", "decay", &op->decay_gradient, f->decay},
        {"beta_gradient", "beta", &op->beta_gradient, f->beta},
        {"decay_log_gradient", "decay_log", &op->decay_log_gradient, f->decay_log},
        {"decay_bias_gradient", "decay_bias", &op->decay_bias_gradient, f->decay_bias},
        {"skip_gradient", "skip", &op->skip_gradient, f->skip},
        {"past_state_gradient", "past_state", &op->past_state_gradient, f->past_state},
    };
    for (size_t i = 0; i < GRADIENTS; i++)
        list[i] = all[i];
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static enum vka_status check_supported(struct vka_device *device,
                                       const struct vka_linear_attention_op *f)
{
    struct log *log = &device->log;
    if (f->cache || f->q_start)
        return log_error(
            log, VKA_UNSUPPORTED,
            "%s: forward has %s which has no backward: give states and rows in a dense "
            "batch",
            caller, f->cache ? "a cache," : "q_start, a ragged batch,");
    ENSURE_ARG(!f->past_state || !f->present_state ||
                   f->past_state->storage != f->present_state->storage ||
                   !axes_same(f->past_state, f->present_state),
               "%s: forward.present_state is in place of past_state, which is lost: keep both",
               caller);
    return VKA_OK;
}

static enum vka_status check_gradients(struct vka_device *device,
                                       const struct vka_linear_attention_backward_op *op)
{
    struct log *log = &device->log;
    const struct vka_linear_attention_op *f = op->forward;
    const struct vka_tensor *const inputs[] = {f->q,
                                               f->k,
                                               f->v,
                                               f->decay,
                                               f->beta,
                                               f->decay_log,
                                               f->decay_bias,
                                               f->skip,
                                               f->past_state,
                                               f->present_state,
                                               f->output,
                                               f->lengths,
                                               op->output_gradient,
                                               op->present_state_gradient};
    struct named_gradient list[GRADIENTS];
    struct named_tensor written[GRADIENTS];
    bool any = false;
    list_gradients(op, list);
    for (size_t i = 0; i < GRADIENTS; i++) {
        written[i] = (struct named_tensor){list[i].name, list[i].gradient->tensor};
        any |= written[i].tensor != NULL;
        ENSURE_ARG(list[i].like || !written[i].tensor, "%s: %s is given, but forward has no %s",
                   caller, list[i].name, list[i].of);
        if (list[i].like)
            ENSURE(train_check_gradient(device, caller, list[i].name, list[i].gradient,
                                        &list[i].like->shape));
    }
    ENSURE_ARG(any, "%s: no gradient is wanted", caller);
    return train_check_apart(device, caller, written, GRADIENTS, inputs, COUNTOF(inputs));
}

static enum vka_status check(struct vka_plan *plan,
                             const struct vka_linear_attention_backward_op *op, struct linear *l)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    const struct vka_linear_attention_op *f = op->forward;
    ENSURE_ARG(f, "%s: forward is NULL", caller);
    ENSURE_ARG(f->struct_size == sizeof *f, "%s: forward.struct_size is %zu, not %zu", caller,
               f->struct_size, sizeof *f);
    ENSURE(check_supported(device, f));
    ENSURE(linear_check(plan, caller, f, l));
    ENSURE(check_tensor(device, caller, "output_gradient", op->output_gradient, CHECK_FLOAT));
    ENSURE(check_shape(device, caller, "output_gradient", op->output_gradient, 4,
                       f->output->shape.size));
    if (op->present_state_gradient) {
        const uint32_t shape[4] = {l->rows.n_sequence, l->n_state, l->head_dim, l->value_dim};
        ENSURE(check_tensor(device, caller, "present_state_gradient", op->present_state_gradient,
                            CHECK_FLOAT));
        ENSURE(check_shape(device, caller, "present_state_gradient", op->present_state_gradient, 4,
                           shape));
    }
    return check_gradients(device, op);
}

/* ---- Lengths of q and k ---------------------------------------------------------------------- */

/* RMS norm with the weight 1 / sqrt(n) and the epsilon of a mean of squares divides a row by its length. */
struct length {
    struct vka_tensor weight; /* [head_dim]; storage NULL: rows are taken as they are */
    struct vka_tensor q, k;   /* before */
    float epsilon;
};

static enum vka_status make_length(struct vka_plan *plan, const struct linear *l,
                                   struct length *length)
{
    struct vka_tensor ones;
    const float one = 1 / sqrtf((float)l->head_dim);
    ENSURE(plan_constant(plan, 1, &one, &ones));
    ones.dtype = VKA_F32;
    shape_dense(1, &l->head_dim, &ones.shape);
    ones.shape.stride[0] = 0;
    length->weight = ones;
    length->epsilon = l->front.norm_epsilon / (float)l->head_dim;
    return VKA_OK;
}

/* A float32 number as a tensor of these sizes. */
static enum vka_status make_number(struct vka_plan *plan, float number, const uint32_t size[4],
                                   struct vka_tensor *tensor)
{
    ENSURE(plan_constant(plan, 1, &number, tensor));
    tensor->dtype = VKA_F32;
    for (int i = 0; i < 4; i++) {
        tensor->shape.size[i] = size[i];
        tensor->shape.stride[i] = 0;
    }
    return VKA_OK;
}

/* Replaces rows by a copy whose rows from a length on are 0: what linear attention adds of v to its output,
 * where neither keys nor queries are anything. */
static enum vka_status copy_kept(struct vka_plan *plan, const struct state_rows *kept,
                                 struct vka_tensor *rows)
{
    const uint32_t *size = rows->shape.size, one[4] = {size[0], 1, size[2], 1};
    struct linear copy = {
        .v = *rows,
        .rows = *kept,
        .n_state = size[1],
        .n = size[2],
        .head_dim = 1,
        .value_dim = size[3],
        .decay_kind = DECAY_NONE,
        .scale = 1,
    };
    ENSURE(make_number(plan, 0, one, &copy.q));
    copy.k = copy.q;
    ENSURE(make_number(plan, 1, (const uint32_t[]){size[1], 1, 1, 1}, &copy.front.skip));
    ENSURE(plan_scratch(plan, VKA_F32, size, &copy.y));
    ENSURE(plan_recurrent(plan, caller, &copy));
    *rows = copy.y;
    return VKA_OK;
}

/* Replaces rows by what they are behind the division, in scratch; *before is what they were. */
static enum vka_status divide(struct vka_plan *plan, const struct length *length,
                              const struct state_rows *kept, struct vka_tensor *rows,
                              struct vka_tensor *before)
{
    struct vka_tensor divided;
    if (kept->lengths)
        ENSURE(copy_kept(plan, kept, rows));
    *before = *rows;
    ENSURE(plan_scratch(plan, VKA_F32, rows->shape.size, &divided));
    const struct vka_norm_op norm = {
        .struct_size = sizeof norm,
        .kind = VKA_RMS_NORM,
        .input = before,
        .weight = (struct vka_tensor *)&length->weight,
        .given = VKA_GIVEN_EPSILON,
        .epsilon = length->epsilon,
        .output = &divided,
    };
    ENSURE(plan_norm(plan, &norm));
    *rows = divided;
    return VKA_OK;
}

/* ---- Sums ------------------------------------------------------------------------------------ */

/* Rank 4, with a last axis of 1 where a gate has 3. */
static struct vka_tensor wide(const struct vka_tensor *tensor)
{
    return tensor->shape.rank == 4 ? *tensor : axes_append_one(tensor);
}

/* *sum: the gradient itself where it is float32 that is replaced, else scratch. */
static enum vka_status make_sum(struct vka_plan *plan, const struct vka_gradient *gradient,
                                const uint32_t size[4], bool direct, struct vka_tensor *sum)
{
    const struct vka_tensor *t = gradient->tensor;
    if (!t || t->dtype != VKA_F32 || gradient->accumulate || !direct)
        return plan_scratch(plan, VKA_F32, size, sum);
    *sum = wide(t);
    return VKA_OK;
}

static enum vka_status make_sums(struct vka_plan *plan,
                                 const struct vka_linear_attention_backward_op *op, bool divided,
                                 struct linear_backward *b)
{
    const struct linear *l = &b->l;
    const uint32_t n_head = op->forward->q->shape.size[1],
                   n_kv_head = op->forward->k->shape.size[1];
    const uint32_t beta_heads = op->forward->beta ? op->forward->beta->shape.size[1] : 1;
    const uint32_t *rows = op->forward->v->shape.size;
    const uint32_t one[4] = {rows[0], rows[1], rows[2], 1};
    const uint32_t gates[4] = {rows[0], rows[1], rows[2],
                               l->decay_kind == DECAY_KEY ? l->head_dim : 1};
    const uint32_t betas[4] = {rows[0], beta_heads, rows[2], 1};
    const struct {
        bool wanted;
        const char *name;
        const struct vka_gradient *gradient;
        const uint32_t *size;
        bool direct;
        uint32_t ratio;
    } list[SUMMED_COUNT] = {
        [SUMMED_Q] = {op->q_gradient.tensor, "q gradient", &op->q_gradient,
                      op->forward->q->shape.size, !divided,
                      n_head < l->n_state ? l->n_state / n_head : 1},
        [SUMMED_K] = {op->k_gradient.tensor, "k gradient", &op->k_gradient,
                      op->forward->k->shape.size, !divided, l->n_state / n_kv_head},
        [SUMMED_DECAY] = {op->decay_gradient.tensor || op->decay_bias_gradient.tensor,
                          "decay gradient", &op->decay_gradient, gates, true, 1},
        [SUMMED_LOG] = {op->decay_log_gradient.tensor, "decay_log gradient",
                        &op->decay_log_gradient, gates, false, 1},
        [SUMMED_BETA] = {op->beta_gradient.tensor, "beta gradient", &op->beta_gradient, betas, true,
                         l->n_state / beta_heads},
        [SUMMED_SKIP] = {op->skip_gradient.tensor, "skip gradient", &op->skip_gradient, one, false,
                         1},
    };
    for (int i = 0; i < SUMMED_COUNT; i++) {
        struct linear_sum *sum = &b->sums[i];
        sum->name = list[i].name;
        sum->ratio = list[i].ratio;
        if (list[i].wanted)
            ENSURE(make_sum(plan, list[i].gradient, list[i].size, list[i].direct, &sum->y));
    }
    return op->v_gradient.tensor ? make_sum(plan, &op->v_gradient, rows, true, &b->dv) : VKA_OK;
}

static enum vka_status make_carry(struct vka_plan *plan,
                                  const struct vka_linear_attention_backward_op *op,
                                  struct linear_backward *b)
{
    const struct linear *l = &b->l;
    const uint32_t shape[4] = {l->rows.n_sequence, l->n_state, l->head_dim, l->value_dim};
    ENSURE(make_sum(plan, &op->past_state_gradient, shape, true, &b->carry));
    b->carried = op->present_state_gradient != NULL;
    return b->carried ? plan_copy(plan, "state gradient", op->present_state_gradient, &b->carry)
                      : VKA_OK;
}

/* ---- Results --------------------------------------------------------------------------------- */

/* gradient = sum, where it is not that already. */
static enum vka_status move(struct vka_plan *plan, const char *name, const struct vka_tensor *sum,
                            const struct vka_gradient *gradient)
{
    if (!gradient->tensor || sum->storage == gradient->tensor->storage)
        return VKA_OK;
    const struct slope slope = {
        .name = name,
        .dy = *sum,
        .x = *sum,
        .y = wide(gradient->tensor),
        .kind = SLOPE_DERIVATIVE,
        .add = gradient->accumulate,
    };
    return plan_slope(plan, &slope);
}

/* That of rows before they were divided by their length. */
static enum vka_status finish_rows(struct vka_plan *plan, const struct linear_sum *sum,
                                   const struct vka_tensor *rows, const struct length *length,
                                   const struct vka_gradient *gradient)
{
    if (!length->weight.storage || !gradient->tensor)
        return move(plan, sum->name, &sum->y, gradient);
    const struct vka_norm_backward_op norm = {
        .struct_size = sizeof norm,
        .kind = VKA_RMS_NORM,
        .axes = 1,
        .given = VKA_GIVEN_EPSILON,
        .epsilon = length->epsilon,
        .input = (struct vka_tensor *)rows,
        .weight = (struct vka_tensor *)&length->weight,
        .output_gradient = (struct vka_tensor *)&sum->y,
        .input_gradient = *gradient,
    };
    return plan_norm_backward(plan, &norm);
}

/* That of a number of each state, or of each of its features: the sum of its terms. */
static enum vka_status finish_number(struct vka_plan *plan, const char *name,
                                     const struct vka_tensor *terms,
                                     const struct vka_gradient *gradient)
{
    if (!gradient->tensor)
        return VKA_OK;
    const bool features = gradient->tensor->shape.rank == 2;
    struct sum_axes sum = {
        .name = name,
        .a = *terms,
        .y = *gradient->tensor,
        .reduced = features ? 1 | 4 : 1 | 4 | 8,
        .term = TERM_VALUE,
        .scale = 1,
        .add = gradient->accumulate,
    };
    const struct shape from = gradient->tensor->shape;
    sum.y.shape = (struct shape){
        .rank = 4,
        .size = {1, from.size[0], 1, features ? from.size[1] : 1},
        .stride = {0, from.stride[0], 0, features ? from.stride[1] : 0},
        .offset = from.offset,
    };
    return plan_sum_axes(plan, &sum);
}

static enum vka_status finish(struct vka_plan *plan,
                              const struct vka_linear_attention_backward_op *op,
                              const struct length *length, const struct linear_backward *b)
{
    const struct linear_sum *s = b->sums;
    ENSURE(finish_rows(plan, &s[SUMMED_Q], &length->q, length, &op->q_gradient));
    ENSURE(finish_rows(plan, &s[SUMMED_K], &length->k, length, &op->k_gradient));
    ENSURE(move(plan, "v gradient", &b->dv, &op->v_gradient));
    ENSURE(move(plan, s[SUMMED_BETA].name, &s[SUMMED_BETA].y, &op->beta_gradient));
    ENSURE(move(plan, s[SUMMED_DECAY].name, &s[SUMMED_DECAY].y, &op->decay_gradient));
    ENSURE(move(plan, "state gradient", &b->carry, &op->past_state_gradient));
    ENSURE(
        finish_number(plan, "decay_bias gradient", &s[SUMMED_DECAY].y, &op->decay_bias_gradient));
    ENSURE(finish_number(plan, s[SUMMED_LOG].name, &s[SUMMED_LOG].y, &op->decay_log_gradient));
    return finish_number(plan, s[SUMMED_SKIP].name, &s[SUMMED_SKIP].y, &op->skip_gradient);
}

static enum vka_status add(struct vka_plan *plan, const void *given)
{
    const struct vka_linear_attention_backward_op *op = given;
    struct linear_backward b = {0};
    struct length length = {0};
    struct named_gradient list[GRADIENTS];
    ENSURE(check(plan, op, &b.l));
    b.l.y = *op->output_gradient;
    const bool divided = b.l.front.flags & LINEAR_NORMED;
    if (divided) {
        ENSURE(make_length(plan, &b.l, &length));
        ENSURE(divide(plan, &length, &b.l.rows, &b.l.q, &length.q));
        ENSURE(divide(plan, &length, &b.l.rows, &b.l.k, &length.k));
        b.l.front.flags &= ~(uint32_t)LINEAR_NORMED;
        b.l.front.norm_epsilon = 0;
    }
    ENSURE(make_sums(plan, op, divided, &b));
    ENSURE(make_carry(plan, op, &b));
    ENSURE(plan_linear_backward_passes(plan, caller, &b));
    ENSURE(finish(plan, op, &length, &b));
    list_gradients(op, list);
    for (size_t i = 0; i < GRADIENTS; i++)
        ENSURE(plan_count_nonfinite(plan, list[i].name, list[i].gradient->tensor));
    return VKA_OK;
}

enum vka_status
vka_plan_add_linear_attention_backward(struct vka_plan *plan,
                                       const struct vka_linear_attention_backward_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add);
}
