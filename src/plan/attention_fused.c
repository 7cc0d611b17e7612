/* Attention in one pass: the whole of a row's softmax in registers, no buffer of scores. */
#include "plan/attention_block.h"
#include "plan/attention_keys.h"
#include "plan/attention_tile.h"
#include "plan/cache.h"
#include "plan/choose.h"

#include <stdio.h>
#include <string.h>

#define SLOT_OUTPUT 3
#define SLOT_MASK 4 /* mask, kv_length, query_offset, sink, alibi */
#define SLOT_TABLE 9
#define SLOT_Q_START 10
#define SLOT_KV_START 11
#define SLOT_PARAMETERS 12

/* Whether rows begin at whole vec4, and whether they also end so. */
static bool begins_vec4(const struct vka_tensor *t)
{
    const struct shape *s = &t->shape;
    bool whole = s->offset % 4 == 0;
    for (int i = 0; i < 3; i++)
        whole &= s->size[i] == 1 || s->stride[i] % 4 == 0;
    return whole;
}

static bool rows_of_vec4(const struct vka_tensor *t)
{
    return begins_vec4(t) && t->shape.size[3] % 4 == 0;
}

/* The same of 16-bit elements, of which 16 bytes are eight. */
static bool rows_of_chunks(const struct vka_tensor *t)
{
    const struct shape *s = &t->shape;
    bool whole = s->offset % 8 == 0 && s->size[3] % 8 == 0;
    for (int i = 0; i < 3; i++)
        whole &= s->size[i] == 1 || s->stride[i] % 8 == 0;
    return whole;
}

void attention_choose(const struct vka_plan *plan, const struct attention *a,
                      struct attention_choice *choice)
{
    bool share = plan->whole_n_head != 0;
    uint32_t n_kv_head = share ? plan->whole_n_kv_head : a->n_kv_head;
    uint32_t n_head = share ? plan->whole_n_head : a->n_head;
    const struct attention_problem problem = {
        .batch = a->batch,
        .n_kv_head = n_kv_head,
        .n_row = (uint64_t)(plan->whole_n_q ? plan->whole_n_q : a->n_q) * (n_head / n_kv_head),
        .n_kv = a->n_kv,
        .head_dim = a->head_dim,
        .value_dim = a->value_dim,
        .q_type = a->q.dtype,
        .kv_type = a->k.dtype,
        .v_type = a->v.dtype,
        .o_type = a->output.dtype,
        .address = a->head_dim % 4 == 0 && a->value_dim % 4 == 0,
        .ragged = a->n_sequence > 0,
        .mask = a->options->mask,
    };
    choose_attention(&plan->device->caps, &problem, choice);
}

static bool is_general(const struct vka_attention_options *o)
{
    return o->mask || o->softcap != 0 || o->alibi || o->dropout != 0;
}

static void set_row_key(const struct attention *a, const struct attention_choice *c,
                        struct pipeline_key *key)
{
    *key = (struct pipeline_key){.kernel = c->kernel, .n_spec = ATTENTION_SPECS};
    key->spec[ATTENTION_LANES] = c->lanes;
    key->spec[ATTENTION_ROWS] = c->rows;
    key->spec[ATTENTION_HEAD4] = c->head4;
    key->spec[ATTENTION_VALUE4] = c->value4;
    key->spec[ATTENTION_Q_TYPE] = a->q.dtype;
    key->spec[ATTENTION_K_TYPE] = a->k.dtype;
    key->spec[ATTENTION_V_TYPE] = a->v.dtype;
    key->spec[ATTENTION_O_TYPE] = a->output.dtype;
    key->spec[ATTENTION_K_VEC] = rows_of_vec4(&a->k) && 4 * c->head4 == a->head_dim;
    key->spec[ATTENTION_V_VEC] = rows_of_vec4(&a->v) && 4 * c->value4 == a->value_dim;
    key->spec[ATTENTION_GENERAL] = is_general(a->options);
}

