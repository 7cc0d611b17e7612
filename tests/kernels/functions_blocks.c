/* Blocks of quantised weights as each reader decodes them: every scale, zero point and small scale, bits
 * for bits, and rows with an infinity. And what quantises: caches, and activations of products. */
#include "patience.h"
#include "functions.h"
#include "gpu/device.h"
#include "kernel/matmul_problem.h"
#include "params/types.h"
#include "plan/plan.h"
#include "problems/quantised.h"
#include "problems/turns.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <reference/reference.h>

#define MOST_PRINTED 4u
#define HALVES 65536u
#define LANDING 1024u    /* blocks of a type at a landing, of large ones half as many */
#define PRODUCT_ROWS 32u /* of a product at a landing: some elements of large blocks */
#define FEW_ROWS 4u      /* of a product, for kernels that take few */
#define LEAST_NORMAL 0x1p-126

/* A product of rows of `amount` in one place each and 0 elsewhere with n blocks, a column each. */
struct decoding {
    struct vka_device *device;
    const struct reader *reader;
    enum vka_dtype type;
    uint32_t n, values, bytes;
    uint8_t *blocks; /* [n][bytes] */
    uint32_t rows;   /* of a product, one an element of a block; place_of() says which */
    float *y;        /* [n][rows] */
    float amount;    /* 1: y are the values */
    bool used;       /* the plan took the kernel */
    uint64_t n_failed;
};

static const struct reader {
    const char *name;
    bool product; /* by `kernel`; else rows by their numbers */
    enum kernel kernel;
    enum vka_dtype input;
    bool few; /* takes few rows */
} readers[] = {
    {"gather", false, KERNEL_gather, VKA_F32, false},
    {"matmul_tile", true, KERNEL_matmul_tile, VKA_F32, false},
    {"matmul_tile", true, KERNEL_matmul_tile, VKA_F16, false},
    {"matmul_few", true, KERNEL_matmul_few, VKA_F32, true},
    {"matmul_few", true, KERNEL_matmul_few, VKA_F16, true},
    {"matmul_few_half", true, KERNEL_matmul_few_half, VKA_F32, true},
    {"matmul_block", true, KERNEL_matmul_block, VKA_F32, false},
    {"matmul_bytes", true, KERNEL_matmul_bytes, VKA_F32, false},
    {"matmul_coop_f16", true, KERNEL_matmul_coop_f16, VKA_F16, false},
};

/* Number i of float16 scales that a tensor takes: all finite ones in turn. */
static uint16_t scale_bits(uint32_t i)
{
    uint16_t bits = (uint16_t)(i * 40503u); /* odd: a permutation */
    return (bits & 0x7c00) == 0x7c00 ? (uint16_t)(bits ^ 0x4000) : bits;
}

/* Random bytes, but scales, zero points and exponents that take all their numbers as i goes on. */
static void make_block(enum vka_dtype type, uint32_t i, struct rng *rng, uint8_t *b, uint32_t bytes)
{
    const int32_t *scale_at = block_layout(type)->scale_at;
    const uint16_t zero = (uint16_t)(i * 24593u);
    for (uint32_t j = 0; j < bytes; j++)
        b[j] = (uint8_t)rng_range(rng, 0, 255);
    for (int j = 0; j < 2; j++) {
        uint16_t bits = scale_bits(j ? i * 12289u + 77 : i);
        if (scale_at[j] >= 0)
            memcpy(b + scale_at[j], &bits, sizeof bits);
    }
    if (!dtype_has_integers(type)) { /* normal float32 scales, and all finite numbers of 8 bits */
        const uint32_t exponent = 1 + i * 89 % 254;
        const uint32_t scale = (uint32_t)rng_range(rng, 0, 1) << 31 | exponent << 23 |
                               (uint32_t)rng_range(rng, 0, 0x7fffff);
        memcpy(b, &scale, sizeof scale);
        for (uint32_t j = 4; j < bytes && type != VKA_NF4_G64; j++)
            if ((b[j] & 0x7f) == 0x7f || (type == VKA_F8_E5M2_G64 && (b[j] & 0x7c) == 0x7c))
                b[j] ^= 0x40;
    }
    if (type == VKA_MXFP4)
        b[0] = (uint8_t)(i % 255); /* 255 is refused */
    if (type == VKA_IQ1_M)
        quantised_scale_iq1_m(scale_bits(i), b);
    if (type == VKA_I4_G128)
        memcpy(b + 66, &zero, sizeof zero);
}

