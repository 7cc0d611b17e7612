#include "op/state/recurrent.h"

#include "core/arith.h"
#include "core/dtype.h"
#include "op/common/copy.h"
#include "op/state/recurrent_work.h"
#include "plan/settle.h"

#include <stdio.h>

#define SPAN 16u      /* tokens, of which the budget leaves a pass no fewer */
#define PARAMETERS 12 /* slot */
#define SPAN_CHUNKED LINEAR_CHUNK
#define WEIGHTS LINEAR_WEIGHTS_SLOT
#define VECTOR 8u /* elements of 16 bits */

/* A dense tensor's batch and tokens of a slice; packed ones whole. */
static struct vka_tensor tokens_of(const struct linear *l, const struct vka_tensor *t,
                                   const struct slice *slice)
{
    if (l->rows.q_start || !t->storage)
        return *t;
    const struct vka_tensor batch = tensor_slice_along(t, 0, slice->first[0], slice->size[0]);
    return tensor_slice_along(&batch, AXIS_TOKEN, slice->first[AXIS_TOKEN],
                              slice->size[AXIS_TOKEN]);
}

/* The first element of y that a pass over the slice writes. It stands for bindings that a shader could write
 * and does not, as validation layers take them for written. */
static struct vka_tensor placeholder(const struct linear *l, const struct slice *slice)
{
    const struct vka_tensor y = tokens_of(l, &l->y, slice);
    struct vka_tensor one = tensor_slice_along(&y, 1, slice->first[1] * linear_group(l), 1);
    for (uint32_t axis = 0; axis < 4; axis++)
        one = tensor_slice_along(&one, axis, 0, 1);
    return one;
}

static void bind(const struct vka_plan *plan, struct pass *pass, uint32_t slot,
                 const struct vka_tensor *tensor, const struct vka_tensor *other, bool write,
                 struct strided_params *to)
{
    const struct vka_tensor *t = tensor->storage ? tensor : other;
    uint32_t offset;
    *to = axes_strides(&t->shape);
    plan_bind(plan, pass, slot, t, write && tensor->storage, &offset);
    to->offset = offset;
}

/* Whether fours of values of a state, if there is one, are aligned. */
static bool is_wide(const struct vka_tensor *state, uint32_t offset)
{
    const struct shape *s = &state->shape;
    bool wide = offset % 4 == 0 && s->stride[3] == 1 && s->size[3] % 4 == 0;
    for (int i = 0; i < 3; i++)
        wide &= s->size[i] == 1 || s->stride[i] % 4 == 0;
    return !state->storage || wide;
}

/* Whether no lane has features or values beyond those of the state. */
static bool is_whole(const struct recurrent *r)
{
    return r->l->head_dim == 4 * r->tile.fours * r->tile.splits &&
           r->l->value_dim % (4 * r->tile.columns) == 0;
}

/* Binds the states before and after a slice; returns the flags. */
static uint32_t bind_states(const struct vka_plan *plan, const struct recurrent *r,
                            const struct slice *slice, struct pass *pass, struct linear_params *p)
{
    const struct linear *l = r->l;
    const uint32_t end = slice->first[AXIS_TOKEN] + slice->size[AXIS_TOKEN];
    const struct vka_tensor none = placeholder(l, slice);
    struct vka_tensor from = slice->first[AXIS_TOKEN] ? *r->carry : l->past;
    struct vka_tensor to = end < l->n ? *r->carry : l->present;
    if (from.storage)
        from = tensor_slice_along(&from, 0, slice->first[0], slice->size[0]);
    if (to.storage)
        to = tensor_slice_along(&to, 0, slice->first[0], slice->size[0]);
    bind(plan, pass, 5, &from, &none, false, &p->from);
    bind(plan, pass, 6, &to, &none, true, &p->to);
    p->in_place = from.storage && (!to.storage || axes_same(&from, &to));
    const bool wide = is_wide(&from, p->from.offset) && is_wide(&to, p->to.offset);
    return (from.storage ? LINEAR_LOADS : 0u) | (to.storage ? LINEAR_STORES : 0u) |
           (wide ? LINEAR_WIDE : 0u) | (is_whole(r) ? LINEAR_WHOLE : 0u);
}

