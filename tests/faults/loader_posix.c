#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "loader.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>

void *__real_dlsym(void *module, const char *name);
void *__wrap_dlsym(void *module, const char *name);

void *__wrap_dlsym(void *module, const char *name)
{
    void *symbol = __real_dlsym(module, name);
    if (!symbol || strcmp(name, "vkGetInstanceProcAddr") != 0)
        return symbol;
    PFN_vkGetInstanceProcAddr get;
    memcpy(&get, &symbol, sizeof get);
    get = driver_put_between(get);
    memcpy(&symbol, &get, sizeof symbol);
    return symbol;
}

PFN_vkGetInstanceProcAddr loader_open(void)
{
    void *module = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    void *symbol = module ? __real_dlsym(module, "vkGetInstanceProcAddr") : NULL;
    PFN_vkGetInstanceProcAddr get;
    memcpy(&get, &symbol, sizeof get);
    return get;
}

char *loader_share(size_t size)
{
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return map != MAP_FAILED ? map : NULL;
}
