/* Which family of kernels takes a matrix product. */
#include "kernel/matmul.h"
#include "gpu/pipeline.h"
#include "kernel/matmul_dot.h"
#include "kernel/matmul_family.h"
#include "params/params.h"

void tune_matmul(const struct caps *caps, const struct matmul_problem *problem,
                 struct matmul_choice *choice)
{
    if (problem->integers)
        matmul_dot.choose(caps, problem, choice);
    else if (!matmul_coop.choose(caps, problem, choice) &&
             !matmul_lane.choose(caps, problem, choice) &&
             !matmul_few.choose(caps, problem, choice))
        matmul_tile.choose(caps, problem, choice);
}

static const struct matmul_family *family_of(enum kernel kernel)
{
    if (kernel == KERNEL_matmul_coop_f16 || kernel == KERNEL_matmul_coop_bf16)
        return &matmul_coop;
    if (kernel == KERNEL_matmul_few || kernel == KERNEL_matmul_few_half ||
        kernel == KERNEL_matmul_few_mixed)
        return &matmul_few;
    if (matmul_is_dot(kernel))
        return &matmul_dot;
    bool tile = kernel == KERNEL_matmul_tile || kernel == KERNEL_matmul_tile_mixed;
    return tile ? &matmul_tile : &matmul_lane;
}

void tune_matmul_key(const struct matmul_choice *choice, const struct matmul_operands *operands,
                     struct pipeline_key *key)
{
    *key = (struct pipeline_key){.kernel = choice->kernel};
    key->spec[MATMUL_A_TYPE] = operands->a_type;
    key->spec[MATMUL_B_TYPE] = operands->b_type;
    key->spec[MATMUL_C_TYPE] = operands->c_type;
    key->spec[MATMUL_BIAS_TYPE] = operands->bias_type;
    key->spec[MATMUL_RELU] = operands->relu;
    key->spec[MATMUL_HIDDEN] = operands->hidden;
    key->spec[MATMUL_SUMS] = operands->sums;
    family_of(choice->kernel)->set_key(choice, operands, key);
}

double tune_matmul_loops(const struct matmul_choice *choice, double k)
{
    return family_of(choice->kernel)->count_loops(choice, k);
}
