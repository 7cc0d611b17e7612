/* Layers over ranks give the bits of one device: seeds, random problems, a long causal sequence. */
#include "gpu/device.h"
#include "layer_problem.h"
#include "problems/turns.h"
#include "reference/reference.h"
#include "test_program.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANDOM_PROBLEMS 8 /* most of the time goes into compiling their kernels */

/* Every layer of the folder, at a landing every third in turn (problems/turns.h), or every eighth;
 * returns how many there are. */
static int check_seeds(struct vka_mpi *mpi, const char *folder, bool few)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort), layers = 0;
    REQUIRE(n >= 0, "%s cannot be read", folder);
    for (int i = 0; i < n; i++) {
        char path[1024];
        struct layer_problem p;
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (strstr(path, ".safetensors") && layer_problem_open(mpi, path, &p)) {
            if (few ? layers % 8 == 0 : turn_of(3) == 3 || (uint32_t)layers % 3 == turn_of(3))
                layer_problem_check(mpi, &p, 0);
            layer_problem_destroy(&p);
            layers++;
        }
        free(entries[i]);
    }
    free(entries);
    return layers;
}

/* Four key heads of two query heads, 4,096 positions, causal: the fused path on CPU drivers. */
static void check_long(struct vka_mpi *mpi)
{
    enum { N = 4096, WIDTH = 32 };
    static float x[N][WIDTH], w[WIDTH * WIDTH];
    struct layer_problem p = {.name = "4,096 positions, causal"};
    const uint32_t shape[] = {1, N, WIDTH};
    struct vka_tensor *in, *out;
    uint32_t bits = 1;
    for (int i = 0; i < N * WIDTH; i++)
        x[i / WIDTH][i % WIDTH] = (float)((bits = bits * 1664525 + 1013904223) >> 8) * 0x1p-23f - 1;
    for (int i = 0; i < WIDTH * WIDTH; i++)
        w[i] = ((float)((bits = bits * 1664525 + 1013904223) >> 8) * 0x1p-23f - 1) * 0.5f;
    REQUIRE_OK(mpi, vka_tensor_create(vka_mpi_device(mpi), VKA_F32, 3, shape, &in));
    REQUIRE_OK(mpi, vka_tensor_create(vka_mpi_device(mpi), VKA_F32, 3, shape, &out));
    REQUIRE_OK(mpi, vka_tensor_write(in, x, sizeof x));
    p.info = *VKA_INFO(vka_layer_info, .n_head = 8, .n_kv_head = 4, .head_dim = 4,
                       .query_dim = WIDTH, .output_dim = WIDTH, .query = {w, w}, .key = {w, NULL},
                       .value = {w, w}, .output = {w, w});
    p.op = *VKA_INFO(vka_layer_op, .query = in, .output = out, .attention.causal = true);
    layer_problem_check(mpi, &p, 0);
    vka_tensor_destroy(&in);
    vka_tensor_destroy(&out);
}

/* A layer whose rows and weights are of one 16-bit type, on devices taken for GPUs that multiply
 * matrices of it: its contexts have that type on the way between ranks, as on one device. */
static void check_matrices(struct vka_mpi *mpi, enum vka_dtype type)
{
    enum { N = 24, WIDTH = 32 };
    static uint16_t x[2 * N * WIDTH], w[WIDTH * WIDTH];
    struct vka_device_properties *device = &vka_mpi_device(mpi)->caps.properties, usual = *device;
    const uint32_t shape[] = {2, N, WIDTH};
    struct layer_problem p = {.name = "16 bits on matrix units"};
    struct vka_tensor *in, *out;
    uint32_t bits = 3;
    for (int i = 0; i < 2 * N * WIDTH; i++) {
        const double value = (double)((bits = bits * 1664525 + 1013904223) >> 8) * 0x1p-23 - 1;
        x[i] = type == VKA_F16 ? ref_to_f16(value) : ref_to_bf16(value);
        w[i % (WIDTH * WIDTH)] = x[i];
    }
    device->type = VKA_DEVICE_INTEGRATED;
    device->cooperative_matrix_count = 1;
    snprintf(device->cooperative_matrix[0].types, sizeof device->cooperative_matrix[0].types,
             "%s*%s+f32", vka_dtype_name(type), vka_dtype_name(type));
    REQUIRE_OK(mpi, vka_tensor_create(vka_mpi_device(mpi), type, 3, shape, &in));
    REQUIRE_OK(mpi, vka_tensor_create(vka_mpi_device(mpi), type, 3, shape, &out));
    REQUIRE_OK(mpi, vka_tensor_write(in, x, sizeof x));
    p.info = *VKA_INFO(vka_layer_info, .n_head = 8, .n_kv_head = 4, .head_dim = 4,
                       .query_dim = WIDTH, .output_dim = WIDTH, .dtype = type, .query = {w, w},
                       .key = {w, NULL}, .value = {w, w}, .output = {w, w});
    p.op = *VKA_INFO(vka_layer_op, .query = in, .output = out);
    layer_problem_check(mpi, &p, 0);
    vka_tensor_destroy(&in);
    vka_tensor_destroy(&out);
    *device = usual;
}

TEST_PROGRAM_ARGUMENTS(mpi_layer)
{
    struct vka_mpi *mpi = ranks_begin(&argc, &argv);
    bool few = argc == 3 && strcmp(argv[2], "--few") == 0;
    REQUIRE(argc == 2 || few, "usage: test_mpi mpi_layer FOLDER_OF_SEEDS [--few]");
    int layers = check_seeds(mpi, argv[1], few);
    REQUIRE(layers >= 24, "only %d layers in %s", layers, argv[1]);
    for (uint64_t seed = 1; seed <= (few ? 1 : RANDOM_PROBLEMS); seed++) {
        struct layer_problem p;
        layer_problem_draw(mpi, seed, &p);
        layer_problem_check(mpi, &p, (uint32_t)(seed % 4));
        layer_problem_destroy(&p);
    }
    check_long(mpi);
    check_matrices(mpi, VKA_F16);
    check_matrices(mpi, VKA_BF16);
    return ranks_end(&mpi);
}
