/* The passes of a slice of fused attention: constants, parameters, bindings. */
#include "kernel/attention.h"
#include "op/attention/choice.h"
#include "op/attention/map.h"
#include "op/attention/cuts.h"
#include "op/attention/pass.h"
#include "op/attention/records.h"
#include "op/cache/layers.h"

#include <stdio.h>
#include <string.h>

#define SLOT_OUTPUT 3
#define SLOT_MASK 4 /* mask, kv_length, query_offset, sink, alibi */
#define SLOT_LENGTH 5
#define SLOT_TABLE 9
#define SLOT_Q_START 10
#define SLOT_KV_START 11
#define SLOT_PARAMETERS 12

struct operand_strides {
    uint32_t batch, head, row;
};

static struct operand_strides strides_of(const struct vka_tensor *t)
{
    const uint64_t *s = t->shape.stride;
    if (t->shape.size[0] == 1) /* kernels count the sequences of a cache there */
        return (struct operand_strides){0, (uint32_t)s[1], (uint32_t)s[2]};
    return (struct operand_strides){(uint32_t)s[0], (uint32_t)s[1], (uint32_t)s[2]};
}

static void bind_operands(const struct vka_plan *plan, const struct attention *a,
                          const struct head_slice *s, struct pass *pass, struct attention_params *p)
{
    struct vka_tensor q = attention_slice(&a->q, s), o = attention_slice(&a->output, s);
    struct operand_strides sq = strides_of(&q), sk = strides_of(&a->k);
    struct operand_strides sv = strides_of(&a->v), so = strides_of(&o);
    plan_bind(plan, pass, 0, &q, false, &p->q_offset);
    plan_bind(plan, pass, 3, &o, true, &p->o_offset);
    p->q_batch = sq.batch, p->q_head = sq.head, p->q_row = sq.row;
    const uint32_t ks = a->blocks ? a->blocks->k.byte_values : 1;
    const uint32_t vs = a->blocks ? a->blocks->v.byte_values : 1;
    p->k_batch = ks * sk.batch, p->k_head = ks * sk.head, p->k_row = ks * sk.row;
    p->v_batch = vs * sv.batch, p->v_head = vs * sv.head, p->v_row = vs * sv.row;
    const uint32_t head = s->head / (a->n_head / a->n_kv_head); /* first key head */
    p->k_scales = a->blocks ? cache_scales_from(&a->blocks->k, head) : 0;
    p->v_scales = a->blocks ? cache_scales_from(&a->blocks->v, head) : 0;
    p->o_batch = so.batch, p->o_head = so.head, p->o_row = so.row;
}

/* Slots that the layout leaves free: of the log-sum-exp, and of the state of the span before. */
static uint32_t log_sum_slot(const struct attention *a)
{
    return a->kv_start ? SLOT_MASK : SLOT_KV_START;
}

static uint32_t state_slot(const struct attention *a)
{
    return !a->n_sequence ? SLOT_Q_START : a->sequences ? SLOT_LENGTH : SLOT_TABLE;
}

/* Binds the offsets of a ragged batch and the page table of a paged cache. */
static void bind_layout(const struct vka_plan *plan, const struct attention *a, struct pass *pass,
                        struct attention_params *p)
{
    if (a->n_sequence) {
        p->n_sequence = a->n_sequence;
        plan_bind(plan, pass, SLOT_Q_START, a->q_start, false, &p->q_start_offset);
    }
    if (a->kv_start) {
        p->kv_packed = 1;
        plan_bind(plan, pass, SLOT_KV_START, a->kv_start, false, &p->kv_start_offset);
    }
    if (a->paged) {
        p->page_size = a->paged->info.page_size;
        p->table_row = a->paged->table_row;
        p->n_page = a->paged->info.n_page;
        plan_bind(plan, pass, SLOT_TABLE, &a->paged->table, false, &p->table_offset);
    }
}

static void bind_log_sum(const struct vka_plan *plan, const struct attention *a,
                         const struct head_slice *s, struct pass *pass, struct attention_params *p)
{
    struct vka_tensor all;
    if (!attention_log_sum(a, &all))
        return;
    struct vka_tensor view = attention_slice(&all, s);
    struct operand_strides strides = strides_of(&all);
    p->log_sum_batch = strides.batch, p->log_sum_head = strides.head, p->log_sum_row = strides.row;
    if (a->choice.n_split == 1)
        plan_bind(plan, pass, log_sum_slot(a), &view, true, &p->log_sum_offset);
}

