/* What tests say to the driver, and ask it. */
#include "driver_state.h"
#include "loader.h"

#include <stdlib.h>

#define NAME_SIZE 64

static const struct {
    const char *name;
    VkResult errors[DRIVER_MAX_ERRORS]; /* ends at 0 */
} functions[] = {
#define F(name, ...) \
    {#name,          \
     {VK_ERROR_OUT_OF_HOST_MEMORY, VK_ERROR_OUT_OF_DEVICE_MEMORY, VK_ERROR_UNKNOWN, __VA_ARGS__}},
    RESULT_FUNCTIONS(F)
#undef F
};

struct driver_real real;
struct driver_state driver;
char *driver_in_call; /* [NAME_SIZE] */
static bool computes;

bool driver_share(void)
{
    driver_in_call = loader_share(NAME_SIZE);
    return driver_in_call;
}

static bool is_stub(PFN_vkGetInstanceProcAddr get, VkInstance instance)
{
    PFN_vkEnumeratePhysicalDevices list =
        (PFN_vkEnumeratePhysicalDevices)get(instance, "vkEnumeratePhysicalDevices");
    PFN_vkGetPhysicalDeviceProperties properties =
        (PFN_vkGetPhysicalDeviceProperties)get(instance, "vkGetPhysicalDeviceProperties");
    VkPhysicalDevice first;
    VkPhysicalDeviceProperties p;
    uint32_t n = 1;
    if (list(instance, &n, &first) < 0 || n == 0)
        return false;
    properties(first, &p);
    return strncmp(p.deviceName, "stub ", 5) == 0;
}

bool driver_open(void)
{
    PFN_vkGetInstanceProcAddr get = loader_open();
    if (!get || !(driver_in_call || driver_share()))
        return false;
    PFN_vkCreateInstance create = (PFN_vkCreateInstance)get(NULL, "vkCreateInstance");
    static VkInstance kept;
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    driver_reset();
    if (!create || create(&info, NULL, &kept) != VK_SUCCESS)
        return false;
    computes = !is_stub(get, kept);
    return true;
}

void driver_reset(void)
{
    long alive = driver.alive;
    memset(&driver, 0, sizeof driver);
    driver.alive = alive;
    driver.fail_at = driver.drop_at = driver.multiply_at = DRIVER_NEVER;
    driver_keep_allocations();
}

size_t driver_calls(void)
{
    return driver.n_call;
}

const char *driver_call_name(size_t call)
{
    return call < MAX_CALLS ? functions[driver.calls[call]].name : "a call past those kept";
}

size_t driver_call_errors(size_t call, VkResult errors[DRIVER_MAX_ERRORS])
{
    size_t n = 0;
    if (call < driver.n_call && call < MAX_CALLS)
        while (n < DRIVER_MAX_ERRORS && functions[driver.calls[call]].errors[n] != VK_SUCCESS) {
            errors[n] = functions[driver.calls[call]].errors[n];
            n++;
        }
    return n;
}

void driver_fail(size_t call, VkResult error)
{
    driver.fail_at = call;
    driver.error = error;
}

void driver_drop(size_t call)
{
    driver.drop_at = call;
}

void driver_refuse(const uint32_t *words, VkResult result, size_t spared)
{
    driver.refused = words;
    driver.refusal = result;
    driver.spared = spared;
}

size_t driver_refusals(void)
{
    return driver.n_refusal;
}

size_t driver_pipelines(void)
{
    return driver.n_made;
}

bool driver_saw(const uint32_t *words)
{
    for (size_t i = 0; i < driver.n_seen && i < MAX_SEEN; i++)
        if (driver.seen[i] == words)
            return true;
    return driver.n_seen > MAX_SEEN; /* or it was forgotten */
}

bool driver_computes(void)
{
    return computes;
}

void driver_multiply_devices(size_t listing)
{
    driver.multiply_at = listing;
}

void driver_boast(void)
{
    driver.boasts = true;
}

long driver_alive(void)
{
    return driver.alive;
}

size_t driver_freed_in_flight(void)
{
    return driver.freed_in_flight;
}

const char *driver_busy(void)
{
    return driver_in_call[0] ? driver_in_call : NULL;
}