static void set_types(const struct linear *l, struct pass *pass)
{
    uint32_t *spec = pass->key.spec;
    spec[LINEAR_Q_TYPE] = l->q.dtype;
    spec[LINEAR_K_TYPE] = l->k.dtype;
    spec[LINEAR_V_TYPE] = l->v.dtype;
    spec[LINEAR_DECAY_TYPE] = l->decay.storage ? (uint32_t)l->decay.dtype : TYPE_NONE;
    spec[LINEAR_BETA_TYPE] = l->beta.storage ? (uint32_t)l->beta.dtype : TYPE_NONE;
    spec[LINEAR_Y_TYPE] = l->y.dtype;
    spec[LINEAR_LOG_TYPE] = l->front.log.storage ? (uint32_t)l->front.log.dtype : TYPE_NONE;
    spec[LINEAR_BIAS_TYPE] = l->front.bias.storage ? (uint32_t)l->front.bias.dtype : TYPE_NONE;
    spec[LINEAR_SKIP_TYPE] = l->front.skip.storage ? (uint32_t)l->front.skip.dtype : TYPE_NONE;
    spec[LINEAR_DECAY] = l->decay_kind;
    spec[LINEAR_ROWS] = state_rows_kind(&l->rows);
    spec[LINEAR_FLAGS] = l->front.flags;
}

void linear_fill_pass(const struct vka_plan *plan, const struct linear *l,
                      const struct slice *slice, const struct vka_tensor *written,
                      struct pass *pass, struct linear_params *p)
{
    const uint32_t n_head = l->q.shape.size[1];
    *p = (struct linear_params){
        .n_row = l->n,
        .n = slice->size[AXIS_TOKEN],
        .head_dim = l->head_dim,
        .value_dim = l->value_dim,
        .first = slice->first[AXIS_TOKEN],
        .state_first = slice->first[1],
        .group = linear_group(l),
        .q_ratio = n_head < l->n_state ? l->n_state / n_head : 1,
        .k_ratio = l->n_state / l->k.shape.size[1],
        .n_cached = l->rows.cache ? l->rows.n_sequence : 0,
        .sequence_first = slice->first[0],
        .layer = l->rows.layer,
        .scale = l->scale,
        .norm_epsilon = l->front.norm_epsilon,
        .step_min = l->front.step_min,
        .step_max = l->front.step_max,
    };
    const struct vka_tensor q = tokens_of(l, &l->q, slice), k = tokens_of(l, &l->k, slice);
    const struct vka_tensor v = tokens_of(l, &l->v, slice), y = tokens_of(l, &l->y, slice);
    const struct vka_tensor decay = tokens_of(l, &l->decay, slice);
    const struct vka_tensor beta = tokens_of(l, &l->beta, slice);
    set_types(l, pass);
    bind(plan, pass, 0, &q, &q, false, &p->q);
    bind(plan, pass, 1, &k, &q, false, &p->k);
    bind(plan, pass, 2, &v, &q, false, &p->v);
    bind(plan, pass, 3, &decay, &q, false, &p->decay);
    bind(plan, pass, 4, &beta, &q, false, &p->beta);
    bind(plan, pass, 7, &y, &y, !written, &p->y);
    state_bind_rows(plan, pass, 8, &l->rows, written ? written : &y, slice->first[0],
                    slice->size[0], &p->starts_offset, &p->starts_step);
    bind(plan, pass, 9, &l->front.log, &q, false, &p->log);
    bind(plan, pass, 10, &l->front.bias, &q, false, &p->bias);
    bind(plan, pass, 11, &l->front.skip, &q, false, &p->skip);
    if (axes_are_pairs(&y, p->y.offset))
        pass->key.spec[LINEAR_FLAGS] |= LINEAR_Y_PAIRS;
}

