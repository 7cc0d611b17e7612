/* A recorded pass through a BERT: token ids in, a vector of each text out.
 * SPDX-License-Identifier: MIT */
#ifndef EMBED_PROGRAM_H
#define EMBED_PROGRAM_H

#include "bert.h"

#include "common/graph.h"

struct embed_info {
    uint32_t batch, rows; /* texts of a run, and ids of the longest, up to n_position */
    bool first_row;       /* the vector is the last layer's first row; else the mean of its rows */
    bool plain;           /* leave the vector's length as it is; else it becomes 1 */
    uint64_t budget;      /* as vka_plan_info.submit_budget */
};

struct embed {
    struct embed_info info;
    struct graph graph;
    struct vka_tensor *ids;     /* I32 [batch][rows]; -1 behind the end of a text */
    struct vka_tensor *lengths; /* I32 [batch]; 0: no text, any vector */
    struct vka_tensor *output;  /* F32 [batch][width] */
};

/* Records the plan. embed_free accepts what a failure left. */
enum vka_status embed_create(struct vka_device *device, const struct bert *bert,
                             const struct embed_info *info, struct embed *embed);
void embed_free(struct embed *embed);

#endif
