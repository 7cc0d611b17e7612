/* A recorded pass through a decoder: token ids in, the next id out. SPDX-License-Identifier: MIT */
#ifndef GENERATE_PROGRAM_H
#define GENERATE_PROGRAM_H

#include "decoder.h"

#include "common/graph.h"

/* Takes up to graph.rows ids, appends to the cache and chooses the id after the last one. */
struct program {
    struct graph graph;          /* of batch 1 */
    struct vka_tensor *ids;      /* I32 [1][rows] */
    struct vka_tensor *n_append; /* I32 [1]: how many of them count */
    struct vka_tensor *last;     /* I32 [1]: n_append - 1 */
    struct vka_tensor *places;   /* I32 [1][rows]: positions, where they have embeddings */
};

/* How the next id is taken. */
struct sampling {
    float temperature; /* 0: that of the largest logit; else drawn, see vka_sample_op */
    uint64_t seed;
    struct vka_tensor *step; /* I32 [1]: how often it was drawn */
    uint32_t first;          /* the position that an id taken at step 0 has; rows 1 reads it */
};

/* next: I32 [1], receives the id that is taken. rows 1: reads `next` instead of ids of its
 * own, so that a step needs nothing from the host. budget as vka_plan_info.submit_budget.
 * program_free accepts what a failure left. */
enum vka_status program_create(struct vka_device *device, const struct decoder *decoder,
                               struct vka_cache *cache, const struct sampling *sampling,
                               struct vka_tensor *next, uint32_t rows, uint64_t budget,
                               struct program *program);
void program_free(struct program *program);

#endif
