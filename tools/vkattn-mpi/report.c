/* SPDX-License-Identifier: MIT */
#include "report.h"

#include "common/output.h"

#include <stdio.h>
#include <string.h>

static const char *const splits[] = {"heads", "batch", "sequence"};

static json_t *per_rank(const struct bench_point *p)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < p->model.ranks; i++) {
        const struct vka_mpi_stats *s = &p->by_rank[i];
        json_t *o = json_object();
        json_object_set_new(o, "sent_bytes", json_integer((json_int_t)s->sent));
        json_object_set_new(o, "received_bytes", json_integer((json_int_t)s->received));
        json_object_set_new(o, "compute_ms", json_real(s->compute_ms));
        json_object_set_new(o, "copy_ms", json_real(s->copy_ms));
        json_object_set_new(o, "wait_ms", json_real(s->wait_ms));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *sizes_json(const struct bench_options *o, const struct bench_point *p)
{
    json_t *j = json_object();
    json_object_set_new(j, "op", json_string(o->split == VKA_MPI_SEQUENCE ? "attention" : "layer"));
    json_object_set_new(j, "split", json_string(splits[o->split]));
    json_object_set_new(j, "scaling", json_string(p->weak ? "weak" : "strong"));
    json_object_set_new(j, "ranks", json_integer(p->model.ranks));
    json_object_set_new(j, "dtype", json_string(vka_dtype_name((enum vka_dtype)o->dtype)));
    json_object_set_new(j, "batch", json_integer(p->batch));
    json_object_set_new(j, "n_q", json_integer(p->n));
    json_object_set_new(j, "n_kv", json_integer(p->n));
    json_object_set_new(j, "n_head", json_integer(p->n_head));
    json_object_set_new(j, "n_kv_head", json_integer(p->n_kv_head));
    json_object_set_new(j, "head_dim", json_integer(o->model_dim / o->n_head));
    json_object_set_new(j, "model_dim", json_integer(o->model_dim));
    json_object_set_new(j, "causal", json_boolean(o->causal));
    return j;
}

static bool print_json(const struct bench_options *o, const struct bench_point *p,
                       const struct model *model)
{
    json_t *j = sizes_json(o, p);
    json_object_set_new(j, "device", json_text(p->device));
    json_object_set_new(j, "driver", json_text(p->driver));
    json_object_set_new(j, "first_ms", json_real(p->first_ms));
    json_object_set_new(j, "median_ms", json_real(p->median_ms));
    json_object_set_new(j, "min_ms", json_real(p->min_ms));
    json_object_set_new(j, "gflops", json_number(p->gflop / p->median_ms * 1e3));
    json_object_set_new(j, "contention", json_real(p->model.contention));
    json_object_set_new(j, "by_rank", per_rank(p));
    if (model) {
        json_object_set_new(j, "predicted_ms", json_real(model_predict(model, &p->model)));
        json_object_set_new(j, "error", json_real(model_error(model, &p->model)));
    }
    return json_print_line(j);
}

static void print_row(const struct bench_point *p, const struct bench_point *one,
                      const struct model *model)
{
    double work = p->gflop / one->gflop;
    printf("%-7s %5u %10.3f %10.3f %10.3f %9.2f %8.2f", p->weak ? "weak" : "strong", p->model.ranks,
           p->min_ms, p->model.compute_ms, p->min_ms - p->model.compute_ms, p->model.mib,
           work * one->min_ms / p->min_ms);
    if (model)
        printf(" %10.3f %6.1f %%", model_predict(model, &p->model),
               100 * model_error(model, &p->model));
    printf("\n");
}

/* The bytes that a rank receives: everything that is gathered except its own slice; split by
 * positions, its slice of all heads, or, with more ranks than heads, all keys and values. */
static double received_of(const struct bench_options *o, const struct bench_point *p, double ranks)
{
    double others = (ranks - 1) / ranks;
    if (bench_by_rows(o, p, (unsigned)ranks))
        return others * p->n_kv_head / (p->n_head + p->n_kv_head);
    return o->split == VKA_MPI_SEQUENCE ? others / ranks : others;
}

/* Predicts the problem on more ranks than there were, each with a device of its own. */
static void extrapolate(const struct bench_options *o, const struct bench_point *one,
                        const struct bench_point *widest, unsigned ranks, struct bench_point *p)
{
    bench_sizes(o, ranks, false, p);
    p->model.contention = 1;
    p->model.gflop = one->gflop / ranks;
    p->model.mib =
        widest->model.mib * received_of(o, p, ranks) / received_of(o, widest, widest->model.ranks);
}

static unsigned most_ranks(const struct bench_options *o)
{
    return o->split == VKA_MPI_SEQUENCE ? o->n : o->split == VKA_MPI_BATCH ? o->batch : o->n_head;
}

/* The collectives of a run that wait for each other: the exchanges and the status; by rows, two key
 * chunks a rank. */
static double collectives_of(const struct bench_options *o, const struct bench_point *p)
{
    if (bench_by_rows(o, p, p->model.ranks))
        return 2.0 * p->model.ranks + 1;
    return o->split == VKA_MPI_BATCH ? 2 : 3;
}

/* Predicts a run with a network between the ranks, in addition to the host's own copies. */
static struct model with_network(const struct bench_options *o, const struct bench_point *p,
                                 const struct model *model)
{
    struct model m = *model;
    m.hop_ms += collectives_of(o, p) * o->latency_us * 1e-3;
    m.ms_per_mib += o->gbps ? 1048576 * 8 / (o->gbps * 1e6) : 0;
    return m;
}

static bool print_predictions(const struct bench_options *o, const struct bench_point *one,
                              const struct bench_point *widest, const struct model *fitted)
{
    bool ok = true;
    for (unsigned ranks = 2; ranks <= 64 && ranks <= most_ranks(o); ranks *= 2) {
        struct bench_point p;
        extrapolate(o, one, widest, ranks, &p);
        const struct model model = with_network(o, &p, fitted);
        double ms = model_predict(&model, &p.model);
        double speedup = model_predict(&model, &one->model) / ms;
        if (o->json) {
            json_t *j = sizes_json(o, &p);
            json_object_set_new(j, "predicted_ms", json_real(ms));
            json_object_set_new(j, "predicted_speedup", json_real(speedup));
            ok = json_print_line(j) && ok;
        } else {
            printf("  %3u ranks %10.3f ms, %6.2f times one\n", ranks, ms, speedup);
        }
    }
    return ok;
}

/* The worst error of the model on all points, and on the points with the most ranks if it is fitted
 * to the others; negative if there are too few points. */
static void errors(const struct bench_point *points, size_t n, const struct model *model,
                   double *fit, double *held_out)
{
    struct model_point kept[POINTS_MAX];
    struct model fewer;
    size_t n_kept = 0;
    unsigned most = 0;
    *fit = 0;
    *held_out = -1;
    for (size_t i = 0; i < n; i++) {
        double error = model_error(model, &points[i].model);
        *fit = error > *fit ? error : *fit;
        most = points[i].model.ranks > most ? points[i].model.ranks : most;
    }
    for (size_t i = 0; i < n; i++)
        if (points[i].model.ranks < most)
            kept[n_kept++] = points[i].model;
    if (!model_fit(kept, n_kept, &fewer))
        return;
    for (size_t i = 0; i < n; i++) {
        double error = model_error(&fewer, &points[i].model);
        if (points[i].model.ranks == most && error > *held_out)
            *held_out = error;
    }
}

static bool print_model(const struct bench_options *o, const struct model *m, double fit,
                        double held_out)
{
    if (!o->json) {
        printf("model: compute %.3f ms + %.3f ms a GFLOP, the rest %.3f ms * log2(ranks) + %.3f ms "
               "a MiB\n  worst error %.1f %%",
               m->start_ms, m->ms_per_gflop, m->hop_ms, m->ms_per_mib, 100 * fit);
        if (held_out >= 0)
            printf("; of the most ranks, predicted from fewer, %.1f %%", 100 * held_out);
        printf("\n");
        return true;
    }
    json_t *j = json_object();
    json_object_set_new(j, "model", json_string("compute + hop * log2(ranks) + bytes"));
    json_object_set_new(j, "start_ms", json_real(m->start_ms));
    json_object_set_new(j, "ms_per_gflop", json_real(m->ms_per_gflop));
    json_object_set_new(j, "hop_ms", json_real(m->hop_ms));
    json_object_set_new(j, "ms_per_mib", json_real(m->ms_per_mib));
    json_object_set_new(j, "worst_error", json_real(fit));
    json_object_set_new(j, "held_out_error", held_out < 0 ? json_null() : json_real(held_out));
    return json_print_line(j);
}

bool bench_report(const struct bench_options *o, const struct bench_point *points, size_t n)
{
    struct model_point model_points[POINTS_MAX] = {{0}};
    struct model model;
    double fit, held_out;
    bool ok = true;
    const struct bench_point *widest = &points[0];
    for (size_t i = 0; i < n; i++) {
        model_points[i] = points[i].model;
        if (!points[i].weak && points[i].model.ranks > widest->model.ranks)
            widest = &points[i];
    }
    bool fitted = model_fit(model_points, n, &model);
    if (!o->json)
        printf(
            "%s by %s on %s\nscaling ranks     min ms    compute   the rest  MiB/rank  speedup%s\n",
            o->split == VKA_MPI_SEQUENCE ? "attention" : "layer", splits[o->split],
            points[0].device, fitted ? "  predicted    error" : "");
    for (size_t i = 0; i < n; i++) {
        if (o->json)
            ok = print_json(o, &points[i], fitted ? &model : NULL) && ok;
        else
            print_row(&points[i], &points[0], fitted ? &model : NULL);
    }
    if (!fitted)
        return ok;
    errors(points, n, &model, &fit, &held_out);
    ok = print_model(o, &model, fit, held_out) && ok;
    if (!o->json)
        printf("predicted, strong, each rank with a device of its own%s:\n",
               o->gbps || o->latency_us ? " and the network given" : "");
    return print_predictions(o, &points[0], widest, &model) && ok;
}