static void fill_pass(const struct vka_plan *plan, const struct recurrent *r,
                      const struct slice *slice, struct pass *pass, struct linear_params *p)
{
    const struct linear *l = r->l;
    const uint32_t *size = slice->size;
    uint32_t *spec = pass->key.spec;
    pass->name = "linear attention";
    pass->reason =
        recurrent_is_by_address(r)  ? "in chunks of 64 tokens, on a CPU driver with scalars"
        : recurrent_has_matrices(r) ? "in chunks of 64 tokens, on the device's matrix units"
        : recurrent_is_chunked(r)   ? "in chunks of 64 tokens, the state in shared memory"
                                    : "token by token, the state in registers";
    pass->key.kernel = r->kernel;
    pass->key.n_spec = LINEAR_SPECS;
    spec[LINEAR_LANES] = r->tile.lanes;
    spec[LINEAR_SPLITS] = r->tile.splits;
    spec[LINEAR_FOURS] = r->tile.fours;
    spec[LINEAR_TOKENS] = r->tile.tokens;
    if (recurrent_has_matrices(r)) {
        pass->key.n_spec = LINEAR_COOP_SPECS;
        spec[LINEAR_M] = r->tile.size.m;
        spec[LINEAR_N] = r->tile.size.n;
        spec[LINEAR_K] = r->tile.size.k;
        spec[LINEAR_WIDTH] = 4 * r->tile.columns;
    }
    linear_fill_pass(plan, l, slice, NULL, pass, p);
    p->least = r->least;
    p->most = r->most;
    spec[LINEAR_FLAGS] |= bind_states(plan, r, slice, pass, p);
    pass->groups[0] = divide_up(l->value_dim, 4 * r->tile.columns);
    pass->groups[1] = size[1];
    pass->groups[2] = size[0];
    pass->work = recurrent_work(r, size);
    snprintf(pass->detail, sizeof pass->detail, "%u tokens, %u x %u states of %ux%u, %u splits",
             size[AXIS_TOKEN], size[0], size[1], l->head_dim, l->value_dim, r->tile.splits);
}

/* Without parameters, which always fit. */
static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    struct linear_params p;
    fill_pass(plan, job, slice, pass, &p);
    const struct recurrent *r = job;
    const struct vka_tensor none = placeholder(r->l, slice);
    plan_bind(plan, pass, PARAMETERS, &none, false, NULL);
    if (recurrent_is_chunked(r))
        plan_bind(plan, pass, WEIGHTS, &none, false, NULL);
}

/* Whether eight features of a tensor of 16 bits are an aligned vector. */
static bool has_vectors(const struct vka_tensor *tensor, uint32_t offset)
{
    const struct shape *s = &tensor->shape;
    bool aligned = offset % VECTOR == 0 && s->stride[3] == 1 && s->size[3] % VECTOR == 0;
    for (int i = 0; i < 3; i++)
        aligned &= s->size[i] == 1 || s->stride[i] % VECTOR == 0;
    return aligned;
}

/* Whether rows of a tensor are float32 that a kernel may read by address, in multiples of `whole`. */
static bool has_rows(const struct vka_plan *plan, const struct vka_tensor *tensor, uint32_t whole)
{
    const struct shape *s = &tensor->shape;
    return tensor->dtype == VKA_F32 && s->stride[3] == 1 && s->size[3] % whole == 0 &&
           plan_is_ours(plan, tensor);
}

/* Makes a pass of linear_weights_coop of one of linear_weights. */
static void use_matrices(const struct recurrent *r, const struct linear_params *p,
                         struct pass *pass)
{
    pass->key.kernel = KERNEL_linear_weights_coop;
    pass->key.spec[LINEAR_LANES] = r->tile.lanes;
    pass->key.spec[LINEAR_WIDTH] = 0;
    if (has_vectors(&r->l->q, p->q.offset) && has_vectors(&r->l->k, p->k.offset))
        pass->key.spec[LINEAR_FLAGS] |= LINEAR_VECTORS;
}

