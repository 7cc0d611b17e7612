/* An application with a Vulkan of its own: it uses volk, as the library does inside, and knows the
 * library by its public headers alone. Failed Vulkan calls fail the running cmocka test.
 *
 * With the environment variable APP_VALIDATE set, the instance has the Khronos validation layer,
 * and app_messages counts what it says. */
#ifndef TESTS_INTEROP_APP_H
#define TESTS_INTEROP_APP_H

#include <volk.h>

#include <vkattn/vkattn_vulkan.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define COUNTOF(array) (sizeof(array) / sizeof((array)[0]))

struct app {
    VkInstance instance;
    VkDebugUtilsMessengerEXT messenger; /* with APP_VALIDATE */
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    VkCommandPool pool;
    struct vka_vulkan_info vulkan; /* all of it, features and extensions as enabled */
    struct vka_vulkan_request *request;
};

/* What a device is made with. */
enum app_features {
    APP_REQUESTED = 0, /* what vkattn asks for */
    APP_BARE,          /* nothing */
    APP_UMBRELLA,      /* all features, by VkPhysicalDeviceVulkan12Features and 13 */
    APP_FEATURES_COUNT
};

/* Whether there is a device with Vulkan 1.3; else says loudly that nothing is tested. */
bool app_possible(void);

void app_create(struct app *app, enum app_features features);
void app_destroy(struct app *app);

/* Messages of the validation layer so far, of all instances. */
unsigned app_messages(void);

/* A vkattn device over the application's; info may be NULL. */
struct vka_device *app_adopt(struct app *app, const struct vka_device_info *info);

struct app_buffer {
    VkBuffer handle;
    VkDeviceMemory memory;
    VkDeviceSize size;
    VkBufferUsageFlags usage;
    float *mapped; /* host-coherent */
};

struct app_buffer app_buffer_create(struct app *app, VkDeviceSize size, VkBufferUsageFlags usage);
void app_buffer_destroy(struct app *app, struct app_buffer *buffer);
struct vka_buffer app_buffer_info(const struct app_buffer *buffer, VkDeviceSize offset);

/* A tensor [rows][columns] of float32 over the buffer's beginning. */
struct vka_tensor *app_wrap(struct vka_device *device, const struct app_buffer *buffer,
                            uint32_t rows, uint32_t columns);

/* A one-time command buffer in the recording state; submit ends it, waits, and frees it. */
VkCommandBuffer app_begin(struct app *app);
void app_submit(struct app *app, VkCommandBuffer commands);

/* Submits nothing but semaphores: waits for one, signals one; either may be VK_NULL_HANDLE. */
void app_pass_on(struct app *app, VkSemaphore wait, VkSemaphore signal);

VkSemaphore app_semaphore(struct app *app, bool timeline);

/* A finished plan of output = input weight^T. */
struct vka_plan *app_linear(struct vka_device *device, struct vka_tensor *input,
                            struct vka_tensor *weight, struct vka_tensor *output);

/* Zeroed bytes at a multiple of alignment, within *whole, which the caller frees. */
void *app_aligned(size_t alignment, size_t size, void **whole);

/* The call failed with a status and the error has a words. */
void app_expect(struct vka_device *device, enum vka_status got, enum vka_status want,
                const char *words, int line);
#define EXPECT(device, want, words, call) app_expect(device, call, want, words, __LINE__)

/* Fails where a Vulkan or vkattn call does. */
#define OK(call) assert_int_equal(call, 0)

#endif
