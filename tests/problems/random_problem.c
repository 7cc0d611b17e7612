/* Draws attention problems over the whole contract. */
#include "problem.h"
#include "types.h"

#include <gpu/kernels.h>

#include <math.h>

static const struct problem_bounds usual_bounds = {
    .work = 3e7, .scores = 4e6, .rows = 300, .past = 100};

uint32_t problem_draw_size(struct rng *rng, uint32_t most)
{
    const uint32_t least = most > 4096 ? 256 : 1;
    double x = exp(rng_uniform(rng, log((double)least), log((double)most + 1)));
    uint32_t n = (uint32_t)x;
    if (rng_chance(rng, 25)) {
        uint32_t power = 1;
        while (power <= n / 2)
            power *= 2;
        n = power + rng_range(rng, 0, 2) - 1;
        if (power == 65536 && rng_chance(rng, 50))
            n = 65535 + rng_range(rng, 0, 2);
    }
    return n < least ? least : n > most ? most : n;
}

/* Mostly small, some up to `most`, with the sizes that kernels round to and their neighbours. */
static uint32_t draw_length(struct rng *rng, uint32_t most)
{
    static const uint32_t edges[] = {1, 4, 7, 8, 9, 16, 31, 32, 33, 63, 64, 65, 128, 129};
    uint32_t kind = rng_range(rng, 0, 9), n;
    if (kind < 5)
        n = rng_range(rng, 1, 24);
    else if (kind < 8)
        n = edges[rng_range(rng, 0, sizeof edges / sizeof edges[0] - 1)];
    else
        n = rng_range(rng, 1, most);
    return n < most ? n : most;
}

/* attention_row is compiled for each size of head, and CPU drivers take seconds for each of those
 * it unrolls. */
static uint32_t draw_dim(struct rng *rng, const struct problem *p)
{
    static const uint32_t few[] = {1, 4, 6, 8, 16, 260, 323, 576};
    if (p->path == VKA_PATH_FUSED && !set_has(p->disabled_kernels, KERNEL_attention_row))
        return few[rng_range(rng, 0, sizeof few / sizeof few[0] - 1)];
    static const uint32_t usual[] = {4, 8, 16, 32, 40, 64, 80, 128, 192, 256, 512, 576};
    uint32_t kind = rng_range(rng, 0, 9);
    if (kind < 4)
        return usual[rng_range(rng, 0, kind == 0 ? 11 : 6)];
    return rng_range(rng, 1, kind == 9 ? 576 : 80);
}

static double work_of(const struct problem *p, const struct problem_bounds *bounds)
{
    double scores = (double)p->batch * p->n_kv_head * p->group * p->n_q;
    scores *= (double)p->n_past + p->n_new;
    double work = scores * (p->head_dim + p->value_dim);
    return scores > bounds->scores ? fmax(work, 2 * bounds->work) : work;
}

/* Either fused kernel, whichever the device prefers, and the tile kernel without what goes with
 * it. */
static void draw_kernels(struct problem *p, struct rng *rng)
{
    const struct kernel_set tile = KERNEL_SET(KERNEL_attention_tile, KERNEL_attention_tile_mixed);
    const struct kernel_set address =
        KERNEL_SET(KERNEL_attention_address, KERNEL_attention_feature);
    const struct kernel_set rows = set_union(address, KERNEL_SET(KERNEL_attention_row));
    p->disabled_kernels = rng_chance(rng, 50) ? rows : tile;
    if (rng_chance(rng, 50))
        set_join(&p->disabled_kernels, address);
    if (rng_chance(rng, 25))
        set_add(&p->disabled_kernels, KERNEL_attention_map);
    if (rng_chance(rng, 25))
        set_add(&p->disabled_kernels, KERNEL_attention_merge);
}

