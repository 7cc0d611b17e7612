/* Sizes of attention_tile. What decides the bits of a row (the keys of a step and of a piece) is
 * chosen from what its own sequence is: never from the batch. */
#include "core/arith.h"
#include "kernel/tune.h"
#include "params.h"

/* Most bytes of shared memory of a workgroup, so that a processor has room for several. */
#define SHARED_AIM 32768u

#define VALUE_VEC4 16u /* vec4 of context in registers of an invocation, all its rows */
#define CHUNK_VEC4 8u  /* vec4 of context in registers of an invocation, one row */

/* Processors assumed, and workgroups that each should have. */
#define PROCESSORS_DISCRETE 128u
#define PROCESSORS 32u
#define WORKGROUPS_EACH 2u

/* Keys of a split. With fewer, merging costs more than it saves; with more, too few splits of a
 * partly filled cache have work. */
#define PIECE_LEAST 128u
#define PIECE_MOST 512u
#define PIECES_MOST 256u

uint64_t tune_attention_shared(const struct attention_choice *c)
{
    uint64_t rows = c->tile, keys = c->keys;
    uint64_t q = rows * TILE_PITCH(c->q_whole ? c->head4 : c->depth4);
    uint64_t k_stage = keys * TILE_PITCH(c->depth4), v_stage = (uint64_t)c->v_keys * c->value4;
    uint64_t weights = rows * TILE_WEIGHT_PITCH(c->lanes);
    uint64_t words = rows * c->lanes + 2 * rows + 4;
    return 16 * (q + (k_stage > v_stage ? k_stage : v_stage) + weights) + 4 * words;
}

static void set_chunks(const struct attention_problem *p, uint32_t n, struct attention_choice *c)
{
    uint32_t value4 = divide_up(p->value_dim, 4);
    c->value4 = divide_up(value4, n);
    c->n_chunk = divide_up(value4, c->value4);
}

/* Sets all that follows from lanes, lanes_y, rows and the depth of the stage. */
static void derive(const struct attention_problem *p, uint32_t depth4, struct attention_choice *c)
{
    uint32_t head4 = divide_up(p->head_dim, 4);
    uint32_t stages = divide_up(head4, depth4);
    c->depth4 = divide_up(head4, stages);
    c->head4 = c->depth4 * stages;
    c->tile = c->lanes_y * c->rows;
    uint32_t stage4 = c->keys * TILE_PITCH(c->depth4);
    for (c->v_keys = c->keys; c->v_keys > 4 && c->v_keys * c->value4 > stage4;)
        c->v_keys /= 2;
}

/* Sets lanes and rows by the rows of the problem, before they shrink to fit memory. */
static void begin(const struct attention_problem *p, struct attention_choice *c)
{
    bool few = !p->ragged && p->n_row <= TUNE_FEW_ROWS;
    c->lanes = few ? 32 : 8;
    c->keys = 4 * c->lanes;
    set_chunks(p, divide_up(divide_up(p->value_dim, 4), CHUNK_VEC4 * c->lanes), c);
    uint32_t rows = VALUE_VEC4 / divide_up(c->value4, c->lanes);
    c->rows = rows < 4 ? rows : 4;
    while (c->rows > 1 && p->n_row < c->rows)
        c->rows--;
    c->lanes_y = 16;
    if (few)
        c->lanes_y = divide_up((uint32_t)p->n_row, c->rows);
    while (!few && c->rows > 1 && p->n_row <= (uint64_t)c->lanes_y * (c->rows - 1))
        c->rows--;
    c->q_whole = true;
}

/* Takes the cheapest step that shrinks the tile; false where none is left. */
static bool shrink(const struct attention_problem *p, struct attention_choice *c, uint32_t *depth4)
{
    if (c->rows > 2)
        c->rows--;
    else if (c->q_whole)
        c->q_whole = false;
    else if (*depth4 > 4)
        *depth4 /= 2;
    else if (c->rows > 1)
        c->rows--;
    else if (c->lanes_y > 1)
        c->lanes_y /= 2;
    else if (*depth4 > 1)
        *depth4 /= 2;
    else if (c->value4 > 1)
        set_chunks(p, 2 * c->n_chunk, c);
    else
        return false;
    return true;
}

void tune_cut_keys(const struct caps *caps, const struct attention_problem *p,
                   struct attention_choice *c)
{
    bool discrete = caps->properties.type == VKA_DEVICE_DISCRETE;
    uint64_t want = WORKGROUPS_EACH * (discrete ? PROCESSORS_DISCRETE : PROCESSORS);
    if (p->n_row <= TUNE_FEW_ROWS)
        want <<= p->variant; /* to be measured: more splits */
    uint64_t have = (p->n_row + c->tile - 1) / c->tile * p->n_kv_head * c->n_chunk;
    c->n_piece = 1;
    if (p->ragged || have > want / 2 || kernel_missing(KERNEL_attention_merge, caps))
        return; /* only the device knows the lengths of ragged sequences */
    uint32_t keys = divide_up(p->n_kv, (uint32_t)(want / have));
    keys = keys < PIECE_LEAST ? PIECE_LEAST : keys > PIECE_MOST ? PIECE_MOST : keys;
    uint32_t least = divide_up(p->n_kv, PIECES_MOST);
    keys = keys > least ? keys : least;
    keys = keys < TUNE_CHAIN ? keys : TUNE_CHAIN;
    c->piece_keys = divide_up(keys, c->keys) * c->keys;
    c->n_piece = divide_up(p->n_kv, c->piece_keys);
}

bool tune_attention_tile(const struct caps *caps, const struct attention_problem *problem,
                         struct attention_choice *choice)
{
    uint32_t limit = caps->properties.max_shared_memory;
    uint32_t depth4 = !problem->ragged && problem->n_row <= TUNE_FEW_ROWS ? 4 : 16;
    limit = limit < SHARED_AIM ? limit : SHARED_AIM;
    if (problem->n_row > TUNE_FEW_ROWS)
        limit >>= problem->variant; /* to be measured: smaller tiles */
    struct attention_choice c = {.usable = true, .kernel = KERNEL_attention_tile};
    c.preferred = caps->properties.type != VKA_DEVICE_CPU; /* CPU drivers pay for every barrier */
    begin(problem, &c);
    derive(problem, depth4, &c);
    while (tune_attention_shared(&c) > limit ||
           c.lanes * c.lanes_y > caps->properties.max_workgroup) {
        if (!shrink(problem, &c, &depth4))
            return false;
        derive(problem, depth4, &c);
    }
    tune_cut_keys(caps, problem, &c);
    c.map = problem->mask && problem->n_row > c.tile && !kernel_missing(KERNEL_attention_map, caps);
    c.reason = c.n_piece > 1 ? "one pass over tiles in shared memory; few rows: keys are split"
               : c.q_whole   ? "one pass over tiles in shared memory"
                             : "one pass over tiles in shared memory, q staged with the keys";
    *choice = c;
    return true;
}
