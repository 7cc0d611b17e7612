/* Attention over two texts of up to four tokens: causal, padded, two query heads on one key head.
 *
 *     cc attention.c -o attention $(pkg-config --cflags --libs vkattn)
 *
 * SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <vkattn/vkattn.h>

static struct vka_device *device;

static void check(enum vka_status status)
{
    if (status != VKA_OK) {
        fprintf(stderr, "%s: %s\n", vka_status_name(status), vka_device_error(device));
        exit(status == VKA_NO_DEVICE ? 77 : 1);
    }
}

int main(void)
{
    enum { BATCH = 2, HEADS = 2, TOKENS = 4, DIM = 2 };
    struct vka_tensor *q, *k, *v, *output, *w, *lengths;
    struct vka_plan *plan;
    check(vka_device_create(NULL, &device));
    check(vka_tensor_create(device, VKA_F32, 4, (uint32_t[]){BATCH, HEADS, TOKENS, DIM}, &q));
    check(vka_tensor_create(device, VKA_F32, 4, (uint32_t[]){BATCH, 1, TOKENS, DIM}, &k));
    check(vka_tensor_create(device, VKA_F32, 4, (uint32_t[]){BATCH, 1, TOKENS, DIM}, &v));
    check(vka_tensor_create(device, VKA_F32, 4, (uint32_t[]){BATCH, HEADS, TOKENS, DIM}, &output));
    check(vka_tensor_create(device, VKA_F32, 4, (uint32_t[]){BATCH, HEADS, TOKENS, TOKENS}, &w));
    check(vka_tensor_create(device, VKA_I32, 1, (uint32_t[]){BATCH}, &lengths));
    check(vka_plan_create(device, NULL, &plan));
    check(vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = q, .k = k, .v = v,
                                                .output = output,
                                                .options = {.causal = true,
                                                            .kv_length = lengths,
                                                            .scores = w,
                                                            .scores_kind = VKA_SCORES_SOFTMAX})));
    check(vka_plan_finish(plan)); /* recorded: what follows can be done as often as wanted */
    float x[BATCH][HEADS][TOKENS][DIM] = {0}, keys[BATCH][TOKENS][DIM];
    float got[BATCH][HEADS][TOKENS][TOKENS];
    for (int i = 0; i < BATCH * TOKENS; i++) /* queries of head 0 are 0: it averages */
        keys[i / 4][i % 4][0] = keys[i / 4][i % 4][1] = x[i / 4][1][i % 4][0] = (float)(i % 4);
    check(vka_tensor_write(q, x, sizeof x));
    check(vka_tensor_write(k, keys, sizeof keys));
    check(vka_tensor_write(v, keys, sizeof keys));
    check(vka_tensor_write(lengths, (int32_t[]){4, 2}, 2 * sizeof(int32_t)));
    check(vka_plan_run(plan, VKA_TIMEOUT_DEFAULT));
    check(vka_tensor_read(output, x, sizeof x));
    check(vka_tensor_read(w, got, sizeof got));
    for (int b = 0; b < BATCH; b++) {
        const float *last = got[b][1][3];
        printf("text %d, head 1, last token: weights %.3f %.3f %.3f %.3f, output %.3f\n", b,
               last[0], last[1], last[2], last[3], x[b][1][3][0]);
    }
    vka_plan_destroy(&plan);
    for (struct vka_tensor **t[] = {&q, &k, &v, &output, &w, &lengths}, ***at = t; at < t + 6;)
        vka_tensor_destroy(*at++);
    vka_device_destroy(&device);
}
