/* Gradients of attention: rows and keys that end in a workgroup, slices of queries, and random
 * problems over the contract. */
#include <vkattn/vkattn_train.h>

#include "check.h"

#include <stdio.h>

#define RANDOM 21      /* problems */
#define RANDOM_FUSED 3 /* CPU drivers compile for seconds for each size of a head */

/* The type that a kernel of matrices takes. */
static void set_type(const struct check *c, struct problem *p)
{
    const bool f16 = c->kernel == KERNEL_attention_backward_coop_f16;
    if (!f16 && c->kernel != KERNEL_attention_backward_coop_bf16)
        return;
    problem_backward_set_type(p, f16 ? VKA_F16 : VKA_BF16);
}

static void run_case(struct check *c, const struct problem *p)
{
    struct problem_result result;
    char text[CASE_TEXT];
    if (!problem_backward_check(c->device, p, &c->worst, &result))
        check_fail(c, problem_text(p, text), result.why);
}

/* Several slices of queries, and several workgroups of keys. */
static const uint32_t sizes[][3] = {
    {1, 1, 1}, {7, 1, 3}, {3, 1024, 2}, {2, 1025, 1}, {1030, 33, 2}, {1, 5000, 1}, {900, 5000, 1},
};

static void check_sizes(struct check *c, enum vka_path path)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (!check_case(c))
            continue;
        const uint32_t *size = sizes[i];
        const bool many = (uint64_t)size[0] * size[1] > 1000000;
        struct problem p = {
            .seed = rng_next(&c->rng),
            .batch = many ? 1 : 2,
            .n_kv_head = size[2],
            .group = size[0] > 1000 ? 1 : size[2],
            .n_q = size[0],
            .n_new = size[1],
            .head_dim = many ? 4 : 8,
            .value_dim = many ? 3 : 6,
            .scattered = i % 2,
            .causal = size[0] > 1000,
            .masked_row = VKA_MASKED_ZERO,
            .log_sum = true,
            .sink = i % 3 == 0,
            .softcap = i % 3 < 2 ? 3 : 0, /* --sample takes the first, a key beside a sink */
            .alibi = !many && i % 3 == 2,
            .budgets = !many,
            .path = path,
        };
        set_type(c, &p);
        run_case(c, &p);
    }
}

static void check_path(struct check *c, enum vka_path path, int random)
{
    check_sizes(c, path);
    for (int i = 0; i < random; i++)
        if (check_case(c)) {
            struct problem p;
            problem_backward_draw(&p, rng_next(&c->rng));
            p.path = path;
            set_type(c, &p);
            run_case(c, &p);
        }
}

/* Heads of several tiles in shared memory, odd rows and sizes; the gradient of keys or of values alone, whose
 * subgroups share no row groups of both. */
static void check_heads(struct check *c)
{
    static const uint32_t heads[][3] = {{64, 64, 0},   {128, 128, 0}, {80, 33, 0}, {40, 136, 0},
                                        {256, 256, 0}, {64, 64, 2},   {64, 64, 3}};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        if (!check_case(c))
            continue;
        struct problem p = {
            .seed = rng_next(&c->rng),
            .batch = 1,
            .n_kv_head = 1,
            .group = 2,
            .n_q = 70 + 9 * (uint32_t)i,
            .n_new = 130,
            .head_dim = heads[i][0],
            .value_dim = heads[i][1],
            .only_gradient = heads[i][2],
            .causal = i % 2,
            .masked_row = VKA_MASKED_UNIFORM,
            .log_sum = true,
            .sink = i % 2,
            .dropout = i == 3 ? 0.25f : 0,
            .poison_hidden = i == 1, /* also to keys of whole rows in another workgroup's tile */
            .budgets = i < 2,
            .path = VKA_PATH_FUSED,
        };
        set_type(c, &p);
        run_case(c, &p);
    }
}

void check_backward(struct check *c)
{
    check_path(c, VKA_PATH_UNFUSED, RANDOM);
}

void check_backward_fused(struct check *c)
{
    check_path(c, VKA_PATH_FUSED, RANDOM_FUSED);
    if (c->kernel != KERNEL_attention_backward)
        check_heads(c);
}

static void bench_path(struct check *c, enum vka_path path)
{
    enum { HEADS = 8, ROWS = 512, DIM = 64, TENSORS = 6 }; /* x, output, dy, dq, dk, dv */
    const uint32_t size[4] = {1, HEADS, ROWS, DIM};
    struct vka_tensor *t[TENSORS] = {NULL}, *log_sum = NULL;
    struct vka_plan *plan = NULL;
    struct problem p = {.q = VKA_F32};
    set_type(c, &p);
    enum vka_status status = vka_tensor_create(c->device, VKA_F32, 3, size, &log_sum);
    for (int i = 0; i < TENSORS && status == VKA_OK; i++)
        status = vka_tensor_create(c->device, p.q, 4, size, &t[i]);
    const struct vka_attention_op forward = {.struct_size = sizeof forward,
                                             .q = t[0],
                                             .k = t[0],
                                             .v = t[0],
                                             .output = t[1],
                                             .options.log_sum_exp = log_sum};
    if (status == VKA_OK)
        status = vka_plan_create(c->device,
                                 VKA_INFO(vka_plan_info, .path = path, .timestamps = true), &plan);
    if (status == VKA_OK)
        status = vka_plan_add_attention_backward(
            plan, VKA_INFO(vka_attention_backward_op, .forward = &forward, .output_gradient = t[2],
                           .q_gradient.tensor = t[3], .k_gradient.tensor = t[4],
                           .v_gradient.tensor = t[5]));
    char text[64];
    snprintf(text, sizeof text, "8 heads, 512x512, %s", vka_dtype_name(p.q));
    check_time(c, plan, status, (double)HEADS * ROWS * ROWS, "Gscore/s", text);
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&log_sum);
    for (int i = 0; i < TENSORS; i++)
        vka_tensor_destroy(&t[i]);
}

void bench_backward(struct check *c)
{
    bench_path(c, VKA_PATH_UNFUSED);
}

void bench_backward_fused(struct check *c)
{
    bench_path(c, VKA_PATH_FUSED);
}
