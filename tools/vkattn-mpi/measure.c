/* SPDX-License-Identifier: MIT */
#include "measure.h"

#include "case/numbers.h"
#include "common/options.h"

#include "core/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS 10 /* without --repeat */
#define SENTENCE_SIZE 512
#define PAUSE_NS 200000

struct problem {
    struct vka_mpi *mpi;
    struct vka_mpi_layer *layer;
    struct vka_mpi_plan *plan;
    struct vka_tensor *in[3], *out;
    void *numbers;
};

void bench_sizes(const struct bench_options *o, unsigned ranks, bool weak, struct bench_point *p)
{
    uint32_t grow = weak ? ranks : 1, head_dim = o->model_dim / o->n_head;
    *p = (struct bench_point){.weak = weak,
                              .batch = o->batch,
                              .n = o->n,
                              .n_head = o->n_head,
                              .n_kv_head = o->n_kv_head,
                              .model.ranks = ranks};
    if (o->split == VKA_MPI_HEADS) {
        p->n_head *= grow;
        p->n_kv_head *= grow;
    } else if (o->split == VKA_MPI_BATCH) {
        p->batch *= grow;
    } else {
        p->n *= grow;
    }
    double rows = (double)p->batch * p->n, width = o->model_dim;
    double flop = 4 * rows * p->n * p->n_head * head_dim * (o->causal ? 0.5 : 1);
    if (o->split != VKA_MPI_SEQUENCE)
        flop += 2 * rows * width * head_dim * (2.0 * p->n_head + 2.0 * p->n_kv_head);
    p->gflop = flop * 1e-9;
}

bool bench_by_rows(const struct bench_options *o, const struct bench_point *p, unsigned ranks)
{
    return o->split == VKA_MPI_SEQUENCE && ranks > p->n_head;
}

/* Waits without spinning, as other ranks need the cores. */
static void wait_for_all(MPI_Comm comm)
{
    MPI_Request request;
    int done = 0;
    MPI_Ibarrier(comm, &request);
    while (!done) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (!done)
            os_sleep(PAUSE_NS);
    }
}

/* Makes count numbers around 0, the same on every rank. */
static void *make_numbers(enum vka_dtype dtype, size_t count, double scale)
{
    double *values = malloc(count * sizeof *values);
    void *data = malloc(count * vka_dtype_size(dtype));
    uint32_t bits = 1;
    for (size_t i = 0; values && i < count; i++)
        values[i] = scale * ((double)((bits = bits * 1664525u + 1013904223u) >> 8) * 0x1p-23 - 1);
    if (values && data)
        case_narrow(values, count, dtype, data);
    free(values);
    return data;
}

static enum vka_status make_tensor(struct problem *p, enum vka_dtype dtype, uint32_t rank,
                                   const uint32_t *shape, struct vka_tensor **tensor)
{
    enum vka_status status = vka_tensor_create(vka_mpi_device(p->mpi), dtype, rank, shape, tensor);
    if (status != VKA_OK)
        return status;
    void *data = make_numbers(dtype, (size_t)vka_tensor_count(*tensor), 1.7);
    status =
        data ? vka_tensor_write(*tensor, data, vka_tensor_size(*tensor)) : VKA_OUT_OF_HOST_MEMORY;
    free(data);
    return status;
}

static enum vka_status make_layer(struct problem *p, const struct bench_options *o,
                                  const struct bench_point *point)
{
    enum vka_dtype dtype = (enum vka_dtype)o->dtype;
    uint32_t head_dim = o->model_dim / o->n_head, widest = point->n_head * head_dim;
    const uint32_t shape[] = {point->batch, point->n, o->model_dim};
    p->numbers = make_numbers(dtype, (size_t)widest * o->model_dim, 0.1);
    const struct vka_linear_weights w = {p->numbers, p->numbers};
    enum vka_status status = make_tensor(p, dtype, 3, shape, &p->in[0]);
    if (status == VKA_OK)
        status = make_tensor(p, dtype, 3, shape, &p->out);
    if (status == VKA_OK)
        status = vka_mpi_layer_create(
            p->mpi,
            VKA_INFO(vka_mpi_layer_info, .split = (enum vka_mpi_split)o->split, .rounds = o->rounds,
                     .layer = {.n_head = point->n_head,
                               .n_kv_head = point->n_kv_head,
                               .head_dim = head_dim,
                               .query_dim = o->model_dim,
                               .output_dim = o->model_dim,
                               .dtype = dtype,
                               .query = w,
                               .key = w,
                               .value = w,
                               .output = w}),
            &p->layer);
    if (status == VKA_OK)
        status = vka_mpi_plan_layer(
            p->mpi, p->layer,
            VKA_INFO(vka_layer_op, .query = p->in[0], .output = p->out,
                     .attention.causal = o->causal),
            VKA_INFO(vka_mpi_plan_info, .rounds = o->rounds, .path = (enum vka_path)o->path),
            &p->plan);
    return status;
}

