/* Random operations on two caches against a model: runs of several plans in flight, some recorded
 * into command buffers of the application, what the host does between, what is refused, and losses
 * of the device. Lengths, tables, statuses, rows and contexts are as the model says.
 *
 *     test_gpu cache_model [--seed N] [--steps N] */
#include <core/convert.h>
#include <op/cache/cache.h>
#include <op/cache/pages.h>

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "patience.h"
#include "cache_case.h"
#include "cache_model.h"
#include "test_program.h"
#include "problems/types.h"

#define SKIPPED 77
#define EPISODE 250u /* steps with the same caches */
#define CACHES 2u
#define PLANS 4u
#define REMEMBERED 64u /* submits that are still waited for, at random */
#define MOST_NEW 16u
#define MOST_CAPACITY 70u

/* A plan, and what its last run should have given. */
struct writer {
    struct appender a;
    uint32_t caches;  /* a bit for each */
    uint32_t feed;    /* number of its inputs; 0: not written */
    bool has_context; /* of the last run: NAN where not known */
    float context[MODEL_BATCH][CACHE_HEADS][MOST_NEW][CACHE_VALUE];
};

struct submitted {
    uint64_t ticket;
    struct writer *writer; /* NULL: nothing is remembered here */
    uint32_t full[CACHES]; /* sequences without room, as far as not forgotten */
    bool lost;
};

struct world {
    struct vka_device *device;
    struct rng rng;
    uint64_t seed;
    unsigned long step;
    struct vka_cache *cache[CACHES];
    struct model model[CACHES];
    struct writer writers[PLANS];
    struct submitted submitted[REMEMBERED];
    uint32_t feeds;
    VkCommandPool pool; /* of the application; NULL: none in flight */
};

static void require(const struct world *w, bool ok, const char *what)
{
    if (ok)
        return;
    printf("FAIL seed %llu, step %lu: %s (%s)\n", (unsigned long long)w->seed, w->step, what,
           vka_device_error(w->device));
    exit(1);
}

static void check(const struct world *w, enum vka_status status)
{
    require(w, status == VKA_OK, vka_status_name(status));
}

/* ---- contents -------------------------------------------------------------------------------- */

/* Multiples of 1/8, exact in every type. what: 0 key, 1 value, 2 and on the query of a head. */
static float value(uint32_t row, uint32_t what, uint32_t column)
{
    uint32_t mixed = ((row * 8 + what) * 8 + column) * 2654435761u;
    mixed = (mixed ^ mixed >> 15) * 2246822519u;
    return (float)(mixed >> 28) / 8 - 1;
}

static uint32_t row_of(const struct writer *r, uint32_t b, uint32_t i)
{
    return (r->feed * MODEL_BATCH + b) * MOST_NEW + i;
}

static void write_input(struct world *w, const struct writer *r, struct vka_tensor *t,
                        uint32_t what, uint32_t heads)
{
    static float x[MODEL_BATCH * CACHE_HEADS * MOST_NEW * CACHE_DIM];
    uint32_t dim = vka_tensor_shape(t, 3), n = r->a.n_new, batch = vka_tensor_shape(t, 0);
    for (uint32_t i = 0; i < batch * heads * n * dim; i++) {
        uint32_t row = i / dim % n, head = i / dim / n % heads, b = i / dim / n / heads;
        x[i] = value(row_of(r, b, row), what + head, i % dim);
    }
    check(w, vka_tensor_write(t, x, vka_tensor_size(t)));
}

static void feed(struct world *w, struct writer *r)
{
    r->feed = ++w->feeds;
    write_input(w, r, r->a.q, 2, CACHE_HEADS);
    write_input(w, r, r->a.k, 0, 1);
    write_input(w, r, r->a.v, 1, 1);
}

/* The context of a query that sees so many keys; NAN where one of them is not known. */
static void attend(const struct model *m, uint32_t b, uint32_t query, uint32_t head, uint32_t n_key,
                   float context[CACHE_VALUE])
{
    double sum = 0, acc[CACHE_VALUE] = {0};
    for (uint32_t j = 0; j < n_key; j++) {
        uint32_t row = m->row[model_place(m, b, j)];
        double score = 0;
        for (uint32_t c = 0; c < CACHE_DIM; c++)
            score += (double)(value(query, 2 + head, c) * value(row, 0, c));
        double weight = row ? exp(score / sqrt(CACHE_DIM)) : (double)NAN;
        sum += weight;
        for (uint32_t c = 0; c < CACHE_VALUE; c++)
            acc[c] += weight * (double)value(row, 1, c);
    }
    for (uint32_t c = 0; c < CACHE_VALUE; c++)
        context[c] = (float)(acc[c] / sum);
}

