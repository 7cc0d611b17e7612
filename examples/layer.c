/* A whole attention layer: projections with biases, eight heads, rotary embedding, the output
 * projection; weights are [out][in], as PyTorch stores them. Run twice, it gives the same bits.
 *
 *     cc layer.c -o layer $(pkg-config --cflags --libs vkattn)
 *
 * SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vkattn/vkattn.h>

enum { BATCH = 2, TOKENS = 16, WIDTH = 128, HEADS = 8, DIM = WIDTH / HEADS };
static struct vka_device *device;
static float w[4][WIDTH][WIDTH], b[4][WIDTH];
static float x[BATCH][TOKENS][WIDTH], y[BATCH][TOKENS][WIDTH], again[BATCH][TOKENS][WIDTH];

static void check(enum vka_status status)
{
    if (status != VKA_OK) {
        fprintf(stderr, "%s: %s\n", vka_status_name(status), vka_device_error(device));
        exit(status == VKA_NO_DEVICE ? 77 : 1);
    }
}

static void fill(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)((i * 1664525u + 1013904223u) >> 8 & 0xffff) / 0x10000 - 0.5f;
}

int main(void)
{
    struct vka_tensor *in, *out;
    struct vka_layer *layer;
    struct vka_plan *plan;
    fill(&w[0][0][0], sizeof w / 4);
    fill(&b[0][0], sizeof b / 4);
    fill(&x[0][0][0], sizeof x / 4);
    check(vka_device_create(NULL, &device));
    const struct vka_layer_info *info = VKA_INFO(
        vka_layer_info, .n_head = HEADS, .head_dim = DIM, .query_dim = WIDTH, .query = {w[0], b[0]},
        .key = {w[1], b[1]}, .value = {w[2], b[2]}, .output = {w[3], b[3]});
    check(vka_layer_create(device, info, &layer));
    check(vka_tensor_create(device, VKA_F32, 3, (uint32_t[]){BATCH, TOKENS, WIDTH}, &in));
    check(vka_tensor_create(device, VKA_F32, 3, (uint32_t[]){BATCH, TOKENS, WIDTH}, &out));
    check(vka_plan_create(device, NULL, &plan));
    check(
        vka_plan_add_layer(plan, VKA_INFO(vka_layer_op, .layer = layer, .query = in, .output = out,
                                          .attention = {.causal = true, .rope.dim = DIM})));
    check(vka_plan_finish(plan));
    check(vka_tensor_write(in, x, sizeof x));
    check(vka_plan_run(plan, VKA_TIMEOUT_DEFAULT));
    check(vka_tensor_read(out, y, sizeof y));
    check(vka_plan_run(plan, VKA_TIMEOUT_DEFAULT));
    check(vka_tensor_read(out, again, sizeof again));
    printf("y[0][0] begins with %.4f %.4f; ", y[0][0][0], y[0][0][1]);
    puts(memcmp(y, again, sizeof y) == 0 ? "the same bits again" : "OTHER BITS");
    vka_plan_destroy(&plan), vka_tensor_destroy(&in), vka_tensor_destroy(&out);
    vka_layer_destroy(&layer), vka_device_destroy(&device);
}
