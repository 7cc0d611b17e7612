/* What the ranks rest on, on one device and without MPI's daemons: a slice of an operation gives the
 * bits that the whole gives there. Attention by heads, batch elements and rows on random problems;
 * projections by heads, and the output projection by columns.
 *
 *     test_mpi mpi_slices [FIRST_SEED [COUNT]] */
#include <vkattn/vkattn.h>

#include "../patience.h"
#include "gpu/device.h"
#include "mpi/slice.h"
#include "problems/problem_data.h"
#include "test_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct vka_device *device;

static void require(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s: %s\n", what, vka_device_error(device));
    exit(1);
}

static void *read_all(struct vka_tensor *t)
{
    void *data = malloc(vka_tensor_size(t));
    require(data && vka_tensor_read(t, data, vka_tensor_size(t)) == VKA_OK, "read");
    return data;
}

static void poison(struct vka_tensor *t)
{
    void *data = malloc(vka_tensor_size(t));
    require(data, "memory");
    memset(data, 0xff, vka_tensor_size(t));
    require(vka_tensor_write(t, data, vka_tensor_size(t)) == VKA_OK, "write");
    free(data);
}

static bool same(struct vka_tensor *t, const void *want)
{
    void *got = read_all(t);
    bool ok = !memcmp(got, want, vka_tensor_size(t));
    free(got);
    return ok;
}

/* Sizes of the whole, which its slices take their kernels by; 0: of a layer, whose slices choose the
 * same ones without. */
static uint32_t whole_n_head, whole_n_kv_head;

/* One operation of the three kinds, run. */
static void run(enum vka_path path, const struct vka_attention_op *attention,
                const struct vka_layer_op *layer, const struct vka_linear_op *linear)
{
    struct vka_plan *plan = NULL;
    require(!vka_plan_create(device,
                             VKA_INFO(vka_plan_info, .path = path, .whole_n_head = whole_n_head,
                                      .whole_n_kv_head = whole_n_kv_head),
                             &plan),
            "plan");
    if (attention)
        require(!vka_plan_add_attention(plan, attention), "attention");
    if (layer)
        require(!vka_plan_add_layer(plan, layer), "layer");
    if (linear)
        require(!vka_plan_add_linear(plan, linear), "linear");
    require(!vka_plan_finish(plan) && !vka_plan_run(plan, PATIENCE), "run");
    vka_plan_destroy(&plan);
}

/* ---- Attention ------------------------------------------------------------------------------- */

static void run_slice(const struct problem *p, const struct vka_attention_op *op,
                      const struct problem_slice *mine)
{
    struct views views = {0};
    struct vka_attention_op own;
    if (!mine->batch.count || !mine->heads.query.count)
        return;
    require(!slice_attention(&views, op, mine, &own), "slice");
    require(!views_slice(&views, op->output, 0, mine->batch, &own.output), "slice");
    require(!views_slice(&views, own.output, 1, mine->heads.query, &own.output), "slice");
    run(p->path, &own, NULL, NULL);
    views_destroy(&views);
}

/* Copies the elements of a view to a tensor of our own. */
static struct vka_tensor *dense(const struct vka_tensor *view)
{
    struct vka_tensor *own, *from = (struct vka_tensor *)(uintptr_t)view;
    uint32_t shape[VKA_MAX_RANK];
    for (uint32_t i = 0; i < vka_tensor_rank(view); i++)
        shape[i] = vka_tensor_shape(view, i);
    require(!vka_tensor_create(device, vka_tensor_dtype(view), vka_tensor_rank(view), shape, &own),
            "tensor");
    void *data = read_all(from);
    require(!vka_tensor_write(own, data, vka_tensor_size(own)), "write");
    free(data);
    return own;
}

/* Where operands lie does not show in the bits: a rank's slices lie elsewhere than the whole. */
static bool check_dense(const struct problem *p, const struct vka_attention_op *op,
                        const void *want)
{
    struct vka_attention_op own = *op;
    own.q = dense(op->q);
    own.k = dense(op->k);
    own.v = dense(op->v);
    poison(op->output);
    run(p->path, &own, NULL, NULL);
    vka_tensor_destroy(&own.q);
    vka_tensor_destroy(&own.k);
    vka_tensor_destroy(&own.v);
    return same(op->output, want);
}