/* What a run does to the models; its context is that of the first of its caches. */
static void model_run(struct world *w, struct writer *r, uint32_t full[CACHES])
{
    uint32_t n = r->a.n_new, of = r->caches & 1 ? 0 : 1;
    for (uint32_t c = 0; c < CACHES; c++)
        full[c] = r->caches >> c & 1 ? model_append(&w->model[c], n, row_of(r, 0, 0), MOST_NEW) : 0;
    const struct model *m = &w->model[of];
    r->has_context = true;
    for (uint32_t b = 0; b < m->batch; b++)
        for (uint32_t h = 0; h < CACHE_HEADS; h++)
            for (uint32_t i = 0; i < n; i++) {
                float *context = r->context[b][h][i];
                if (full[of] >> b & 1)
                    context[0] = context[1] = context[2] = NAN;
                else
                    attend(m, b, row_of(r, b, i), h, m->length[b] - n + i + 1, context);
            }
}

/* ---- what is compared ------------------------------------------------------------------------ */

/* The application waits for its own submits before vkattn's functions for caches and tensors. */
static void settle(struct world *w)
{
    if (!w->pool)
        return;
    struct vka_device *d = w->device;
    require(w, d->vk.vkQueueWaitIdle(d->queue.handle) == VK_SUCCESS, "vkQueueWaitIdle");
    d->vk.vkDestroyCommandPool(d->handle, w->pool, NULL);
    w->pool = VK_NULL_HANDLE;
}

static void compare_rows(struct world *w, uint32_t c, struct vka_tensor *t, uint32_t what)
{
    const struct model *m = &w->model[c];
    uint32_t n = vka_tensor_shape(t, 0) * vka_tensor_shape(t, 2), dim = vka_tensor_shape(t, 3);
    void *data = malloc(vka_tensor_size(t));
    require(w, data && n <= MODEL_ROWS, "room for rows");
    check(w, vka_tensor_read(t, data, vka_tensor_size(t)));
    for (uint32_t i = 0; i < n * dim; i++)
        require(w,
                !m->row[i / dim] || dtype_to_float(data, i, t->dtype) ==
                                        (double)value(m->row[i / dim], what, i % dim),
                "another row");
    free(data);
}

static void compare_cache(struct world *w, uint32_t c)
{
    const struct model *m = &w->model[c];
    struct vka_cache *cache = w->cache[c];
    const uint32_t *table = m->page_size ? cache_table_words(cache) : NULL;
    for (uint32_t b = 0; b < m->batch; b++) {
        uint32_t length = 0;
        check(w, vka_cache_length(cache, b, &length));
        require(w, length == m->length[b], "another length");
        for (uint32_t p = 0; p < m->table_row; p++)
            require(w, table[b * m->table_row + p] == m->table[b][p], "another page");
    }
    for (uint32_t i = 0; i < m->n_page; i++)
        require(w, cache->uses[i] == model_uses(m, i), "another count of uses");
    compare_rows(w, c, &cache->layers[0].k.rows, 0);
    compare_rows(w, c, &cache->layers[0].v.rows, 1);
}

static void compare_context(struct world *w, const struct writer *r)
{
    static float o[MODEL_BATCH * CACHE_HEADS * MOST_NEW * CACHE_VALUE];
    uint32_t n = r->a.n_new;
    if (!r->has_context)
        return;
    check(w, vka_tensor_read(r->a.o, o, vka_tensor_size(r->a.o)));
    for (uint32_t i = 0; i < vka_tensor_count(r->a.o); i++) {
        uint32_t row = i / CACHE_VALUE;
        float want =
            r->context[row / n / CACHE_HEADS][row / n % CACHE_HEADS][row % n][i % CACHE_VALUE];
        require(w, isnan(want) || fabsf(o[i] - want) <= 1e-5f, "another context");
    }
}