/* Adds a pass of linear_weights, from that of linear_chunked. */
static enum vka_status add_weights(struct vka_plan *plan, const struct recurrent *r,
                                   const struct slice *slice, const struct linear_params *p,
                                   const struct pass *states)
{
    const struct vka_tensor none = placeholder(r->l, slice);
    struct pass pass = *states;
    pass.name = "linear attention, within chunks";
    pass.key.kernel = KERNEL_linear_weights;
    pass.key.spec[LINEAR_LANES] = LINEAR_PAIRS;
    pass.key.spec[LINEAR_V_TYPE] = pass.key.spec[LINEAR_Y_TYPE] = VKA_F32;
    pass.key.spec[LINEAR_SKIP_TYPE] = TYPE_NONE;
    pass.key.spec[LINEAR_FLAGS] &= LINEAR_NORMED | LINEAR_SIGMOID | LINEAR_STEPS;
    if (recurrent_has_matrices(r))
        use_matrices(r, p, &pass);
    if (recurrent_is_by_address(r)) {
        pass.key.kernel = KERNEL_linear_weights_address;
        pass.key.spec[LINEAR_LANES] = r->tile.lanes;
        if (has_rows(plan, &r->l->q, 4 * r->tile.fours) &&
            has_rows(plan, &r->l->k, 4 * r->tile.fours))
            pass.key.spec[LINEAR_FLAGS] |= LINEAR_VECTORS;
    }
    for (uint32_t slot = 5; slot <= 7; slot++) /* neither states nor y */
        plan_bind(plan, &pass, slot, &none, false, NULL);
    plan_bind(plan, &pass, WEIGHTS, &r->weights, true, NULL);
    pass.groups[0] = divide_up(slice->size[AXIS_TOKEN], LINEAR_CHUNK);
    return plan_add_pass(plan, &pass);
}

static enum vka_status take_carry(struct vka_plan *plan, const struct recurrent *r)
{
    const uint32_t shape[4] = {r->l->rows.n_sequence, r->l->n_state, r->l->head_dim,
                               r->l->value_dim};
    return plan_scratch(plan, VKA_F32, shape, r->carry);
}

static enum vka_status add_slice(struct vka_plan *plan, const void *job, const struct slice *slice)
{
    const struct recurrent *r = job;
    /* A rate that was measured meanwhile may have cut tokens that make_carry saw uncut. */
    if (slice->size[AXIS_TOKEN] < r->l->n && !r->carry->storage)
        ENSURE(take_carry(plan, r));
    struct pass pass = {0};
    struct linear_params p;
    struct vka_tensor parameters;
    fill_pass(plan, r, slice, &pass, &p);
    if (recurrent_is_chunked(r))
        recurrent_slots(r, slice->size, &p.chunks);
    ENSURE(plan_constant(plan, sizeof p / 4, &p, &parameters));
    plan_bind(plan, &pass, PARAMETERS, &parameters, false, NULL);
    if (recurrent_is_chunked(r)) {
        if (recurrent_is_by_address(r))
            pass.n_address = WEIGHTS + 1;
        ENSURE(add_weights(plan, r, slice, &p, &pass));
        if (recurrent_is_by_address(r) && has_rows(plan, &r->l->v, LINEAR_ADDRESS_VALUES))
            pass.key.spec[LINEAR_FLAGS] |= LINEAR_VECTORS;
        plan_bind(plan, &pass, WEIGHTS, &r->weights, recurrent_is_by_address(r), NULL);
    }
    return plan_add_pass(plan, &pass);
}

/* The limits of the device and of loops cut sequences and tokens, the grid states too; the budget the
 * first that is long enough. */
