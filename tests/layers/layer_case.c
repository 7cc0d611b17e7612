#include "layer_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/convert.h"
#include "reference/reference.h"
#include "problems/rng.h"

/* Nanoseconds. A CPU driver with an empty cache compiles a kernel when it first runs. */
#define FIRST_RUN 300000000000ull

enum { QUERY = 0, KEY, VALUE, OUTPUT, PROJECTIONS };

/* Weights [out][in] and bias [out] as the device gets them, and as the oracle does. */
struct weights {
    void *weight, *bias; /* of the case's type */
    double *exact_weight, *exact_bias;
    size_t out, in;
};

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    assert_non_null(memory);
    return memory;
}

/* count random numbers as stored in the type, and the exact values of what is stored. */
static void *random_numbers(struct rng *rng, enum vka_dtype dtype, size_t count, double scale,
                            double **exact)
{
    char *stored = allocate(count, vka_dtype_size(dtype));
    *exact = allocate(count, sizeof **exact);
    for (size_t i = 0; i < count; i++) {
        double x = rng_uniform(rng, -scale, scale);
        if (dtype == VKA_F32) {
            float single = (float)x;
            memcpy(stored + 4 * i, &single, 4);
            (*exact)[i] = (double)single;
        } else {
            uint16_t half = dtype == VKA_F16 ? ref_to_f16(x) : ref_to_bf16(x);
            memcpy(stored + 2 * i, &half, 2);
            (*exact)[i] = dtype == VKA_F16 ? ref_from_f16(half) : ref_from_bf16(half);
        }
    }
    return stored;
}

static struct layer_case with_defaults(const struct layer_case *given)
{
    struct layer_case c = *given;
    c.n_kv_head = c.n_kv_head ? c.n_kv_head : c.n_head;
    c.value_dim = c.value_dim ? c.value_dim : c.head_dim;
    c.key_dim = c.key_dim ? c.key_dim : c.query_dim;
    c.value_input_dim = c.value_input_dim ? c.value_input_dim : c.key_dim;
    c.output_dim = c.output_dim ? c.output_dim : c.n_head * c.value_dim;
    return c;
}

/* A tensor of dense contents [out][in], or [out] where in is 0. */
static struct vka_tensor *create_weight(const struct layer_rig *rig, const char *contents,
                                        size_t out, size_t in)
{
    const size_t size = vka_dtype_size(rig->c.dtype), columns = in ? in : 1;
    const bool transposed = rig->c.transposed && in;
    const uint32_t shape[2] = {(uint32_t)(transposed ? in : out),
                               (uint32_t)(transposed ? out : columns)};
    char *lies = allocate(out * columns, size);
    for (size_t o = 0; o < out; o++)
        for (size_t i = 0; i < columns; i++)
            memcpy(lies + (transposed ? i * out + o : o * columns + i) * size,
                   contents + (o * columns + i) * size, size);
    struct vka_tensor *made = NULL, *view = NULL;
    assert_int_equal(vka_tensor_create(rig->device, rig->c.dtype, in ? 2 : 1, shape, &made),
                     VKA_OK);
    assert_int_equal(vka_tensor_write(made, lies, out * columns * size), VKA_OK);
    free(lies);
    if (!transposed)
        return made;
    assert_int_equal(vka_tensor_permute(made, (const uint32_t[]){1, 0}, &view), VKA_OK);
    vka_tensor_destroy(&made);
    return view;
}

/* Moves the weights to tensors, which the caller destroys. */
static void use_tensors(const struct layer_rig *rig, const struct weights w[PROJECTIONS],
                        struct vka_linear_weights host[PROJECTIONS],
                        struct vka_linear_tensors tensors[PROJECTIONS])
{
    for (unsigned i = 0; i < PROJECTIONS; i++) {
        if (host[i].weight)
            tensors[i].weight = create_weight(rig, host[i].weight, w[i].out, w[i].in);
        if (host[i].bias)
            tensors[i].bias = create_weight(rig, host[i].bias, w[i].out, 0);
        host[i] = (struct vka_linear_weights){NULL, NULL};
    }
}

