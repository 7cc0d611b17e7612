/* Products with quantised weights: random problems against the oracle, as they are and cut to the
 * least limits and budget, with the same bits.
 *
 *     test_gpu quantised [--seed N] [--count N] [--each N] [--rules N] [--activations 1] [--type NAME]
 *                        [--ends 1]
 *
 * --each N: N seeds in a row have types, bias, relu and kind of activations alike, so that they share
 * pipelines; sizes, views and numbers are each seed's own.
 *
 * --rules 1: with the kernels that the rules choose on GPUs; 2: float16 inputs, with the
 * device's matrices, whatever their size. Both: cut by the budget alone, since a tile of a GPU's
 * kernel may pass the least limits.
 *
 * --activations 1: all with quantised activations, which are a seventh of the others.
 *
 * --type NAME: weights of that type alone, such as q6_K.
 *
 * --ends 1: weights that end where their binding does, in rows of an odd number of values or, of blocks, of
 * whole vectors of 16 bytes: what reads past the last one is seen by the tests bounds_.
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "patience.h"
#include "compare.h"
#include "core/dtype.h"
#include "limits.h"
#include "operand.h"
#include "plan/plan.h"
#include "test_program.h"
#include "quantised.h"

#include <params/params.h>
#include <reference/reference.h>

struct problem {
    enum vka_dtype weight, input, output, bias; /* bias VKA_DTYPE_COUNT: none */
    uint32_t m, n, k;
    uint32_t more_rows, more_blocks, first_row; /* of the tensor that the weight is a view of */
    bool relu, integers;                        /* integers: activations are quantised */
};

struct data {
    uint8_t *blocks;                            /* of the whole tensor */
    double *x, *w, *bias, *scale, *want, *size; /* size: sums of magnitudes */
    struct vka_tensor *input, *whole, *weight, *scales, *bias_tensor, *output;
};

static unsigned problems_of[KERNEL_COUNT]; /* problems whose product is of the kernel */
static bool gpu_rules;
static bool activations; /* all are quantised */
static bool ends;        /* of weights and of their bindings are the same */
static bool matrices;    /* float16 inputs alone, which matrix units take */
static const char *type; /* of all weights, or NULL */

static bool is_drawn(enum vka_dtype dtype)
{
    return (activations ? dtype_has_integers(dtype) : dtype_is_quantised(dtype)) &&
           (!type || strcmp(type, vka_dtype_name(dtype)) == 0);
}

/* alike: draws what selects the code of kernels; rng: the rest. They may be one generator. */
static struct problem draw(struct rng *alike, struct rng *rng)
{
    struct problem p = {.weight = type_draw(alike, is_drawn)};
    uint32_t values;
    vka_dtype_block(p.weight, &values, NULL);
    p.input = matrices                ? VKA_F16
              : rng_chance(alike, 60) ? VKA_F32
                                      : (enum vka_dtype)rng_range(alike, VKA_F16, VKA_BF16);
    p.output = rng_chance(alike, 70) ? VKA_F32 : type_draw(alike, dtype_is_float);
    p.bias = rng_chance(alike, 40) ? type_draw(alike, dtype_is_float) : VKA_DTYPE_COUNT;
    p.m = rng_chance(rng, 70) ? rng_range(rng, 1, 9) : rng_range(rng, 10, 90);
    p.n = rng_range(rng, 1, rng_chance(rng, 70) ? 40 : 150);
    p.k = values * rng_range(rng, 1, values == 1 ? 700 : divide_up(1100, values));
    if (rng_chance(rng, 4)) { /* several groups, or chains */
        p.k = rng_range(rng, 4096, 20000) / values * values;
        p.m = rng_range(rng, 1, 3);
    }
    const bool vectors = rng_chance(rng, 10); /* rows of whole 16 bytes, whatever a block has */
    if (vectors)
        p.k = 8 * values * rng_range(rng, 1, 2);
    p.more_rows = rng_chance(rng, 50) ? rng_range(rng, 1, 9) : 0;
    p.more_blocks = rng_chance(rng, 50) ? (vectors ? 8 : rng_range(rng, 1, 5)) : 0;
    p.first_row = p.more_rows ? rng_range(rng, 0, p.more_rows) : 0;
    p.relu = rng_chance(alike, 20);
    p.integers =
        activations || (!matrices && rng_chance(alike, 15) && dtype_has_integers(p.weight));
    return p;
}

/* Weights of whole vectors of 16 bytes, so that the binding has no byte behind them: an odd multiple of the
 * least such row, which of q5_1 ends within a block of the kernels. */
