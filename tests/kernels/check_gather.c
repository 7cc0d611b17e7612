/* Rows by ids: types of tables x types of outputs x ranks of ids, with ids outside the table, and a
 * table of which a pass sees a slice. */
#include "check_model.h"

#include "patience.h"
#include "problems/limits.h"

#include <core/dtype.h>
#include <reference/reference.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct shape_case {
    uint32_t rank, size[3], rows, width;
} shapes[] = {
    {1, {1}, 1, 1},          {1, {9}, 5, 7},        {2, {3, 5}, 300, 66},
    {3, {2, 3, 4}, 11, 256}, {2, {2, 33}, 17, 513},
};

struct gather_case {
    struct vka_gather_op op;
    struct operand table, ids, y; /* of block types table is not used */
    struct vka_tensor *blocks;
    double *want;
};

static enum vka_status add(struct vka_plan *plan, const void *op)
{
    return vka_plan_add_gather(plan, op);
}

/* Blocks of any bits that are finite as scales; values[rows * width]. */
static enum vka_status make_blocks(struct check *c, enum vka_dtype dtype, uint32_t rows,
                                   uint32_t width, struct gather_case *t, double *values)
{
    const uint32_t shape[2] = {rows, width};
    uint32_t block_values, block_bytes;
    vka_dtype_block(dtype, &block_values, &block_bytes);
    size_t n_block = (size_t)rows * width / block_values;
    uint8_t *bytes = calloc(n_block, block_bytes);
    float *decoded = calloc((size_t)rows * width, sizeof *decoded);
    enum vka_status status = bytes && decoded ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    /* The upper bytes of float16 scales are among these, so they are small and positive. */
    for (size_t i = 0; status == VKA_OK && i < n_block * block_bytes; i++)
        bytes[i] = (uint8_t)rng_range(&c->rng, 0, 0x2b);
    for (size_t i = 0; status == VKA_OK && dtype == VKA_MXFP4 && i < n_block; i++)
        bytes[i * block_bytes] = (uint8_t)rng_range(&c->rng, 118, 130);
    for (size_t i = 0; status == VKA_OK && !dtype_has_integers(dtype) && i < n_block; i++) {
        const float scale = (float)rng_uniform(&c->rng, 0.5, 2); /* of float32, and first */
        memcpy(bytes + i * block_bytes, &scale, sizeof scale);
    }
    if (status == VKA_OK)
        status = vka_tensor_create(c->device, dtype, 2, shape, &t->blocks);
    if (status == VKA_OK)
        status = vka_tensor_write(t->blocks, bytes, n_block * block_bytes);
    for (size_t i = 0; status == VKA_OK && i < (size_t)rows * width; i++)
        values[i] =
            ref_block_value(dtype, bytes + i / block_values * block_bytes, i % block_values);
    free(bytes);
    free(decoded);
    return status;
}

/* How far an id lies beside the table: often right beside it. */
static double beyond(struct check *c)
{
    return rng_chance(&c->rng, 50) ? 0 : (double)rng_range(&c->rng, 0, 1u << 30);
}

static enum vka_status create(struct check *c, const struct shape_case *s, enum vka_dtype table,
                              enum vka_dtype y, struct gather_case *t, double **values)
{
    uint32_t size[4] = {0};
    const uint32_t shape[2] = {s->rows, s->width};
    for (uint32_t i = 0; i < s->rank; i++)
        size[i] = s->size[i];
    size[s->rank] = s->width;
    enum vka_status status = VKA_OK;
    *values = calloc((size_t)s->rows * s->width, sizeof **values);
    if (!*values)
        return VKA_OUT_OF_HOST_MEMORY;
    if (dtype_is_block(table)) {
        status = make_blocks(c, table, s->rows, s->width, t, *values);
    } else {
        status = model_operand(c, table, 2, shape, &t->table);
        if (status == VKA_OK)
            status = model_fill(c, &t->table, -2, 2);
        for (size_t i = 0; status == VKA_OK && i < t->table.count; i++)
            (*values)[i] = t->table.values[i];
    }
    if (status == VKA_OK)
        status = model_operand(c, VKA_I32, s->rank, s->size, &t->ids);
    for (size_t i = 0; status == VKA_OK && i < t->ids.count; i++)
        t->ids.values[i] = i % 7 == 3   ? -1 - beyond(c)
                           : i % 7 == 5 ? s->rows + beyond(c)
                                        : rng_range(&c->rng, 0, s->rows - 1);
    if (status == VKA_OK)
        status = operand_write(&t->ids);
    if (status == VKA_OK)
        status = model_operand(c, y, s->rank + 1, size, &t->y);
    t->want = calloc(t->y.count, sizeof *t->want);
    t->op.table = t->blocks ? t->blocks : t->table.view;
    t->op.ids = t->ids.view;
    t->op.output = t->y.view;
    return status == VKA_OK && !t->want ? VKA_OUT_OF_HOST_MEMORY : status;
}