/* Only what the case gives; zeros elsewhere are the library's to fill in. */
static void create_layer(struct layer_rig *rig, const struct layer_case *given, struct rng *rng,
                         struct weights w[PROJECTIONS])
{
    const struct layer_case *c = &rig->c;
    const size_t size[PROJECTIONS][2] = {
        {c->n_head * c->head_dim, c->query_dim},
        {c->n_kv_head * c->head_dim, c->key_dim},
        {c->n_kv_head * c->value_dim, c->value_input_dim},
        {c->output_dim, c->n_head * c->value_dim},
    };
    struct vka_linear_weights host[PROJECTIONS] = {{0}};
    struct vka_linear_tensors tensors[PROJECTIONS] = {{0}};
    for (unsigned i = 0; i < PROJECTIONS; i++) {
        w[i].out = size[i][0];
        w[i].in = size[i][1];
        if (i == OUTPUT && c->no_output_weight)
            continue;
        w[i].weight = random_numbers(rng, c->dtype, w[i].out * w[i].in, 2 / sqrt((double)w[i].in),
                                     &w[i].exact_weight);
        host[i].weight = w[i].weight;
        if (!(c->biases >> i & 1))
            continue;
        w[i].bias = random_numbers(rng, c->dtype, w[i].out, 0.5, &w[i].exact_bias);
        host[i].bias = w[i].bias;
    }
    if (c->in_tensors)
        use_tensors(rig, w, host, tensors);
    assert_int_equal(
        vka_layer_create(
            rig->device,
            VKA_INFO(vka_layer_info, .n_head = given->n_head, .n_kv_head = given->n_kv_head,
                     .head_dim = given->head_dim, .value_dim = given->value_dim,
                     .query_dim = given->query_dim, .key_dim = given->key_dim,
                     .value_input_dim = given->value_input_dim, .output_dim = given->output_dim,
                     .dtype = given->dtype, .interleaved = given->interleaved, .query = host[QUERY],
                     .key = host[KEY], .value = host[VALUE], .output = host[OUTPUT],
                     .query_tensors = tensors[QUERY], .key_tensors = tensors[KEY],
                     .value_tensors = tensors[VALUE], .output_tensors = tensors[OUTPUT]),
            &rig->layer),
        VKA_OK);
    for (unsigned i = 0; i < PROJECTIONS; i++) {
        vka_tensor_destroy(&tensors[i].weight);
        vka_tensor_destroy(&tensors[i].bias);
    }
}

/* [batch][n][width] as the case's layout has it: the tensor made, and the view of it to use. */
static struct vka_tensor *create_io(const struct layer_rig *rig, uint32_t n, uint32_t width,
                                    struct vka_tensor **base)
{
    struct vka_tensor *made = NULL, *view = NULL;
    const uint32_t batch_first[] = {rig->c.batch, n, width}, other[] = {n, rig->c.batch, width};
    const uint32_t *shape = rig->c.io == LAYER_BATCH_FIRST ? batch_first : other;
    const uint32_t axes[] = {rig->c.io == LAYER_PERMUTED_VIEWS, rig->c.io != LAYER_PERMUTED_VIEWS,
                             2};
    assert_int_equal(vka_tensor_create(rig->device, rig->c.rows, 3, shape, &made), VKA_OK);
    assert_int_equal(vka_tensor_permute(made, axes, &view), VKA_OK);
    if (base)
        *base = made;
    else
        vka_tensor_destroy(&made);
    return view;
}

/* Random values for an input, returned as the oracle takes them: [batch][n][width]. */
static double *write_input(const struct layer_rig *rig, struct rng *rng, struct vka_tensor *tensor,
                           uint32_t n, uint32_t width)
{
    size_t count = (size_t)rig->c.batch * n * width;
    double *exact, *ordered = allocate(count, sizeof *ordered);
    void *stored = random_numbers(rng, rig->c.rows, count, 1, &exact);
    assert_int_equal(vka_tensor_write(tensor, stored, vka_tensor_size(tensor)), VKA_OK);
    bool swapped = rig->c.io == LAYER_SEQUENCE_FIRST;
    for (size_t b = 0; b < rig->c.batch; b++)
        for (size_t i = 0; i < n; i++)
            memcpy(ordered + (b * n + i) * width,
                   exact + (swapped ? i * rig->c.batch + b : b * n + i) * width,
                   width * sizeof *exact);
    free(stored);
    free(exact);
    return ordered;
}

/* x[batch][n][in] projected to heads [batch][n_head][n][dim]. */
static double *project(const struct layer_case *c, const double *x, size_t n,
                       const struct weights *w, size_t n_head)
{
    size_t dim = w->out / n_head, rows = c->batch * n;
    double *flat = allocate(rows * w->out, sizeof *flat);
    double *heads = allocate(rows * w->out, sizeof *heads), *to = heads;
    ref_linear(x, w->exact_weight, w->exact_bias, rows, w->in, w->out, false, flat);
    for (size_t b = 0; b < c->batch; b++)
        for (size_t h = 0; h < n_head; h++)
            for (size_t i = 0; i < n; i++)
                for (size_t d = 0; d < dim; d++)
                    *to++ = flat[(b * n + i) * w->out +
                                 (c->interleaved ? d * n_head + h : h * dim + d)];
    free(flat);
    return heads;
}