static enum vka_status make_attention(struct problem *p, const struct bench_options *o,
                                      const struct bench_point *point)
{
    struct vka_mpi_range half[2];
    vka_mpi_positions(point->n, vka_mpi_size(p->mpi), vka_mpi_rank(p->mpi), half);
    uint32_t n = half[0].count + half[1].count;
    const uint32_t heads[] = {point->n_head, point->n_kv_head, point->n_kv_head, point->n_head};
    struct vka_tensor **to[] = {&p->in[0], &p->in[1], &p->in[2], &p->out};
    enum vka_status status = VKA_OK;
    for (int i = 0; i < 4 && status == VKA_OK; i++)
        status = make_tensor(
            p, (enum vka_dtype)o->dtype, 4,
            (const uint32_t[]){point->batch, heads[i], n, o->model_dim / o->n_head}, to[i]);
    if (status == VKA_OK)
        status = vka_mpi_plan_attention(
            p->mpi,
            VKA_INFO(vka_attention_op, .q = p->in[0], .k = p->in[1], .v = p->in[2],
                     .output = p->out, .options.causal = o->causal),
            VKA_INFO(vka_mpi_plan_info, .split = VKA_MPI_SEQUENCE, .rounds = o->rounds,
                     .path = (enum vka_path)o->path),
            &p->plan);
    return status;
}

static void destroy(struct problem *p)
{
    vka_mpi_plan_destroy(&p->plan);
    vka_mpi_layer_destroy(&p->layer);
    for (int i = 0; i < 3; i++)
        vka_tensor_destroy(&p->in[i]);
    vka_tensor_destroy(&p->out);
    free(p->numbers);
    vka_mpi_destroy(&p->mpi);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The number of devices that the ranks of this host have: those of the chosen kind, or the cores
 * divided by the threads that Mesa's CPU driver uses for a rank. */
static double slots_of(struct vka_mpi *mpi)
{
    enum vka_device_type type = vka_device_properties(vka_mpi_device(mpi))->type;
    if (type == VKA_DEVICE_CPU) {
        double cores = os_n_core();
        const char *threads = os_environment("LP_NUM_THREADS");
        double each = threads && atoi(threads) > 0 ? atoi(threads) : cores;
        return each < cores ? cores / each : 1;
    }
    struct vka_device_properties list[64];
    size_t n = 64;
    double alike = 0;
    if (vka_device_list(NULL, list, &n) == VKA_OK)
        for (size_t i = 0; i < n && i < 64; i++)
            alike += list[i].type == type;
    return alike > 0 ? alike : 1;
}

static double contention_of(struct vka_mpi *mpi, MPI_Comm comm)
{
    MPI_Comm host;
    int ranks;
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &ranks);
    MPI_Comm_free(&host);
    double each = ranks / slots_of(mpi);
    return each > 1 ? each : 1;
}

/* The largest fraction of the work that a rank has. */
static double share_of(const struct bench_options *o, const struct bench_point *p, int size)
{
    double most = 0;
    if (bench_by_rows(o, p, (unsigned)size))
        return 1.0 / size;
    for (int rank = 0; rank < size; rank++) {
        struct vka_mpi_range query, key, batch = vka_mpi_batch(p->batch, size, rank);
        vka_mpi_heads(p->n_head, p->n_kv_head, size, rank, &query, &key);
        double share = o->split == VKA_MPI_BATCH ? (double)batch.count / p->batch
                                                 : (double)query.count / p->n_head;
        most = share > most ? share : most;
    }
    return most;
}

/* *fastest: this rank's times of the run that was the fastest on rank 0. Other programs can only
 * make a run slower, so the fastest one is the best estimate. */
