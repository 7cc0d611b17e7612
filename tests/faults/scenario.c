#include "../patience.h"
#include "driver.h"
#include "scenario.h"

#include <gpu/device.h>
#include <vkattn/vkattn_vulkan.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENSORS 24 /* of SCENARIO_BUILT */

enum { BATCH = 2, ROWS = 5, HEADS = 2, HEAD_DIM = 8, WIDTH = 16, CAPACITY = 32, PAGE = 16 };

_Static_assert(BATCH *ROWS *WIDTH == SCENARIO_FLOATS, "what callers have room for");

struct objects {
    struct vka_device *device;
    struct vka_layer *layer;
    struct vka_cache *cache;
    struct vka_tensor *x, *y, *view;
    struct vka_tensor *tensor[TENSORS];
    size_t n_tensor;
    struct vka_plan *plan;
    uint64_t ticket;
    bool finished; /* the plan */
    void *blob;
};

/* The log of all failures; the first is kept. */
static void listen(void *user, enum vka_log_level level, const char *message)
{
    struct scenario *s = user;
    if (level == VKA_LOG_ERROR && !s->error[0])
        snprintf(s->error, sizeof s->error, "%s", message);
}

static bool failed(struct scenario *s, const char *call, enum vka_status status)
{
    if (status == VKA_OK)
        return false;
    if (s->n_failure < SCENARIO_MAX_FAILURES) {
        s->failures[s->n_failure] = status;
        s->calls[s->n_failure] = call;
    }
    s->n_failure++;
    return true;
}