static void end_with_binding(struct problem *p)
{
    uint32_t values, bytes, blocks = 1;
    vka_dtype_block(p->weight, &values, &bytes);
    while (blocks * bytes % 16 != 0)
        blocks *= 2;
    const uint32_t least = blocks * values;
    p->n = 16;
    p->k = values == 1 ? p->k / 4 * 4 + 1 : (divide_up(p->k, 2 * least) * 2 - 1) * least;
    p->more_rows = p->more_blocks = p->first_row = 0;
}

static double rounded(enum vka_dtype dtype, double x)
{
    return dtype == VKA_F16 || dtype == VKA_BF16 || dtype == VKA_F32 ? operand_round(dtype, x) : x;
}

/* A dense tensor of rounded numbers around a mean. */
static double *numbers(struct rng *rng, struct vka_device *device, enum vka_dtype dtype,
                       uint32_t rank, const uint32_t *shape, double low, struct vka_tensor **t)
{
    size_t count = rank == 2 ? (size_t)shape[0] * shape[1] : shape[0];
    double *x = calloc(count, sizeof *x);
    uint8_t *bytes = calloc(count, 4);
    for (size_t i = 0; x && bytes && i < count; i++) {
        x[i] = operand_round(dtype, rng_uniform(rng, low, 1));
        operand_encode(dtype, x[i], bytes + i * vka_dtype_size(dtype));
    }
    if (!x || !bytes || vka_tensor_create(device, dtype, rank, shape, t) != VKA_OK ||
        vka_tensor_write(*t, bytes, vka_tensor_size(*t)) != VKA_OK)
        exit(1);
    free(bytes);
    return x;
}

static void make_weight(struct rng *rng, struct vka_device *device, const struct problem *p,
                        struct data *d)
{
    uint32_t values, bytes;
    vka_dtype_block(p->weight, &values, &bytes);
    uint32_t row_blocks = p->k / values + p->more_blocks, rows = p->n + p->more_rows;
    size_t pitch = (size_t)row_blocks * bytes;
    d->blocks = malloc(rows * pitch);
    d->w = calloc((size_t)p->n * p->k, sizeof *d->w);
    if (!d->blocks || !d->w)
        exit(1);
    for (uint32_t r = 0; r < rows; r++) /* what the view leaves out is large */
        for (uint32_t b = 0; b < row_blocks; b++) {
            bool used = r >= p->first_row && r < p->first_row + p->n && b < p->k / values;
            quantised_draw(rng, p->weight, used ? 1 : 0x1p30, d->blocks + r * pitch + b * bytes);
        }
    for (uint32_t o = 0; o < p->n; o++)
        for (uint32_t i = 0; i < p->k; i++) {
            const uint8_t *block =
                d->blocks + (p->first_row + o) * pitch + (size_t)(i / values) * bytes;
            double w = p->weight == VKA_I8 ? (double)(int8_t)*block
                                           : ref_block_value(p->weight, block, i % values);
            /* A block's value is a float32, which a 16-bit input's kernel rounds once more. */
            d->w[(size_t)o * p->k + i] =
                rounded(p->integers ? VKA_F32 : p->input, (double)(float)w);
        }
    if (vka_tensor_create(device, p->weight, 2, (const uint32_t[]){rows, row_blocks * values},
                          &d->whole) != VKA_OK ||
        vka_tensor_write(d->whole, d->blocks, rows * pitch) != VKA_OK ||
        vka_tensor_strided(d->whole, (uint64_t)p->first_row * row_blocks * values, 2,
                           (const uint32_t[]){p->n, p->k},
                           (const uint64_t[]){(uint64_t)row_blocks * values, 1},
                           &d->weight) != VKA_OK)
        exit(1);
}

static void oracle(const struct problem *p, struct data *d)
{
    for (size_t i = 0; p->relu && i < (size_t)p->m * p->k; i++)
        d->x[i] = fmax(d->x[i], 0);
    for (uint32_t r = 0; p->integers && r < p->m; r++)
        ref_activations(d->x + (size_t)r * p->k, p->k, d->x + (size_t)r * p->k);
    for (uint32_t r = 0; r < p->m; r++)
        for (uint32_t o = 0; o < p->n; o++) {
            double sum = 0, size = 0, bias = d->bias ? d->bias[o] : 0;
            for (uint32_t i = 0; i < p->k; i++) {
                double term = d->x[(size_t)r * p->k + i] * d->w[(size_t)o * p->k + i];
                sum += term;
                size += fabs(term);
            }
            double scale = d->scale ? d->scale[o] : 1;
            d->want[r * p->n + o] = rounded(p->output, sum * scale + bias);
            d->size[r * p->n + o] = size * scale;
        }
}