static enum vka_status time_runs(struct problem *p, const struct bench_options *o, MPI_Comm comm,
                                 struct bench_point *point, struct vka_mpi_stats *fastest)
{
    uint64_t timeout = (uint64_t)o->timeout_s * 1000000000;
    uint32_t repeat = o->repeat ? o->repeat : RUNS;
    int best = 0;
    struct vka_mpi_stats *all = calloc(repeat, sizeof *all);
    double *times = calloc(repeat, sizeof *times), start = os_now_ms();
    enum vka_status status = all && times ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    if (status == VKA_OK)
        status = vka_mpi_plan_run(p->plan, timeout);
    point->first_ms = os_now_ms() - start;
    for (uint32_t i = 0; i < repeat && status == VKA_OK; i++) {
        wait_for_all(comm);
        status = vka_mpi_plan_run(p->plan, timeout);
        vka_mpi_plan_stats(p->plan, &all[i]);
        times[i] = all[i].total_ms;
        best = times[i] < times[best] ? (int)i : best;
    }
    if (status == VKA_OK) {
        MPI_Bcast(&best, 1, MPI_INT, 0, comm);
        *fastest = all[best];
        qsort(times, repeat, sizeof *times, by_value);
        point->median_ms = times[repeat / 2];
        point->min_ms = times[0];
    }
    free(times);
    free(all);
    return status;
}

/* Stores the times and bytes of the slowest rank in the point of rank 0. */
static enum vka_status collect(const struct bench_options *o, struct problem *p, MPI_Comm comm,
                               const struct vka_mpi_stats *own, struct bench_point *point)
{
    int size = vka_mpi_size(p->mpi);
    const struct vka_device_properties *device = vka_device_properties(vka_mpi_device(p->mpi));
    point->model.contention = contention_of(p->mpi, comm);
    if (vka_mpi_rank(p->mpi) == 0)
        point->by_rank = calloc((size_t)size, sizeof *point->by_rank);
    MPI_Gather(own, sizeof *own, MPI_BYTE, point->by_rank, sizeof *own, MPI_BYTE, 0, comm);
    if (vka_mpi_rank(p->mpi) != 0)
        return VKA_OK;
    if (!point->by_rank)
        return VKA_OUT_OF_HOST_MEMORY;
    for (int i = 0; i < size; i++) {
        const struct vka_mpi_stats *s = &point->by_rank[i];
        double mib = (double)s->received / 1048576;
        point->model.mib = mib > point->model.mib ? mib : point->model.mib;
        if (s->compute_ms > point->model.compute_ms)
            point->model.compute_ms = s->compute_ms;
    }
    point->model.gflop = point->gflop * share_of(o, point, size);
    point->model.total_ms = point->min_ms;
    memcpy(point->device, device->name, sizeof point->device);
    memcpy(point->driver, device->driver, sizeof point->driver);
    return VKA_OK;
}

/* Keeps the first error: those behind it say what follows from it. */
static void keep_first(void *user, enum vka_log_level level, const char *message)
{
    char *sentence = user;
    if (level == VKA_LOG_ERROR && !*sentence)
        snprintf(sentence, SENTENCE_SIZE, "%s", message);
}

static enum vka_status measure(const struct bench_options *o, MPI_Comm comm,
                               struct bench_point *point)
{
    char sentence[SENTENCE_SIZE] = "";
    struct problem p = {0};
    struct vka_mpi_stats fastest = {0};
    struct vka_device_info device = {
        .struct_size = sizeof device, .device = o->device, .log = keep_first, .log_user = sentence};
    enum vka_status status = vka_mpi_create(
        comm,
        VKA_INFO(vka_mpi_info, .device = &device, .timeout = (uint64_t)o->timeout_s * 1000000000),
        &p.mpi);
    if (status == VKA_OK)
        status =
            o->split == VKA_MPI_SEQUENCE ? make_attention(&p, o, point) : make_layer(&p, o, point);
    if (status == VKA_OK)
        status = time_runs(&p, o, comm, point, &fastest);
    if (status == VKA_OK)
        status = collect(o, &p, comm, &fastest, point);
    if (status != VKA_OK)
        tool_error("%s: %s", vka_status_name(status), p.mpi ? vka_mpi_error(p.mpi) : sentence);
    destroy(&p);
    return status;
}

enum vka_status bench_measure(const struct bench_options *o, struct bench_point *point)
{
    MPI_Comm comm;
    int rank;
    enum vka_status status = VKA_OK;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    bool is_in = rank < (int)point->model.ranks;
    MPI_Comm_split(MPI_COMM_WORLD, is_in ? 0 : MPI_UNDEFINED, rank, &comm);
    if (is_in) {
        status = measure(o, comm, point);
        if (status != VKA_OK) /* the ranks may be out of step */
            MPI_Abort(MPI_COMM_WORLD, (int)tool_exit_of(status));
        MPI_Comm_free(&comm);
    }
    wait_for_all(MPI_COMM_WORLD);
    return status;
}
