/* Decoding with a cache: keys, values and their number stay on the device, so one recorded plan serves
 * every step. For prompts of different lengths in one batch see n_append and q_start in vkattn.h.
 *
 *     cc decode.c -o decode $(pkg-config --cflags --libs vkattn)
 *
 * SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <vkattn/vkattn.h>
enum { BATCH = 2, PROMPT = 3, STEPS = 4 };
static struct vka_device *device;
static struct vka_cache *cache;

static void check(enum vka_status status)
{
    if (status != VKA_OK) {
        fprintf(stderr, "%s: %s\n", vka_status_name(status), vka_device_error(device));
        exit(status == VKA_NO_DEVICE ? 77 : 1);
    }
}

/* Self-attention of new tokens of each sequence over all that the cache holds. */
static struct vka_plan *record(struct vka_tensor *x, struct vka_tensor *y)
{
    struct vka_plan *plan;
    check(vka_plan_create(device, NULL, &plan));
    check(
        vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = x, .k = x, .v = x, .output = y,
                                              .cache = cache, .options.causal = true)));
    check(vka_plan_finish(plan));
    return plan;
}

int main(void)
{
    struct vka_tensor *in[2], *out[2]; /* of a prompt, of a step */
    struct vka_plan *plans[2];
    float x[BATCH] = {0.5f, 0.5f};
    check(vka_device_create(NULL, &device));
    const struct vka_cache_info *info =
        VKA_INFO(vka_cache_info, .batch = BATCH, .n_kv_head = 1, .head_dim = 1, .capacity = 64);
    check(vka_cache_create(device, info, &cache));
    for (int i = 0; i < 2; i++) {
        const uint32_t shape[] = {BATCH, 1, i == 0 ? PROMPT : 1, 1};
        check(vka_tensor_create(device, VKA_F32, 4, shape, &in[i]));
        check(vka_tensor_create(device, VKA_F32, 4, shape, &out[i]));
        plans[i] = record(in[i], out[i]);
    }
    check(vka_tensor_write(in[0], (float[BATCH * PROMPT]){1, 2, 3, 4, 5, 6}, 4 * BATCH * PROMPT));
    check(vka_plan_run(plans[0], VKA_TIMEOUT_DEFAULT));
    for (uint32_t n = PROMPT + 1; n <= PROMPT + STEPS; n++) {
        check(vka_tensor_write(in[1], x, sizeof x)); /* what came out goes in */
        check(vka_plan_run(plans[1], VKA_TIMEOUT_DEFAULT));
        check(vka_tensor_read(out[1], x, sizeof x));
        printf("%u tokens: %.3f, %.3f\n", n, x[0], x[1]);
    }
    for (int i = 0; i < 2; i++)
        vka_plan_destroy(&plans[i]), vka_tensor_destroy(&in[i]), vka_tensor_destroy(&out[i]);
    vka_cache_destroy(&cache), vka_device_destroy(&device);
}
