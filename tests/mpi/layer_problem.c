#include "../patience.h"
#include "layer_problem.h"

#include "case/case.h"
#include "case/numbers.h"
#include "problems/types.h"

#include <reference/reference.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *own(struct layer_problem *p, void *data)
{
    REQUIRE(data && p->n_owned < sizeof p->owned / sizeof p->owned[0], "out of memory");
    p->owned[p->n_owned++] = data;
    return data;
}

static struct vka_tensor *make_tensor(struct vka_mpi *mpi, struct layer_problem *p,
                                      enum vka_dtype dtype, uint32_t rank, const uint32_t *shape)
{
    struct vka_tensor *tensor;
    REQUIRE(p->n_tensors < sizeof p->tensors / sizeof p->tensors[0], "too many tensors");
    REQUIRE_OK(mpi, vka_tensor_create(vka_mpi_device(mpi), dtype, rank, shape, &tensor));
    p->tensors[p->n_tensors++] = tensor;
    return tensor;
}

/* ---- Seeds ----------------------------------------------------------------------------------- */

static struct vka_tensor *upload(struct vka_mpi *mpi, struct layer_problem *p,
                                 const struct vka_io_array *array)
{
    uint32_t shape[VKA_MAX_RANK];
    if (!array)
        return NULL;
    for (uint32_t i = 0; i < array->rank; i++)
        shape[i] = (uint32_t)array->shape[i];
    struct vka_tensor *tensor = make_tensor(mpi, p, case_dtype(array->dtype), array->rank, shape);
    double *values = case_doubles(array);
    void *data = malloc(vka_tensor_size(tensor));
    REQUIRE(values && data, "out of memory");
    case_narrow(values, case_count(array), case_dtype(array->dtype), data);
    REQUIRE_OK(mpi, vka_tensor_write(tensor, data, vka_tensor_size(tensor)));
    free(values);
    free(data);
    return tensor;
}

static struct vka_linear_weights weights_of(const struct case_linear *linear)
{
    return (struct vka_linear_weights){
        .weight = linear->weight ? linear->weight->data : NULL,
        .bias = linear->bias ? linear->bias->data : NULL,
    };
}

bool layer_problem_open(struct vka_mpi *mpi, const char *path, struct layer_problem *p)
{
    char error[VKA_IO_ERROR_SIZE];
    struct case_file *c = NULL;
    *p = (struct layer_problem){0};
    REQUIRE(case_open(path, error, &c) == VKA_OK, "%s", error);
    if (c->kind != CASE_LAYER) {
        case_close(&c);
        return false;
    }
    bool swapped = c->config.layout == CASE_SBD;
    const uint32_t shape[] = {swapped ? c->n_q : c->batch, swapped ? c->batch : c->n_q,
                              c->output_dim};
    p->file = c;
    snprintf(p->name, sizeof p->name, "%s", c->name);
    p->info = *VKA_INFO(
        vka_layer_info, .n_head = c->n_head, .n_kv_head = c->n_kv_head, .head_dim = c->head_dim,
        .value_dim = c->value_dim, .query_dim = c->query_dim, .key_dim = c->key_dim,
        .value_input_dim = c->value_input_dim, .output_dim = c->output_dim,
        .dtype = case_dtype(c->q_proj.weight->dtype), .interleaved = c->config.interleaved,
        .query = weights_of(&c->q_proj), .key = weights_of(&c->k_proj),
        .value = weights_of(&c->v_proj), .output = weights_of(&c->o_proj));
    p->op = *VKA_INFO(vka_layer_op, .query = upload(mpi, p, c->query),
                      .key = upload(mpi, p, c->key), .value = upload(mpi, p, c->value),
                      .output = make_tensor(mpi, p, case_dtype(c->query->dtype), 3, shape),
                      .layout = swapped ? VKA_SEQUENCE_FIRST : VKA_BATCH_FIRST,
                      .attention = {.mask = upload(mpi, p, c->mask),
                                    .kv_length = upload(mpi, p, c->kv_length),
                                    .query_offset = upload(mpi, p, c->query_offset),
                                    .rope = c->config.rope});
#define OPTION(kind, type, wide, name) p->op.attention.name = (type)c->config.name;
#include "../../src/attention_options.def"
#undef OPTION
    return true;
}

