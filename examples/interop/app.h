/* The Vulkan of the example: what any application with its own device has already. */
#ifndef TOOLS_INTEROP_APP_H
#define TOOLS_INTEROP_APP_H

#include <volk.h>

#include <vkattn/vkattn_vulkan.h>

/* Prints what failed and jumps to the label `fail`. */
#define TRY(call)                                                    \
    do {                                                             \
        int try_result = (call);                                     \
        if (try_result != 0) {                                       \
            fprintf(stderr, "interop: %s: %d\n", #call, try_result); \
            goto fail;                                               \
        }                                                            \
    } while (0)

/* Two storage buffers and { uint32_t count; float a; }: axpy.comp. */
struct axpy {
    VkDescriptorSetLayout set_layout;
    VkPipelineLayout layout;
    VkShaderModule module;
    VkPipeline pipeline;
    VkDescriptorPool pool;
};

struct app {
    VkInstance instance;
    VkDebugUtilsMessengerEXT messenger; /* with validation */
    unsigned messages;
    VkPhysicalDevice physical;
    uint32_t family;
    VkDevice device;
    VkQueue queue;
    VkCommandPool commands;
    struct axpy axpy;
    struct vka_device *vkattn; /* on the device above */
};

/* Prints why it fails and returns false. *app must be zero; call app_destroy after a failure
 * too. */
bool app_create(struct app *app, bool validate);
void app_destroy(struct app *app);

/* Makes a storage buffer of floats, all 0, which the host sees through *mapped. */
struct buffer {
    VkBuffer handle;
    VkDeviceMemory memory;
    VkDeviceSize size;
    float *mapped;
};
bool buffer_create(struct app *app, VkDeviceSize count, struct buffer *buffer);
void buffer_destroy(struct app *app, struct buffer *buffer);

/* Records y += a * x. */
bool axpy_record(struct app *app, VkCommandBuffer commands, const struct buffer *x,
                 const struct buffer *y, uint32_t count, float a);

#endif
