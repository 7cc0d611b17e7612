#include "plan/attention_tile.h"
#include "plan/attention_budget.h"

#include <stdio.h>
#include <string.h>

#define SLOT_OUTPUT 3
#define SLOT_MAP 13

#define MAP_INVOCATIONS 64
#define MERGE_INVOCATIONS 64
#define WORD_STEPS 16 /* steps of keys in a word of the map */

/* Floats of a record of attention_merge. */
static uint32_t record_pitch(const struct attention *a)
{
    return divide_up(a->value_dim, 4) * 4 + 4;
}

static struct work map_work(const struct attention *a, const struct attention_choice *c,
                            const struct slice *s)
{
    double masks = (double)s->n_batch * s->n_head / (a->n_head / a->n_kv_head); /* at most */
    double rows = (double)attention_tiles(a, c, s) * c->tile;
    return (struct work){WORK_MOVE * masks * rows * a->n_kv,
                         WORK_MOVE * WORD_STEPS * c->keys * c->tile};
}

static struct work merge_work(const struct attention *a, const struct attention_choice *c,
                              const struct slice *s)
{
    double row = WORK_MOVE * c->n_piece * record_pitch(a);
    return (struct work){row * s->n_batch * s->n_head * s->n_query, row};
}

static bool in_budget(const struct vka_plan *plan, enum kernel kernel, struct work work)
{
    return plan_time(plan, kernel, &work) <= plan->budget;
}

bool tile_fits(const struct vka_plan *plan, const struct attention *a,
               const struct attention_choice *c, const struct slice *s)
{
    const struct caps *caps = &plan->device->caps;
    uint64_t n_kv_head = s->n_head / (a->n_head / a->n_kv_head);
    uint64_t rows = (uint64_t)s->n_batch * s->n_head * s->n_query;
    uint64_t bytes = rows * c->n_piece * record_pitch(a) * 4;
    if (c->map && !in_budget(plan, KERNEL_attention_map, map_work(a, c, s)))
        return false;
    if (c->n_piece > 1 && !in_budget(plan, KERNEL_attention_merge, merge_work(a, c, s)))
        return false;
    return n_kv_head * c->n_chunk * c->n_piece <= caps->max_groups[1] &&
           (c->n_piece == 1 || bytes <= caps->properties.max_buffer_range);
}

/* The map of a slice: [z][tile][word], z counting what the mask tells apart. */
static enum vka_status add_map(struct vka_plan *plan, const struct attention *a,
                               const struct attention_choice *c, const struct slice *s,
                               struct attention_params *p, struct vka_tensor *map)
{
    enum vka_status status = VKA_OK;
    const struct caps *caps = &plan->device->caps;
    const struct mask_params *m = &p->mask;
    struct pass pass = {.name = "mask tiles", .reason = "tiles that the mask hides are skipped"};
    uint32_t n_head = m->mask_head ? s->n_head / p->group : 1;
    uint64_t z = (uint64_t)n_head * (m->mask_batch ? s->n_batch : 1);
    uint32_t tiles = (uint32_t)(((uint64_t)s->n_query * p->group + c->tile - 1) / c->tile);
    uint32_t words = divide_up(a->n_kv, WORD_STEPS * c->keys);
    uint64_t bytes = z * tiles * words * 4;
    uint64_t limit = caps->properties.max_buffer_range;
    struct vka_tensor mask = attention_mask(a, &(uint32_t){0});
    mask = attention_slice(&mask, s);
    if (tiles > caps->max_groups[1] || z > caps->max_groups[2] || bytes > limit ||
        plan_range(plan, &mask) > limit)
        return VKA_OK; /* then the tiles are all tested */
    TRY(plan_scratch(plan, VKA_I32, (const uint32_t[]){1, (uint32_t)z, tiles, words}, map));
    struct attention_map_params push = {
        .mask = *m,
        .n_q = s->n_query,
        .group = p->group,
        .batch_first = s->batch,
        .head_first = s->head,
        .query_first = s->query,
        .tile_rows = c->tile,
        .tile_keys = c->keys,
        .n_head = n_head,
    };
    pass.key = (struct pipeline_key){.kernel = KERNEL_attention_map, .n_spec = MAP_SPECS};
    pass.key.spec[MAP_LANES] = MAP_INVOCATIONS;
    plan_bind(plan, &pass, 0, map, true, NULL);
    plan_bind(plan, &pass, 1, &mask, false, NULL);
    pass.push_size = sizeof push;
    memcpy(pass.push, &push, sizeof push);
    pass.work = map_work(a, c, s);
    pass.groups[0] = words;
    pass.groups[1] = tiles;
    pass.groups[2] = (uint32_t)z;
    snprintf(pass.detail, sizeof pass.detail, "%u masks of %u tiles, %u rows x %u keys each",
             (uint32_t)z, tiles, c->tile, c->keys);
    TRY(plan_add_pass(plan, &pass));
    p->map_row = words;
    p->map_head = m->mask_head ? tiles * words : 0;
    p->map_batch = m->mask_batch ? n_head * tiles * words : 0;
fail:
    return status;
}