/* A failure leaves everything as it was: the same call again must do. */
#define STEP(call)                                                \
    do {                                                          \
        if (failed(s, #call, (call)) && failed(s, #call, (call))) \
            return false;                                         \
    } while (0)

/* Any numbers, the same each time. */
static void fill(float *values, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)((i * 37 + seed * 101) % 64) / 64 - 0.5f;
}

static bool make_device(enum scenario_kind kind, struct scenario *s, struct objects *o)
{
    bool staged = kind == SCENARIO_STAGED;
    STEP(vka_device_create(VKA_INFO(vka_device_info, .log = listen, .log_user = s,
                                    .skip_self_test = kind != SCENARIO_TESTED,
                                    .no_mapped_memory = staged, .no_timeline = staged),
                           &o->device));
    for (int i = 0; i < KERNEL_COUNT;
         i++) /* measuring them takes calls that differ from run to run */
        o->device->rates.of[i] = (struct rate){1, 1};
    return true;
}

/* This and the next three make what is not there yet. */
static bool make_layer(struct scenario *s, struct objects *o)
{
    if (o->layer)
        return true;
    static float weight[4][WIDTH * WIDTH], bias[4][WIDTH];
    for (unsigned i = 0; i < 4; i++) {
        fill(weight[i], WIDTH * WIDTH, i);
        fill(bias[i], WIDTH, i + 4);
    }
    STEP(vka_layer_create(o->device,
                          VKA_INFO(vka_layer_info, .n_head = HEADS, .head_dim = HEAD_DIM,
                                   .keep_weights = true, .query_dim = WIDTH, .output_dim = WIDTH,
                                   .query = {weight[0], bias[0]}, .key = {weight[1], bias[1]},
                                   .value = {weight[2], bias[2]}, .output = {weight[3], bias[3]}),
                          &o->layer));
    return true;
}

static bool make_tensors(enum scenario_kind kind, struct scenario *s, struct objects *o)
{
    const uint32_t shape[] = {BATCH, ROWS, WIDTH};
    float x[SCENARIO_FLOATS];
    fill(x, SCENARIO_FLOATS, 9);
    if (!o->x)
        STEP(vka_tensor_create(o->device, VKA_F32, 3, shape, &o->x));
    if (!o->y)
        STEP(vka_tensor_create(o->device, VKA_F32, 3, shape, &o->y));
    if (!o->view)
        STEP(vka_tensor_reshape(o->x, 3, shape, &o->view));
    STEP(vka_tensor_write(o->view, x, sizeof x));
    if (kind == SCENARIO_MAPPED && !o->cache)
        STEP(vka_cache_create(o->device,
                              VKA_INFO(vka_cache_info, .batch = BATCH, .n_kv_head = HEADS,
                                       .head_dim = HEAD_DIM, .capacity = CAPACITY,
                                       .page_size = PAGE, .n_page = 2 * BATCH),
                              &o->cache));
    return true;
}

static bool make_plan(enum scenario_kind kind, struct scenario *s, struct objects *o)
{
    bool mapped = kind == SCENARIO_MAPPED;
    if (o->finished)
        return true;
    vka_plan_destroy(&o->plan);
    STEP(vka_plan_create(o->device,
                         VKA_INFO(vka_plan_info, .timestamps = mapped,
                                  .submit_budget = kind == SCENARIO_CUT ? 100000 : 0,
                                  .path = mapped ? VKA_PATH_FUSED : VKA_PATH_UNFUSED),
                         &o->plan));
    STEP(vka_plan_add_layer(o->plan,
                            VKA_INFO(vka_layer_op, .layer = o->layer, .query = o->view,
                                     .output = o->y, .cache = o->cache,
                                     .attention.rope.dim = HEAD_DIM, .attention.causal = true)));
    STEP(vka_plan_finish(o->plan));
    o->finished = true;
    return true;
}

static bool use_plan(struct scenario *s, struct objects *o)
{
    STEP(vka_plan_submit(o->plan, &o->ticket));
    STEP(vka_plan_wait(o->plan, o->ticket, PATIENCE));
    if (o->cache) {
        if (driver_computes()) /* lengths, too */
            STEP(vka_cache_truncate(o->cache, 1, 3));
        STEP(vka_cache_fork(o->cache, 0, 1));
        STEP(vka_cache_truncate(o->cache, 0, 0));
        STEP(vka_cache_truncate(o->cache, 1, 0));
    }
    STEP(vka_plan_submit(o->plan, &o->ticket)); /* not vka_plan_run: again is not twice */
    STEP(vka_plan_wait(o->plan, o->ticket, PATIENCE));
    STEP(vka_tensor_read(o->y, s->output, sizeof s->output));
    if (!driver_computes())
        memset(s->output, 0, sizeof s->output); /* what the memory held */
    return true;
}

static bool get_cache(struct scenario *s, struct objects *o)
{
    size_t size = 0;
    STEP(vka_device_pipeline_cache(o->device, NULL, &size));
    o->blob = realloc(o->blob, size ? size : 1);
    if (o->blob)
        STEP(vka_device_pipeline_cache(o->device, o->blob, &size));
    return true;
}

static bool run(enum scenario_kind kind, struct scenario *s, struct objects *o)
{
    return make_layer(s, o) && make_tensors(kind, s, o) && make_plan(kind, s, o) &&
           use_plan(s, o) && get_cache(s, o);
}

/* ---- Plans that are not run ------------------------------------------------------------------ */

/* The next tensor; its memory is the host's where the device can take that. */
static bool add_tensor(struct scenario *s, struct objects *o, enum vka_dtype dtype, uint32_t rank,
                       const uint32_t *shape, bool import)
{
    enum { HOST_SIZE = 65536 };
    static unsigned char room[2 * HOST_SIZE]; /* COFF aligns no variable to more than 8192 */
    unsigned char *host = room + (HOST_SIZE - (uintptr_t)room % HOST_SIZE) % HOST_SIZE;
    size_t alignment = vka_device_host_alignment(o->device);
    struct vka_tensor **slot = &o->tensor[o->n_tensor++];
    if (import && alignment && alignment <= HOST_SIZE)
        STEP(vka_tensor_import(o->device, host, HOST_SIZE, dtype, rank, shape, slot));
    else
        STEP(vka_tensor_create(o->device, dtype, rank, shape, slot));
    return true;
}

#define TENSOR(dtype, import, ...)                                                            \
    add_tensor(s, o, dtype, sizeof((uint32_t[]){__VA_ARGS__}) / 4, (uint32_t[]){__VA_ARGS__}, \
               import)

/* Makes a view of a tensor. */
static bool add_view(struct scenario *s, struct objects *o, struct vka_tensor *tensor,
                     const uint32_t *axes, struct vka_tensor **view)
{
    struct vka_tensor **slot = &o->tensor[o->n_tensor++];
    STEP(vka_tensor_permute(tensor, axes, slot));
    *view = *slot;
    return true;
}

/* Odd widths, 16-bit keys, heads that do not lie in a row: copies before and behind. */
static bool make_operands(struct scenario *s, struct objects *o, struct vka_attention_op *op)
{
    *op = (struct vka_attention_op){.struct_size = sizeof *op};
    struct vka_attention_options *options = &op->options;
    const struct {
        struct vka_tensor **to;
        enum vka_dtype dtype;
        uint32_t rank, shape[VKA_MAX_RANK];
    } rows[] = {
        {&op->q, VKA_F32, 4, {2, 3, 4, 7}},
        {&op->k, VKA_F16, 4, {2, 2, 5, 7}},
        {&op->v, VKA_F32, 4, {2, 2, 5, 6}},
        {&op->output, VKA_F32, 4, {2, 3, 4, 6}},
        {&op->past_key, VKA_F16, 4, {2, 2, 4, 7}},
        {&op->past_value, VKA_F32, 4, {2, 2, 4, 6}},
        {&op->present_key, VKA_F16, 4, {2, 2, 9, 7}},
        {&op->present_value, VKA_F32, 4, {2, 2, 9, 6}},
        {&options->mask, VKA_BOOL, 2, {3, 9}},
        {&options->scores, VKA_F32, 4, {2, 4, 3, 9}},
        {&options->log_sum_exp, VKA_F32, 3, {2, 4, 3}},
        {&options->q_norm, VKA_F32, 1, {7}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!add_tensor(s, o, rows[i].dtype, rows[i].rank, rows[i].shape, i == 0))
            return false;
        *rows[i].to = o->tensor[o->n_tensor - 1];
    }
    struct vka_tensor **const rowwise[] = {&op->q, &op->output};
    for (size_t i = 0; i < 2; i++)
        if (!add_view(s, o, *rowwise[i], (const uint32_t[]){0, 2, 1, 3}, rowwise[i]))
            return false;
    options->scores_kind = VKA_SCORES_BIAS;
    options->rope.dim = 4;
    options->causal = true;
    return true;
}

/* A product whose second operand is to be packed, and a ragged batch, on the fused path alone. */
static bool add_others(struct scenario *s, struct objects *o, bool ragged)
{
    struct vka_tensor **t = &o->tensor[o->n_tensor], *weight;
    if (!TENSOR(VKA_F32, false, 33, 5) || !TENSOR(VKA_F32, false, 5, 40) ||
        !TENSOR(VKA_F32, false, 33, 40) || !TENSOR(VKA_F32, false, 1, 2, 6, 8) ||
        !TENSOR(VKA_F32, false, 1, 2, 6, 8) || !TENSOR(VKA_I32, false, 3) ||
        !add_view(s, o, t[1], (const uint32_t[]){1, 0}, &weight))
        return false;
    STEP(vka_plan_add_linear(
        o->plan, VKA_INFO(vka_linear_op, .input = t[0], .weight = weight, .output = t[2])));
    if (ragged)
        STEP(vka_plan_add_attention(o->plan,
                                    VKA_INFO(vka_attention_op, .q = t[3], .k = t[3], .v = t[3],
                                             .output = t[4], .q_start = t[5], .kv_start = t[5])));
    return true;
}

static void drop_tensors(struct objects *o)
{
    while (o->n_tensor > 0)
        vka_tensor_destroy(&o->tensor[--o->n_tensor]);
}

/* On each path; the unfused one in slices. */
static bool build(struct scenario *s, struct objects *o)
{
    static const enum vka_path paths[] = {VKA_PATH_FUSED, VKA_PATH_UNFUSED};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct vka_attention_op op;
        STEP(vka_plan_create(o->device,
                             VKA_INFO(vka_plan_info, .path = paths[i], .workspace_limit = 256),
                             &o->plan));
        if (!make_operands(s, o, &op))
            return false;
        STEP(vka_plan_add_attention(o->plan, &op));
        if (!add_others(s, o, paths[i] == VKA_PATH_FUSED))
            return false;
        STEP(vka_plan_finish(o->plan));
        vka_plan_destroy(&o->plan);
        drop_tensors(o);
    }
    return true;
}

