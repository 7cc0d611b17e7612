/* Random layers with weights on the host and in tensors, and their gradients, against the oracle. Run
 * as: test_gpu layer_backward [SEED [COUNT]]; layer i has the seed SEED + i. SPDX-License-Identifier: MIT */
#include "problems/layer_problem.h"
#include "test_program.h"

#include <stdio.h>
#include <stdlib.h>

TEST_PROGRAM_ARGUMENTS(layer_backward)
{
    const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 5;
    struct vka_device *device = NULL;
    struct worst worst = {.nmse = {0}};
    uint64_t failures = 0;
    if (vka_device_create(NULL, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device: gradients of layers are not tested\n");
        return 77;
    }
    for (uint64_t i = 0; i < count; i++) {
        struct layer_problem l;
        char why[WHY] = "", text[PROBLEM_TEXT];
        layer_problem_draw(&l, seed + i);
        if (layer_problem_check(device, &l, &worst, why))
            continue;
        failures++;
        fprintf(stderr, "seed %llu: %s\n  %s\n", (unsigned long long)(seed + i), why,
                layer_problem_text(&l, text));
    }
    printf("%llu layers, %llu failed\n", (unsigned long long)count, (unsigned long long)failures);
    for (int type = 0; type < 3; type++)
        printf("%s: worst NMSE %.2g, %s\n", vka_dtype_name((enum vka_dtype)type), worst.nmse[type],
               worst.where[type]);
    vka_device_destroy(&device);
    return failures > 0;
}
