/* Loop iterations of an invocation of the fused kernels: at least as many as a driver makes that
 * unrolls loops of four and those with a hint. Each loop counts one more than its turns, as the
 * last test does. */
#include "op/attention/budget.h"

#include <math.h>

#define ROW_STEP 4u /* keys of a step; of attention_address 8 */
#define ADDRESS_STEP 8u
#define LARGE_ROW 64u /* LARGE_VEC4 of the shaders: beyond, loops over features stay loops */
#define LARGE_ADDRESS 160u
#define PHILOX 12.0 /* of a draw of dropout */

/* A row that saw no key reads all values. */
static double dead_key(const struct attention *a, double value_turns)
{
    bool may_read = a->options->masked_row == VKA_MASKED_UNIFORM && attention_hides(a);
    double draw = a->options->dropout != 0 ? PHILOX : 0;
    return may_read ? 1 + draw + value_turns : 0;
}

static double row_loops(const struct attention *a, double keys)
{
    const struct attention_choice *c = &a->choice;
    bool address = c->kernel == KERNEL_attention_address;
    double head = c->head4 + 1.0, value = c->value4 + 1.0, rows = c->rows;
    double unit = address ? ADDRESS_STEP : ROW_STEP, step = 2;
    if (c->head4 + c->value4 > (address ? LARGE_ADDRESS : LARGE_ROW))
        step += address ? 2 * head + 10 * value : head + (rows + 1) * value;
    if (a->options->dropout != 0)
        step += rows * unit * PHILOX;
    else if (a->options->mask || a->options->alibi || a->options->softcap != 0)
        step += 2 * rows * unit;
    double blocks = ceil(keys / ATTENTION_BLOCK + 1) * (2 + 2 * rows * value);
    double ends =
        blocks + 5 * rows * (head + 2 * value) + 64; /* loading q and the state, storing */
    return ends + ceil(keys / unit + 1) * step + rows * keys * dead_key(a, value);
}

static double tile_loops(const struct attention *a, double keys)
{
    const struct attention_choice *c = &a->choice;
    double threads = (double)c->lanes * c->lanes_y, stages = (double)c->head4 / c->depth4;
    double rows = c->rows, parts = (double)c->keys / c->v_keys;
    double own = divide_up(c->value4, c->lanes) + 1.0;
    double score = stages * (c->keys * c->depth4 / threads + c->depth4 + 4.0) + 1;
    if (!c->q_whole)
        score += stages * (c->tile * c->depth4 / threads + 2.0);
    double bias = 4 * rows + 1, weigh = rows * (c->lanes / 4 + 1.0);
    double draw = a->options->dropout != 0 ? (PHILOX + 1) * 4 * rows + 1 : 0;
    double add = parts * (c->v_keys * c->value4 / threads + c->v_keys + 4.0) + 1;
    double step = 1 + score + bias + weigh + draw + add;
    double ends = c->tile * c->head4 / threads + rows * (20 * own + 4 * c->lanes) + 64;
    return ends + ceil(keys / c->keys + 1) * step + rows * own * keys * dead_key(a, 1);
}

/* Within a factor of two: CPU drivers that end loops have no matrices. */
static double coop_loops(const struct attention *a, double keys)
{
    const struct attention_choice *c = &a->choice;
    double loads = 9.0 * c->keys * (c->head4 + c->value4) / 2 / c->lanes;
    double odd = (double)c->keys * c->size.m * c->size.n * ATTENTION_COOP_SUBGROUPS / c->lanes *
                 divide_up(4 * c->value4, c->size.n);
    double weigh = (3 + (a->options->dropout != 0 ? PHILOX : 0)) * c->keys;
    return 1024 + ceil(keys / c->keys + 1) * (loads + odd + weigh) + keys * dead_key(a, c->value4);
}

double attention_count_loops(const struct attention *a, double keys)
{
    const struct attention_choice *c = &a->choice;
    double sequences = a->n_sequence ? 33 : 0; /* a search by halves */
    if (tune_is_coop(c->kernel))
        return sequences + coop_loops(a, keys);
    if (c->kernel == KERNEL_attention_tile)
        return sequences + tile_loops(a, keys);
    return sequences + row_loops(a, keys);
}
