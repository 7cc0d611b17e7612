/* Splits the keys of few rows over workgroups. */
#include "kernel/attention_split.h"
#include "core/arith.h"
#include "core/status.h"
#include "kernel/attention_family.h"

/* Processors assumed where a device does not tell, and workgroups that each should have. */
#define PROCESSORS_DISCRETE 128u
#define PROCESSORS 32u
#define WORKGROUPS_EACH 2u

/* Keys of a split. With fewer, merging costs more than it saves; with more, too few splits of a
 * partly filled cache have work. */
#define SPLIT_KEYS_LEAST 128u
#define SPLIT_KEYS_MOST 512u
#define SPLITS_MOST 256u

/* Keys of a split with a cache, whose sequences may have any length: so many that the splits of long
 * sequences have work of their own. On an H200, 32 heads by 8 of 128 in float16, 256 keys took 1.31 ms
 * for 4 x 32,768 keys and 0.024 ms for 1 x 4,096, 512 keys 1.05 and 0.028, 1,024 keys 0.93 and 0.038. */
#define SPLIT_KEYS_CACHED 512u

/* The variants of few rows with a cache, which `vkattn tune` and `bench --kernel` measure. Splits of more
 * keys have fewer beginnings and merges, those of fewer keep more processors busy. */
static const struct {
    uint32_t more, less; /* factor and divisor of the keys of a split */
    bool other_step;     /* see attention_step_variant */
} cached_variants[] = {{1, 1, false},  {2, 1, false}, {4, 1, false}, {8, 1, false},
                       {16, 1, false}, {1, 2, false}, {1, 1, true},  {4, 1, true}};

static size_t cached_variant(const struct attention_problem *p)
{
    return p->variant < COUNTOF(cached_variants) ? p->variant : COUNTOF(cached_variants) - 1;
}

uint32_t attention_step_variant(const struct attention_problem *p)
{
    const bool split = p->cached && attention_has_few_rows(p);
    return split ? cached_variants[cached_variant(p)].other_step : p->variant;
}

static uint32_t processors_of(const struct caps *caps)
{
    bool discrete = caps->properties.type == VKA_DEVICE_DISCRETE;
    return caps->processors ? caps->processors : discrete ? PROCESSORS_DISCRETE : PROCESSORS;
}

/* By types, head sizes and the device alone: not by the capacity, the batch, or the number of rows but
 * that they are few. Many rows are work enough, and are split where a chain would be too long. */
static void split_cached(const struct caps *caps, const struct attention_problem *p,
                         struct attention_choice *c)
{
    const size_t variant = cached_variant(p);
    const uint32_t keys =
        SPLIT_KEYS_CACHED * cached_variants[variant].more / cached_variants[variant].less;
    c->n_split = 1;
    if (!attention_has_few_rows(p) || kernel_missing(KERNEL_attention_merge, caps))
        return;
    c->split_keys = divide_up(keys, c->keys) * c->keys;
    c->n_split = divide_up(p->n_kv, c->split_keys);
}

void attention_split_keys(const struct caps *caps, const struct attention_problem *p,
                          struct attention_choice *c)
{
    if (p->cached) {
        split_cached(caps, p, c);
        return;
    }
    uint64_t want = (uint64_t)WORKGROUPS_EACH * processors_of(caps);
    if (p->n_row <= ATTENTION_FEW_ROWS)
        want <<= p->variant; /* `vkattn tune` measures more splits */
    uint64_t have = (p->n_row + c->tile - 1) / c->tile * p->n_kv_head * c->n_feature_tile;
    c->n_split = 1;
    if (p->ragged || have > want / 2 || kernel_missing(KERNEL_attention_merge, caps))
        return; /* only the device knows the lengths of ragged sequences */
    uint32_t keys = divide_up(p->n_kv, (uint32_t)(want / have));
    keys = keys < SPLIT_KEYS_LEAST  ? SPLIT_KEYS_LEAST
           : keys > SPLIT_KEYS_MOST ? SPLIT_KEYS_MOST
                                    : keys;
    uint32_t least = divide_up(p->n_kv, SPLITS_MOST);
    keys = keys > least ? keys : least;
    keys = keys < TUNE_CHAIN ? keys : TUNE_CHAIN;
    c->split_keys = divide_up(keys, c->keys) * c->keys;
    c->n_split = divide_up(p->n_kv, c->split_keys);
}
