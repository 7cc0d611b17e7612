#include "loader.h"

#include <stdlib.h>
#include <string.h>
#include <windows.h>

/* volk calls through the pointer that the import library has for the function. */
typedef FARPROC(WINAPI *get_function)(HMODULE, LPCSTR);
extern get_function __real___imp_GetProcAddress;
static FARPROC WINAPI find(HMODULE module, LPCSTR name);
get_function __wrap___imp_GetProcAddress = find;

static FARPROC WINAPI find(HMODULE module, LPCSTR name)
{
    FARPROC symbol = __real___imp_GetProcAddress(module, name);
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
    HMODULE module = LoadLibraryA("vulkan-1.dll");
    FARPROC symbol = module ? __real___imp_GetProcAddress(module, "vkGetInstanceProcAddr") : NULL;
    PFN_vkGetInstanceProcAddr get;
    memcpy(&get, &symbol, sizeof get);
    return get;
}

char *loader_share(size_t size)
{
    static char memory[4096]; /* there is no fork */
    return size <= sizeof memory ? memory : NULL;
}