static void set_tile_key(const struct attention *a, const struct attention_choice *c,
                         struct pipeline_key *key)
{
    *key = (struct pipeline_key){.kernel = c->kernel, .n_spec = TILE_SPECS};
    key->spec[TILE_LANES_X] = c->lanes;
    key->spec[TILE_LANES_Y] = c->lanes_y;
    key->spec[TILE_ROWS] = c->rows;
    key->spec[TILE_HEAD4] = c->head4;
    key->spec[TILE_DEPTH4] = c->depth4;
    key->spec[TILE_VALUE4] = c->value4;
    key->spec[TILE_V_KEYS] = c->v_keys;
    key->spec[TILE_Q_TYPE] = a->q.dtype;
    key->spec[TILE_K_TYPE] = a->k.dtype;
    key->spec[TILE_V_TYPE] = a->v.dtype;
    key->spec[TILE_O_TYPE] = a->output.dtype;
    key->spec[TILE_K_VEC] = rows_of_vec4(&a->k);
    key->spec[TILE_V_VEC] = rows_of_vec4(&a->v);
    key->spec[TILE_GENERAL] = is_general(a->options);
    key->spec[TILE_Q_WHOLE] = c->q_whole;
    key->spec[TILE_PIECES] = c->n_piece > 1;
}

static void set_coop_key(const struct attention *a, const struct attention_choice *c,
                         struct pipeline_key *key)
{
    *key = (struct pipeline_key){.kernel = c->kernel, .n_spec = ATTENTION_COOP_SPECS};
    key->spec[ATTENTION_COOP_THREADS] = c->lanes;
    key->spec[ATTENTION_COOP_M] = c->size.m;
    key->spec[ATTENTION_COOP_N] = c->size.n;
    key->spec[ATTENTION_COOP_K] = c->size.k;
    key->spec[ATTENTION_COOP_HEAD] = 4 * c->head4;
    key->spec[ATTENTION_COOP_VALUE] = 4 * c->value4;
    key->spec[ATTENTION_COOP_KEYS] = c->keys;
    key->spec[ATTENTION_COOP_O_TYPE] = a->output.dtype;
    key->spec[ATTENTION_COOP_K_VEC] = rows_of_chunks(&a->k);
    key->spec[ATTENTION_COOP_V_VEC] = rows_of_chunks(&a->v);
    key->spec[ATTENTION_COOP_GENERAL] = is_general(a->options);
    key->spec[ATTENTION_COOP_PIECES] = c->n_piece > 1;
}

struct operand_strides {
    uint32_t batch, head, row;
};

static struct operand_strides strides_of(const struct vka_tensor *t)
{
    const uint64_t *s = t->shape.stride;
    return (struct operand_strides){(uint32_t)s[0], (uint32_t)s[1], (uint32_t)s[2]};
}

static void bind_operands(const struct vka_plan *plan, const struct attention *a,
                          const struct slice *s, struct pass *pass, struct attention_params *p)
{
    struct vka_tensor q = attention_slice(&a->q, s), o = attention_slice(&a->output, s);
    struct operand_strides sq = strides_of(&q), sk = strides_of(&a->k);
    struct operand_strides sv = strides_of(&a->v), so = strides_of(&o);
    plan_bind(plan, pass, 0, &q, false, &p->q_offset);
    for (uint32_t slot = SLOT_MASK; slot < SLOT_PARAMETERS; slot++)
        plan_bind(plan, pass, slot, &q, false, NULL); /* where nothing else is */
    plan_bind(plan, pass, 3, &o, true, &p->o_offset);
    p->q_batch = sq.batch, p->q_head = sq.head, p->q_row = sq.row;
    p->k_batch = sk.batch, p->k_head = sk.head, p->k_row = sk.row;
    p->v_batch = sv.batch, p->v_head = sv.head, p->v_row = sv.row;
    p->o_batch = so.batch, p->o_head = so.head, p->o_row = so.row;
}