/* ---- Random layers --------------------------------------------------------------------------- */

static void *numbers(struct rng *rng, enum vka_dtype dtype, size_t count, double scale)
{
    double *values = malloc(count * sizeof *values);
    void *data = malloc(count * vka_dtype_size(dtype));
    REQUIRE(values && data, "out of memory");
    for (size_t i = 0; i < count; i++)
        values[i] = rng_uniform(rng, -scale, scale);
    case_narrow(values, count, dtype, data);
    free(values);
    return data;
}

static struct vka_tensor *draw_tensor(struct vka_mpi *mpi, struct layer_problem *p, struct rng *rng,
                                      enum vka_dtype dtype, uint32_t rank, const uint32_t *shape)
{
    struct vka_tensor *tensor = make_tensor(mpi, p, dtype, rank, shape);
    void *data = numbers(rng, dtype, (size_t)vka_tensor_count(tensor), 1.5);
    REQUIRE_OK(mpi, vka_tensor_write(tensor, data, vka_tensor_size(tensor)));
    free(data);
    return tensor;
}

/* 70 % of the keys visible. */
static struct vka_tensor *draw_mask(struct vka_mpi *mpi, struct layer_problem *p, struct rng *rng,
                                    const uint32_t full[4])
{
    uint32_t shape[4], rank = rng_range(rng, 1, 4);
    for (uint32_t i = 0; i < rank; i++)
        shape[i] = i + 1 < rank && rng_chance(rng, 35) ? 1 : full[4 - rank + i];
    bool boolean = rng_chance(rng, 50);
    struct vka_tensor *mask = make_tensor(mpi, p, boolean ? VKA_BOOL : VKA_F32, rank, shape);
    size_t count = (size_t)vka_tensor_count(mask), size = vka_tensor_size(mask);
    double *values = malloc(count * sizeof *values);
    void *data = malloc(size);
    REQUIRE(values && data, "out of memory");
    for (size_t i = 0; i < count; i++) {
        bool visible = rng_chance(rng, 70);
        values[i] = boolean ? visible : visible ? rng_uniform(rng, -2, 2) : (double)-INFINITY;
    }
    case_narrow(values, count, boolean ? VKA_BOOL : VKA_F32, data);
    REQUIRE_OK(mpi, vka_tensor_write(mask, data, size));
    free(values);
    free(data);
    return mask;
}

static struct vka_tensor *draw_integers(struct vka_mpi *mpi, struct layer_problem *p,
                                        struct rng *rng, uint32_t batch, int32_t low, int32_t high)
{
    uint32_t n = rng_chance(rng, 50) ? batch : 1;
    struct vka_tensor *tensor = make_tensor(mpi, p, VKA_I32, 1, &n);
    int32_t values[8];
    for (uint32_t i = 0; i < n; i++)
        values[i] = low + (int32_t)rng_range(rng, 0, (uint32_t)(high - low));
    REQUIRE_OK(mpi, vka_tensor_write(tensor, values, n * sizeof *values));
    return tensor;
}

static void draw_weights(struct layer_problem *p, struct rng *rng)
{
    struct vka_layer_info *i = &p->info;
    struct vka_linear_weights *to[] = {&i->query, &i->key, &i->value, &i->output};
    const size_t size[4][2] = {{i->n_head * i->head_dim, i->query_dim},
                               {i->n_kv_head * i->head_dim, i->key_dim},
                               {i->n_kv_head * i->value_dim, i->value_input_dim},
                               {i->output_dim, i->n_head * i->value_dim}};
    for (int j = 0; j < 4; j++) {
        if (j == 3 && i->output_dim == i->n_head * i->value_dim && rng_chance(rng, 25))
            continue;
        to[j]->weight =
            own(p, numbers(rng, i->dtype, size[j][0] * size[j][1], 2 / sqrt((double)size[j][1])));
        if (rng_chance(rng, 60))
            to[j]->bias = own(p, numbers(rng, i->dtype, size[j][0], 0.5));
    }
}