static bool check_problem(const struct problem *given, int most)
{
    struct problem p = *given;
    struct problem_data d;
    struct vka_attention_op op;
    char text[PROBLEM_TEXT];
    bool ok = true;
    uint32_t n_head = p.n_kv_head * p.group;
    require(!problem_data_create(device, &p, &d), "problem");
    problem_op(&d, &op);
    run(p.path, &op, NULL, NULL);
    void *want = read_all(op.output);
    if (!check_dense(&p, &op, want)) {
        ok = false;
        printf("FAIL other strides: %s\n", problem_text(&p, text));
    }
    whole_n_head = n_head;
    whole_n_kv_head = p.n_kv_head;
    for (int size = 2; size <= most; size++)
        for (int by_heads = 0; by_heads < 2; by_heads++) {
            poison(op.output);
            for (int rank = 0; rank < size; rank++) {
                struct problem_slice mine = {{0, p.batch}, {{0, n_head}, {0, p.n_kv_head}}};
                if (by_heads)
                    mine.heads = split_heads(n_head, p.n_kv_head, size, rank, 1, 0);
                else
                    mine.batch = vka_mpi_batch(p.batch, size, rank);
                run_slice(&p, &op, &mine);
            }
            if (same(op.output, want))
                continue;
            ok = false;
            printf("FAIL %d slices by %s: %s\n", size, by_heads ? "heads" : "batch",
                   problem_text(&p, text));
        }
    whole_n_head = whole_n_kv_head = 0;
    free(want);
    problem_data_destroy(&d);
    return ok;
}

static bool check_attention(uint64_t seed)
{
    struct problem p;
    problem_draw(&p, seed, seed % 3 ? VKA_PATH_AUTO : VKA_PATH_FUSED);
    return check_problem(&p, 4);
}

/* Decoding by the kernel of GPUs, which cuts the keys into as many splits as the heads leave room
 * for, and takes few rows another way than many: what a slice alone would choose otherwise. */
static bool check_splits(void)
{
    struct problem few = {.seed = 5,
                          .batch = 1,
                          .n_kv_head = 4,
                          .group = 6,
                          .n_q = 1,
                          .n_new = 3000,
                          .head_dim = 8,
                          .value_dim = 8,
                          .path = VKA_PATH_FUSED};
    struct problem more = few;
    more.n_q = 3; /* 18 rows a key head: few only where its group is divided */
    const struct kernel_set before = device->caps.without;
    set_join(&device->caps.without,
             KERNEL_SET(KERNEL_attention_row, KERNEL_attention_address, KERNEL_attention_feature));
    bool ok = check_problem(&few, 8) && check_problem(&more, 8);
    device->caps.without = before;
    return ok;
}

/* Operands at odd strides, where CPU drivers read even ones by address, and dense ones. */
static bool check_strides(void)
{
    struct problem p = {.batch = 1,
                        .n_kv_head = 2,
                        .group = 1,
                        .n_q = 20,
                        .n_new = 50,
                        .head_dim = 8,
                        .value_dim = 8,
                        .scattered = true,
                        .path = VKA_PATH_FUSED};
    const struct kernel_set before = device->caps.without;
    bool ok = true;
    set_add(&device->caps.without, KERNEL_attention_texel);
    for (p.seed = 1; p.seed <= 4; p.seed++)
        ok = check_problem(&p, 2) && ok;
    device->caps.without = before;
    return ok;
}

/* ---- Layers ---------------------------------------------------------------------------------- */

enum { HEADS = 6, DIM = 12, WIDTH = 72, OUT = 70 };

static float weights[(size_t)HEADS * DIM * WIDTH];

static struct vka_tensor *tensor(uint32_t rows, uint32_t width)
{
    struct vka_tensor *t;
    const uint32_t shape[] = {1, rows, width};
    require(!vka_tensor_create(device, VKA_F32, 3, shape, &t), "tensor");
    return t;
}

/* The heads first .. first + count - 1 of the layer; all of them with the output projection. */
static struct vka_layer *layer_of(struct vka_mpi_range heads, bool output)
{
    struct vka_layer *layer;
    size_t first = (size_t)heads.first * DIM;
    const struct vka_linear_weights w = {weights + first * WIDTH, weights + first};
    const struct vka_linear_weights none = {NULL, NULL}, all = {weights, weights};
    require(
        !vka_layer_create(device,
                          VKA_INFO(vka_layer_info, .n_head = heads.count, .head_dim = DIM,
                                   .query_dim = WIDTH, .output_dim = output ? OUT : 0, .query = w,
                                   .key = w, .value = w, .output = output ? all : none),
                          &layer),
        "layer");
    return layer;
}

