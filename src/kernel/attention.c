/* Which family of kernels takes an attention. */
#include "kernel/attention.h"
#include "gpu/pipeline.h"
#include "kernel/attention_family.h"
#include "params/params.h"

/* Fewest lanes with a row of a matrix for which a pass of the scores through shared memory takes fewer
 * instructions than reductions and conversions: with heads of 128, attention_coop has 17 of them a
 * matrix operation on RDNA3 and 15 on RDNA4, whose rows lie in 16 lanes, attention_coop2 has 28 and 19. */
#define ROW_LANES_MANY 16u

/* Whether attention_coop2 comes before attention_coop, for the choice that it made. */
static bool reduces_well(const struct caps *caps, const struct attention_choice *choice)
{
    bool flexible;
    const unsigned needs = kernel_table[choice->kernel].needs;
    const uint32_t columns = caps_reduced_size(caps, needs, &flexible).n;
    return (caps->matrix_row_lanes ? caps->matrix_row_lanes : columns) < ROW_LANES_MANY;
}

static void choose_kernel(const struct caps *caps, const struct attention_problem *problem,
                          struct attention_choice *choice)
{
    bool cpu = caps->properties.type == VKA_DEVICE_CPU;
    bool few = attention_has_few_rows(problem);
    bool matrices = !few || caps->matrix_registers >= MATRIX_REGISTERS;
    bool reduced = !few && !cpu && attention_coop2.choose(caps, problem, choice);
    if (reduced && reduces_well(caps, choice))
        return;
    if (!cpu && matrices && attention_coop.choose(caps, problem, choice))
        return;
    if (reduced) /* *choice has it still */
        return;
    if (!cpu && few && attention_decode.choose(caps, problem, choice))
        return;
    if (!cpu && attention_tile.choose(caps, problem, choice))
        return;
    if (attention_row.choose(caps, problem, choice))
        return;
    if (cpu && few && attention_decode.choose(caps, problem, choice))
        return;
    if (cpu && attention_tile.choose(caps, problem, choice))
        return;
    if (!attention_coop.choose(caps, problem, choice))
        attention_coop2.choose(caps, problem, choice);
}

/* Splits the keys where a sum over all of them would exceed TUNE_CHAIN terms. Refuses heads with
 * more features than that: the matrix products of the unfused path sum those in splits. */
static void bound_chains(const struct caps *caps, const struct attention_problem *problem,
                         struct attention_choice *choice)
{
    if (choice->n_split == 1 && problem->n_kv > TUNE_CHAIN) {
        choice->split_keys = TUNE_CHAIN;
        choice->n_split = (problem->n_kv - 1) / TUNE_CHAIN + 1;
    }
    const char *missing = choice->n_split > 1 ? kernel_missing(KERNEL_attention_merge, caps) : NULL;
    double rounds = ATTENTION_BLOCK / 4.0 * (choice->head4 + 4.0 * choice->value4 + 32);
    if (caps->max_loops && rounds > caps->max_loops)
        missing = "needs more loop iterations than this driver runs";
    if (problem->head_dim > TUNE_CHAIN)
        missing = "sums at most 16,384 features of a head";
    if (missing) {
        choice->usable = false;
        choice->reason = missing;
    }
}

void tune_attention(const struct caps *caps, const struct attention_problem *problem,
                    struct attention_choice *choice)
{
    *choice = (struct attention_choice){0};
    choose_kernel(caps, problem, choice);
    choice->q_type = problem->q_type;
    choice->k_type = problem->kv_type;
    choice->v_type = problem->v_type;
    choice->o_type = problem->o_type;
    if (choice->usable)
        bound_chains(caps, problem, choice);
}

static const struct attention_family *family_of(enum kernel kernel)
{
    if (kernel == KERNEL_attention_coop_f16 || kernel == KERNEL_attention_coop_bf16)
        return &attention_coop;
    if (attention_reduces_matrices(kernel))
        return &attention_coop2;
    if (kernel == KERNEL_attention_decode)
        return &attention_decode;
    bool tile = kernel == KERNEL_attention_tile || kernel == KERNEL_attention_tile_mixed;
    return tile ? &attention_tile : &attention_row;
}

void tune_attention_key(const struct attention_choice *choice,
                        const struct attention_operands *operands, struct pipeline_key *key)
{
    *key = (struct pipeline_key){.kernel = choice->kernel};
    family_of(choice->kernel)->set_key(choice, operands, key);
}

uint32_t tune_state_spec(enum kernel kernel)
{
    return family_of(kernel)->state_spec;
}

double tune_attention_loops(const struct attention_choice *choice,
                            const struct attention_operands *operands, double keys)
{
    double sequences = operands->ragged ? 33 : 0; /* binary search for the row's sequence */
    return sequences + family_of(choice->kernel)->count_loops(choice, operands, keys);
}

uint64_t tune_attention_shared(const struct attention_choice *choice)
{
    const struct attention_family *family = family_of(choice->kernel);
    return family->shared_bytes ? family->shared_bytes(choice) : 0;
}

uint32_t attention_state_pitch(const struct attention_choice *choice)
{
    return STATE_PITCH(choice->value4, family_of(choice->kernel)->state_lanes(choice));
}

bool tune_takes_tiles(enum kernel kernel)
{
    return family_of(kernel) != &attention_row;
}