static int judge(const struct vka_plan *plan, const struct cut *cut, const struct slice *slice)
{
    const struct recurrent *r = cut->job;
    struct pass pass = {0};
    make_pass(plan, r, slice, &pass);
    const bool dense = !r->l->rows.q_start,
               long_span = slice->size[AXIS_TOKEN] > cut->least[AXIS_TOKEN];
    if (recurrent_weights(r, slice->size) > recurrent_most_weights(plan, r))
        return long_span ? AXIS_TOKEN : cut_first_axis(slice, cut->least);
    if (!plan_pass_has_room(plan, &pass)) {
        if (slice->size[0] == 1 && dense && long_span && slice->size[1] <= plan->caps.max_groups[1])
            return AXIS_TOKEN;
        return cut_first_axis(slice, cut->least);
    }
    if (pass.work.loops > budget_max_loops(&plan->caps) && long_span)
        return AXIS_TOKEN;
    return plan_fits(plan, pass.key.kernel, &pass.work) ? CUT_FITS
                                                        : cut_first_axis(slice, cut->multiple);
}

/* Takes memory for the state between passes where tokens are cut and the caller has none. */
static enum vka_status make_carry(struct vka_plan *plan, const struct cut *cut,
                                  const uint32_t size[4], const struct recurrent *r)
{
    struct slice whole = {{0}, {size[0], size[1], size[2], size[3]}};
    *r->carry = r->l->present;
    while (!r->carry->storage) {
        const int axis = judge(plan, cut, &whole);
        if (axis == CUT_FITS)
            return VKA_OK;
        if (axis == AXIS_TOKEN)
            return take_carry(plan, r);
        whole.size[axis] = divide_up(whole.size[axis], 2);
    }
    return VKA_OK;
}

/* Takes memory for the weights of any slice that fits. */
static enum vka_status make_weights(struct vka_plan *plan, const uint32_t size[4],
                                    struct recurrent *r)
{
    const uint64_t bytes = least(recurrent_weights(r, size), recurrent_most_weights(plan, r));
    const uint32_t shape[4] = {1, 1, 1, (uint32_t)(bytes / 4)};
    return plan_scratch(plan, VKA_F32, shape, &r->weights);
}

/* Adds the passes of one kernel. */
static enum vka_status add_family(struct vka_plan *plan, struct recurrent *r)
{
    const struct linear *linear = r->l;
    const uint32_t size[4] = {linear->rows.n_sequence, linear->n_state, linear->n, 1};
    const struct cut cut = {
        .job = r,
        .multiple = {1, 1, recurrent_is_chunked(r) ? SPAN_CHUNKED : SPAN, 1},
        .least = {1, 1, recurrent_is_chunked(r) ? SPAN_CHUNKED : 1, 1},
        .kernel = r->kernel,
        .whole = recurrent_work(r, size),
        .probe = plan_probe_moves,
        .make = make_pass,
        .judge = judge,
        .add = add_slice,
    };
    if (recurrent_is_chunked(r))
        ENSURE(make_weights(plan, size, r));
    ENSURE(make_carry(plan, &cut, size, r));
    return plan_cut(plan, &cut, size);
}

/* Settles the kernels of chunks for CPU drivers; *taken: whether they are right. */
static enum vka_status choose_address(struct vka_plan *plan, struct recurrent *chunked, bool *taken)
{
    const struct linear *l = chunked->l;
    chunked->kernel = KERNEL_linear_chunked_address;
    *taken = tune_chunked_address(&plan->caps, l->head_dim, l->decay_kind, &chunked->tile);
    if (!*taken)
        return VKA_OK;
    ENSURE(plan_settle_kernel(plan, KERNEL_linear_chunked_address));
    ENSURE(plan_settle_kernel(plan, KERNEL_linear_weights_address));
    *taken = !kernel_missing(KERNEL_linear_chunked_address, &plan->caps) &&
             !kernel_missing(KERNEL_linear_weights_address, &plan->caps);
    return VKA_OK;
}

/* Settles the kernels of chunks, and chooses the tile; *taken: whether it fits. On a CPU driver those for
 * GPUs are taken `alone`. */