/* Fills in parameters and bindings that all passes of a slice share. */
static void fill_pass(const struct vka_plan *plan, const struct attention *a,
                      const struct head_slice *s, struct pass *pass, struct attention_params *p)
{
    const struct attention_choice *c = &a->choice;
    const struct attention_operands operands = attention_operands_of(a);
    const struct vka_attention_options *options = a->options;
    *pass = (struct pass){.name = "attention", .reason = c->reason};
    *p = (struct attention_params){
        .n_q = s->n_query,
        .group = a->n_head / a->n_kv_head,
        .head_dim = a->head_dim,
        .value_dim = a->value_dim,
        .batch_first = s->batch,
        .head_first = s->head,
        .query_first = s->query,
        .scale = a->scale,
        ATTENTION_DRAW(options),
        .n_feature_tile = c->n_feature_tile,
        .n_split = c->n_split,
        .split_keys = c->split_keys,
    };
    memcpy(pass->problem, c->problem, sizeof pass->problem);
    tune_attention_key(c, &operands, &pass->key);
    if (kernel_table[c->kernel].needs & NEED_ADDRESS)
        pass->n_address = 3;
    bind_operands(plan, a, s, pass, p);
    attention_bind_mask(plan, a, s, pass, SLOT_MASK, &p->mask, &p->sink_offset, &p->alibi_offset);
    bind_layout(plan, a, pass, p);
    bind_log_sum(plan, a, s, pass, p);
}

/* One pass of a slice: see struct attention_cuts. */
struct place {
    uint32_t tile, split, span; /* first tile and split; the span within the split */
    struct key_range keys;
    const struct vka_tensor *states;  /* [2], written alternately; of a key chunk [1] */
    const struct vka_tensor *records; /* where the keys are split */
};

/* Binds the state that the span before left, and the one that this span leaves. */
static void bind_state(const struct vka_plan *plan, const struct attention *a,
                       const struct attention_cuts *cuts, const struct place *place,
                       struct pass *pass, struct attention_params *p)
{
    const struct attention_choice *c = &a->choice;
    uint32_t last_split = place->split + cuts->splits - 1;
    struct key_range chain = attention_chain_keys(a, cuts, place->split);
    if (last_split > place->split)
        chain.end = place->keys.end;
    bool first = place->keys.first == chain.first, last = place->keys.end == chain.end;
    const struct vka_tensor *from = &place->states[a->key_chunk ? 0 : (place->span + 1) % 2];
    const struct vka_tensor *to = &place->states[a->key_chunk ? 0 : place->span % 2];
    if (c->n_split > 1)
        plan_bind(plan, pass, SLOT_OUTPUT, place->records, true, &p->o_offset);
    if (first && last)
        return;
    pass->key.spec[tune_state_spec(pass->key.kernel)] =
        (first ? 0 : STATE_LOAD) | (last ? 0 : STATE_STORE);
    if (!first)
        plan_bind(plan, pass, state_slot(a), from, false, NULL);
    if (!last)
        plan_bind(plan, pass, SLOT_OUTPUT, to, true, NULL);
    bool whole = c->n_split == 1; /* first and last spans are open-ended */
    p->key_first = first && whole ? 0 : place->keys.first;
    p->key_end = last && whole ? UINT32_MAX : place->keys.end;
}

/* Binds what the pass writes in slots that hold nothing: some are declared as written, and no later
 * pass reads that without a barrier. */
static void fill_slots(struct pass *pass)
{
    for (uint32_t slot = SLOT_MASK; slot < SLOT_PARAMETERS; slot++)
        if (!pass->bindings[slot].storage)
            pass->bindings[slot] = pass->bindings[SLOT_OUTPUT];
}