/* Where the sequences of a ragged batch and the blocks of a paged cache lie. */
static void bind_layout(const struct vka_plan *plan, const struct attention *a, struct pass *pass,
                        struct attention_params *p)
{
    if (a->n_sequence) {
        p->n_sequence = a->n_sequence;
        plan_bind(plan, pass, SLOT_Q_START, a->q_start, false, &p->q_start_offset);
        plan_bind(plan, pass, SLOT_KV_START, a->kv_start, false, &p->kv_start_offset);
    }
    if (a->paged) {
        p->page = a->paged->info.block_size;
        p->table_row = a->paged->n_page;
        p->n_page = a->paged->info.n_block;
        plan_bind(plan, pass, SLOT_TABLE, &a->paged->table, false, &p->table_offset);
    }
}

/* Parameters and bindings that all passes of a slice have in common. */
static void fill_pass(const struct vka_plan *plan, const struct attention *a,
                      const struct attention_choice *c, const struct slice *s, struct pass *pass,
                      struct attention_params *p)
{
    const struct vka_attention_options *o = a->options;
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
        .softcap = o->softcap,
        .dropout = o->dropout,
        .seed_low = (uint32_t)o->dropout_seed,
        .seed_high = (uint32_t)(o->dropout_seed >> 32),
        .draw_place = o->dropout_batch << 16 | o->dropout_head,
        .draw_query = o->dropout_query,
    };
    memcpy(pass->problem, c->problem, sizeof pass->problem);
    if (attention_is_coop(c->kernel))
        set_coop_key(a, c, &pass->key);
    else if (c->kernel == KERNEL_attention_tile)
        set_tile_key(a, c, &pass->key);
    else
        set_row_key(a, c, &pass->key);
    if (kernel_table[c->kernel].needs & NEED_ADDRESS)
        pass->n_address = 3;
    bind_operands(plan, a, s, pass, p);
    attention_bind_mask(plan, a, s, pass, SLOT_MASK, &p->mask, &p->sink_offset, &p->alibi_offset);
    bind_layout(plan, a, pass, p);
}

/* One pass of a slice: tiles of rows from parts->tile on, pieces of the keys from parts->piece on,
 * and a span of the keys. */
struct part {
    uint32_t tile, piece, span;
    const struct vka_tensor *states; /* two, written in turn */
};

/* The constant that says what the kernel does with the state. */
static uint32_t state_spec(enum kernel kernel)
{
    if (attention_is_coop(kernel))
        return ATTENTION_COOP_STATE;
    return kernel == KERNEL_attention_tile ? TILE_STATE : ATTENTION_STATE;
}

/* Where a span finds the state that the one before left, and leaves its own. */
static void bind_state(const struct vka_plan *plan, const struct attention *a,
                       const struct attention_parts *parts, const struct part *part,
                       struct pass *pass, struct attention_params *p)
{
    bool first = part->span == 0 && a->key_first == 0;
    bool last = part->span + 1 == parts->n_span && attention_is_last(a);
    const struct vka_tensor *from = a->n_block ? a->state : &part->states[(part->span + 1) % 2];
    const struct vka_tensor *to = a->n_block ? a->state : &part->states[part->span % 2];
    uint32_t load = a->n_sequence ? SLOT_TABLE : SLOT_Q_START;
    if (first && last)
        return;
    pass->key.spec[state_spec(pass->key.kernel)] =
        (first ? 0 : STATE_LOAD) | (last ? 0 : STATE_STORE);
    if (!first)
        plan_bind(plan, pass, load, from, false, NULL);
    if (!last)
        plan_bind(plan, pass, SLOT_OUTPUT, to, true, NULL);
    p->key_first = first ? 0 : parts->key + part->span * parts->keys;
    p->key_end = last ? UINT32_MAX : attention_span_end(a, parts, part->span);
}