/* context[batch][n_head][n_q][value_dim] to the output [batch][n_q][output_dim]. */
static double *finish(const struct layer_case *c, const double *context, const struct weights *w)
{
    size_t rows = (size_t)c->batch * c->n_q;
    double *joined = allocate(rows * w->in, sizeof *joined), *to = joined;
    for (size_t b = 0; b < c->batch; b++)
        for (size_t i = 0; i < c->n_q; i++)
            for (size_t h = 0; h < c->n_head; h++)
                for (size_t d = 0; d < c->value_dim; d++)
                    *to++ = context[((b * c->n_head + h) * c->n_q + i) * c->value_dim + d];
    if (c->no_output_weight)
        return joined;
    double *output = allocate(rows * w->out, sizeof *output);
    ref_linear(joined, w->exact_weight, w->exact_bias, rows, w->in, w->out, false, output);
    free(joined);
    return output;
}

static double *expect(const struct layer_case *c, size_t n_kv, double *const x[3],
                      const struct weights w[PROJECTIONS], const int64_t *lengths)
{
    double *q = project(c, x[QUERY], c->n_q, &w[QUERY], c->n_head);
    double *k = project(c, x[KEY], n_kv, &w[KEY], c->n_kv_head);
    double *v = project(c, x[VALUE], n_kv, &w[VALUE], c->n_kv_head);
    size_t count = (size_t)c->batch * c->n_head * c->n_q * c->value_dim;
    double *context = allocate(count, sizeof *context);
    const struct ref_attention a = {
        .batch = c->batch,
        .n_head = c->n_head,
        .n_kv_head = c->n_kv_head,
        .n_q = c->n_q,
        .n_kv = n_kv,
        .head_dim = c->head_dim,
        .value_dim = c->value_dim,
        .q = q,
        .k = k,
        .v = v,
        .causal = c->causal,
        .rope.dim = c->rope_dim,
        .kv_length = lengths,
        .kv_length_count = lengths ? c->batch : 0,
        .context = context,
    };
    assert_int_equal(ref_attention(&a), VKA_OK);
    double *want = finish(c, context, &w[OUTPUT]);
    free(q);
    free(k);
    free(v);
    free(context);
    return want;
}

/* Lengths from 1 to n_kv; the last batch element sees all. */
static int64_t *create_lengths(struct layer_rig *rig, struct rng *rng, uint32_t n_kv)
{
    uint32_t batch = rig->c.batch;
    int64_t *lengths = allocate(batch, sizeof *lengths);
    int32_t *stored = allocate(batch, sizeof *stored);
    for (uint32_t b = 0; b < batch; b++) {
        lengths[b] = b + 1 == batch ? n_kv : rng_range(rng, 1, n_kv);
        stored[b] = (int32_t)lengths[b];
    }
    assert_int_equal(vka_tensor_create(rig->device, VKA_I32, 1, &batch, &rig->kv_length), VKA_OK);
    assert_int_equal(vka_tensor_write(rig->kv_length, stored, batch * sizeof *stored), VKA_OK);
    free(stored);
    return lengths;
}

void rig_create(struct layer_rig *rig, struct vka_device *device, const struct layer_case *given,
                uint64_t seed)
{
    struct rng rng = {seed};
    struct weights w[PROJECTIONS] = {{0}};
    *rig = (struct layer_rig){.c = with_defaults(given), .device = device};
    const struct layer_case *c = &rig->c;
    uint32_t n_kv = c->n_kv ? c->n_kv : c->n_q;
    create_layer(rig, given, &rng, w);

    double *x[3];
    rig->query = create_io(rig, c->n_q, c->query_dim, NULL);
    rig->output = create_io(rig, c->n_q, c->output_dim, &rig->output_base);
    x[QUERY] = x[KEY] = x[VALUE] = write_input(rig, &rng, rig->query, c->n_q, c->query_dim);
    if (c->n_kv) {
        rig->key = create_io(rig, n_kv, c->key_dim, NULL);
        x[KEY] = x[VALUE] = write_input(rig, &rng, rig->key, n_kv, c->key_dim);
        if (!c->value_is_key) {
            rig->value = create_io(rig, n_kv, c->value_input_dim, NULL);
            x[VALUE] = write_input(rig, &rng, rig->value, n_kv, c->value_input_dim);
        }
    }
    int64_t *lengths = c->lengths ? create_lengths(rig, &rng, n_kv) : NULL;
    rig->want = expect(c, n_kv, x, w, lengths);
    if (x[VALUE] != x[KEY])
        free(x[VALUE]);
    if (x[KEY] != x[QUERY])
        free(x[KEY]);
    free(x[QUERY]);
    free(lengths);
    for (int i = 0; i < PROJECTIONS; i++) {
        free(w[i].weight);
        free(w[i].bias);
        free(w[i].exact_weight);
        free(w[i].exact_bias);
    }
}