static void draw_sizes(struct problem *p, struct rng *rng, const struct problem_bounds *bounds)
{
    double most = rng_chance(rng, 2) ? 5 * bounds->work : bounds->work;
    p->batch = rng_range(rng, 1, 4);
    p->n_kv_head = rng_range(rng, 1, 4);
    p->group = rng_chance(rng, 50) ? 1 : rng_range(rng, 1, 4);
    p->n_q = rng_chance(rng, 15) ? 1 : draw_length(rng, bounds->rows);
    p->n_new = draw_length(rng, bounds->rows);
    p->n_past = rng_chance(rng, 25) ? draw_length(rng, bounds->past) : 0;
    p->head_dim = draw_dim(rng, p);
    p->value_dim = rng_chance(rng, 60) ? p->head_dim : draw_dim(rng, p);
    while (work_of(p, bounds) > most) { /* all the sizes are kept possible, only not all at once */
        uint32_t *axes[] = {&p->batch, &p->n_kv_head, &p->group, &p->n_q, &p->n_new};
        uint32_t *axis = axes[rng_range(rng, 0, 4)];
        *axis = (*axis + 1) / 2;
    }
}

static void draw_types(struct problem *p, struct rng *rng)
{
    p->q = type_draw_float(rng);
    p->k = rng_chance(rng, 60) ? p->q : type_draw_float(rng);
    p->v = rng_chance(rng, 60) ? p->k : type_draw_float(rng);
    p->output = rng_chance(rng, 60) ? p->q : type_draw_float(rng);
    p->past = rng_chance(rng, 60) ? p->k : type_draw_float(rng);
    p->present = rng_chance(rng, 60) ? p->k : type_draw_float(rng);
    p->has_present = rng_chance(rng, p->n_past ? 60 : 10);
    p->scattered = rng_chance(rng, 70);
}

void problem_draw(struct problem *p, uint64_t seed, enum vka_path path)
{
    problem_draw_within(p, seed, path, &usual_bounds);
}

void problem_draw_within(struct problem *p, uint64_t seed, enum vka_path path,
                         const struct problem_bounds *bounds)
{
    struct rng rng = {seed};
    *p = (struct problem){.seed = seed, .path = path};
    draw_kernels(p, &(struct rng){~seed});
    p->log_sum = rng_chance(&(struct rng){seed ^ 0x10957}, 30);
    draw_sizes(p, &rng, bounds);
    draw_types(p, &rng);
    problem_draw_options(p, &rng);
    if (rng_chance(&rng, 40)) { /* a few rows of scores at a time */
        uint64_t row = 4ull * (p->n_past + p->n_new + 3);
        p->workspace_limit = row * rng_range(&rng, 1, 3 * p->n_q);
    }
}

void problem_vary(struct problem *p, uint64_t seed)
{
    struct rng rng = {seed ^ 0xa11ce};
    const uint32_t n_kv = problem_n_kv(p), full[] = {p->batch, problem_n_head(p), p->n_q, n_kv};
    uint32_t *axes[] = {&p->batch, &p->n_q, &p->n_new};
    for (int i = 0; i < 3; i++)
        *axes[i] -= rng_range(&rng, 0, i == 0 ? p->batch - 1 : *axes[i] / 4);
    const uint32_t now[] = {p->batch, problem_n_head(p), p->n_q, problem_n_kv(p)};
    for (uint32_t i = 0; i < p->mask_rank; i++) {
        const uint32_t axis = 4 - p->mask_rank + i;
        uint32_t *size = &p->mask_shape[i];
        if (*size == full[axis] || *size > now[axis]) /* the keys' may also end early */
            *size = now[axis];
    }
    p->seed = seed;
    if (p->dropout > 0)
        p->dropout_seed = rng_next(&rng);
}

void problem_share(struct problem *p, uint64_t set)
{
    static const struct {
        enum vka_dtype input, output;
        bool scattered;
        uint32_t head_dim, value_dim;
    } sets[PROBLEM_SHARED] = {
        {VKA_F32, VKA_F32, false, 8, 8},
        {VKA_F32, VKA_F16, true, 8, 6},
        {VKA_F16, VKA_F16, false, 8, 8},
        {VKA_BF16, VKA_F32, true, 6, 10},
    };
    set %= PROBLEM_SHARED;
    p->q = p->k = p->v = p->past = p->present = sets[set].input;
    p->output = sets[set].output;
    p->scattered = sets[set].scattered;
    if (p->path == VKA_PATH_UNFUSED) /* sizes of heads compile nothing there */
        return;
    p->head_dim = sets[set].head_dim;
    p->value_dim = sets[set].value_dim;
    p->rope.dim = p->rope.dim < p->head_dim ? p->rope.dim : p->head_dim;
}
