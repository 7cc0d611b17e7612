#include "graph.h"

void graph_begin(struct vka_device *device, uint32_t batch, uint32_t rows, uint64_t budget,
                 struct graph *g)
{
    *g = (struct graph){.device = device, .batch = batch, .rows = rows};
    g->status = vka_plan_create(device, VKA_INFO(vka_plan_info, .submit_budget = budget), &g->plan);
}

enum vka_status graph_finish(struct graph *g)
{
    if (g->status == VKA_OK)
        g->status = vka_plan_finish(g->plan);
    return g->status;
}

void graph_free(struct graph *g)
{
    vka_plan_destroy(&g->plan);
    while (g->n_tensor > 0)
        vka_tensor_destroy(&g->tensors[--g->n_tensor]);
}

static struct vka_tensor **slot(struct graph *g)
{
    if (g->status == VKA_OK && g->n_tensor == GRAPH_TENSORS)
        g->status = VKA_INTERNAL;
    return g->status == VKA_OK ? &g->tensors[g->n_tensor++] : NULL;
}

struct vka_tensor *graph_make(struct graph *g, enum vka_dtype dtype, uint32_t rank,
                              const uint32_t *shape)
{
    struct vka_tensor **t = slot(g);
    if (t)
        g->status = vka_tensor_create(g->device, dtype, rank, shape, t);
    return t ? *t : NULL;
}

struct vka_tensor *graph_rows(struct graph *g, uint32_t width)
{
    return graph_make(g, VKA_F32, 3, (const uint32_t[]){g->batch, g->rows, width});
}

struct vka_tensor *graph_reshape(struct graph *g, struct vka_tensor *tensor, uint32_t rank,
                                 const uint32_t *shape)
{
    struct vka_tensor **t = slot(g);
    if (t)
        g->status = vka_tensor_reshape(tensor, rank, shape, t);
    return t ? *t : NULL;
}

struct vka_tensor *graph_slice(struct graph *g, struct vka_tensor *tensor, uint32_t axis,
                               uint32_t first, uint32_t n)
{
    struct vka_tensor **t = slot(g);
    if (t)
        g->status = vka_tensor_slice(tensor, axis, first, n, t);
    return t ? *t : NULL;
}

struct vka_tensor *graph_permute(struct graph *g, struct vka_tensor *tensor, const uint32_t *axes)
{
    struct vka_tensor **t = slot(g);
    if (t)
        g->status = vka_tensor_permute(tensor, axes, t);
    return t ? *t : NULL;
}

struct vka_tensor *graph_heads(struct graph *g, struct vka_tensor *tensor, uint32_t n_head,
                               uint32_t dim)
{
    const uint32_t shape[] = {g->batch, g->rows, n_head, dim};
    struct vka_tensor *split = graph_reshape(g, tensor, 4, shape);
    return graph_permute(g, split, (const uint32_t[]){0, 2, 1, 3});
}

void graph_gather(struct graph *g, struct vka_tensor *table, struct vka_tensor *ids,
                  struct vka_tensor *output)
{
    if (g->status == VKA_OK)
        g->status = vka_plan_add_gather(
            g->plan, VKA_INFO(vka_gather_op, .table = table, .ids = ids, .output = output));
}