static void draw_options(struct vka_mpi *mpi, struct layer_problem *p, struct rng *rng,
                         const uint32_t full[4])
{
    struct vka_attention_options *o = &p->op.attention;
    const struct vka_layer_info *i = &p->info;
    int32_t n_q = (int32_t)full[2], n_kv = (int32_t)full[3];
    o->causal = rng_chance(rng, 40);
    o->window = rng_chance(rng, 25);
    if (o->window) {
        o->window_left = (int32_t)rng_range(rng, 0, 30) - 1;
        o->window_right = (int32_t)rng_range(rng, 0, 30) - 1;
    }
    o->scale = rng_chance(rng, 30) ? 0.3f : 0;
    o->softcap = rng_chance(rng, 20) ? 5.0f : 0;
    o->masked_row = (enum vka_masked_row)rng_range(rng, 0, VKA_MASKED_ROW_COUNT - 1);
    if (rng_chance(rng, 40))
        o->mask = draw_mask(mpi, p, rng, full);
    if (rng_chance(rng, 30))
        o->kv_length = draw_integers(mpi, p, rng, full[0], -1, n_kv + 2);
    if (rng_chance(rng, 30))
        o->query_offset = draw_integers(mpi, p, rng, full[0], -n_q, n_kv);
    if (i->head_dim >= 2 && rng_chance(rng, 30))
        o->rope = (struct vka_rope){.dim = i->head_dim / 2 * 2, .interleaved = rng_chance(rng, 50)};
    if (rng_chance(rng, 15))
        o->q_norm = draw_tensor(mpi, p, rng, VKA_F32, 1, &i->head_dim);
    if (rng_chance(rng, 20))
        o->sink = draw_tensor(mpi, p, rng, VKA_F32, 1, &i->n_head);
    if (rng_chance(rng, 20))
        o->alibi = draw_tensor(mpi, p, rng, VKA_F32, 1, &i->n_head);
    if (rng_chance(rng, 20)) {
        o->dropout = 0.3f;
        o->dropout_seed = rng_next(rng);
    }
}

void layer_problem_draw(struct vka_mpi *mpi, uint64_t seed, struct layer_problem *p)
{
    struct rng rng = {seed};
    *p = (struct layer_problem){.op.struct_size = sizeof p->op};
    uint32_t n_kv_head = rng_range(&rng, 1, 6), group = rng_range(&rng, 1, 3);
    uint32_t batch = rng_range(&rng, 1, 5), n_q = rng_range(&rng, 1, 70);
    uint32_t n_kv = rng_chance(&rng, 50) ? n_q : rng_range(&rng, 1, 90);
    uint32_t dim = rng_range(&rng, 1, 40), width = rng_range(&rng, 1, 100);
    bool self = n_kv == n_q && rng_chance(&rng, 60);
    p->info =
        *VKA_INFO(vka_layer_info, .n_head = n_kv_head * group, .n_kv_head = n_kv_head,
                  .head_dim = dim, .value_dim = rng_chance(&rng, 60) ? dim : rng_range(&rng, 1, 40),
                  .query_dim = width, .key_dim = self ? width : rng_range(&rng, 1, 60),
                  .dtype = type_draw_float(&rng), .interleaved = rng_chance(&rng, 40));
    p->info.value_input_dim = p->info.key_dim;
    p->info.output_dim =
        rng_chance(&rng, 40) ? rng_range(&rng, 1, 90) : p->info.n_head * p->info.value_dim;
    draw_weights(p, &rng);
    bool swapped = rng_chance(&rng, 40);
    const uint32_t full[4] = {batch, p->info.n_head, n_q, n_kv};
    const uint32_t q[] = {swapped ? n_q : batch, swapped ? batch : n_q, width};
    const uint32_t k[] = {swapped ? n_kv : batch, swapped ? batch : n_kv, p->info.key_dim};
    const uint32_t y[] = {q[0], q[1], p->info.output_dim};
    p->op.layout = swapped ? VKA_SEQUENCE_FIRST : VKA_BATCH_FIRST;
    p->op.query = draw_tensor(mpi, p, &rng, type_draw_float(&rng), 3, q);
    if (!self)
        p->op.key = draw_tensor(mpi, p, &rng, type_draw_float(&rng), 3, k);
    p->op.output = make_tensor(mpi, p, type_draw_float(&rng), 3, y);
    draw_options(mpi, p, &rng, full);
    snprintf(p->name, sizeof p->name, "seed %llu: batch %u, heads %u/%u of %u and %u, %u x %u",
             (unsigned long long)seed, batch, p->info.n_head, n_kv_head, dim, p->info.value_dim,
             n_q, n_kv);
}

