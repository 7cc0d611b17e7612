#include "op/attention/map.h"
#include "op/attention/budget.h"

#include <stdio.h>

#define SLOT_MAP 13

#define MAP_INVOCATIONS 64
#define WORD_STEPS 16 /* steps of keys in a word of the map */

static struct work map_work(const struct attention *a, const struct head_slice *s)
{
    const struct attention_choice *c = &a->choice;
    double masks = (double)s->n_batch * s->n_head / (a->n_head / a->n_kv_head); /* at most */
    double rows = (double)attention_tiles(a, s) * c->tile;
    double elements = (double)c->keys * c->tile; /* of a step */
    return (struct work){
        .ops = WORK_MOVE * masks * rows * a->n_kv,
        .longest = WORK_MOVE * WORD_STEPS * elements,
        .loops = (WORD_STEPS + 1) * (elements / MAP_INVOCATIONS + 3),
    };
}

bool attention_map_fits(const struct vka_plan *plan, const struct attention *a,
                        const struct head_slice *s)
{
    const struct attention_choice *c = &a->choice;
    struct work work = map_work(a, s);
    return !c->map || plan_fits(plan, KERNEL_attention_map, &work);
}

/* Adds the map of a slice, [z][tile][word]. z counts batch elements and heads with other masks. */
static enum vka_status add_map(struct vka_plan *plan, const struct attention *a,
                               const struct head_slice *s, struct attention_params *p,
                               struct vka_tensor *map)
{
    const struct attention_choice *c = &a->choice;
    const struct caps *caps = &plan->caps;
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
        return VKA_OK; /* without a map, every tile is computed */
    ENSURE(plan_scratch(plan, VKA_I32, (const uint32_t[]){1, (uint32_t)z, tiles, words}, map));
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
    pass_set_push(&pass, &push, sizeof push);
    pass.work = map_work(a, s);
    pass.groups[0] = words;
    pass.groups[1] = tiles;
    pass.groups[2] = (uint32_t)z;
    snprintf(pass.detail, sizeof pass.detail, "%u masks of %u tiles, %u rows x %u keys each",
             (uint32_t)z, tiles, c->tile, c->keys);
    ENSURE(plan_add_pass(plan, &pass));
    p->map_row = words;
    p->map_head = m->mask_head ? tiles * words : 0;
    p->map_batch = m->mask_batch ? n_head * tiles * words : 0;
    return VKA_OK;
}

enum vka_status attention_bind_map(struct vka_plan *plan, const struct attention *a,
                                   const struct head_slice *s, struct pass *pass,
                                   struct attention_params *p, struct vka_tensor *map)
{
    const struct attention_choice *c = &a->choice;
    if (c->map)
        ENSURE(add_map(plan, a, s, p, map));
    pass->bindings[SLOT_MAP] = pass->bindings[0]; /* where there is none */
    if (map->storage)
        plan_bind(plan, pass, SLOT_MAP, map, false, NULL);
    return VKA_OK;
}