/* common and p are what fill_pass and tile_prepare left. */
static enum vka_status add_part(struct vka_plan *plan, const struct attention *a,
                                const struct attention_choice *c, const struct slice *s,
                                const struct attention_parts *parts, const struct part *part,
                                const struct pass *common, struct attention_params p)
{
    enum vka_status status = VKA_OK;
    bool tile = attention_takes_tiles(c->kernel);
    uint32_t rest = tile ? c->n_piece - part->piece : 1;
    struct pass pass = *common;
    struct vka_tensor parameters;
    p.tile_first = part->tile;
    p.piece_first = part->piece;
    p.piece_count = rest < parts->pieces ? rest : parts->pieces;
    attention_bind_keys(plan, a, c, s, parts, part->span, part->piece, &pass, SLOT_MASK, &p);
    bind_state(plan, a, parts, part, &pass, &p);
    TRY(plan_constant(plan, VKA_I32, (const uint32_t[]){1, 1, 1, sizeof p / 4}, &p, &parameters));
    plan_bind(plan, &pass, SLOT_PARAMETERS, &parameters, false, NULL);
    rest = parts->n_tile - part->tile;
    pass.groups[0] = rest < parts->tiles ? rest : parts->tiles;
    pass.groups[1] = attention_groups(a, c, s) * p.piece_count;
    pass.groups[2] = s->n_batch;
    pass.work = attention_span_work(a, c, s, parts, part->span);
    pass.work.ops *= (double)p.piece_count / (tile ? c->n_piece : 1);
    size_t n = (size_t)snprintf(
        pass.detail, sizeof pass.detail, "%ux%u heads, %ux%u, %u/%u, %s*%s*%s, %u rows, %u pieces",
        s->n_batch, s->n_head, s->n_query, a->n_kv, a->head_dim, a->value_dim,
        vka_dtype_name(a->q.dtype), vka_dtype_name(a->k.dtype), vka_dtype_name(a->v.dtype), c->tile,
        p.piece_count);
    if ((parts->n_span > 1 || a->n_block) && n < sizeof pass.detail)
        snprintf(pass.detail + n, sizeof pass.detail - n, ", keys from %u", p.key_first);
    TRY(plan_add_pass(plan, &pass));
fail:
    return status;
}

/* Scratch for the state of all rows of a pass: two, as one pass reads what the other wrote. */
static enum vka_status make_states(struct vka_plan *plan, const struct attention *a,
                                   const struct attention_choice *c, const struct slice *s,
                                   const struct attention_parts *parts, struct vka_tensor states[2])
{
    enum vka_status status = VKA_OK;
    const uint32_t size[4] = {s->n_batch, attention_groups(a, c, s), parts->tiles,
                              c->tile * attention_state_pitch(c)};
    if (parts->n_span == 1 || a->n_block)
        return VKA_OK;
    for (int i = 0; i < 2; i++)
        TRY(plan_scratch(plan, VKA_F32, size, &states[i]));
fail:
    return status;
}

enum vka_status attention_add_parts(struct vka_plan *plan, const struct attention *a,
                                    const struct attention_choice *c, const struct slice *s,
                                    const struct attention_parts *parts)
{
    enum vka_status status = VKA_OK;
    struct pass common;
    struct attention_params p;
    struct tile_scratch scratch = {0};
    struct vka_tensor states[2] = {{0}, {0}};
    struct part part = {.states = states};
    bool tile = attention_takes_tiles(c->kernel);
    fill_pass(plan, a, c, s, &common, &p);
    if (tile)
        TRY(tile_prepare(plan, a, c, s, &common, &p, &scratch));
    TRY(make_states(plan, a, c, s, parts, states));
    for (part.tile = 0; part.tile < parts->n_tile; part.tile += parts->tiles)
        for (part.piece = 0; part.piece < (tile ? c->n_piece : 1); part.piece += parts->pieces)
            for (part.span = 0; part.span < parts->n_span; part.span++)
                TRY(add_part(plan, a, c, s, parts, &part, &common, p));
    for (int i = 0; i < 2; i++)
        if (states[i].storage)
            plan_scratch_free(plan, &states[i]);
    if (tile)
        TRY(tile_finish(plan, a, c, s, &scratch));
fail:
    return status;
}

/* Whether one head fits a binding. */
static bool head_fits(const struct vka_plan *plan, const struct vka_tensor *t)
{
    struct vka_tensor one = tensor_part(t, 0, 0, 1);
    one = tensor_part(&one, 1, 0, 1);
    return plan_range(plan, &one) <= plan->device->caps.properties.max_buffer_range;
}

