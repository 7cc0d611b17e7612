/* A decoder, its cache and its two recorded plans: one takes the prompt in slices, the other a token a
 * run and needs nothing from the host. SPDX-License-Identifier: MIT */
#ifndef GENERATE_SESSION_H
#define GENERATE_SESSION_H

#include "program.h"

#define SESSION_SLICE 32 /* ids of the prompt that a run takes */

struct session_info {
    uint32_t n_prompt, count; /* ids given and asked for, at least 1 each */
    enum vka_dtype kv;        /* of the cached keys and values */
    uint64_t budget;          /* as vka_plan_info.submit_budget */
    uint64_t timeout;         /* of a run */
    float temperature;        /* 0: the most likely id each time */
    uint64_t seed;
};

struct session {
    struct session_info info;
    struct vka_cache *cache;
    struct vka_tensor *next, *drawn; /* I32 [1] each: the id, and how often one was drawn */
    struct program prompt, step;
};

/* Records the plans. session_free accepts what a failure left. */
enum vka_status session_create(struct vka_device *device, const struct decoder *decoder,
                               const struct session_info *info, struct session *session);
void session_free(struct session *session);

/* Takes the prompt, n_prompt ids, and sets *id to the one that follows. Once. */
enum vka_status session_begin(struct session *session, const int32_t *prompt, int32_t *id);

/* Sets *id to the one that follows the last. Up to count - 1 times. */
enum vka_status session_next(struct session *session, int32_t *id);

#endif
