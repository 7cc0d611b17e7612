/* The tensors between the operations of a recorded model: makes them, and remembers the first
 * failure, so that the lines that build a model read as the model. After a failure nothing more is
 * made or added. SPDX-License-Identifier: MIT */
#ifndef TOOLS_GRAPH_H
#define TOOLS_GRAPH_H

#include <vkattn/vkattn_model.h>

#define GRAPH_TENSORS 32

/* A plan over rows [batch][rows][width] of float32. */
struct graph {
    struct vka_device *device;
    uint32_t batch, rows;
    struct vka_plan *plan;
    enum vka_status status;                    /* the first that is not VKA_OK */
    struct vka_tensor *tensors[GRAPH_TENSORS]; /* all it made, views too */
    size_t n_tensor;
};

/* Creates the plan; budget as vka_plan_info.submit_budget. graph_free accepts what a failure left,
 * and zeros. */
void graph_begin(struct vka_device *device, uint32_t batch, uint32_t rows, uint64_t budget,
                 struct graph *graph);
enum vka_status graph_finish(struct graph *graph);
void graph_free(struct graph *graph);

/* These return NULL after a failure. The graph owns what they return. */
struct vka_tensor *graph_make(struct graph *graph, enum vka_dtype dtype, uint32_t rank,
                              const uint32_t *shape);
struct vka_tensor *graph_rows(struct graph *graph, uint32_t width); /* [batch][rows][width] */
struct vka_tensor *graph_reshape(struct graph *graph, struct vka_tensor *tensor, uint32_t rank,
                                 const uint32_t *shape);
struct vka_tensor *graph_slice(struct graph *graph, struct vka_tensor *tensor, uint32_t axis,
                               uint32_t first, uint32_t n);

struct vka_tensor *graph_permute(struct graph *graph, struct vka_tensor *tensor,
                                 const uint32_t *axes);

/* View [batch][n_head][rows][dim] of [batch][rows][n_head * dim]. */
struct vka_tensor *graph_heads(struct graph *graph, struct vka_tensor *tensor, uint32_t n_head,
                               uint32_t dim);

/* output = row ids[i] of the table */
void graph_gather(struct graph *graph, struct vka_tensor *table, struct vka_tensor *ids,
                  struct vka_tensor *output);

#endif