static void make(struct rng *rng, struct vka_device *device, const struct problem *p,
                 struct data *d)
{
    *d = (struct data){0};
    d->x = numbers(rng, device, p->input, 2, (const uint32_t[]){p->m, p->k}, -0.5, &d->input);
    if (p->bias != VKA_DTYPE_COUNT)
        d->bias = numbers(rng, device, p->bias, 1, &p->n, -1, &d->bias_tensor);
    if (p->weight == VKA_I8 || rng_chance(rng, 20)) /* blocks may have one too */
        d->scale = numbers(rng, device, VKA_F32, 1, &p->n, 0.1, &d->scales);
    make_weight(rng, device, p, d);
    d->want = calloc((size_t)p->m * p->n, sizeof *d->want);
    d->size = calloc((size_t)p->m * p->n, sizeof *d->size);
    if (!d->want || !d->size ||
        vka_tensor_create(device, p->output, 2, (const uint32_t[]){p->m, p->n}, &d->output) !=
            VKA_OK)
        exit(1);
    oracle(p, d);
}

static void destroy(struct data *d)
{
    struct vka_tensor **tensors[] = {&d->input,  &d->weight,      &d->whole,
                                     &d->scales, &d->bias_tensor, &d->output};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        vka_tensor_destroy(tensors[i]);
    free(d->blocks);
    free(d->x);
    free(d->w);
    free(d->bias);
    free(d->scale);
    free(d->want);
    free(d->size);
}

/* What a run was: passes, the product's kernel, the error that it may have. */
struct ran {
    size_t n_pass;
    const char *kernel;
    double limit;
    enum vka_status status;
};

/* Runs the product; NULL, and a line, where it fails. */
static uint8_t *run(struct vka_device *device, const struct problem *p, const struct data *d,
                    uint64_t budget, struct ran *ran)
{
    struct vka_plan *plan = NULL;
    *ran = (struct ran){.kernel = "none"};
    size_t size = vka_tensor_size(d->output);
    uint8_t *bytes = malloc(size);
    enum vka_status status =
        vka_plan_create(device, VKA_INFO(vka_plan_info, .submit_budget = budget), &plan);
    if (status == VKA_OK)
        status = vka_plan_add_linear(
            plan, VKA_INFO(vka_linear_op, .input = d->input, .weight = d->weight,
                           .weight_scale = d->scales, .bias = d->bias_tensor, .output = d->output,
                           .relu_input = p->relu, .activations = p->integers ? VKA_I8 : VKA_F32));
    if (status == VKA_OK)
        status = vka_plan_finish(plan);
    if (status == VKA_OK)
        status = vka_plan_run(plan, PATIENCE);
    if (status == VKA_OK && bytes)
        status = vka_tensor_read(d->output, bytes, size);
    if (status != VKA_OK || !bytes) {
        printf("%s: %s\n", vka_status_name(status), vka_device_error(device));
        free(bytes);
        bytes = NULL;
    } else {
        ran->n_pass = vka_plan_pass_count(plan);
        for (size_t i = 0; i < ran->n_pass; i++)
            if (strncmp(kernel_table[plan->passes[i].key.kernel].name, "matmul", 6) == 0)
                ran->kernel = kernel_table[plan->passes[i].key.kernel].name;
        ran->limit = compare_product_limit(plan, p->output, p->k);
    }
    ran->status = status;
    vka_plan_destroy(&plan);
    return bytes;
}

/* The worst row's squared error, relative to the row or, where its terms cancel out, to a tenth of
 * their sum. */
static double error_of(const struct problem *p, const struct data *d, const uint8_t *bytes)
{
    double worst = 0;
    for (uint32_t r = 0; r < p->m; r++) {
        double error = 0, norm = 0;
        for (size_t i = (size_t)r * p->n; i < (size_t)(r + 1) * p->n; i++) {
            double got = operand_decode(p->output, bytes + i * vka_dtype_size(p->output));
            double least = 0.1 * d->size[i];
            error += (got - d->want[i]) * (got - d->want[i]);
            norm += fmax(d->want[i] * d->want[i], least * least);
        }
        worst = fmax(worst, norm > 0 ? error / norm : error);
        if (!isfinite(error))
            return INFINITY;
    }
    return worst;
}

/* The product cut by the smallest budget and, with the kernels of CPU drivers, by the least limits. A
 * tile of a GPU's kernel may pass those: a device that is one may refuse them, and so may a CPU driver
 * types that kernels of GPUs alone read. */