/* Which element row r of a product is of: of large blocks some of each 32 neighbours. */
static uint32_t place_of(const struct decoding *d, uint32_t r)
{
    const uint32_t step = d->values / d->rows;
    return r * step + r * 5 % step;
}

/* What an element has to be: `amount` of the value in `element` of the block, and 0 of the others. */
static double wanted_element(const struct decoding *d, uint32_t block, uint32_t row)
{
    double x = ref_block_value(d->type, d->blocks + (size_t)block * d->bytes, place_of(d, row));
    x = (double)(float)x;
    if (d->reader->input != VKA_F32)
        x = number_near(d->reader->input, x);
    return (double)d->amount * x;
}

/* Whether a value is none of a type: 0 times it is NaN, and so are all products with its block. */
static bool is_whole(const struct decoding *d, uint32_t block)
{
    for (uint32_t j = 0; j < d->values; j++) {
        double x = ref_block_value(d->type, d->blocks + (size_t)block * d->bytes, j);
        x = d->reader->input == VKA_F32 ? (double)(float)x : number_near(d->reader->input, x);
        if (!isfinite(x))
            return false;
    }
    return true;
}

static void judge_element(struct decoding *d, uint32_t block, uint32_t row)
{
    const uint8_t *bytes = d->blocks + (size_t)block * d->bytes;
    double want = wanted_element(d, block, row);
    double got = (double)d->y[(size_t)block * d->rows + row];
    /* What a device takes for 0 times an infinity is NaN. */
    double value = isinf(d->amount) ? ref_block_value(d->type, bytes, place_of(d, row)) : want;
    bool tiny =
        fabs(value) < LEAST_NORMAL || (d->reader->product && d->type == VKA_MXFP4 && bytes[0] < 2);
    if (isnan(want) ? isnan(got) : got == want || (tiny && (got == 0 || isnan(got))))
        return;
    if (d->n_failed++ < MOST_PRINTED)
        printf("FAIL blocks %s %s: %a times value %u of block %u is %a, not %a\n", d->reader->name,
               vka_dtype_name(d->type), (double)d->amount, place_of(d, row), block, got, want);
}

/* The value with the bits that kernels compute: vka_dtype_decode. */
static void judge_host(struct decoding *d)
{
    float *x = malloc(d->values * sizeof *x);
    for (uint32_t i = 0; i < d->n && x; i++) {
        if (vka_dtype_decode(d->type, d->blocks + (size_t)i * d->bytes, 1, x) != VKA_OK)
            d->n_failed++;
        for (uint32_t j = 0; j < d->values; j++) {
            double want = ref_block_value(d->type, d->blocks + (size_t)i * d->bytes, j);
            if ((double)x[j] != (double)(float)want && d->n_failed++ < MOST_PRINTED)
                printf("FAIL blocks host %s: value %u of block %u is %a, not %a\n",
                       vka_dtype_name(d->type), j, i, (double)x[j], want);
        }
    }
    free(x);
}

/* Adds the products of rows first .. first + count - 1 of the identity, `amount` in its diagonal. */
static enum vka_status add_rows(const struct decoding *d, struct vka_plan *plan,
                                struct vka_tensor *weight, struct vka_tensor *input,
                                struct vka_tensor *output, uint32_t first, uint32_t count)
{
    struct vka_tensor *rows = NULL, *columns = NULL, *turned = NULL;
    enum vka_status status = vka_tensor_slice(input, 0, first, count, &rows);
    if (status == VKA_OK)
        status = vka_tensor_slice(output, 1, first, count, &columns);
    if (status == VKA_OK)
        status = vka_tensor_permute(columns, (const uint32_t[]){1, 0}, &turned);
    if (status == VKA_OK)
        status = vka_plan_add_linear(
            plan, VKA_INFO(vka_linear_op, .input = rows, .weight = weight, .output = turned));
    vka_tensor_destroy(&turned);
    vka_tensor_destroy(&columns);
    vka_tensor_destroy(&rows);
    (void)d;
    return status;
}