/* Rows of the output projection, in the layouts that a slice of a layer may have. */
static struct vka_tensor *rows_of(struct vka_mpi_range rows, bool turned)
{
    const uint32_t in = HEADS * DIM, pitch = (rows.count + 3) / 4 * 4;
    const uint32_t shape[2] = {turned ? in : rows.count, turned ? pitch : in};
    float *data = calloc((size_t)shape[0] * shape[1], sizeof *data);
    struct vka_tensor *all, *narrow = NULL, *view = NULL;
    require(data && !vka_tensor_create(device, VKA_F32, 2, shape, &all), "weight");
    for (uint32_t o = 0; o < rows.count; o++)
        for (uint32_t i = 0; i < in; i++)
            data[turned ? i * pitch + o : o * in + i] = weights[(rows.first + o) * in + i];
    require(!vka_tensor_write(all, data, vka_tensor_size(all)), "weight");
    free(data);
    if (!turned)
        return all;
    require(!vka_tensor_slice(all, 1, 0, rows.count, &narrow) &&
                !vka_tensor_permute(narrow, (const uint32_t[]){1, 0}, &view),
            "weight");
    vka_tensor_destroy(&narrow);
    vka_tensor_destroy(&all);
    return view;
}

static void run_columns(struct vka_tensor *context, struct vka_tensor *output,
                        struct vka_mpi_range columns, bool turned)
{
    struct vka_tensor *weight = rows_of(columns, turned), *bias, *to;
    require(!vka_tensor_create(device, VKA_F32, 1, &columns.count, &bias), "bias");
    require(!vka_tensor_write(bias, weights + columns.first, columns.count * sizeof(float)),
            "bias");
    require(!vka_tensor_slice(output, 2, columns.first, columns.count, &to), "slice");
    run(VKA_PATH_AUTO, NULL, NULL,
        VKA_INFO(vka_linear_op, .input = context, .weight = weight, .bias = bias, .output = to));
    vka_tensor_destroy(&weight);
    vka_tensor_destroy(&bias);
    vka_tensor_destroy(&to);
}

static bool check_layer(uint32_t n, int size, bool turned)
{
    struct vka_tensor *in = tensor(n, WIDTH), *context = tensor(n, HEADS * DIM);
    struct vka_tensor *out = tensor(n, OUT);
    require(!vka_tensor_write(in, weights, vka_tensor_size(in)), "input");
    struct vka_layer *whole = layer_of((struct vka_mpi_range){0, HEADS}, true);
    run(VKA_PATH_AUTO, NULL, VKA_INFO(vka_layer_op, .layer = whole, .query = in, .output = out),
        NULL);
    void *want = read_all(out);
    poison(out);
    for (int rank = 0; rank < size; rank++) {
        struct vka_mpi_range heads = split_heads(HEADS, HEADS, size, rank, 1, 0).query;
        struct vka_layer *layer = layer_of(heads, false);
        struct vka_tensor *to;
        require(!vka_tensor_slice(context, 2, heads.first * DIM, heads.count * DIM, &to), "slice");
        run(VKA_PATH_AUTO, NULL, VKA_INFO(vka_layer_op, .layer = layer, .query = in, .output = to),
            NULL);
        vka_tensor_destroy(&to);
        vka_layer_destroy(&layer);
    }
    for (int rank = 0; rank < size; rank++)
        run_columns(context, out, split_even(OUT, (uint32_t)size, (uint32_t)rank), turned);
    bool ok = same(out, want);
    if (!ok)
        printf("FAIL layer of %u rows in %d slices, weights %s\n", n, size,
               turned ? "turned" : "as they are");
    free(want);
    vka_layer_destroy(&whole);
    vka_tensor_destroy(&in);
    vka_tensor_destroy(&context);
    vka_tensor_destroy(&out);
    return ok;
}

static bool check_layers(void)
{
    static const uint32_t rows[] = {1, 7, 31, 32, 33, 70};
    uint32_t bits = 1;
    bool ok = true;
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++)
        weights[i] = (float)((bits = bits * 1664525 + 1013904223) >> 8) * 0x1p-23f - 1;
    bool cpu = vka_device_properties(device)->type == VKA_DEVICE_CPU;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int size = 2; size <= 3; size++)
            ok = check_layer(rows[i], size, cpu) && ok;
    return ok;
}

TEST_PROGRAM_ARGUMENTS(mpi_slices)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, failed = 0;
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 24;
    enum vka_status status = vka_device_create(NULL, &device);
    if (status != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device (%s): nothing was tested\n",
                vka_status_name(status));
        return status == VKA_NO_DEVICE ? 77 : 1;
    }
    printf("%s\n", vka_device_properties(device)->driver);
    bool layers = check_layers(), splits = check_splits(), strides = check_strides();
    for (uint64_t seed = first; seed < first + count; seed++)
        failed += !check_attention(seed);
    printf("layers %s, splits %s, strides %s; attention: %llu problems, %llu failed\n",
           layers ? "passed" : "FAILED", splits ? "passed" : "FAILED",
           strides ? "passed" : "FAILED", (unsigned long long)count, (unsigned long long)failed);
    vka_device_destroy(&device);
    return layers && splits && strides && !failed ? 0 : 1;
}