static enum vka_status choose_tile(struct vka_plan *plan, struct recurrent *chunked, bool alone,
                                   bool *taken)
{
    const struct linear *l = chunked->l;
    const struct caps *caps = &plan->caps;
    ENSURE(choose_address(plan, chunked, taken));
    if (*taken || (!alone && caps->properties.type == VKA_DEVICE_CPU))
        return VKA_OK;
    *taken = tune_chunked_coop(caps, l->q.dtype, l->k.dtype, l->head_dim, l->value_dim,
                               l->decay_kind, &chunked->tile);
    if (*taken) {
        ENSURE(plan_settle_kernel(plan, KERNEL_linear_chunked_coop));
        ENSURE(plan_settle_kernel(plan, KERNEL_linear_weights_coop));
        chunked->kernel = KERNEL_linear_chunked_coop;
        *taken = !kernel_missing(KERNEL_linear_chunked_coop, caps) &&
                 !kernel_missing(KERNEL_linear_weights_coop, caps);
    }
    if (*taken)
        return VKA_OK;
    chunked->kernel = KERNEL_linear_chunked;
    *taken = tune_chunked(caps, l->head_dim, l->value_dim, l->decay_kind, &chunked->tile);
    if (!*taken)
        return VKA_OK;
    ENSURE(plan_settle_kernel(plan, KERNEL_linear_chunked));
    ENSURE(plan_settle_kernel(plan, KERNEL_linear_weights));
    *taken = !kernel_missing(KERNEL_linear_chunked, caps) &&
             !kernel_missing(KERNEL_linear_weights, caps);
    return VKA_OK;
}

/* Whether some sequences may go by chunks, and from how many rows on. Where the other kernel is refused,
 * all do. */
static enum vka_status choose_chunked(struct vka_plan *plan, struct recurrent *chunked, bool *taken)
{
    const struct linear *l = chunked->l;
    const struct caps *caps = &plan->caps;
    const bool alone = kernel_missing(KERNEL_linear_recurrent, caps);
    const uint32_t n = plan->whole_n_q ? plan->whole_n_q : l->n;
    chunked->least = alone ? 0 : LINEAR_CHUNK;
    *taken = n >= chunked->least && linear_group(l) == 1 && (alone || tune_gains_by_chunks(caps));
    return *taken ? choose_tile(plan, chunked, alone, taken) : VKA_OK;
}

enum vka_status plan_recurrent(struct vka_plan *plan, const char *caller, struct linear *linear)
{
    struct vka_tensor carry[2] = {{0}};
    struct recurrent r = {linear, KERNEL_linear_recurrent, .most = UINT32_MAX, .carry = &carry[0]};
    struct recurrent chunked = {linear, KERNEL_linear_chunked, .most = UINT32_MAX,
                                .carry = &carry[1]};
    bool taken;
    ENSURE(choose_chunked(plan, &chunked, &taken));
    const bool all = plan->whole_n_q || state_rows_kind(&linear->rows) == ROWS_DENSE;
    if (taken && all)
        chunked.least = 0;
    if (taken && chunked.least == 0)
        return add_family(plan, &chunked);
    if (taken)
        r.most = chunked.least - 1;
    if (!tune_recurrent(&plan->caps, linear->head_dim, linear->value_dim, linear->decay_kind,
                        &r.tile))
        return log_error(&plan->device->log, VKA_UNSUPPORTED,
                         "%s: head_dim is %u, whose keys do not fit in shared memory", caller,
                         linear->head_dim);
    ENSURE(plan_settle_kernel(plan, KERNEL_linear_recurrent));
    if (kernel_missing(KERNEL_linear_recurrent, &plan->caps)) { /* known now: all by chunks */
        ENSURE(choose_chunked(plan, &chunked, &taken));
        if (taken)
            return add_family(plan, &chunked);
    }
    ENSURE(add_family(plan, &r));
    return taken ? add_family(plan, &chunked) : VKA_OK;
}