static bool recover(struct scenario *s, struct objects *o, void (*before)(void))
{
    if (before)
        before();
    STEP(vka_device_recover(o->device));
    return true;
}

static void run_all(enum scenario_kind kind, struct scenario *s, bool recovering,
                    void (*before)(void))
{
    struct objects o = {0};
    memset(s, 0, sizeof *s);
    s->complete =
        make_device(kind, s, &o) && (kind == SCENARIO_BUILT ? build(s, &o) : run(kind, s, &o));
    if (recovering && o.device && !s->complete)
        s->complete = recover(s, &o, before) && run(kind, s, &o);
    free(o.blob);
    vka_plan_destroy(&o.plan);
    vka_cache_destroy(&o.cache);
    vka_layer_destroy(&o.layer);
    drop_tensors(&o);
    vka_tensor_destroy(&o.view);
    vka_tensor_destroy(&o.x);
    vka_tensor_destroy(&o.y);
    vka_device_destroy(&o.device);
}

void scenario_run(enum scenario_kind kind, struct scenario *scenario)
{
    run_all(kind, scenario, false, NULL);
}

void scenario_run_recovering(enum scenario_kind kind, struct scenario *scenario,
                             void (*before_recovery)(void))
{
    run_all(kind, scenario, true, before_recovery);
}