static enum vka_status make_identity(const struct decoding *d, struct vka_tensor **input)
{
    const uint32_t size[2] = {d->rows, d->values};
    const size_t count = (size_t)d->rows * d->values;
    const size_t bytes = vka_dtype_size(d->reader->input);
    const uint16_t half = ref_to_f16((double)d->amount);
    uint8_t *x = calloc(count, bytes);
    enum vka_status status =
        x ? vka_tensor_create(d->device, d->reader->input, 2, size, input) : VKA_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < d->rows && x; i++)
        memcpy(x + ((size_t)i * d->values + place_of(d, i)) * bytes,
               bytes == 4 ? (const void *)&d->amount : (const void *)&half, bytes);
    if (status == VKA_OK)
        status = vka_tensor_write(*input, x, count * bytes);
    free(x);
    return status;
}

static enum vka_status add_gather(const struct decoding *d, struct vka_plan *plan,
                                  struct vka_tensor *weight, struct vka_tensor *output,
                                  struct vka_tensor **ids)
{
    int32_t *numbers = malloc(d->n * sizeof *numbers);
    enum vka_status status =
        numbers ? vka_tensor_create(d->device, VKA_I32, 1, &d->n, ids) : VKA_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < d->n && numbers; i++)
        numbers[i] = (int32_t)i;
    if (status == VKA_OK)
        status = vka_tensor_write(*ids, numbers, d->n * sizeof *numbers);
    if (status == VKA_OK)
        status = vka_plan_add_gather(
            plan, VKA_INFO(vka_gather_op, .table = weight, .ids = *ids, .output = output));
    free(numbers);
    return status;
}

static bool uses_kernel(const struct vka_plan *plan, enum kernel kernel)
{
    for (size_t i = 0; i < plan->n_pass; i++)
        if (plan->passes[i].key.kernel == kernel)
            return true;
    return false;
}

static enum vka_status run_reader(struct decoding *d)
{
    const uint32_t size[2] = {d->n, d->values}, results[2] = {d->n, d->rows};
    struct vka_tensor *weight = NULL, *input = NULL, *output = NULL;
    struct vka_plan *plan = NULL;
    enum vka_status status = vka_tensor_create(d->device, d->type, 2, size, &weight);
    if (status == VKA_OK)
        status = vka_tensor_write(weight, d->blocks, (size_t)d->n * d->bytes);
    if (status == VKA_OK)
        status = vka_tensor_create(d->device, VKA_F32, 2, results, &output);
    if (status == VKA_OK)
        status = vka_plan_create(d->device, NULL, &plan);
    if (status == VKA_OK && !d->reader->product)
        status = add_gather(d, plan, weight, output, &input);
    else if (status == VKA_OK)
        status = make_identity(d, &input);
    const uint32_t rows = d->reader->few ? FEW_ROWS : d->rows;
    for (uint32_t i = 0; i < d->rows && status == VKA_OK && d->reader->product; i += rows)
        status = add_rows(d, plan, weight, input, output, i, rows);
    if (status == VKA_OK)
        status = vka_plan_finish(plan);
    d->used = status == VKA_OK && uses_kernel(plan, d->reader->kernel);
    if (status == VKA_OK)
        status = vka_plan_run(plan, PATIENCE);
    if (status == VKA_OK)
        status = vka_tensor_read(output, d->y, (size_t)d->n * d->rows * sizeof *d->y);
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&output);
    vka_tensor_destroy(&input);
    vka_tensor_destroy(&weight);
    return status;
}

/* Values, and of products infinities times values. */
static bool check_reader(struct decoding *d, bool all)
{
    static const float amounts[] = {1, INFINITY, -INFINITY};
    const struct kernel_set without = d->device->caps.without;
    const bool half = d->reader->kernel == KERNEL_matmul_few_half; /* takes some types alone */
    enum vka_status status = VKA_OK;
    d->n_failed = 0;
    for (int k = 0; k < KERNEL_COUNT; k++)
        if (d->reader->product && k != (int)d->reader->kernel &&
            !(half && k == KERNEL_matmul_few) && kernel_table[k].family == FAMILY_PRODUCT)
            set_add(&d->device->caps.without, k);
    d->rows = d->reader->product && !all ? PRODUCT_ROWS : d->values;
    for (size_t a = 0; a < (d->reader->product ? all ? 3 : 2 : 1) && status == VKA_OK; a++) {
        d->amount = amounts[a];
        status = run_reader(d);
        for (uint32_t i = 0; i < d->n && status == VKA_OK && d->used; i++) {
            const bool judged = !d->reader->product || is_whole(d, i);
            for (uint32_t j = 0; j < d->rows && judged; j++)
                judge_element(d, i, j);
        }
    }
    d->device->caps.without = without;
    if (status == VKA_OK && !d->used && !half) {
        printf("FAIL blocks %s %s: the plan does not use the kernel\n", d->reader->name,
               vka_dtype_name(d->type));
        d->n_failed++;
    }
    if (status != VKA_OK)
        printf("FAIL blocks %s %s: %s: %s\n", d->reader->name, vka_dtype_name(d->type),
               vka_status_name(status), vka_device_error(d->device));
    if (d->n_failed)
        printf("     blocks %s %s, input %s: %llu FAILED\n", d->reader->name,
               vka_dtype_name(d->type), vka_dtype_name(d->reader->input),
               (unsigned long long)d->n_failed);
    return status == VKA_OK && d->n_failed == 0;
}