void layer_problem_destroy(struct layer_problem *p)
{
    struct case_file *c = p->file;
    for (size_t i = 0; i < p->n_tensors; i++)
        vka_tensor_destroy(&p->tensors[i]);
    for (size_t i = 0; i < p->n_owned; i++)
        free(p->owned[i]);
    case_close(&c);
}

/* ---- Checking -------------------------------------------------------------------------------- */

static void *run_alone(struct vka_mpi *mpi, const struct layer_problem *p)
{
    struct vka_device *device = vka_mpi_device(mpi);
    struct vka_layer *layer = NULL;
    struct vka_plan *plan = NULL;
    struct vka_layer_op op = p->op;
    REQUIRE_OK(mpi, vka_layer_create(device, &p->info, &layer));
    op.layer = layer;
    REQUIRE_OK(mpi, vka_plan_create(device, NULL, &plan));
    REQUIRE_OK(mpi, vka_plan_add_layer(plan, &op));
    REQUIRE_OK(mpi, vka_plan_finish(plan));
    ranks_poison(op.output);
    REQUIRE_OK(mpi, vka_plan_run(plan, PATIENCE));
    vka_plan_destroy(&plan);
    vka_layer_destroy(&layer);
    return ranks_read(op.output);
}

static void check_split(struct vka_mpi *mpi, const struct layer_problem *p,
                        enum vka_mpi_split split, uint32_t rounds, const void *want)
{
    struct vka_mpi_layer *layer = NULL;
    struct vka_mpi_plan *plan = NULL;
    size_t index;
    REQUIRE_OK(mpi, vka_mpi_layer_create(mpi,
                                         VKA_INFO(vka_mpi_layer_info, .split = split,
                                                  .rounds = rounds, .layer = p->info),
                                         &layer));
    REQUIRE_OK(mpi, vka_mpi_plan_layer(mpi, layer, &p->op,
                                       VKA_INFO(vka_mpi_plan_info, .rounds = rounds), &plan));
    vka_mpi_layer_destroy(&layer); /* a plan keeps what it uses alive */
    for (int i = 0; i < 2; i++) {
        ranks_poison(p->op.output);
        REQUIRE_OK(mpi, vka_mpi_plan_run(plan, PATIENCE));
        REQUIRE(ranks_same(p->op.output, want, &index),
                "%s, split by %s in %u rounds, run %d: element %zu differs from one device's",
                p->name, split == VKA_MPI_HEADS ? "heads" : "batch", rounds, i, index);
    }
    vka_mpi_plan_destroy(&plan);
}

void layer_problem_check(struct vka_mpi *mpi, const struct layer_problem *p, uint32_t rounds)
{
    void *want = run_alone(mpi, p);
    check_split(mpi, p, VKA_MPI_HEADS, rounds, want);
    check_split(mpi, p, VKA_MPI_BATCH, rounds, want);
    free(want);
}
