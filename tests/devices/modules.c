/* A Vulkan layer that gives the driver other shader modules than the program's: in the folder
 * $MODULES_FOLDER, HASH.spv stands for the module whose words have that hash (FNV-1a of 64 bits, over
 * words, in 16 hexadecimal digits). tests/compile/orders.py writes such folders. A module that the folder
 * lacks ends the process, so that no test takes the program's own for another.
 *
 * With $MODULES_PLAIN it changes none, and a module with a specialization constant or float64 ends the
 * process: Metal takes no length of an array from one, and has no float64.
 *
 * The features of VK_VALVE_shader_mixed_float_dot_product and VK_KHR_shader_bfloat16 that as_gpu.c offers are
 * not asked of the driver.
 *
 * SPDX-License-Identifier: MIT */
#include "layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t hash_of(const uint32_t *words, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ words[i]) * 0x100000001b3;
    return hash;
}

static _Noreturn void fail(const char *path, const char *what)
{
    (void)fprintf(stderr, "FAIL: the layer of modules: %s %s\n", path, what);
    abort();
}

/* The words of a file, for free(); *size in bytes. */
static uint32_t *read_words(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        fail(path, "is not there");
    long end = ftell(file);
    uint32_t *words = end > 0 ? malloc((size_t)end) : NULL;
    rewind(file);
    if (!words || fread(words, 1, (size_t)end, file) != (size_t)end || fclose(file))
        fail(path, "cannot be read");
    *size = (size_t)end;
    return words;
}

/* By the opcodes from OpSpecConstantTrue to OpSpecConstantOp. */
static bool has_constants(const uint32_t *words, size_t n)
{
    bool found = false;
    for (size_t at = 5; at < n && words[at] >> 16; at += words[at] >> 16)
        found |= (words[at] & 0xffff) >= 48 && (words[at] & 0xffff) <= 52;
    return found;
}

static bool has_float64(const uint32_t *words, size_t n)
{
    for (size_t at = 5; at + 1 < n && (words[at] & 0xffff) == 17; at += words[at] >> 16)
        if (words[at + 1] == 10) /* OpCapability Float64 */
            return true;
    return false;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_module(VkDevice device,
                                                    const VkShaderModuleCreateInfo *info,
                                                    const VkAllocationCallbacks *a,
                                                    VkShaderModule *module)
{
    const char *folder = getenv("MODULES_FOLDER");
    PFN_vkCreateShaderModule create =
        (PFN_vkCreateShaderModule)layer_next_of_device(device, "vkCreateShaderModule");
    if (getenv("MODULES_PLAIN")) {
        if (has_constants(info->pCode, info->codeSize / sizeof *info->pCode))
            fail("a module", "has specialization constants");
        if (has_float64(info->pCode, info->codeSize / sizeof *info->pCode))
            fail("a module", "has float64");
        return create(device, info, a, module);
    }
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%016llx.spv", folder ? folder : "(no $MODULES_FOLDER)",
                   (unsigned long long)hash_of(info->pCode, info->codeSize / sizeof *info->pCode));
    VkShaderModuleCreateInfo other = *info;
    uint32_t *words = read_words(path, &other.codeSize);
    other.pCode = words;
    VkResult result = create(device, &other, a, module);
    free(words);
    return result;
}

#define MIXED_FEATURES 1000673000    /* of VK_VALVE_shader_mixed_float_dot_product */
#define BFLOAT16_FEATURES 1000141000 /* of VK_KHR_shader_bfloat16 */

/* Takes a structure out of a chain, which is put back with *place = *left. */
static const void **take_out(const VkDeviceCreateInfo *info, int type, const void **left)
{
    VkBaseInStructure *before = (VkBaseInStructure *)(uintptr_t)info;
    while (before->pNext && (int)before->pNext->sType != type)
        before = (VkBaseInStructure *)(uintptr_t)before->pNext;
    *left = before->pNext;
    if (before->pNext)
        before->pNext = before->pNext->pNext;
    return *left ? (const void **)&before->pNext : NULL;
}

VkResult layer_create_device(PFN_vkCreateDevice create, VkPhysicalDevice physical,
                             const VkDeviceCreateInfo *info, const VkAllocationCallbacks *a,
                             VkDevice *device)
{
    const void *mixed, **mixed_place = take_out(info, MIXED_FEATURES, &mixed);
    const void *bfloat16, **place = take_out(info, BFLOAT16_FEATURES, &bfloat16);
    VkResult result = create(physical, info, a, device);
    if (place)
        *place = bfloat16;
    if (mixed_place)
        *mixed_place = mixed;
    return result;
}

const struct layer_function layer_functions[] = {
    {"vkCreateShaderModule", (PFN_vkVoidFunction)create_module, true},
};
const size_t n_layer_function = sizeof layer_functions / sizeof layer_functions[0];
