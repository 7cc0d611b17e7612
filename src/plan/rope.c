#include "plan/rope.h"
#include "params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TWO_PI 6.283185307179586476925286766559

/* Turns a position of each pair, as fractions of 2^64: low and high word. The kernel multiplies in
 * integers, so that no position loses the angle's precision. */
static enum vka_status make_frequencies(struct vka_plan *plan, const struct vka_rope *rope,
                                        struct vka_tensor *frequencies)
{
    enum vka_status status = VKA_OK;
    struct log *log = &plan->device->log;
    uint32_t n = rope->dim / 2;
    double base = rope->base != 0 ? (double)rope->base : 10000;
    uint32_t *words = calloc(2 * (size_t)n + 2, sizeof *words);
    CHECK_ALLOC(words);
    for (uint32_t i = 0; i < n; i++) {
        double turns = pow(base, -2.0 * i / rope->dim) / TWO_PI;
        double high = (turns - floor(turns)) * 4294967296.0;
        words[2 * i + 1] = (uint32_t)high;
        words[2 * i] = (uint32_t)((high - floor(high)) * 4294967296.0);
    }
    const uint32_t size[4] = {1, 1, 1, 2 * n + 2};
    TRY(plan_constant(plan, VKA_I32, size, words, frequencies));
fail:
    free(words);
    return status;
}

enum vka_status plan_rope(struct vka_plan *plan, const char *name, const struct vka_rope *rope,
                          const struct vka_tensor *norm, float epsilon,
                          const struct vka_tensor *offsets, uint32_t first,
                          struct vka_tensor *tensor)
{
    enum vka_status status = VKA_OK;
    struct vka_tensor frequencies, to;
    const uint32_t *size = tensor->shape.size;
    const uint64_t *from = tensor->shape.stride;
    TRY(make_frequencies(plan, rope, &frequencies));
    TRY(plan_scratch(plan, VKA_F32, size, &to));
    struct rope_params p = {
        .batch = size[0],
        .n_head = size[1],
        .n_row = size[2],
        .head_dim = size[3],
        .from_batch = (uint32_t)from[0],
        .from_head = (uint32_t)from[1],
        .from_row = (uint32_t)from[2],
        .from_col = (uint32_t)from[3],
        .to_batch = (uint32_t)to.shape.stride[0],
        .to_head = (uint32_t)to.shape.stride[1],
        .to_row = (uint32_t)to.shape.stride[2],
        .to_col = 1,
        .default_position = (int32_t)first,
        .flags = (norm ? ROPE_NORM : 0) | (rope->interleaved ? ROPE_INTERLEAVED : 0) |
                 (offsets ? ROPE_OFFSET : 0) |
                 (offsets && offsets->shape.size[0] > 1 ? ROPE_OFFSET_PER_BATCH : 0),
        .epsilon = epsilon != 0 ? epsilon : 1e-6f,
        .dim = rope->dim,
    };
    struct pass pass = {.name = name, .reason = "one invocation a row"};
    pass.key = (struct pipeline_key){.kernel = KERNEL_rope, .n_spec = ROPE_SPECS};
    pass.key.spec[ROPE_FROM_TYPE] = tensor->dtype;
    pass.key.spec[ROPE_TO_TYPE] = VKA_F32;
    plan_bind(plan, &pass, 0, tensor, false, &p.from_offset);
    plan_bind(plan, &pass, 1, &to, true, &p.to_offset);
    plan_bind(plan, &pass, 2, norm ? norm : &frequencies, false, &p.norm_offset);
    plan_bind(plan, &pass, 3, offsets ? offsets : &frequencies, false, &p.position_offset);
    plan_bind(plan, &pass, 4, &frequencies, false, NULL);
    pass.push_size = sizeof p;
    memcpy(pass.push, &p, sizeof p);
    pass.groups[0] = (uint32_t)(((uint64_t)size[1] * size[2] + 63) / 64);
    pass.groups[1] = size[0];
    pass.groups[2] = 1;
    snprintf(pass.detail, sizeof pass.detail, "%ux%ux%ux%u, %s%s", size[0], size[1], size[2],
             size[3], norm ? "norm " : "", rope->dim ? "turn" : "");
    TRY(plan_add_pass(plan, &pass));
    *tensor = to;
fail:
    return status;
}
