/* How the driver that fails on demand gets between volk and the Vulkan loader, on each system: the
 * linker's --wrap replaces the function by which volk looks for vkGetInstanceProcAddr. */
#ifndef TESTS_FAULTS_LOADER_H
#define TESTS_FAULTS_LOADER_H

#include <gpu/vk.h>

/* The Vulkan loader's own function; NULL: there is none. */
PFN_vkGetInstanceProcAddr loader_open(void);

/* Zeroed bytes, which processes forked from here on share; NULL: no memory. */
char *loader_share(size_t size);

/* In driver_calls.c: keeps the loader's function and returns the one for volk. */
PFN_vkGetInstanceProcAddr driver_put_between(PFN_vkGetInstanceProcAddr get);

#endif