/* Adds one pass. common and p come from fill_pass. */
static enum vka_status add_place(struct vka_plan *plan, const struct attention *a,
                                 const struct head_slice *s, const struct attention_cuts *cuts,
                                 const struct place *place, const struct pass *common,
                                 struct attention_params p)
{
    const struct attention_choice *c = &a->choice;
    const struct attention_operands operands = attention_operands_of(a);
    uint32_t rest = c->n_split - place->split;
    struct pass pass = *common;
    struct vka_tensor parameters;
    attention_set_tiles(cuts, place->tile, &p);
    p.split_first = place->split;
    p.split_count = rest < cuts->splits ? rest : cuts->splits;
    attention_bind_keys(plan, a, s, place->keys, &pass, SLOT_MASK, &p);
    bind_state(plan, a, cuts, place, &pass, &p);
    fill_slots(&pass);
    ENSURE(plan_constant(plan, sizeof p / 4, &p, &parameters));
    plan_bind(plan, &pass, SLOT_PARAMETERS, &parameters, false, NULL);
    pass.groups[0] = p.n_tile;
    pass.groups[1] = attention_groups(a, s) * p.split_count;
    pass.groups[2] = s->n_batch;
    pass.work = attention_work(a, s, cuts->tiles, place->keys);
    size_t n = (size_t)snprintf(
        pass.detail, sizeof pass.detail, "%ux%u heads, %ux%u, %u/%u, %s*%s*%s, %u rows, %u splits",
        s->n_batch, s->n_head, s->n_query, a->n_kv, a->head_dim, a->value_dim,
        vka_dtype_name(a->q.dtype), vka_dtype_name(operands.k_type),
        vka_dtype_name(operands.v_type), c->tile, p.split_count);
    if (c->keys && n < sizeof pass.detail) /* variants of one tile differ in these */
        n += (size_t)snprintf(pass.detail + n, sizeof pass.detail - n, ", %u keys a step", c->keys);
    if (c->batch && n < sizeof pass.detail)
        n += (size_t)snprintf(pass.detail + n, sizeof pass.detail - n, ", %u loads", c->batch);
    if ((cuts->n_span > 1 || a->key_chunk) && n < sizeof pass.detail)
        snprintf(pass.detail + n, sizeof pass.detail - n, ", keys from %u", place->keys.first);
    return plan_add_pass(plan, &pass);
}

/* Takes scratch for two states of all rows of a pass, which reads one and writes the other. */
static enum vka_status make_states(struct vka_plan *plan, const struct attention *a,
                                   const struct head_slice *s, const struct attention_cuts *cuts,
                                   struct vka_tensor states[2])
{
    const struct attention_choice *c = &a->choice;
    const uint32_t size[4] = {s->n_batch, attention_groups(a, s), cuts->tiles,
                              c->tile * attention_state_pitch(c)};
    if (cuts->n_span == 1 || a->key_chunk)
        return VKA_OK;
    for (int i = 0; i < 2; i++)
        ENSURE(plan_scratch(plan, VKA_F32, size, &states[i]));
    return VKA_OK;
}

/* Adds the passes for the tiles from place->tile on, and the merging of their splits. */
static enum vka_status add_tiles(struct vka_plan *plan, const struct attention *a,
                                 const struct head_slice *s, const struct attention_cuts *cuts,
                                 struct place *place, const struct pass *common,
                                 const struct attention_params *p)
{
    const struct attention_choice *c = &a->choice;
    for (place->split = 0; place->split < c->n_split; place->split += cuts->splits)
        for (place->span = 0; place->span < cuts->n_span; place->span++) {
            place->keys = attention_pass_keys(a, cuts, place->split, place->span);
            if (place->keys.end)
                ENSURE(add_place(plan, a, s, cuts, place, common, *p));
        }
    if (c->n_split > 1 && attention_is_last(a))
        ENSURE(attention_add_merge(plan, a, s, cuts, place->tile, place->records, *p));
    return VKA_OK;
}

enum vka_status attention_add_passes(struct vka_plan *plan, const struct attention *a,
                                     const struct head_slice *s, const struct attention_cuts *cuts)
{
    const struct attention_choice *c = &a->choice;
    struct pass common;
    struct attention_params p;
    struct vka_tensor map = {0}, records = {0}, states[2] = {{0}, {0}};
    struct place place = {.states = states, .records = &records};
    fill_pass(plan, a, s, &common, &p);
    if (tune_takes_tiles(c->kernel))
        ENSURE(attention_bind_map(plan, a, s, &common, &p, &map));
    if (a->key_chunk)
        attention_state_cuts(a, s, &states[0], &records);
    else if (c->n_split > 1)
        ENSURE(attention_make_records(plan, a, s, cuts, &records));
    ENSURE(make_states(plan, a, s, cuts, states));
    for (place.tile = 0; place.tile < divide_up(cuts->n_tile, cuts->tiles); place.tile++)
        ENSURE(add_tiles(plan, a, s, cuts, &place, &common, &p));
    const struct vka_tensor *scratch[] = {&states[0], &states[1], &records, &map};
    for (size_t i = a->key_chunk ? 3 : 0; i < COUNTOF(scratch); i++)
        if (scratch[i]->storage)
            plan_scratch_free(plan, scratch[i]);
    return VKA_OK;
}
