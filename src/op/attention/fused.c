/* Fused attention: the softmax of a row stays in registers, without a buffer of scores. Normalises
 * operands to what the kernel reads. Slices are as large as the device and the budget of a submit
 * allow; key chunks, see vka_attention_op.state, are not sliced. */
#include "op/attention/fused.h"
#include "op/attention/choice.h"
#include "op/attention/cuts.h"
#include "op/attention/pass.h"
#include "op/attention/records.h"
#include "op/attention/unfused.h"
#include "op/cache/hadamard.h"
#include "op/common/copy.h"
#include "op/matmul/matmul.h"

/* Keys of the problem that measures the rate. */
#define PROBE_KEYS 128u

/* Fewest queries whose rows, `group` each, fill whole tiles: so that a cut moves no row within its
 * tile. */
static uint32_t whole_tiles(uint32_t tile, uint32_t group)
{
    uint32_t x = tile, y = group;
    while (y) {
        uint32_t rest = x % y;
        x = y;
        y = rest;
    }
    return tile / x;
}

/* Cuts between batch elements, key heads and whole tiles of rows. */
static void slice_multiples(const struct attention *a, uint32_t multiple[CUT_AXES])
{
    uint32_t group = a->n_head / a->n_kv_head;
    multiple[0] = 1;
    multiple[1] = group;
    multiple[2] = a->n_sequence ? CUT_NEVER : whole_tiles(a->choice.tile, group);
    multiple[3] = CUT_NEVER;
}

/* Bindings alone are cut within a tile: each slice takes the time of a whole one. */
static int judge(const struct vka_plan *plan, const struct cut *cut, const struct slice *slice)
{
    const struct head_slice s = head_slice_of(&(struct head_slice){0}, slice);
    const struct attention *a = cut->job;
    struct attention_cuts cuts;
    if (a->key_chunk)
        return CUT_FITS;
    int axis = cut_first_axis(slice, cut->multiple);
    if (axis != CUT_FITS)
        return attention_cut(plan, a, &s, false, &cuts) ? CUT_FITS : axis;
    return attention_rows_fit(plan, a, &s) ? CUT_FITS : cut_first_axis(slice, cut->least);
}

/* Why the problem cannot take key chunks; NULL where it can. */
static const char *why_not(const struct vka_plan *plan, const struct attention_choice *c)
{
    if (!c->usable)
        return c->reason;
    if (c->n_split > 1 && c->split_keys < TUNE_CHAIN)
        return "with few rows the keys are split over workgroups";
    if (plan->path == VKA_PATH_AUTO && !c->preferred)
        return "attention over all keys would not be fused";
    return NULL;
}

/* Adds the passes for a key chunk. UNSUPPORTED where attention over all keys would not be one chain
 * of fused passes. */
static enum vka_status add_key_chunk(struct vka_plan *plan, const struct attention *given)
{
    struct log *log = &plan->device->log;
    struct attention problem = *given, *a = &problem;
    const struct head_slice all = {.n_batch = a->batch, .n_head = a->n_head, .n_query = a->n_q};
    struct attention_cuts cuts;
    if (why_not(plan, &a->choice))
        return log_error(log, VKA_UNSUPPORTED, "key chunks are not supported here: %s",
                         why_not(plan, &a->choice));
    uint64_t count = attention_count_state(a, &all);
    ENSURE_ARG(a->state->shape.size[0] >= count,
               "vka_plan_add_attention: state has %u elements, but needs %llu",
               a->state->shape.size[0], (unsigned long long)count);
    a->choice.map = false; /* each key chunk would make the map of all keys */
    attention_cut(plan, a, &all, true, &cuts);
    return attention_add_passes(plan, a, &all, &cuts);
}

static enum vka_status add_slice(struct vka_plan *plan, const void *job, const struct slice *slice)
{
    const struct attention *a = job;
    const struct head_slice s = head_slice_of(&(struct head_slice){0}, slice);
    struct attention_cuts cuts;
    uint32_t multiple[CUT_AXES];
    if (a->key_chunk)
        return add_key_chunk(plan, a);
    slice_multiples(a, multiple);
    attention_cut(plan, a, &s, cut_first_axis(slice, multiple) == CUT_FITS, &cuts);
    return attention_add_passes(plan, a, &s, &cuts); /* reports what does not fit */
}

