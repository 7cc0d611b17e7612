#include "miscompile.h"
#include "gpu/kernels_spv.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PIPELINES 1024

static struct {
    struct VolkDeviceTable vk; /* the true functions */
    enum mistake mistake;
    struct kernel_set kernels, used, used_many;
    bool hangs; /* what was recorded would, when it is submitted */
    size_t n_dispatch;
    VkShaderModule modules[KERNEL_COUNT];
    VkPipeline pipelines[MAX_PIPELINES]; /* the first ones ever made */
    enum kernel kernel_of[MAX_PIPELINES];
    size_t n_pipeline;
    enum kernel bound;
} driver;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* pipelines are made by several threads */

static bool errs(enum kernel kernel, enum mistake mistake)
{
    return kernel != KERNEL_COUNT && driver.mistake == mistake && set_has(driver.kernels, kernel);
}

/* Numbers from the SPIR-V and GLSL.std.450 specifications. */
enum { EXT_INST = 12, F_ADD = 129, F_SUB = 131, F_MUL = 133, STD_MIX = 46, STD_FMA = 50 };

/* Sums become differences and the other way round, products sums; instructions of the same
 * length. */
static void change(uint32_t *instruction)
{
    uint32_t length = instruction[0] & 0xffff0000u, op = instruction[0] & 0xffffu;
    if (op == F_ADD || op == F_SUB)
        instruction[0] = length | (op == F_ADD ? F_SUB : F_ADD);
    if (op == F_MUL)
        instruction[0] = length | F_ADD;
    if (op == EXT_INST && instruction[4] == STD_FMA)
        instruction[4] = STD_MIX;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_module(VkDevice device,
                                                    const VkShaderModuleCreateInfo *info,
                                                    const VkAllocationCallbacks *a,
                                                    VkShaderModule *module)
{
    int k = 0;
    while (k < KERNEL_COUNT && kernel_spv_table[k]->words != info->pCode)
        k++;
    VkShaderModuleCreateInfo taken = *info;
    uint32_t *code = malloc(info->codeSize);
    if (!code)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    memcpy(code, info->pCode, info->codeSize);
    if (errs((enum kernel)k, MISTAKE_SUMS)) /* the header has 5 words */
        for (size_t at = 5; at < info->codeSize / 4 && code[at] >> 16; at += code[at] >> 16)
            change(&code[at]);
    taken.pCode = code;
    VkResult result = driver.vk.vkCreateShaderModule(device, &taken, a, module);
    free(code);
    if (k < KERNEL_COUNT)
        driver.modules[k] = *module;
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_pipelines(VkDevice device, VkPipelineCache cache,
                                                       uint32_t count,
                                                       const VkComputePipelineCreateInfo *info,
                                                       const VkAllocationCallbacks *a,
                                                       VkPipeline *pipelines)
{
    VkResult result = driver.vk.vkCreateComputePipelines(device, cache, count, info, a, pipelines);
    int k = 0;
    while (k < KERNEL_COUNT && driver.modules[k] != info->stage.module)
        k++;
    pthread_mutex_lock(&lock);
    if (driver.n_pipeline == MAX_PIPELINES)
        abort();
    driver.pipelines[driver.n_pipeline] = pipelines[0];
    driver.kernel_of[driver.n_pipeline++] = (enum kernel)k;
    pthread_mutex_unlock(&lock);
    return result;
}

static VKAPI_ATTR void VKAPI_CALL bind_pipeline(VkCommandBuffer commands, VkPipelineBindPoint point,
                                                VkPipeline pipeline)
{
    driver.bound = KERNEL_COUNT;
    for (size_t i = driver.n_pipeline; i > 0 && driver.bound == KERNEL_COUNT; i--)
        if (driver.pipelines[i - 1] == pipeline) /* the last, as handles come again */
            driver.bound = driver.kernel_of[i - 1];
    driver.vk.vkCmdBindPipeline(commands, point, pipeline);
}

static VKAPI_ATTR void VKAPI_CALL dispatch(VkCommandBuffer commands, uint32_t x, uint32_t y,
                                           uint32_t z)
{
    driver.n_dispatch++;
    if (driver.bound != KERNEL_COUNT)
        set_add(&driver.used, driver.bound);
    if (driver.bound != KERNEL_COUNT && (x > 1 || y > 1 || z > 1))
        set_add(&driver.used_many, driver.bound);
    driver.hangs |= errs(driver.bound, MISTAKE_LOSS);
    if (errs(driver.bound, MISTAKE_FIRST))
        x = y = z = 1;
    if (!errs(driver.bound, MISTAKE_NO_WORK))
        driver.vk.vkCmdDispatch(commands, x, y, z);
}

static VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue queue, uint32_t count,
                                             const VkSubmitInfo *info, VkFence fence)
{
    return driver.hangs ? VK_ERROR_DEVICE_LOST : driver.vk.vkQueueSubmit(queue, count, info, fence);
}

void miscompile(struct vka_device *device, enum mistake mistake, struct kernel_set kernels)
{
    if (device->vk.vkCmdDispatch != dispatch) {
        memset(&driver, 0, sizeof driver);
        driver.vk = device->vk;
        device->vk.vkCreateShaderModule = create_module;
        device->vk.vkCreateComputePipelines = create_pipelines;
        device->vk.vkCmdBindPipeline = bind_pipeline;
        device->vk.vkCmdDispatch = dispatch;
        device->vk.vkQueueSubmit = submit;
    }
    driver.mistake = mistake;
    driver.kernels = kernels;
    driver.used = driver.used_many = NO_KERNELS;
    driver.n_dispatch = 0;
    driver.hangs = false;
}

void miscompile_forget(void)
{
    memset(driver.modules, 0, sizeof driver.modules);
    driver.n_pipeline = 0;
}

size_t miscompile_dispatches(void)
{
    return driver.n_dispatch;
}

bool miscompile_used(enum kernel kernel)
{
    return set_has(driver.used, kernel);
}

bool miscompile_used_many(enum kernel kernel)
{
    return set_has(driver.used_many, kernel);
}
