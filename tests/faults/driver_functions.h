/* The functions of Vulkan that driver_calls.c and driver_work.c stand before. */
#ifndef TESTS_FAULTS_DRIVER_FUNCTIONS_H
#define TESTS_FAULTS_DRIVER_FUNCTIONS_H

/* Functions that return a VkResult, with what they may return beside the three that all may. */
#define RESULT_FUNCTIONS(F)                                                             \
    F(vkCreateInstance, VK_ERROR_INITIALIZATION_FAILED, VK_ERROR_EXTENSION_NOT_PRESENT, \
      VK_ERROR_INCOMPATIBLE_DRIVER)                                                     \
    F(vkEnumeratePhysicalDevices, VK_ERROR_INITIALIZATION_FAILED)                       \
    F(vkEnumerateDeviceExtensionProperties, VK_ERROR_LAYER_NOT_PRESENT)                 \
    F(vkCreateDevice, VK_ERROR_INITIALIZATION_FAILED, VK_ERROR_FEATURE_NOT_PRESENT,     \
      VK_ERROR_DEVICE_LOST)                                                             \
    F(vkCreateBuffer, 0)                                                                \
    F(vkAllocateMemory, VK_ERROR_TOO_MANY_OBJECTS)                                      \
    F(vkBindBufferMemory, 0)                                                            \
    F(vkMapMemory, VK_ERROR_MEMORY_MAP_FAILED)                                          \
    F(vkCreateSemaphore, 0)                                                             \
    F(vkCreateFence, 0)                                                                 \
    F(vkResetFences, 0)                                                                 \
    F(vkCreateCommandPool, 0)                                                           \
    F(vkAllocateCommandBuffers, 0)                                                      \
    F(vkBeginCommandBuffer, 0)                                                          \
    F(vkEndCommandBuffer, 0)                                                            \
    F(vkQueueSubmit, VK_ERROR_DEVICE_LOST)                                              \
    F(vkWaitSemaphores, VK_ERROR_DEVICE_LOST, VK_TIMEOUT)                               \
    F(vkGetSemaphoreCounterValue, VK_ERROR_DEVICE_LOST)                                 \
    F(vkWaitForFences, VK_ERROR_DEVICE_LOST, VK_TIMEOUT)                                \
    F(vkCreatePipelineCache, 0)                                                         \
    F(vkCreateBufferView, 0)                                                            \
    F(vkGetPipelineCacheData, VK_INCOMPLETE)                                            \
    F(vkCreateDescriptorSetLayout, 0)                                                   \
    F(vkCreatePipelineLayout, 0)                                                        \
    F(vkCreateShaderModule, 0)                                                          \
    F(vkCreateComputePipelines, VK_ERROR_INITIALIZATION_FAILED)                         \
    F(vkCreateDescriptorPool, VK_ERROR_FRAGMENTATION)                                   \
    F(vkAllocateDescriptorSets, VK_ERROR_FRAGMENTED_POOL, VK_ERROR_OUT_OF_POOL_MEMORY)  \
    F(vkCreateQueryPool, 0)                                                             \
    F(vkGetQueryPoolResults, VK_ERROR_DEVICE_LOST, VK_NOT_READY)

/* Functions that give objects back. */
#define DESTROY_FUNCTIONS(F)                               \
    F(vkDestroyBuffer, VkBuffer)                           \
    F(vkFreeMemory, VkDeviceMemory)                        \
    F(vkDestroySemaphore, VkSemaphore)                     \
    F(vkDestroyFence, VkFence)                             \
    F(vkDestroyBufferView, VkBufferView)                   \
    F(vkDestroyPipelineCache, VkPipelineCache)             \
    F(vkDestroyDescriptorSetLayout, VkDescriptorSetLayout) \
    F(vkDestroyPipelineLayout, VkPipelineLayout)           \
    F(vkDestroyShaderModule, VkShaderModule)               \
    F(vkDestroyPipeline, VkPipeline)                       \
    F(vkDestroyDescriptorPool, VkDescriptorPool)           \
    F(vkDestroyQueryPool, VkQueryPool)

/* Functions that give nothing: wrapped to know where a driver crashes. */
#define VOID_FUNCTIONS(F)                                                                          \
    F(vkCmdPipelineBarrier,                                                                        \
      (VkCommandBuffer c, VkPipelineStageFlags from, VkPipelineStageFlags to, VkDependencyFlags f, \
       uint32_t nm, const VkMemoryBarrier *m, uint32_t nb, const VkBufferMemoryBarrier *b,         \
       uint32_t ni, const VkImageMemoryBarrier *i),                                                \
      c, from, to, f, nm, m, nb, b, ni, i)                                                         \
    F(vkCmdBindPipeline, (VkCommandBuffer c, VkPipelineBindPoint b, VkPipeline p), c, b, p)        \
    F(vkCmdBindDescriptorSets,                                                                     \
      (VkCommandBuffer c, VkPipelineBindPoint b, VkPipelineLayout l, uint32_t first, uint32_t n,   \
       const VkDescriptorSet *s, uint32_t no, const uint32_t *o),                                  \
      c, b, l, first, n, s, no, o)                                                                 \
    F(vkCmdPushConstants,                                                                          \
      (VkCommandBuffer c, VkPipelineLayout l, VkShaderStageFlags f, uint32_t at, uint32_t n,       \
       const void *p),                                                                             \
      c, l, f, at, n, p)                                                                           \
    F(vkCmdDispatch, (VkCommandBuffer c, uint32_t x, uint32_t y, uint32_t z), c, x, y, z)          \
    F(vkCmdCopyBuffer,                                                                             \
      (VkCommandBuffer c, VkBuffer from, VkBuffer to, uint32_t n, const VkBufferCopy *r), c, from, \
      to, n, r)                                                                                    \
    F(vkCmdFillBuffer,                                                                             \
      (VkCommandBuffer c, VkBuffer b, VkDeviceSize at, VkDeviceSize n, uint32_t v), c, b, at, n,   \
      v)                                                                                           \
    F(vkCmdWriteTimestamp,                                                                         \
      (VkCommandBuffer c, VkPipelineStageFlagBits s, VkQueryPool q, uint32_t i), c, s, q, i)       \
    F(vkCmdResetQueryPool, (VkCommandBuffer c, VkQueryPool q, uint32_t first, uint32_t n), c, q,   \
      first, n)                                                                                    \
    F(vkUpdateDescriptorSets,                                                                      \
      (VkDevice d, uint32_t nw, const VkWriteDescriptorSet *w, uint32_t nc,                        \
       const VkCopyDescriptorSet *c),                                                              \
      d, nw, w, nc, c)

#endif