/* Once more on a device whose bindings hold a slice of the table; only a large table is cut. */
static void check_slices(struct check *c, struct gather_case *t, size_t bytes, const char *text)
{
    struct vka_plan *plan = NULL;
    enum vka_status status = vka_plan_create(c->device, NULL, &plan);
    const struct shape *s = &t->op.table->shape;
    const bool far = !t->blocks && (s->size[1] - 1) * s->stride[1] * 4 >= LEAST_RANGE;
    if (bytes < 2 * LEAST_RANGE ||
        far) { /* a row alone may be too long, as its columns lie apart */
        vka_plan_destroy(&plan);
        return;
    }
    const struct vka_device_properties usual =
        limits_lower(c->device, LEAST_RANGE, LEAST_ALLOCATION);
    if (status == VKA_OK)
        status = add(plan, &t->op);
    limits_restore(c->device, &usual);
    check_cut(c, plan, status, 1, &t->y, text);
    vka_plan_destroy(&plan);
}

static void run_case(struct check *c, const struct shape_case *s, enum vka_dtype table,
                     enum vka_dtype y)
{
    struct gather_case t = {.op = {.struct_size = sizeof t.op}};
    char text[CASE_TEXT];
    double *values = NULL;
    t.op.scale = rng_chance(&c->rng, 50) ? 0 : 22.5f;
    t.op.given = rng_chance(&c->rng, 20) ? VKA_GIVEN_SCALE : 0;
    snprintf(text, sizeof text, "%ux%u %s -> %s, ids %ux%ux%u, scale %g", s->rows, s->width,
             vka_dtype_name(table), vka_dtype_name(y), s->size[0], s->size[1], s->size[2],
             (double)t.op.scale);
    enum vka_status status = create(c, s, table, y, &t, &values);
    for (size_t i = 0; status == VKA_OK && i < t.y.count; i++) {
        double id = t.ids.values[i / s->width];
        double scale = t.op.scale != 0 || t.op.given ? (double)t.op.scale : 1;
        t.want[i] =
            id < 0 || id >= s->rows ? 0 : scale * values[(size_t)id * s->width + i % s->width];
    }
    const long failed = c->n_failed;
    model_check(c, status, add, &t.op, &t.y, t.want, text);
    if (c->n_failed == failed && t.op.table)
        check_slices(c, &t, vka_tensor_size(t.op.table), text);
    operand_destroy(&t.table);
    operand_destroy(&t.ids);
    operand_destroy(&t.y);
    vka_tensor_destroy(&t.blocks);
    free(values);
    free(t.want);
}

void check_gather(struct check *c)
{
    for (size_t s = 0; s < COUNTOF(shapes); s++)
        for (EACH_TYPE(table, type_is_table))
            for (EACH_TYPE(y, dtype_is_float)) {
                uint32_t values;
                vka_dtype_block(table, &values, NULL);
                if (shapes[s].width % values == 0 && check_case(c))
                    run_case(c, &shapes[s], table, y);
            }
    const struct shape_case large = {1, {50}, 3001, 32}; /* in slices, of every type of table */
    for (EACH_TYPE(table, type_is_table)) {
        uint32_t values;
        vka_dtype_block(table, &values, NULL);
        if (large.width % values == 0 && check_case(c))
            run_case(c, &large, table, VKA_F32);
    }
}

void bench_gather(struct check *c)
{
    const uint32_t table[2] = {32000, 2048}, n = 512, y[2] = {512, 2048};
    const struct layout dense = layout_dense();
    struct gather_case t = {.op = {.struct_size = sizeof t.op}};
    enum vka_status status = operand_create(c->device, VKA_F16, 2, table, &dense, &t.table);
    if (status == VKA_OK)
        status = operand_create(c->device, VKA_I32, 1, &n, &dense, &t.ids);
    if (status == VKA_OK)
        status = operand_create(c->device, VKA_F16, 2, y, &dense, &t.y);
    t.op.table = t.table.view;
    t.op.ids = t.ids.view;
    t.op.output = t.y.view;
    model_time(c, status, add, &t.op, 4.0 * (double)t.y.count, "512 rows of 2048 f16");
    operand_destroy(&t.table);
    operand_destroy(&t.ids);
    operand_destroy(&t.y);
}
