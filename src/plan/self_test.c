#include "plan/self_test.h"
#include "params.h"
#include "plan/known_problem.h"

#define BIT(name) (UINT64_C(1) << KERNEL_##name)
#define MATMULS                                                                       \
    (BIT(matmul_tile) | BIT(matmul_lane4) | BIT(matmul_lane8) | BIT(matmul_address) | \
     BIT(matmul_texel) | BIT(matmul_coop_f16) | BIT(matmul_coop_bf16))
#define ROW_ATTENTIONS (BIT(attention_row) | BIT(attention_texel) | BIT(attention_address))
#define ATTENTIONS \
    (ROW_ATTENTIONS | BIT(attention_tile) | BIT(attention_coop_f16) | BIT(attention_coop_bf16))

/* The problem that a kernel solves; *without: what the rules do without, so that they choose it. */
static enum known_problem problem_of(enum kernel kernel, uint64_t *without)
{
    *without = 0;
    switch (kernel) {
    case KERNEL_matmul_tile:
    case KERNEL_matmul_lane4:
    case KERNEL_matmul_lane8:
    case KERNEL_matmul_address:
    case KERNEL_matmul_texel:
        *without = MATMULS;
        return KNOWN_MATMUL;
    case KERNEL_matmul_coop_f16:
        *without = MATMULS;
        return KNOWN_MATMUL_F16;
    case KERNEL_matmul_coop_bf16:
        *without = MATMULS;
        return KNOWN_MATMUL_BF16;
    case KERNEL_sum_pieces:
        return KNOWN_MATMUL_LONG;
    case KERNEL_loop_probe:
        return KNOWN_LOOPS;
    case KERNEL_softmax_shared:
    case KERNEL_softmax_subgroup:
        *without = BIT(softmax_shared) | BIT(softmax_subgroup);
        return KNOWN_SOFTMAX;
    case KERNEL_attention_row:
    case KERNEL_attention_texel:
    case KERNEL_attention_address:
    case KERNEL_attention_tile:
        *without = ATTENTIONS;
        return KNOWN_FUSED;
    case KERNEL_attention_coop_f16:
        *without = ATTENTIONS;
        return KNOWN_FUSED_F16;
    case KERNEL_attention_coop_bf16:
        *without = ATTENTIONS;
        return KNOWN_FUSED_BF16;
    case KERNEL_attention_map:
        *without = ROW_ATTENTIONS;
        return KNOWN_MASK;
    case KERNEL_attention_merge:
        *without = ROW_ATTENTIONS;
        return KNOWN_FUSED_FEW;
    case KERNEL_cache_advance:
    case KERNEL_cache_append:
        return KNOWN_CACHE;
    case KERNEL_cache_gather:
        return KNOWN_PAGES;
    case KERNEL_nonfinite:
        return KNOWN_NONFINITE;
    case KERNEL_rope:
        return KNOWN_ROPE;
    case KERNEL_copy:
    case KERNEL_COUNT:
        break;
    }
    return KNOWN_COPY;
}

/* Whether the device was lost by this kernel, not by one tested on the way. The first loss may have
 * been another's fault: the second counts. */
static bool is_lost_again(struct vka_device *device, uint64_t bit)
{
    struct self_test *test = &device->self_test;
    bool again = !test->blamed && test->lost & bit;
    if (!test->blamed)
        test->lost |= bit;
    test->blamed = true;
    return again;
}

/* What else a problem needs is tested on the way, but for kernels that are being tested now. */
static enum vka_status test_kernel(struct vka_device *device, enum kernel kernel, uint32_t head_dim)
{
    struct self_test *test = &device->self_test;
    struct caps *caps = &device->caps;
    const uint64_t bit = UINT64_C(1) << kernel, disabled = caps->disabled_kernels;
    const uint64_t wrong = caps->wrong_kernels;
    if (test->off || (test->done | test->busy) & bit || kernel_missing(kernel, caps))
        return VKA_OK;
    uint64_t without;
    bool right = false;
    enum known_problem problem = problem_of(kernel, &without);
    if (device->lost)
        return log_error(&device->log, VKA_DEVICE_LOST, "the device is lost");
    test->blamed = false;
    test->busy |= bit;
    caps->disabled_kernels |= without & ~bit;
    enum vka_status status = known_problem_solve(device, problem, head_dim, &right);
    caps->disabled_kernels = disabled;
    test->busy &= ~bit;
    if (status == VKA_UNSUPPORTED && caps->wrong_kernels == wrong)
        return VKA_OK; /* limits or what was found before leave no problem to test it with */
    if (status == VKA_UNSUPPORTED) /* one that it works with is wrong, maybe by its fault */
        status = VKA_OK;
    if (status != VKA_OK && !(status == VKA_DEVICE_LOST && is_lost_again(device, bit)))
        return status;
    test->done |= bit;
    if (status == VKA_OK && right)
        return VKA_OK;
    test->wrong |= bit;
    caps->wrong_kernels |= bit;
    log_message(&device->log, VKA_LOG_WARNING, "kernel %s failed its self-test and is not used",
                kernel_table[kernel].name);
    return status;
}

enum vka_status self_test_kernel(struct vka_device *device, enum kernel kernel)
{
    return test_kernel(device, kernel, KNOWN_HEAD_DIM);
}

/* Kernels with rows in lanes are compiled for each head_dim, on CPU drivers for seconds: they are
 * tested with that of the plan, whose pipeline then is mostly the one that was tested. */
enum vka_status self_test_pass(struct vka_device *device, const struct pipeline_key *key)
{
    bool rows = ROW_ATTENTIONS >> key->kernel & 1;
    enum vka_status status = test_kernel(device, KERNEL_loop_probe, KNOWN_HEAD_DIM);
    if (status != VKA_OK)
        return status;
    return test_kernel(device, key->kernel, rows ? 4 * key->spec[ATTENTION_HEAD4] : KNOWN_HEAD_DIM);
}

bool self_test_again(const struct vka_plan *plan, const struct plan_mark *mark,
                     enum vka_status status)
{
    return status == VKA_UNSUPPORTED && plan->device->caps.wrong_kernels != mark->wrong_kernels;
}

enum vka_status vka_device_self_test(struct vka_device *device)
{
    if (!device)
        return VKA_INVALID;
    enum vka_status status = VKA_OK;
    bool off = device->self_test.off;
    device->self_test.off = false;
    device->caps.wrong_kernels = device->self_test.wrong;
    for (int i = 0; i < KNOWN_PROBLEM_COUNT && (status == VKA_OK || status == VKA_UNSUPPORTED); i++)
        status = known_problem_solve(device, (enum known_problem)i, KNOWN_HEAD_DIM, NULL);
    device->self_test.off = off;
    return status == VKA_UNSUPPORTED ? VKA_OK : status;
}
