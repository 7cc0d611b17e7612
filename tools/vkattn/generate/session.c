#include "session.h"

#include <stdlib.h>
#include <string.h>

enum vka_status session_create(struct vka_device *device, const struct decoder *m,
                               const struct session_info *info, struct session *s)
{
    *s = (struct session){.info = *info};
    uint32_t capacity = info->n_prompt + info->count;
    /* Rows that no id fills cost as much as others. One id takes 2, as 1 is the step. */
    uint32_t slice = info->n_prompt < SESSION_SLICE ? info->n_prompt : SESSION_SLICE;
    slice = slice > 1 ? slice : 2;
    enum vka_status status = vka_cache_create(
        device,
        VKA_INFO(vka_cache_info, .batch = 1, .n_layer = m->n_block, .n_kv_head = m->n_kv_head,
                 .head_dim = m->head_dim, .capacity = capacity, .key_dtype = info->kv,
                 .value_dtype = info->kv),
        &s->cache);
    if (status == VKA_OK)
        status = vka_tensor_create(device, VKA_I32, 1, (const uint32_t[]){1}, &s->next);
    if (status == VKA_OK)
        status = vka_tensor_create(device, VKA_I32, 1, (const uint32_t[]){1}, &s->drawn);
    if (status == VKA_OK)
        status = vka_tensor_write(s->drawn, (const int32_t[]){0}, 4);
    const struct sampling sampling = {info->temperature, info->seed, s->drawn,
                                      info->n_prompt - (info->n_prompt + slice - 1) / slice};
    if (status == VKA_OK)
        status = program_create(device, m, s->cache, &sampling, s->next, slice, info->budget,
                                &s->prompt);
    if (status == VKA_OK)
        status = program_create(device, m, s->cache, &sampling, s->next, 1, info->budget, &s->step);
    return status;
}

void session_free(struct session *s)
{
    program_free(&s->prompt);
    program_free(&s->step);
    vka_tensor_destroy(&s->next);
    vka_tensor_destroy(&s->drawn);
    vka_cache_destroy(&s->cache);
}

/* Takes n ids, of which the first one has position `at`. */
static enum vka_status take_slice(const struct program *p, const int32_t *ids, uint32_t n,
                                  uint32_t at, uint64_t timeout)
{
    int32_t slice[SESSION_SLICE] = {0}, places[SESSION_SLICE] = {0};
    memcpy(slice, ids, n * sizeof *slice);
    for (uint32_t i = 0; i < n; i++)
        places[i] = (int32_t)(at + i);
    enum vka_status status = vka_tensor_write(p->ids, slice, p->graph.rows * sizeof *slice);
    if (status == VKA_OK && p->places)
        status = vka_tensor_write(p->places, places, p->graph.rows * sizeof *places);
    if (status == VKA_OK)
        status = vka_tensor_write(p->n_append, (const int32_t[]){(int32_t)n}, 4);
    if (status == VKA_OK)
        status = vka_tensor_write(p->last, (const int32_t[]){(int32_t)n - 1}, 4);
    return status == VKA_OK ? vka_plan_run(p->graph.plan, timeout) : status;
}

enum vka_status session_begin(struct session *s, const int32_t *prompt, int32_t *id)
{
    const struct program *p = &s->prompt;
    enum vka_status status = VKA_OK;
    for (uint32_t at = 0; status == VKA_OK && at < s->info.n_prompt; at += p->graph.rows) {
        uint32_t left = s->info.n_prompt - at, rows = p->graph.rows;
        status = take_slice(p, prompt + at, left < rows ? left : rows, at, s->info.timeout);
    }
    return status == VKA_OK ? vka_tensor_read(s->next, id, sizeof *id) : status;
}

enum vka_status session_next(struct session *s, int32_t *id)
{
    enum vka_status status = vka_plan_run(s->step.graph.plan, s->info.timeout);
    return status == VKA_OK ? vka_tensor_read(s->next, id, sizeof *id) : status;
}
