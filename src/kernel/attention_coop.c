/* Sizes of attention_coop. Like those of attention_tile they never depend on other sequences of the
 * batch. */
#include "params.h"
#include "kernel/tune.h"

/* Largest head_dim and value_dim whose context stays in registers. */
#define DIM_MOST 256u

/* Bytes of shared memory a workgroup takes where possible, so that a processor has room for
 * several. */
#define SHARED_AIM 40960u

/* Keys of a step for one lane: a bit of a word each. */
#define PART_MOST 32u

static uint32_t round_up(uint32_t n, uint32_t to)
{
    return (n + to - 1) / to * to;
}

/* The kernel for the types; KERNEL_COUNT: none. None for float32 output, because weights are
 * rounded to 16 bits. */
static enum kernel kernel_of(const struct attention_problem *p)
{
    if (p->q_type != p->kv_type || p->kv_type != p->v_type || p->o_type == VKA_F32)
        return KERNEL_COUNT;
    return p->q_type == VKA_F16    ? KERNEL_attention_coop_f16
           : p->q_type == VKA_BF16 ? KERNEL_attention_coop_bf16
                                   : KERNEL_COUNT;
}

uint64_t tune_attention_coop_shared(const struct attention_choice *c)
{
    uint64_t rows = c->tile, keys = c->keys;
    uint64_t q_pitch = c->head4 / 2 + 1, v_pitch = c->value4 / 2 + 1;
    uint64_t chunks =
        rows * q_pitch + keys * (q_pitch > v_pitch ? q_pitch : v_pitch) + rows * (keys / 8 + 1);
    uint64_t exchange = c->lanes > 2 * rows ? c->lanes : 2 * rows;
    uint64_t words = rows * (keys + 4) + rows * c->size.n + exchange + 2 * rows + 5;
    return 16 * chunks + 4 * words;
}

/* Whether a lane gets a whole and even number of keys. */
static bool parts_fit(const struct attention_choice *c, uint32_t subgroup_size)
{
    uint32_t parts = subgroup_size / c->size.m;
    return c->keys % c->size.n == 0 && c->keys % c->size.k == 0 && c->keys % (2 * parts) == 0 &&
           c->keys / parts <= PART_MOST;
}

/* Sets the most keys a step that fit `shared` bytes; false where none fit. */
static bool set_keys(const struct attention_problem *problem, uint32_t subgroup_size,
                     uint32_t shared, struct attention_choice *c)
{
    for (c->keys = 64 >> problem->variant; c->keys >= 16; c->keys /= 2)
        if (parts_fit(c, subgroup_size) && tune_attention_coop_shared(c) <= shared)
            return true;
    return false;
}

bool tune_attention_coop(const struct caps *caps, const struct attention_problem *problem,
                         struct attention_choice *choice)
{
    enum kernel kernel = kernel_of(problem);
    uint32_t subgroup_size = caps->properties.subgroup_size;
    if (kernel == KERNEL_COUNT || kernel_missing(kernel, caps))
        return false;
    struct attention_choice c = {.usable = true, .kernel = kernel, .n_chunk = 1};
    c.preferred =
        caps->properties.type != VKA_DEVICE_CPU; /* CPU drivers compute a matrix in many steps */
    c.size = kernel == KERNEL_attention_coop_f16 ? caps->matrix_f16 : caps->matrix_bf16;
    if (subgroup_size % c.size.m || c.size.n % 8 || problem->head_dim > DIM_MOST ||
        problem->value_dim > DIM_MOST)
        return false;
    c.lanes = ATTENTION_COOP_SUBGROUPS * subgroup_size;
    c.rows = 1;
    c.tile = ATTENTION_COOP_SUBGROUPS * c.size.m;
    c.head4 = round_up(problem->head_dim, c.size.k) / 4;
    c.value4 = round_up(problem->value_dim, c.size.n) / 4;
    uint32_t most = caps->properties.max_shared_memory;
    if (!set_keys(problem, subgroup_size, most < SHARED_AIM ? most : SHARED_AIM, &c) &&
        !set_keys(problem, subgroup_size, most, &c))
        return false;
    tune_cut_keys(caps, problem, &c);
    c.map = problem->mask && !kernel_missing(KERNEL_attention_map, caps);
    c.reason = c.n_piece > 1 ? "16-bit inputs: the device's matrix units; keys are split"
                             : "16-bit inputs: the device's matrix units";
    *choice = c;
    return true;
}