/* Scratch with rows padded to whole vec4, as kernels that read texels need. */
static enum vka_status padded_scratch(struct vka_plan *plan, enum vka_dtype dtype,
                                      const uint32_t size[4], struct vka_tensor *tensor)
{
    const uint32_t padded[4] = {size[0], size[1], size[2], divide_up(size[3], 4) * 4};
    enum vka_status status = plan_scratch(plan, dtype, padded, tensor);
    tensor->shape.size[3] = size[3];
    return status;
}

static enum vka_status add_slices(struct vka_plan *plan, const struct attention *a);

/* Adds a small problem that measures the rate: one tile of each of n batch elements, which share
 * all inputs. */
static enum vka_status add_probe(struct vka_plan *plan, const void *problem, uint32_t n)
{
    const struct attention *a = problem;
    const struct vka_attention_options options = {.masked_row = VKA_MASKED_ZERO};
    uint32_t group = a->n_head / a->n_kv_head;
    struct attention b = {
        .n_head = group,
        .n_kv_head = 1,
        .n_q = divide_up(a->choice.tile, group),
        .n_kv = PROBE_KEYS,
        .head_dim = a->head_dim,
        .value_dim = a->value_dim,
        .scale = a->scale,
        .options = &options,
        .choice = a->choice,
    };
    b.batch = calibrate_groups(plan, 4ull * b.n_q * group * divide_up(b.value_dim, 4) * 4, n);
    b.choice.n_split = 1;
    b.choice.split_keys = 0;
    b.choice.map = false;
    const struct {
        struct vka_tensor *tensor;
        enum vka_dtype dtype;
        uint32_t size[4];
    } operands[] = {
        {&b.q, a->q.dtype, {1, group, b.n_q, b.head_dim}},
        {&b.k, a->k.dtype, {1, 1, b.n_kv, b.head_dim}},
        {&b.v, a->v.dtype, {1, 1, b.n_kv, b.value_dim}},
        {&b.output, a->output.dtype, {b.batch, group, b.n_q, b.value_dim}},
    };
    for (size_t i = 0; i < COUNTOF(operands); i++) {
        struct shape *shape = &operands[i].tensor->shape;
        ENSURE(padded_scratch(plan, operands[i].dtype, operands[i].size, operands[i].tensor));
        shape->stride[0] = operands[i].size[0] == 1 ? 0 : shape->stride[0];
        shape->size[0] = b.batch;
    }
    return add_slices(plan, &b);
}

/* Adds the whole problem, in slices that fit. Its operands are as the kernel wants them. */
static enum vka_status add_slices(struct vka_plan *plan, const struct attention *a)
{
    const struct head_slice all = {.n_batch = a->batch, .n_head = a->n_head, .n_query = a->n_q};
    struct cut cut = {
        .job = a,
        .kernel = a->choice.kernel,
        .whole = attention_work(a, &all, attention_tiles(a, &all), (struct key_range){0, a->n_kv}),
        .probe = add_probe,
        .judge = judge,
        .add = add_slice,
    };
    slice_multiples(a, cut.multiple);
    slice_multiples(a, cut.least);
    cut.least[2] = a->n_sequence ? CUT_NEVER : 1;
    return plan_cut(plan, &cut, (const uint32_t[]){a->batch, a->n_head, a->n_q, 1});
}

/* Whether each head fits a binding. */
static bool head_fits(const struct vka_plan *plan, const struct vka_tensor *t)
{
    struct vka_tensor one = tensor_slice_along(t, 0, 0, 1);
    one = tensor_slice_along(&one, 1, 0, 1);
    return plan_range(plan, &one) <= plan->caps.properties.max_buffer_range;
}

/* Replaces *t by a copy in scratch, with rows padded to multiples of `multiple`. */
static enum vka_status pack(struct vka_plan *plan, enum vka_dtype dtype, uint32_t multiple,
                            struct vka_tensor *t)
{
    const uint32_t *size = t->shape.size;
    const uint32_t padded[] = {size[0], size[1], size[2], divide_up(size[3], multiple) * multiple};
    struct vka_tensor copy;
    ENSURE(plan_scratch(plan, dtype, padded, &copy));
    copy.shape.size[3] = size[3];
    ENSURE(plan_copy(plan, "pack", t, &copy));
    *t = copy;
    return VKA_OK;
}

enum vka_status attention_join_rows(struct vka_plan *plan, struct vka_tensor *t, bool whole)
{
    bool contiguous = t->shape.size[3] == 1 || t->shape.stride[3] == 1;
    bool close = t->shape.size[2] == 1 || t->shape.stride[2] == t->shape.size[3];
    if (contiguous && (!whole || close || head_fits(plan, t)))
        return VKA_OK;
    return pack(plan, t->dtype, 1, t);
}

