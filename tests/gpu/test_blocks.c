/* Keys block by block give the bits of all keys at once, over random problems of the contract.
 *
 *     test_blocks [FIRST_SEED [COUNT]] */
#include "problem_data.h"

#include <gpu/device.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SKIPPED 77
#define UNIT 128u /* keys */
#define CUT_ALL 1 /* nanosecond a submit */
#define PATIENCE 300000000000ull

static struct vka_device *device;

static void require(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s: %s\n", what, vka_device_error(device));
    exit(1);
}

static struct vka_plan *make_plan(enum vka_path path, uint64_t submit_budget)
{
    struct vka_plan *plan = NULL;
    require(!vka_plan_create(device,
                             VKA_INFO(vka_plan_info, .path = path, .submit_budget = submit_budget),
                             &plan),
            "plan");
    return plan;
}

static void run(struct vka_plan **plan)
{
    require(!vka_plan_finish(*plan) && !vka_plan_run(*plan, PATIENCE), "run");
    vka_plan_destroy(plan);
}

static void *read_all(struct vka_tensor *t)
{
    void *data = malloc(vka_tensor_size(t));
    require(data && !vka_tensor_read(t, data, vka_tensor_size(t)), "read");
    return data;
}

static void poison(struct vka_tensor *t)
{
    void *data = malloc(vka_tensor_size(t));
    require(data, "memory");
    memset(data, 0xff, vka_tensor_size(t));
    require(!vka_tensor_write(t, data, vka_tensor_size(t)), "write");
    free(data);
}

/* The state for blocks of the problem, full of NaN; NULL where it has none here. */
static struct vka_tensor *make_state(enum vka_path path, const struct vka_attention_op *op)
{
    struct vka_attention_op whole = *op;
    struct vka_plan *plan = make_plan(path, 0);
    struct vka_tensor *state = NULL;
    uint64_t count;
    whole.n_key = vka_tensor_shape(op->k, 2);
    require(!vka_plan_attention_state(plan, &whole, &count), "state");
    vka_plan_destroy(&plan);
    if (!count)
        return NULL;
    require(count <= UINT32_MAX &&
                !vka_tensor_create(device, VKA_F32, 1, (const uint32_t[]){(uint32_t)count}, &state),
            "state");
    poison(state);
    return state;
}

/* Blocks of one unit or more, all in one plan or each in its own, with their keys cut further or
 * not. */
static void run_blocks(const struct problem *p, const struct vka_attention_op *op,
                       struct vka_tensor *state)
{
    struct rng rng = {p->seed};
    bool one_plan = rng_range(&rng, 0, 1);
    uint64_t budget = rng_range(&rng, 0, 2) ? VKA_NO_BUDGET : CUT_ALL;
    struct vka_plan *plan = NULL;
    for (uint32_t first = 0; first < p->n_new;) {
        struct vka_attention_op block = *op;
        uint32_t n = rng_range(&rng, 1, 2) * UNIT;
        n = n < p->n_new - first ? n : p->n_new - first;
        require(!vka_tensor_slice(op->k, 2, first, n, &block.k), "slice");
        require(!vka_tensor_slice(op->v, 2, first, n, &block.v), "slice");
        block.state = state;
        block.key_first = first;
        block.n_key = p->n_new;
        plan = plan ? plan : make_plan(p->path, budget);
        require(!vka_plan_add_attention(plan, &block), "block");
        first += n;
        if (!one_plan || first == p->n_new)
            run(&plan);
        vka_tensor_destroy(&block.k);
        vka_tensor_destroy(&block.v);
    }
}

/* False where the bits differ; *blocks counts the problems that have blocks here. */
static bool check(const struct problem *p, uint64_t *blocks)
{
    struct problem_data d;
    struct vka_attention_op op;
    char text[PROBLEM_TEXT];
    bool same = true;
    uint64_t before = device->caps.disabled_kernels;
    device->caps.disabled_kernels |= p->disabled_kernels;
    require(!problem_data_create(device, p, &d), "problem");
    problem_op(&d, &op);
    struct vka_tensor *state = make_state(p->path, &op);
    if (state) {
        struct vka_plan *plan = make_plan(p->path, 0);
        require(!vka_plan_add_attention(plan, &op), "attention");
        run(&plan);
        void *want = read_all(op.output);
        poison(op.output);
        run_blocks(p, &op, state);
        void *got = read_all(op.output);
        same = !memcmp(got, want, vka_tensor_size(op.output));
        free(got);
        free(want);
        ++*blocks;
    }
    if (!same)
        printf("FAIL %s\n", problem_text(p, text));
    vka_tensor_destroy(&state);
    problem_data_destroy(&d);
    device->caps.disabled_kernels = before;
    return same;
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, failed = 0, blocks = 0;
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 40;
    enum vka_status status = vka_device_create(NULL, &device);
    if (status == VKA_NO_DEVICE) {
        fprintf(stderr, "SKIPPED: no Vulkan device: nothing was tested\n");
        return SKIPPED;
    }
    require(status == VKA_OK, "device");
    for (uint64_t drawn = 0; drawn < count; seed++) {
        struct problem p;
        problem_draw(&p, seed, VKA_PATH_FUSED);
        if (p.n_new <= UNIT || p.n_past || p.has_present || p.scores_kind)
            continue;
        failed += !check(&p, &blocks);
        drawn++;
    }
    printf("%s: %llu problems, %llu in blocks, %llu failed\n",
           vka_device_properties(device)->driver, (unsigned long long)count,
           (unsigned long long)blocks, (unsigned long long)failed);
    vka_device_destroy(&device);
    return failed || !blocks;
}