static uint8_t *run_cut(struct vka_device *device, const struct problem *p, const struct data *d,
                        struct ran *ran)
{
    struct vka_device_properties usual = device->caps.properties;
    uint8_t *bytes = NULL;
    *ran = (struct ran){.status = VKA_UNSUPPORTED};
    if (!gpu_rules) {
        usual = limits_lower(device, LEAST_RANGE, LEAST_ALLOCATION);
        bytes = run(device, p, d, 1, ran);
        limits_restore(device, &usual);
    }
    const bool of_gpu = usual.type != VKA_DEVICE_CPU || !dtype_has_cpu_kernels(p->weight);
    const bool refused = ran->status == VKA_UNSUPPORTED && of_gpu;
    return refused ? run(device, p, d, 1, ran) : bytes;
}

static bool one(struct vka_device *device, uint64_t seed, uint64_t each, double worst[3])
{
    struct rng rng = {seed}, alike = {seed - seed % each};
    struct problem p = draw(each > 1 ? &alike : &rng, &rng);
    struct data d;
    struct ran whole, sliced;
    if (ends)
        end_with_binding(&p);
    make(&rng, device, &p, &d);
    uint8_t *got = run(device, &p, &d, VKA_NO_BUDGET, &whole);
    uint8_t *cut = run_cut(device, &p, &d, &sliced);
    double error = got ? error_of(&p, &d, got) : INFINITY;
    bool same = got && cut && !memcmp(got, cut, vka_tensor_size(d.output));
    bool ok = got && error <= whole.limit && same;
    for (int k = 0; k < KERNEL_COUNT; k++)
        problems_of[k] += strcmp(whole.kernel, kernel_table[k].name) == 0;
    worst[p.output] = fmax(worst[p.output], error);
    if (!ok)
        printf("seed %llu: %s%s*%s->%s, %ux%ux%u, more %u rows %u blocks, first %u, bias %s%s: %s, "
               "error %g, %s in %zu passes\n",
               (unsigned long long)seed, p.integers ? "i8 of " : "", vka_dtype_name(p.input),
               vka_dtype_name(p.weight), vka_dtype_name(p.output), p.m, p.n, p.k, p.more_rows,
               p.more_blocks, p.first_row, vka_dtype_name(p.bias), p.relu ? ", relu" : "",
               whole.kernel, error, same ? "same bits" : "OTHER BITS", sliced.n_pass);
    free(got);
    free(cut);
    destroy(&d);
    return ok;
}

TEST_PROGRAM_ARGUMENTS(quantised)
{
    uint64_t seed = 1, count = 100, each = 1, rules = 0, quantised = 0, bound = 0, failed = 0;
    double worst[3] = {0};
    struct vka_device *device = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--type") == 0) {
            type = argv[i + 1];
            continue;
        }
        *(strcmp(argv[i], "--seed") == 0          ? &seed
          : strcmp(argv[i], "--each") == 0        ? &each
          : strcmp(argv[i], "--rules") == 0       ? &rules
          : strcmp(argv[i], "--activations") == 0 ? &quantised
          : strcmp(argv[i], "--ends") == 0        ? &bound
                                                  : &count) = strtoull(argv[i + 1], NULL, 10);
    }
    const struct vka_device_info info =
        limits_info((struct vka_device_info){.struct_size = sizeof(struct vka_device_info)});
    if (vka_device_create(&info, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, no product was compared\n");
        return 77;
    }
    if (rules)
        device->caps.properties.type = VKA_DEVICE_DISCRETE;
    gpu_rules = rules != 0;
    activations = quantised != 0;
    ends = bound != 0;
    matrices = rules == 2;
    if (type_from(0, is_drawn) == VKA_DTYPE_COUNT) {
        fprintf(stderr, "no quantised weights are of type %s\n", type);
        return 2;
    }
    if (matrices)
        limits_to_matrices(device);
    printf("%s, seed %llu, %llu problems\n", vka_device_properties(device)->name,
           (unsigned long long)seed, (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++) {
        failed += !one(device, seed + i, each ? each : 1, worst);
        fflush(stdout); /* what failed is seen where a long run is cut off */
    }
    vka_device_destroy(&device);
    for (int k = 0; k < KERNEL_COUNT; k++)
        if (problems_of[k])
            printf("%s: %u\n", kernel_table[k].name, problems_of[k]);
    printf("worst row NMSE: f32 %.3g, f16 %.3g, bf16 %.3g; %llu of %llu failed\n", worst[VKA_F32],
           worst[VKA_F16], worst[VKA_BF16], (unsigned long long)failed, (unsigned long long)count);
    return failed != 0;
}