/* A tensor whose rows are contiguous and, of keys and values, not so far apart that a head passes a
 * binding: itself, or a copy in scratch. */
static enum vka_status with_contiguous_rows(struct vka_plan *plan, struct vka_tensor *t, bool whole)
{
    enum vka_status status = VKA_OK;
    struct vka_tensor copy;
    bool contiguous = t->shape.size[3] == 1 || t->shape.stride[3] == 1;
    bool close = t->shape.size[2] == 1 || t->shape.stride[2] == t->shape.size[3];
    if (contiguous && (!whole || close || head_fits(plan, t)))
        return VKA_OK;
    TRY(plan_scratch(plan, t->dtype, t->shape.size, &copy));
    TRY(plan_copy(plan, "pack", t, &copy));
    *t = copy;
fail:
    return status;
}

/* A tensor that can be read as texels, rows padded to whole vec4: itself, or a copy in scratch. */
static enum vka_status with_texels(struct vka_plan *plan, struct vka_tensor *t)
{
    enum vka_status status = VKA_OK;
    const uint32_t *size = t->shape.size;
    struct vka_tensor copy;
    if (t->dtype == VKA_F32 && begins_vec4(t) && plan_is_ours(plan, t))
        return VKA_OK;
    TRY(plan_scratch(plan, VKA_F32,
                     (const uint32_t[]){size[0], size[1], size[2], (size[3] + 3) / 4 * 4}, &copy));
    copy.shape.size[3] = size[3];
    TRY(plan_copy(plan, "pack", t, &copy));
    *t = copy;
fail:
    return status;
}

/* A tensor that can be read by address: itself, or a copy in scratch. What the kernel is must not
 * depend on where operands lie, as another one gives other bits. */
static enum vka_status with_address(struct vka_plan *plan, struct vka_tensor *t)
{
    enum vka_status status = VKA_OK;
    struct vka_tensor copy;
    if (rows_of_vec4(t) && plan_is_ours(plan, t))
        return VKA_OK;
    TRY(plan_scratch(plan, t->dtype, t->shape.size, &copy));
    TRY(plan_copy(plan, "pack", t, &copy));
    *t = copy;
fail:
    return status;
}

bool attention_fuses(const struct vka_plan *plan, const struct attention *a)
{
    struct attention_choice choice;
    if (plan->path != VKA_PATH_AUTO)
        return plan->path == VKA_PATH_FUSED;
    attention_choose(plan, a, &choice);
    return a->n_sequence || a->n_block || (choice.usable && choice.preferred);
}

enum vka_status plan_attention_fused(struct vka_plan *plan, const struct attention *a)
{
    enum vka_status status = VKA_OK;
    struct attention_choice choice;
    struct attention b = *a;
    attention_choose(plan, a, &choice);
    if (!choice.usable)
        return log_error(&plan->device->log, VKA_UNSUPPORTED,
                         "no fused attention here: the kernel %s %s",
                         kernel_table[choice.kernel].name, choice.reason);
    TRY(with_contiguous_rows(plan, &b.q, false));
    TRY(with_contiguous_rows(plan, &b.k, !a->paged));
    TRY(with_contiguous_rows(plan, &b.v, !a->paged));
    if (choice.kernel == KERNEL_attention_texel) {
        TRY(with_texels(plan, &b.k));
        TRY(with_texels(plan, &b.v));
    }
    if (choice.kernel == KERNEL_attention_address) {
        TRY(with_address(plan, &b.q));
        TRY(with_address(plan, &b.k));
        TRY(with_address(plan, &b.v));
    }
    bool scattered =
        attention_is_last(a) && b.output.shape.size[3] != 1 && b.output.shape.stride[3] != 1;
    if (scattered)
        TRY(plan_scratch(plan, a->output.dtype, a->output.shape.size, &b.output));
    TRY(attention_add_slices(plan, &b, &choice));
    if (scattered)
        TRY(plan_copy(plan, "unpack", &b.output, &a->output));
    if (a->options->scores)
        TRY(plan_attention_scores(plan, a));
fail:
    return status;
}
