/* Every elementary function and conversion of the kernels against double, on the device.
 *
 *     check_functions [--function PREFIX] [--reader NAME] [--all [--slice I/N]] [--device NAME] [--list]
 *
 * By default the arguments are all float32 within 8 units of each point at which code branches, rounds or
 * reduces, and one float32 in 65,537. --all: all float32, or a slice of them, so that days of work
 * can be cut: --slice 3/64. --reader: blocks are read by that kernel alone, such as matmul_few.
 * Functions of 16-bit numbers take all 65,536 in either case. Prints each function's worst error and
 * where it is. */
#include "patience.h"
#include "problems/turns.h"
#include "functions.h"
#include "gpu/device.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <reference/reference.h>

#define SKIPPED 77
#define RUN 65536u      /* arguments of a run */
#define MOST_PRINTED 4u /* failures of a function */
#define LEAST_NORMAL 0x1p-126
#define HALVES 65536u

struct settings {
    const char *prefix, *reader, *device;
    bool all, list;
    unsigned slice, n_slice;
};

/* What was seen of a function. */
struct record {
    double worst, got, value;
    float at;
    uint32_t result;
    uint64_t n, n_failed;
};

double number_of(enum vka_dtype dtype, uint16_t bits)
{
    return dtype == VKA_F16 ? ref_from_f16(bits) : ref_from_bf16(bits);
}

double number_near(enum vka_dtype dtype, double x)
{
    if (dtype == VKA_F32)
        return (double)(float)x;
    return number_of(dtype, dtype == VKA_F16 ? ref_to_f16(x) : ref_to_bf16(x));
}

static size_t count_of(uint32_t rank, const uint32_t *size)
{
    size_t count = 1;
    for (uint32_t i = 0; i < rank; i++)
        count *= size[i];
    return count;
}

enum vka_status job_tensor(struct job *job, enum vka_dtype dtype, uint32_t rank,
                           const uint32_t *size, struct vka_tensor **tensor)
{
    enum vka_status status = vka_tensor_create(job->device, dtype, rank, size, tensor);
    if (status == VKA_OK)
        job->tensors[job->n_tensor++] = *tensor;
    return status;
}

enum vka_status job_constant(struct job *job, uint32_t rank, const uint32_t *size,
                             const float *values, size_t period, struct vka_tensor **tensor)
{
    const size_t count = count_of(rank, size);
    float *all = malloc(count * sizeof *all);
    enum vka_status status =
        all ? job_tensor(job, VKA_F32, rank, size, tensor) : VKA_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; i < count && status == VKA_OK; i++)
        all[i] = values[i % period];
    if (status == VKA_OK)
        status = vka_tensor_write(*tensor, all, count * sizeof *all);
    free(all);
    return status;
}

enum vka_status job_output(struct job *job, enum vka_dtype dtype, uint32_t rank,
                           const uint32_t *size, uint32_t width, uint32_t used,
                           struct vka_tensor **tensor)
{
    enum vka_status status = job_tensor(job, dtype, rank, size, tensor);
    if (status != VKA_OK)
        return status;
    job->output[job->n_output].tensor = *tensor;
    job->output[job->n_output].dtype = dtype;
    job->output[job->n_output].width = width;
    job->output[job->n_output++].used = used;
    return VKA_OK;
}

void job_destroy(struct job *job)
{
    vka_plan_destroy(&job->plan);
    for (size_t i = 0; i < job->n_tensor; i++)
        vka_tensor_destroy(&job->tensors[i]);
}

static enum vka_status job_create(struct vka_device *device, const struct function *f,
                                  struct job *job)
{
    *job = (struct job){.device = device, .function = f, .n = f->n ? f->n : RUN, .input_width = 1};
    enum vka_status status = vka_plan_create(device, NULL, &job->plan);
    if (status == VKA_OK)
        status = f->add(job);
    return status == VKA_OK ? vka_plan_finish(job->plan) : status;
}

/* Whether a device that takes subnormal numbers for 0, in some places or all, may give this. */
static bool flushed(const struct function *f, float x, uint32_t result, double got, double value)
{
    if (got == 0 && fabs(value) < LEAST_NORMAL)
        return true;
    return f->to == VKA_F32 && fabs((double)x) < LEAST_NORMAL &&
           (got == f->want(f, 0, result).value || fabs(got - value) < LEAST_NORMAL);
}

/* Whether a result is as wanted, and what that says of the worst. */
static void judge(const struct function *f, float x, uint32_t result, double got,
                  struct record *record)
{
    const struct wanted w = f->want(f, x, result);
    double error = 0;
    bool good;
    record->n++;
    if (isnan(w.value) || isinf(w.value)) {
        good = isnan(w.value) ? isnan(got) : got == w.value;
    } else if (f->limit == 0) {
        good = got == w.value || flushed(f, x, result, got, w.value);
    } else if (w.scale < SMALLEST) {
        good = fabs(got - w.value) <= SMALLEST;
    } else {
        error = fabs(got - w.value) / w.scale;
        good = error <= f->limit; /* not of NaN */
    }
    if (good && error <= record->worst)
        return;
    if (error > record->worst || !(error == error) || record->n_failed == 0) {
        record->worst = error > record->worst ? error : record->worst;
        record->got = got;
        record->value = w.value;
        record->at = x;
        record->result = result;
    }
    if (!good && record->n_failed++ < MOST_PRINTED)
        printf("FAIL --function %s: result %u of %a (%.9g) is %.9g, not %.9g\n", f->name, result,
               (double)x, (double)x, got, w.value);
}