/* Makes rows readable as texels, which are whole vec4. */
static enum vka_status with_texels(struct vka_plan *plan, struct vka_tensor *t)
{
    if (t->dtype == VKA_F32 && attention_rows_begin(t, 4) && plan_is_ours(plan, t))
        return VKA_OK;
    return pack(plan, VKA_F32, 4, t);
}

/* Makes rows readable by address. By a copy, not another kernel: another one gives other bits, and
 * bits must not depend on where operands lie. */
static enum vka_status with_address(struct vka_plan *plan, struct vka_tensor *t)
{
    if (attention_rows_of(t, 4) && plan_is_ours(plan, t))
        return VKA_OK;
    return pack(plan, t->dtype, 1, t);
}

/* Tiles of a kernel that was chosen for other types than the operands' would give wrong results. */
static enum vka_status check_types(const struct vka_plan *plan, const struct attention *a)
{
    const struct attention_choice *c = &a->choice;
    const struct attention_operands o = attention_operands_of(a);
    if (c->q_type == o.q_type && c->k_type == o.k_type && c->v_type == o.v_type &&
        c->o_type == o.o_type)
        return VKA_OK;
    return log_error(&plan->device->log, VKA_INTERNAL,
                     "attention: the kernel %s was chosen for other types",
                     kernel_table[c->kernel].name);
}

enum vka_status plan_attention_fused(struct vka_plan *plan, const struct attention *a)
{
    enum kernel kernel = a->choice.kernel;
    struct attention b = *a;
    if (!a->choice.usable)
        return log_error(&plan->device->log, VKA_UNSUPPORTED,
                         "fused attention is not supported here: the kernel %s %s",
                         kernel_table[kernel].name, a->choice.reason);
    ENSURE(check_types(plan, a));
    ENSURE(attention_join_rows(plan, &b.q, false));
    ENSURE(attention_join_rows(plan, &b.k, !a->paged));
    ENSURE(attention_join_rows(plan, &b.v, !a->paged));
    if (kernel == KERNEL_attention_texel) {
        ENSURE(with_texels(plan, &b.k));
        ENSURE(with_texels(plan, &b.v));
    }
    if (kernel_table[kernel].needs & NEED_ADDRESS) {
        ENSURE(with_address(plan, &b.q));
        ENSURE(with_address(plan, &b.k));
        ENSURE(with_address(plan, &b.v));
    }
    bool scattered =
        attention_is_last(a) && b.output.shape.size[3] != 1 && b.output.shape.stride[3] != 1;
    if (scattered)
        ENSURE(plan_scratch(plan, a->output.dtype, a->output.shape.size, &b.output));
    ENSURE(add_slices(plan, &b));
    if (scattered && a->n_sequence) /* leaves rows outside all sequences as they are */
        ENSURE(plan_hadamard(plan, "unpack", 1, a->q_start, &b.output, &a->output));
    else if (scattered)
        ENSURE(plan_copy(plan, "unpack", &b.output, &a->output));
    if (!a->options->scores)
        return VKA_OK;
    struct vka_attention_options scores_alone = *a->options;
    scores_alone.log_sum_exp = NULL;
    b = *a;
    b.options = &scores_alone;
    return plan_attention_unfused(plan, &b, false);
}

enum vka_status vka_plan_attention_state(struct vka_plan *plan, const struct vka_attention_op *op,
                                         uint64_t *count)
{
    if (!plan)
        return VKA_INVALID;
    struct log *log = &plan->device->log;
    struct vka_attention_op without = op ? *op : (struct vka_attention_op){0};
    struct cache_use use;
    struct attention a;
    ENSURE_ARG(count, "%s: count is NULL", __func__);
    *count = 0;
    without.state = NULL;
    ENSURE(attention_check(plan, __func__, op ? &without : NULL, &use, &a));
    ENSURE_ARG(op->n_key, "%s: n_key is 0", __func__);
    ENSURE(attention_choose(plan, &a, &(struct attention_inputs){.new_k = op->k, .new_v = op->v}));
    const struct head_slice all = {.n_batch = a.batch, .n_head = a.n_head, .n_query = a.n_q};
    *count =
        op->options.exact_softmax || why_not(plan, &a.choice) ? 0 : attention_count_state(&a, &all);
    return VKA_OK;
}
