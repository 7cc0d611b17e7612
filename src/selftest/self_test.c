#include "selftest/self_test.h"
#include "selftest/known_problem.h"
#include "gpu/device_adopt.h"

#define ROWS                                                                           \
    KERNEL_SET(KERNEL_attention_row, KERNEL_attention_texel, KERNEL_attention_address, \
               KERNEL_attention_feature)

/* The kernel of chunks that is taken with a kernel of linear attention. */
static struct kernel_set linear_pair(enum kernel kernel)
{
    const bool address = kernel_table[kernel].needs & NEED_ADDRESS;
    return address ? KERNEL_SET(KERNEL_linear_chunked_address) : KERNEL_SET(KERNEL_linear_chunked);
}

/* Kernels that are switched off so that the rules choose this one. For attention_map and
 * attention_merge: those of attention with rows in lanes, which do not use them. */
static struct kernel_set rivals(enum kernel kernel)
{
    const struct kernel_info *info = &kernel_table[kernel];
    struct kernel_set others = NO_KERNELS;
    if (info->known == KNOWN_LINEAR_CHUNKED)
        return set_minus(KERNEL_SET(KERNEL_linear_recurrent, KERNEL_linear_chunked_address,
                                    KERNEL_linear_chunked),
                         linear_pair(kernel));
    if (info->known == KNOWN_LINEAR_CHUNKED_F16)
        return KERNEL_SET(KERNEL_linear_recurrent, KERNEL_linear_chunked_address,
                          KERNEL_linear_chunked);
    if (info->known == KNOWN_MASK || info->known == KNOWN_FUSED_FEW)
        return set_minus(ROWS, KERNEL_SET(kernel));
    for (int k = 0; info->family != FAMILY_MOVE && k < KERNEL_COUNT; k++)
        if (k != (int)kernel && kernel_table[k].family == info->family)
            set_add(&others, k);
    return others;
}

/* Whether this kernel, not one tested on the way, has lost the device for the second time: another
 * kernel may have caused the first loss. */
static bool is_lost_again(struct vka_device *device, enum kernel kernel)
{
    struct self_test *test = &device->self_test;
    bool again = !test->blamed && set_has(test->lost, kernel);
    if (!test->blamed)
        set_add(&test->lost, kernel);
    test->blamed = true;
    return again;
}

static int count_wrong(const struct vka_device *device)
{
    int n = 0;
    for (int k = 0; k < KERNEL_COUNT; k++)
        n += device->caps.kernels[k] == KERNEL_WRONG;
    return n;
}

/* The problem that tests a kernel. A cache that is quantised is tried as it is, so that no kernel of
 * other caches is compiled: cache_advance on the way to cache_quantise. */
static enum known_problem problem_of(const struct vka_device *device, enum kernel kernel)
{
    const bool quantising = device->caps.kernels[KERNEL_cache_quantise] == KERNEL_TESTING;
    return kernel == KERNEL_cache_advance && quantising
               ? (enum known_problem)KNOWN_CACHE_QUANTISED
               : (enum known_problem)kernel_table[kernel].known;
}

/* Tests the other kernels of the problem on the way, except those that are being tested already. */
enum vka_status self_test_kernel(struct vka_device *device, enum kernel kernel, uint32_t head_dim)
{
    struct self_test *test = &device->self_test;
    enum kernel_state *state = &device->caps.kernels[kernel];
    bool right = false;
    if (*state != KERNEL_UNTESTED || kernel_missing(kernel, &device->caps))
        return VKA_OK;
    if (device->lost)
        return log_error(&device->log, VKA_DEVICE_LOST, "the device is lost");
    const int n_wrong = count_wrong(device);
    const uint64_t n_refused = device->refusals.of[kernel];
    test->n_run++;
    test->blamed = false;
    *state = KERNEL_TESTING;
    uint32_t dim = set_has(ROWS, kernel) && head_dim ? head_dim : KNOWN_HEAD_DIM;
    const enum known_problem problem = problem_of(device, kernel);
    const bool outer = device->log.testing; /* this kernel is tested on the way of another */
    device->log.testing = true;
    enum vka_status status = known_problem_solve(device, problem, rivals(kernel), dim, &right);
    if (status == VKA_OK && !right && problem != kernel_table[kernel].known) /* whose fault? */
        status =
            known_problem_solve(device, kernel_table[kernel].known, rivals(kernel), dim, &right);
    device->log.testing = outer;
    *state = KERNEL_UNTESTED;
    if (!device->lost && device->refusals.of[kernel] != n_refused)
        return refusal_add_kernel(device, kernel);
    if (status == VKA_UNSUPPORTED && count_wrong(device) == n_wrong)
        return VKA_OK;             /* limits or earlier results leave no problem to test it with */
    if (status == VKA_UNSUPPORTED) /* a kernel that it works with is wrong, maybe because of it */
        status = VKA_OK;
    if (status != VKA_OK && !(status == VKA_DEVICE_LOST && is_lost_again(device, kernel)))
        return status;
    *state = status == VKA_OK && right ? KERNEL_RIGHT : KERNEL_WRONG;
    if (*state == KERNEL_WRONG)
        log_message(&device->log, VKA_LOG_WARNING, "kernel %s failed its self-test and is not used",
                    kernel_table[kernel].name);
    return VKA_OK;
}

enum vka_status vka_device_self_test(struct vka_device *device)
{
    if (!device)
        return VKA_INVALID;
    enum vka_status status = VKA_OK;
    bool off = device->self_test.off;
    device->self_test.off = device->caps.trusted = false;
    for (int i = 0; i < KNOWN_PROBLEM_COUNT && (status == VKA_OK || status == VKA_UNSUPPORTED); i++)
        status =
            known_problem_solve(device, (enum known_problem)i, NO_KERNELS, KNOWN_HEAD_DIM, NULL);
    device->self_test.off = off;
    return status == VKA_UNSUPPORTED ? VKA_OK : status;
}

enum vka_status vka_device_create(const struct vka_device_info *info, struct vka_device **out)
{
    return device_create(info, self_test_kernel, out);
}

enum vka_status vka_device_adopt(const struct vka_vulkan_info *vulkan,
                                 const struct vka_device_info *info, struct vka_device **out)
{
    return device_adopt(vulkan, info, self_test_kernel, out);
}