/* One output, read and judged. `result` counts those of an argument. */
static enum vka_status judge_output(const struct job *job, size_t output, const float *x,
                                    uint32_t count, uint32_t result, struct record *record)
{
    const enum vka_dtype dtype = job->output[output].dtype;
    const uint32_t width = job->output[output].width;
    const size_t size = vka_dtype_size(dtype), bytes = (size_t)job->n * width * size;
    uint8_t *got = malloc(bytes);
    enum vka_status status =
        got ? vka_tensor_read(job->output[output].tensor, got, bytes) : VKA_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < count && status == VKA_OK; i++)
        for (uint32_t j = 0; j < job->output[output].used; j++) {
            float number;
            uint16_t half;
            memcpy(&number, got + ((size_t)i * width + j) * size, size == 4 ? 4 : 0);
            memcpy(&half, got + ((size_t)i * width + j) * size, sizeof half);
            judge(job->function, x[i], result + j,
                  size == 4 ? (double)number : number_of(dtype, half), record);
        }
    free(got);
    return status;
}

/* Runs `count` arguments, at most as many as the plan has. */
static enum vka_status run_batch(struct job *job, const uint32_t *bits, uint32_t count,
                                 struct record *record)
{
    const enum vka_dtype from = job->function->from;
    const size_t size = vka_dtype_size(from), bytes = (size_t)job->n * job->input_width * size;
    uint8_t *input = calloc(bytes, 1);
    float *x = calloc(job->n, sizeof *x);
    uint32_t result = 0;
    enum vka_status status = input && x ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < count && status == VKA_OK; i++) {
        const uint16_t half = (uint16_t)bits[i];
        uint8_t *to = input + (size_t)i * job->input_width * size;
        if (from == VKA_F32) {
            memcpy(to, &bits[i], sizeof bits[i]);
            memcpy(&x[i], &bits[i], sizeof bits[i]);
        } else {
            memcpy(to, &half, sizeof half);
            x[i] = (float)number_of(from, half);
        }
    }
    if (status == VKA_OK)
        status = vka_tensor_write(job->input, input, bytes);
    if (status == VKA_OK)
        status = vka_plan_run(job->plan, PATIENCE);
    for (size_t i = 0; i < job->n_output && status == VKA_OK; i++) {
        status = judge_output(job, i, x, count, result, record);
        result += job->output[i].used;
    }
    free(input);
    free(x);
    return status;
}

static bool too_large(const struct function *f, uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return f->most > 0 && isfinite(x) && fabs((double)x) > f->most;
}

/* All arguments of a slice, in order. */
static enum vka_status run_all(struct job *job, const struct settings *s, struct record *record)
{
    const struct function *f = job->function;
    const uint64_t n = f->from == VKA_F32 ? UINT64_C(1) << 32 : HALVES;
    const uint64_t end = n * (s->slice + 1) / s->n_slice;
    uint32_t *bits = malloc(job->n * sizeof *bits), count = 0;
    enum vka_status status = bits ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    for (uint64_t b = n * s->slice / s->n_slice; b < end && status == VKA_OK; b++) {
        if (f->from == VKA_F32 && too_large(f, (uint32_t)b))
            continue;
        bits[count++] = (uint32_t)b;
        if (count < job->n && b + 1 < end)
            continue;
        status = run_batch(job, bits, count, record);
        count = 0;
    }
    if (count && status == VKA_OK)
        status = run_batch(job, bits, count, record);
    free(bits);
    return status;
}

/* The points of a landing. */
static enum vka_status run_points(struct job *job, const struct points *common,
                                  struct record *record)
{
    const struct function *f = job->function;
    struct points p = {0};
    size_t n = 0;
    enum vka_status status = VKA_OK;
    if (f->points)
        f->points(f, &p);
    for (size_t i = 0; i < common->n; i += f->every ? f->every : 1)
        points_push(&p, common->bits[i]);
    for (size_t i = 0; i < p.n; i++)
        if (!too_large(f, p.bits[i]))
            p.bits[n++] = p.bits[i];
    for (size_t i = 0; i < n && status == VKA_OK; i += job->n)
        status = run_batch(job, p.bits + i, (uint32_t)(n - i < job->n ? n - i : job->n), record);
    free(p.bits);
    return status;
}