static void compare_all(struct world *w)
{
    settle(w);
    for (uint32_t c = 0; c < CACHES; c++)
        compare_cache(w, c);
    for (uint32_t i = 0; i < PLANS; i++)
        compare_context(w, &w->writers[i]);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static struct writer *any_writer(struct world *w)
{
    struct writer *r = &w->writers[rng_range(&w->rng, 0, PLANS - 1)];
    if (!r->feed || rng_chance(&w->rng, 8)) {
        settle(w);
        feed(w, r);
    }
    return r;
}

static void submit(struct world *w)
{
    struct submitted *s = &w->submitted[rng_range(&w->rng, 0, REMEMBERED - 1)];
    *s = (struct submitted){.writer = any_writer(w)};
    check(w, vka_plan_submit(s->writer->a.plan, &s->ticket));
    model_run(w, s->writer, s->full);
}

static void record(struct world *w)
{
    struct vka_device *d = w->device;
    struct writer *r = any_writer(w);
    VkCommandBuffer commands = VK_NULL_HANDLE;
    uint32_t full[CACHES];
    bool ok = w->pool ||
              d->vk.vkCreateCommandPool(d->handle,
                                        &(VkCommandPoolCreateInfo){
                                            .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                            .queueFamilyIndex = d->queue_family,
                                        },
                                        NULL, &w->pool) == VK_SUCCESS;
    ok = ok &&
         d->vk.vkAllocateCommandBuffers(d->handle,
                                        &(VkCommandBufferAllocateInfo){
                                            .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                            .commandPool = w->pool,
                                            .commandBufferCount = 1,
                                        },
                                        &commands) == VK_SUCCESS;
    ok = ok &&
         d->vk.vkBeginCommandBuffer(
             commands, &(VkCommandBufferBeginInfo){
                           .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO}) == VK_SUCCESS;
    require(w, ok, "command buffer");
    check(w, vka_plan_record(r->a.plan, commands));
    ok = d->vk.vkEndCommandBuffer(commands) == VK_SUCCESS &&
         d->vk.vkQueueSubmit(d->queue.handle, 1,
                             &(VkSubmitInfo){.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                             .commandBufferCount = 1,
                                             .pCommandBuffers = &commands},
                             VK_NULL_HANDLE) == VK_SUCCESS;
    require(w, ok, "vkQueueSubmit");
    model_run(w, r, full);
}

/* The last cache of a plan's is the one that tells first, of its first sequence. */
static void expect(struct world *w, const struct submitted *s)
{
    enum vka_status want = s->lost ? VKA_DEVICE_LOST : VKA_OK;
    char words[64] = "";
    for (uint32_t c = 0; c < CACHES && !s->lost; c++)
        for (uint32_t b = MODEL_BATCH; b-- > 0;)
            if (s->full[c] >> b & 1) {
                want = VKA_INVALID;
                snprintf(words, sizeof words, "the cache is full: sequence %u holds ", b);
            }
    enum vka_status got = vka_plan_wait(s->writer->a.plan, s->ticket, PATIENCE);
    require(w, got == want, vka_status_name(got));
    if (want == VKA_INVALID)
        require(w, strstr(vka_device_error(w->device), words), words);
}

static void wait_for_some(struct world *w)
{
    for (uint32_t n = rng_range(&w->rng, 1, REMEMBERED); n-- > 0;) {
        const struct submitted *s = &w->submitted[rng_range(&w->rng, 0, REMEMBERED - 1)];
        if (s->writer)
            expect(w, s);
    }
}

static void forget(struct world *w, uint32_t c, uint32_t b)
{
    for (uint32_t i = 0; i < REMEMBERED; i++)
        w->submitted[i].full[c] &= ~(1u << b);
}

static void host_call(struct world *w)
{
    uint32_t c = rng_range(&w->rng, 0, CACHES - 1), kind = rng_range(&w->rng, 0, 9);
    struct model *m = &w->model[c];
    uint32_t b = rng_range(&w->rng, 0, m->batch - 1), page = 0;
    bool done;
    enum vka_status got;
    settle(w);
    if (kind < 5) {
        uint32_t length = rng_range(&w->rng, 0, m->length[b] + (kind == 0));
        done = model_truncate(m, b, length);
        got = vka_cache_truncate(w->cache[c], b, length);
    } else if (kind < 8) {
        uint32_t from = rng_range(&w->rng, 0, m->batch - 1);
        done = model_fork(m, from, b);
        got = vka_cache_fork(w->cache[c], from, b);
    } else {
        uint32_t entry = m->page_size ? rng_range(&w->rng, 0, m->table_row - 1) : 0;
        page = rng_range(&w->rng, 0, m->n_page);
        done = m->page_size && page < m->n_page;
        if (done)
            m->table[b][entry] = page;
        got = vka_cache_set_pages(w->cache[c], b, entry, 1, &page);
    }
    require(w, got == (done ? VKA_OK : VKA_INVALID), vka_status_name(got));
    if (done) {
        w->model[c].refused[b] = false;
        forget(w, c, b);
    }
}

/* ---- episodes -------------------------------------------------------------------------------- */

static void open_writer(struct world *w, struct writer *r)
{
    uint32_t most = MOST_NEW;
    *r = (struct writer){.caches = rng_range(&w->rng, 1, 3)};
    for (uint32_t c = 0; c < CACHES; c++)
        if (r->caches >> c & 1 && w->model[c].capacity < most)
            most = w->model[c].capacity;
    const struct vka_plan_info info = {
        .struct_size = sizeof info,
        .path = rng_chance(&w->rng, 50) ? VKA_PATH_FUSED : VKA_PATH_UNFUSED,
        .submit_budget = rng_chance(&w->rng, 25) ? 1 : 0,
    };
    struct vka_cache *first = w->cache[r->caches & 1 ? 0 : 1];
    uint32_t n_new = rng_chance(&w->rng, 50) ? 1 : rng_range(&w->rng, 1, most);
    r->a = appender_open(w->device, w->model[0].batch, n_new, &info, first,
                         r->caches == 3 ? w->cache[1] : NULL);
}

static void close_writer(struct world *w, struct writer *r)
{
    for (uint32_t i = 0; i < REMEMBERED; i++)
        if (w->submitted[i].writer == r)
            w->submitted[i] = (struct submitted){0};
    appender_close(&r->a);
}

static void renew(struct world *w)
{
    struct writer *r = &w->writers[rng_range(&w->rng, 0, PLANS - 1)];
    settle(w); /* the plan lives as long as what was recorded from it runs */
    close_writer(w, r);
    open_writer(w, r);
}

/* The device is lost with what is in flight: tickets are, caches are empty, tensors undefined. */
static void lose(struct world *w)
{
    settle(w);
    require(w, w->device->vk.vkDeviceWaitIdle(w->device->handle) == VK_SUCCESS, "idle");
    w->device->lost = true;
    check(w, vka_device_recover(w->device));
    for (uint32_t i = 0; i < REMEMBERED; i++)
        w->submitted[i].lost = true;
    for (uint32_t c = 0; c < CACHES; c++)
        model_reset(&w->model[c]);
    for (uint32_t i = 0; i < PLANS; i++) {
        w->writers[i].feed = 0;
        w->writers[i].has_context = false;
    }
}

static void open_episode(struct world *w)
{
    uint32_t batch = rng_range(&w->rng, 1, MODEL_BATCH);
    for (uint32_t c = 0; c < CACHES; c++) {
        struct model *m = &w->model[c];
        *m = (struct model){.batch = batch, .capacity = rng_range(&w->rng, 1, MOST_CAPACITY)};
        if (rng_chance(&w->rng, 70)) {
            m->page_size = 16 * rng_range(&w->rng, 1, 2);
            m->table_row = (m->capacity + m->page_size - 1) / m->page_size;
            m->n_page = rng_range(&w->rng, 1, batch * m->table_row + 2);
        }
        w->cache[c] = cache_open(w->device, batch, m->capacity, type_draw(&w->rng, dtype_is_float),
                                 m->page_size, m->n_page);
        model_reset(m);
    }
    for (uint32_t i = 0; i < PLANS; i++)
        open_writer(w, &w->writers[i]);
}

static void close_episode(struct world *w)
{
    compare_all(w);
    for (uint32_t c = 0; c < CACHES; c++)
        vka_cache_destroy(&w->cache[c]); /* plans keep it */
    for (uint32_t i = 0; i < PLANS; i++)
        close_writer(w, &w->writers[i]);
}

static void take_step(struct world *w)
{
    uint32_t kind = rng_range(&w->rng, 0, 9999);
    if (kind < 6500)
        submit(w);
    else if (kind < 7500)
        wait_for_some(w);
    else if (kind < 9000)
        host_call(w);
    else if (kind < 9400)
        record(w);
    else if (kind < 9895)
        compare_all(w);
    else if (kind < 9995)
        renew(w);
    else
        lose(w);
}

static bool parse(int argc, char **argv, struct world *w, unsigned long *steps)
{
    static const struct option options[] = {{"seed", required_argument, NULL, 's'},
                                            {"steps", required_argument, NULL, 'n'},
                                            {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 's')
            w->seed = strtoull(optarg, NULL, 10);
        else if (c == 'n')
            *steps = strtoul(optarg, NULL, 10);
        else
            return false;
    }
    return optind == argc && *steps > 0;
}

TEST_PROGRAM_ARGUMENTS(cache_model)
{
    static struct world w = {.seed = 1};
    unsigned long steps = 10000;
    if (!parse(argc, argv, &w, &steps)) {
        fprintf(stderr, "usage: test_gpu cache_model [--seed N] [--steps N]\n");
        return 2;
    }
    printf("seed %llu, %lu steps\n", (unsigned long long)w.seed, steps);
    fflush(stdout);
    w.rng.state = w.seed;
    /* Every other seed waits by fences. */
    enum vka_status status = vka_device_create(
        VKA_INFO(vka_device_info, .skip_self_test = true, .no_timeline = w.seed % 2 == 0),
        &w.device);
    if (status != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device (%s), nothing was tested\n",
                vka_status_name(status));
        return status == VKA_NO_DEVICE ? SKIPPED : 1;
    }
    for (w.step = 0; w.step < steps; w.step++) {
        if (w.step % EPISODE == 0 && w.step > 0)
            close_episode(&w);
        if (w.step % EPISODE == 0)
            open_episode(&w);
        take_step(&w);
    }
    close_episode(&w);
    vka_device_destroy(&w.device);
    printf("%lu steps, 0 failed\n", steps);
    return 0;
}
