#include "histories.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpu/device.h>

int histories_run(int argc, char **argv, uint64_t count, history_function history)
{
    uint64_t seed = 1, each = 1, gpu = 0;
    for (int i = 1; i + 1 < argc; i += 2)
        *(strcmp(argv[i], "--count") == 0  ? &count
          : strcmp(argv[i], "--each") == 0 ? &each
          : strcmp(argv[i], "--gpu") == 0  ? &gpu
                                           : &seed) = strtoull(argv[i + 1], NULL, 10);
    struct vka_device *device = NULL;
    if (vka_device_create(NULL, &device) != VKA_OK) {
        fprintf(stderr, "no device\n");
        return 1;
    }
    if (gpu)
        device->caps.properties.type = VKA_DEVICE_DISCRETE;
    double worst = 0;
    for (uint64_t i = 0; i < count; i++)
        worst = fmax(worst, history(device, seed + i, each ? each : 1));
    printf("%llu problems from seed %llu on %s, 0 failed; worst at %.2g of its limit\n",
           (unsigned long long)count, (unsigned long long)seed, vka_device_properties(device)->name,
           worst);
    vka_device_destroy(&device);
    return 0;
}