static void print_record(const struct function *f, const struct record *r, double seconds)
{
    printf("%-26s %9llu results, %4.1f CPU-s", f->name, (unsigned long long)r->n, seconds);
    if (r->worst > 0)
        printf(", worst %.2e of result %u at %a (%.9g): %.9g for %.9g", r->worst, r->result,
               (double)r->at, (double)r->at, r->got, r->value);
    if (r->n_failed)
        printf(", %llu FAILED", (unsigned long long)r->n_failed);
    printf("\n");
    fflush(stdout);
}

static bool check_function(struct vka_device *device, const struct function *f,
                           const struct settings *s, const struct points *common)
{
    struct job job;
    struct record record = {0};
    struct timespec start, end;
    const struct kernel_set without = device->caps.without;
    const char *missing = !f->forced ? NULL : kernel_missing(f->kernel, &device->caps);
    if (missing) {
        printf("%-26s not run: it %s\n", f->name, missing);
        return true;
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    enum vka_status status = job_create(device, f, &job);
    if (status == VKA_OK && !function_is_used(&job)) {
        printf("FAIL --function %s: the plan does not use the kernel\n", f->name);
        record.n_failed++;
    } else if (status == VKA_OK)
        status = s->all || f->from != VKA_F32 ? run_all(&job, s, &record)
                                              : run_points(&job, common, &record);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    if (status != VKA_OK)
        printf("FAIL --function %s: %s: %s\n", f->name, vka_status_name(status),
               vka_device_error(device));
    job_destroy(&job);
    device->caps.without = without;
    print_record(f, &record,
                 difftime(end.tv_sec, start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec));
    return status == VKA_OK && record.n_failed == 0 && record.n > 0;
}

static bool parse(int argc, char **argv, struct settings *s)
{
    static const struct option options[] = {
        {"function", required_argument, NULL, 'f'},
        {"all", no_argument, NULL, 'a'},
        {"slice", required_argument, NULL, 'p'},
        {"device", required_argument, NULL, 'd'},
        {"reader", required_argument, NULL, 'r'},
        {"list", no_argument, NULL, 'l'},
        {NULL, 0, NULL, 0},
    };
    bool ok = true;
    char end;
    *s = (struct settings){.prefix = "", .n_slice = 1};
    for (int o; ok && (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 'f')
            s->prefix = optarg;
        else if (o == 'a')
            s->all = true;
        else if (o == 'd')
            s->device = optarg;
        else if (o == 'r')
            s->reader = optarg;
        else if (o == 'p')
            ok = sscanf(optarg, "%u/%u%c", &s->slice, &s->n_slice, &end) == 2 && s->slice-- >= 1 &&
                 s->slice < s->n_slice;
        else {
            s->list = true;
            ok = o == 'l';
        }
    }
    return ok && optind == argc && (s->all || s->n_slice == 1);
}

/* A landing takes every second of the kernels that are forced to do what others do by default. */
static bool check_table(struct vka_device *device, const struct function *table,
                        const struct settings *s, const struct points *common, size_t *n)
{
    const uint32_t turn = turn_of(2);
    uint32_t n_forced = 0;
    bool ok = true;
    for (const struct function *f = table; f->name; f++) {
        if (strncmp(f->name, s->prefix, strlen(s->prefix)) != 0)
            continue;
        if (f->forced && turn < 2 && n_forced++ % 2 != turn)
            continue;
        ++*n;
        if (s->list)
            printf("%s\n", f->name);
        else
            ok &= check_function(device, f, s, common);
    }
    return ok;
}

int main(int argc, char **argv)
{
    static const struct function *const tables[] = {map_functions, attention_functions,
                                                    row_functions};
    struct settings s;
    struct vka_device *device = NULL;
    struct points common = {0};
    size_t n = 0;
    bool ok = true;
    if (!parse(argc, argv, &s)) {
        fprintf(stderr,
                "usage: check_functions [--function PREFIX] [--reader NAME] [--all [--slice I/N]]\n"
                "                       [--device NAME] [--list]\n");
        return 2;
    }
    enum vka_status status = vka_device_create(
        VKA_INFO(vka_device_info, .device = s.device, .skip_self_test = true), &device);
    if (status != VKA_OK) {
        fprintf(stderr, "check_functions: SKIPPED, NO VULKAN DEVICE (%s): nothing was checked\n",
                vka_status_name(status));
        return status == VKA_NO_DEVICE && !s.device ? SKIPPED : 1;
    }
    printf("%s, %s\n", vka_device_properties(device)->name, vka_device_properties(device)->driver);
    points_common(&common);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        ok &= check_table(device, tables[i], &s, &common, &n);
    if (strncmp("quantise", s.prefix, strlen(s.prefix)) == 0) {
        n++;
        if (s.list)
            printf("quantise\n");
        else if (s.slice == 0)
            ok &= check_quantisers(device);
    }
    if (s.slice == 0)
        n += check_blocks(device, s.prefix, s.reader, s.all, s.list, &ok);
    free(common.bits);
    vka_device_destroy(&device);
    if (n == 0)
        fprintf(stderr, "check_functions: no function's name begins with %s\n", s.prefix);
    return ok && n ? 0 : 1;
}