/* Whether a reader is tried. At a landing all types are read as rows, and by products in turn
 * (problems/turns.h): by one product, where kernels read four values by the same function of
 * lib/blocks.glsl. `only`: by the reader of that name, where it is not NULL. */
static bool tries(const struct reader *reader, enum vka_dtype type, bool all, const char *only)
{
    const bool own = matmul_reads_blocks(reader->kernel);
    if ((own && !dtype_has_cpu_kernels(type)) || (only && strcmp(only, reader->name) != 0))
        return false;
    if (all || !reader->product)
        return true;
    return turn_takes(type, own ? dtype_has_cpu_kernels : dtype_is_block) &&
           (only || BUNDLE_PAIR_WORDS(type) != 0 || dtype_has_cpu_kernels(type) ||
            (reader->kernel == KERNEL_matmul_few && reader->input == VKA_F32));
}

static bool check_type(struct vka_device *device, enum vka_dtype type, bool all, const char *only)
{
    struct decoding d = {.device = device, .type = type};
    struct rng rng = {(uint64_t)type};
    bool ok = true;
    if (vka_dtype_block(type, &d.values, &d.bytes) != VKA_OK)
        return false;
    d.n = all ? HALVES : d.values < 128 ? LANDING : LANDING / 2;
    d.blocks = malloc((size_t)d.n * d.bytes);
    d.y = malloc((size_t)d.n * d.values * sizeof *d.y);
    for (uint32_t i = 0; i < d.n && d.blocks; i++)
        make_block(type, i * (HALVES / d.n) + i % (HALVES / d.n), &rng,
                   d.blocks + (size_t)i * d.bytes, d.bytes);
    ok = d.blocks && d.y;
    if (ok)
        judge_host(&d);
    ok &= d.n_failed == 0;
    for (size_t r = 0; r < sizeof readers / sizeof *readers && d.blocks && d.y; r++) {
        d.reader = &readers[r];
        const enum kernel kernel = readers[r].kernel;
        if (tries(d.reader, type, all, only) && !kernel_missing(kernel, &device->caps))
            ok &= check_reader(&d, all);
    }
    free(d.blocks);
    free(d.y);
    return ok;
}

/* Whether the device runs a reader of that name. */
static bool has_reader(const struct vka_device *device, const char *name)
{
    for (size_t r = 0; r < sizeof readers / sizeof *readers; r++)
        if (strcmp(readers[r].name, name) == 0 && !kernel_missing(readers[r].kernel, &device->caps))
            return true;
    printf("FAIL --reader %s: the device runs no such reader of blocks\n", name);
    return false;
}

size_t check_blocks(struct vka_device *device, const char *prefix, const char *reader, bool all,
                    bool list, bool *ok)
{
    size_t n = 0;
    *ok &= !reader || has_reader(device, reader);
    for (EACH_TYPE(type, dtype_is_block)) {
        char name[32];
        clock_t start = clock();
        snprintf(name, sizeof name, "blocks_%s", vka_dtype_name(type));
        if (strncmp(name, prefix, strlen(prefix)) != 0)
            continue;
        n++;
        bool good = list || check_type(device, type, all, reader);
        if (list)
            printf("%s\n", name);
        else
            printf("%-26s %s, %4.1f CPU-s\n", name, good ? "all bits" : "FAILED",
                   (double)(clock() - start) / CLOCKS_PER_SEC);
        fflush(stdout);
        *ok &= good;
    }
    return n;
}