void rig_destroy(struct layer_rig *rig)
{
    vka_layer_destroy(&rig->layer);
    vka_tensor_destroy(&rig->query);
    vka_tensor_destroy(&rig->key);
    vka_tensor_destroy(&rig->value);
    vka_tensor_destroy(&rig->output);
    vka_tensor_destroy(&rig->output_base);
    vka_tensor_destroy(&rig->kv_length);
    free(rig->want);
    *rig = (struct layer_rig){0};
}

struct vka_layer_op rig_op(const struct layer_rig *rig)
{
    return *VKA_INFO(
        vka_layer_op, .layer = rig->layer, .query = rig->query, .key = rig->key,
        .value = rig->value, .output = rig->output,
        .layout = rig->c.io == LAYER_SEQUENCE_FIRST ? VKA_SEQUENCE_FIRST : VKA_BATCH_FIRST,
        .attention = {
            .causal = rig->c.causal, .kv_length = rig->kv_length, .rope.dim = rig->c.rope_dim});
}

struct vka_plan *rig_plan(const struct layer_rig *rig, const struct vka_plan_info *info)
{
    struct vka_plan *plan = NULL;
    struct vka_layer_op op = rig_op(rig);
    assert_int_equal(vka_plan_create(rig->device, info, &plan), VKA_OK);
    if (vka_plan_add_layer(plan, &op) || vka_plan_finish(plan))
        fail_msg("%s: %s", rig->c.name, vka_device_error(rig->device));
    return plan;
}

size_t rig_count(const struct layer_rig *rig)
{
    return (size_t)vka_tensor_count(rig->output);
}

void rig_read(const struct layer_rig *rig, float *output)
{
    const size_t size = vka_tensor_size(rig->output);
    void *stored = allocate(size, 1);
    assert_int_equal(vka_tensor_read(rig->output, stored, size), VKA_OK);
    for (size_t i = 0; i < rig_count(rig); i++)
        output[i] = dtype_to_float(stored, i, rig->c.rows);
    free(stored);
}

double rig_error(const struct layer_rig *rig)
{
    const struct layer_case *c = &rig->c;
    size_t count = rig_count(rig), width = c->output_dim;
    float *raw = allocate(count, sizeof *raw);
    double *got = allocate(count, sizeof *got);
    rig_read(rig, raw);
    bool swapped = c->io == LAYER_SEQUENCE_FIRST;
    for (size_t b = 0; b < c->batch; b++)
        for (size_t i = 0; i < c->n_q; i++)
            for (size_t d = 0; d < width; d++)
                got[(b * c->n_q + i) * width + d] =
                    (double)raw[(swapped ? i * c->batch + b : b * c->n_q + i) * width + d];
    if (width < 8) /* one number that cancels has no relative error to speak of */
        width *= c->n_q;
    double error = ref_row_nmse(got, rig->want, count / width, width, NULL);
    free(raw);
    free(got);
    return error;
}

double rig_run(const struct layer_rig *rig, struct vka_plan *plan)
{
    size_t size = vka_tensor_size(rig->output);
    void *poison = allocate(size, 1);
    memset(poison, 0xff, size); /* NaN */
    assert_int_equal(vka_tensor_write(rig->output, poison, size), VKA_OK);
    free(poison);
    if (vka_plan_run(plan, FIRST_RUN))
        fail_msg("%s: %s", rig->c.name, vka_device_error(rig->device));
    return rig_error(rig);
}

const struct layer_case layer_plain = {
    .name = "plain",
    .batch = 2,
    .n_q = 37,
    .n_head = 8,
    .head_dim = 12,
    .query_dim = 96,
    .biases = BIAS_ALL,
};

double layer_check(struct vka_device *device, const struct layer_case *c, uint64_t seed)
{
    struct layer_rig rig;
    rig_create(&rig, device, c, seed);
    struct vka_plan *plan = rig_plan(&rig, NULL);
    double error = rig_run(&rig, plan);
    vka_plan_destroy(&plan);
    rig_destroy(&rig);
    return error;
}

bool have_device(const char *what)
{
    size_t devices = 0;
    if (vka_device_list(NULL, NULL, &devices) == VKA_OK && devices > 0)
        return true;
    fprintf(stderr, "SKIPPED: no Vulkan device: %s is not tested\n", what);
    return false;
}
