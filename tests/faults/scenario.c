#include "scenario.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, ROWS = 5, HEADS = 2, HEAD_DIM = 8, WIDTH = 16, CAPACITY = 32, BLOCK = 16 };

_Static_assert(BATCH *ROWS *WIDTH == SCENARIO_FLOATS, "what callers have room for");

struct objects {
    struct vka_device *device;
    struct vka_layer *layer;
    struct vka_cache *cache;
    struct vka_tensor *x, *y, *view;
    struct vka_plan *plan;
    uint64_t ticket;
    bool finished; /* the plan */
    void *blob;
};

/* No threads of the library's own, so that calls come in the same order each time: it does without,
 * as where a process may have no more. */
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
    (void)thread;
    (void)attributes;
    (void)run;
    (void)argument;
    return EAGAIN;
}

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
                                    .no_mapped_memory = staged, .no_timeline = staged),
                           &o->device));
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
                                       .block_size = BLOCK, .n_block = 2 * BATCH),
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
    STEP(vka_plan_wait(o->plan, o->ticket, VKA_TIMEOUT_DEFAULT));
    if (o->cache) {
        STEP(vka_cache_truncate(o->cache, 1, 3));
        STEP(vka_cache_fork(o->cache, 0, 1));
        STEP(vka_cache_truncate(o->cache, 0, 0));
        STEP(vka_cache_truncate(o->cache, 1, 0));
    }
    STEP(vka_plan_submit(o->plan, &o->ticket)); /* not vka_plan_run: again is not twice */
    STEP(vka_plan_wait(o->plan, o->ticket, VKA_TIMEOUT_DEFAULT));
    STEP(vka_tensor_read(o->y, s->output, sizeof s->output));
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
    s->complete = make_device(kind, s, &o) && run(kind, s, &o);
    if (recovering && o.device && !s->complete)
        s->complete = recover(s, &o, before) && run(kind, s, &o);
    free(o.blob);
    vka_plan_destroy(&o.plan);
    vka_cache_destroy(&o.cache);
    vka_layer_destroy(&o.layer);
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
