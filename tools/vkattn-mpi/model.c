/* SPDX-License-Identifier: MIT */
#include "model.h"

#include <math.h>

/* Sums of y = a u + b v over points weighted by 1 / y^2. */
struct sums {
    double uu, uv, vv, u, v;
};

static void add(struct sums *s, double u, double v, double y)
{
    if (y <= 0)
        return;
    u /= y;
    v /= y;
    s->uu += u * u;
    s->uv += u * v;
    s->vv += v * v;
    s->u += u;
    s->v += v;
}

/* If a coefficient would be below 0, or u and v are proportional, only the better one is used. */
static void solve(const struct sums *s, double *a, double *b)
{
    double det = s->uu * s->vv - s->uv * s->uv;
    *a = *b = 0;
    if (det > 1e-9 * s->uu * s->vv) {
        *a = (s->u * s->vv - s->v * s->uv) / det;
        *b = (s->v * s->uu - s->u * s->uv) / det;
        if (*a >= 0 && *b >= 0)
            return;
    }
    double gain_u = s->uu > 0 ? s->u * s->u / s->uu : 0;
    double gain_v = s->vv > 0 ? s->v * s->v / s->vv : 0;
    *a = gain_u > gain_v ? s->u / s->uu : 0;
    *b = gain_v > 0 && gain_v >= gain_u ? s->v / s->vv : 0;
}

bool model_fit(const struct model_point *points, size_t n, struct model *model)
{
    struct sums compute = {0}, rest = {0};
    bool several = false;
    for (size_t i = 0; i < n; i++) {
        const struct model_point *p = &points[i];
        add(&compute, 1, p->gflop * p->contention, p->compute_ms);
        if (p->ranks > 1)
            add(&rest, log2(p->ranks), p->mib, p->total_ms - p->compute_ms);
        several |= p->ranks > 1;
    }
    *model = (struct model){0};
    solve(&compute, &model->start_ms, &model->ms_per_gflop);
    solve(&rest, &model->hop_ms, &model->ms_per_mib);
    return n >= 2 && several;
}

double model_predict(const struct model *model, const struct model_point *p)
{
    double compute = model->start_ms + model->ms_per_gflop * p->gflop * p->contention;
    return p->ranks > 1 ? compute + model->hop_ms * log2(p->ranks) + model->ms_per_mib * p->mib
                        : compute;
}

double model_error(const struct model *model, const struct model_point *p)
{
    return fabs(model_predict(model, p) - p->total_ms) / p->total_ms;
}