enum vka_status tile_prepare(struct vka_plan *plan, const struct attention *a,
                             const struct attention_choice *c, const struct slice *s,
                             struct pass *pass, struct attention_params *p,
                             struct tile_scratch *scratch)
{
    enum vka_status status = VKA_OK;
    p->n_chunk = c->n_chunk;
    p->n_piece = c->n_piece;
    p->piece_keys = c->piece_keys;
    if (c->map)
        TRY(add_map(plan, a, c, s, p, &scratch->map));
    pass->bindings[SLOT_MAP] = pass->bindings[0]; /* where there is none */
    if (scratch->map.storage)
        plan_bind(plan, pass, SLOT_MAP, &scratch->map, false, NULL);
    if (c->n_piece > 1) {
        const uint32_t size[4] = {s->n_batch, s->n_head, s->n_query, c->n_piece * record_pitch(a)};
        TRY(plan_scratch(plan, VKA_F32, size, &scratch->partial));
        plan_bind(plan, pass, SLOT_OUTPUT, &scratch->partial, true, NULL);
    }
fail:
    return status;
}

static enum vka_status add_merge(struct vka_plan *plan, const struct attention *a,
                                 const struct attention_choice *c, const struct slice *s,
                                 const struct vka_tensor *partial)
{
    enum vka_status status = VKA_OK;
    struct pass pass = {.name = "merge", .reason = "keys were in pieces"};
    struct vka_tensor output = attention_slice(&a->output, s);
    const uint64_t *stride = output.shape.stride;
    uint32_t group = a->n_head / a->n_kv_head;
    struct attention_merge_params push = {
        .group = group,
        .n_row = s->n_query * group,
        .value_dim = a->value_dim,
        .n_piece = c->n_piece,
        .pitch = record_pitch(a),
        .o_batch = (uint32_t)stride[0],
        .o_head = (uint32_t)stride[1],
        .o_row = (uint32_t)stride[2],
        .flags = attention_mask_flags(a),
        .head_first = s->head,
    };
    pass.key = (struct pipeline_key){.kernel = KERNEL_attention_merge, .n_spec = MERGE_SPECS};
    pass.key.spec[MERGE_LANES] = MERGE_INVOCATIONS;
    pass.key.spec[MERGE_O_TYPE] = a->output.dtype;
    plan_bind(plan, &pass, 0, partial, false, NULL);
    plan_bind(plan, &pass, 1, &output, true, &push.o_offset);
    plan_bind(plan, &pass, 2, partial, false, NULL);
    if (a->options->sink)
        plan_bind(plan, &pass, 2, a->options->sink, false, &push.sink_offset);
    pass.push_size = sizeof push;
    memcpy(pass.push, &push, sizeof push);
    pass.work = merge_work(a, c, s);
    pass.groups[0] = push.n_row;
    pass.groups[1] = s->n_head / group;
    pass.groups[2] = s->n_batch;
    snprintf(pass.detail, sizeof pass.detail, "%u pieces of %u keys", c->n_piece, c->piece_keys);
    TRY(plan_add_pass(plan, &pass));
fail:
    return status;
}

enum vka_status tile_finish(struct vka_plan *plan, const struct attention *a,
                            const struct attention_choice *c, const struct slice *s,
                            struct tile_scratch *scratch)
{
    enum vka_status status = VKA_OK;
    if (c->n_piece > 1)
        TRY(add_merge(plan, a, c, s, &scratch->partial));
    if (scratch->partial.storage)
        plan_scratch_free(plan, &scratch->partial);
    if (scratch->map.storage)
        plan_scratch_free(plan, &scratch->map);
fail:
    return status;
}
