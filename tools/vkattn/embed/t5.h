/* The encoder of a T5 in the plan of vkattn embed. SPDX-License-Identifier: MIT */
#ifndef EMBED_T5_H
#define EMBED_T5_H

#include "bert.h"

#include "common/graph.h"

/* Adds it up to its last norm: x [batch][rows][width] of ids I32 [batch][rows], lengths I32 [batch]. */
void t5_add(struct graph *graph, const struct bert *model, struct vka_tensor *ids,
            struct vka_tensor *lengths, struct vka_tensor *x);

#endif
