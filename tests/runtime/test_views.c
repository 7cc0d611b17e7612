/* Reading and writing tensors through views, with and without mapped memory, against a copy of the
 * bytes on the host; operations between views that interleave in one tensor.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "patience.h"
#include "core/status.h"
#include "layers/layer_case.h"
#include "problems/limits.h"
#include "test_program.h"
#include "problems/rng.h"
#include "problems/types.h"

#define ROUNDS 150 /* a type and device */
#define MOST_BYTES 65536

/* A view as the test understands it: which element of the storage an index means. */
struct model {
    uint32_t rank, size[VKA_MAX_RANK];
    uint64_t stride[VKA_MAX_RANK], offset; /* elements */
};

static size_t model_count(const struct model *m)
{
    size_t count = 1;
    for (uint32_t i = 0; i < m->rank; i++)
        count *= m->size[i];
    return count;
}

static size_t model_at(const struct model *m, size_t element)
{
    uint64_t at = m->offset;
    for (uint32_t i = m->rank; i-- > 0; element /= m->size[i])
        at += element % m->size[i] * m->stride[i];
    return (size_t)at;
}

static struct model random_dense(struct rng *rng)
{
    struct model m = {.rank = rng_range(rng, 1, VKA_MAX_RANK)};
    uint64_t step = 1;
    for (uint32_t i = m.rank; i-- > 0; step *= m.size[i]) {
        m.size[i] = rng_range(rng, 1, 9);
        m.stride[i] = step;
    }
    return m;
}

static struct vka_tensor *permuted(struct rng *rng, struct vka_tensor *from, struct model *m)
{
    struct vka_tensor *view = NULL;
    struct model old = *m;
    uint32_t axes[VKA_MAX_RANK] = {0, 1, 2, 3};
    for (uint32_t i = m->rank; i-- > 1;) {
        uint32_t j = rng_range(rng, 0, i), swap = axes[i];
        axes[i] = axes[j];
        axes[j] = swap;
    }
    for (uint32_t i = 0; i < m->rank; i++) {
        m->size[i] = old.size[axes[i]];
        m->stride[i] = old.stride[axes[i]];
    }
    assert_int_equal(vka_tensor_permute(from, axes, &view), VKA_OK);
    return view;
}

static struct vka_tensor *sliced(struct rng *rng, struct vka_tensor *from, struct model *m)
{
    struct vka_tensor *view = NULL;
    uint32_t axis = rng_range(rng, 0, m->rank - 1);
    uint32_t first = rng_range(rng, 0, m->size[axis] - 1);
    uint32_t count = rng_range(rng, 1, m->size[axis] - first);
    m->offset += first * m->stride[axis];
    m->size[axis] = count;
    assert_int_equal(vka_tensor_slice(from, axis, first, count, &view), VKA_OK);
    return view;
}

/* Every step-th element of each axis, by strides. */
static struct vka_tensor *strided(struct rng *rng, struct vka_tensor *from, struct model *m)
{
    struct vka_tensor *view = NULL;
    uint64_t offset = 0;
    for (uint32_t i = 0; i < m->rank; i++) {
        uint32_t first = rng_range(rng, 0, m->size[i] - 1), step = rng_range(rng, 1, 3);
        offset += first * m->stride[i];
        m->size[i] = (m->size[i] - first + step - 1) / step;
        m->stride[i] *= step;
    }
    assert_int_equal(vka_tensor_strided(from, offset, m->rank, m->size, m->stride, &view), VKA_OK);
    m->offset += offset;
    return view;
}

/* One axis split in two, or two evenly spaced ones merged; NULL where nothing fits. */
static struct vka_tensor *reshaped(struct rng *rng, struct vka_tensor *from, struct model *m)
{
    struct vka_tensor *view = NULL;
    uint32_t axis = rng_range(rng, 0, m->rank - 1);
    struct model to = *m;
    if (m->rank < VKA_MAX_RANK && m->size[axis] % 2 == 0) {
        for (uint32_t i = to.rank++; i > axis; i--) {
            to.size[i] = to.size[i - 1];
            to.stride[i] = to.stride[i - 1];
        }
        to.size[axis] = 2;
        to.size[axis + 1] /= 2;
        to.stride[axis] = to.size[axis + 1] * to.stride[axis + 1];
    } else if (axis > 0 && m->stride[axis - 1] == m->size[axis] * m->stride[axis]) {
        to.size[axis - 1] *= to.size[axis];
        to.stride[axis - 1] = to.stride[axis];
        to.rank--;
        for (uint32_t i = axis; i < to.rank; i++) {
            to.size[i] = to.size[i + 1];
            to.stride[i] = to.stride[i + 1];
        }
    } else {
        return NULL;
    }
    *m = to;
    assert_int_equal(vka_tensor_reshape(from, to.rank, to.size, &view), VKA_OK);
    return view;
}

static struct vka_tensor *derive(struct rng *rng, struct vka_tensor *from, struct model *m)
{
    switch (rng_range(rng, 0, 3)) {
    case 0:
        return permuted(rng, from, m);
    case 1:
        return sliced(rng, from, m);
    case 2:
        return strided(rng, from, m);
    default:
        return reshaped(rng, from, m);
    }
}

static void random_bytes(struct rng *rng, uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)rng_next(rng);
}

/* Writes and reads the view; image is what the whole storage should hold. */
static void exchange(struct rng *rng, struct vka_tensor *base, struct vka_tensor *view,
                     const struct model *m, uint8_t *image)
{
    static uint8_t data[MOST_BYTES], got[MOST_BYTES];
    size_t size = vka_dtype_size(vka_tensor_dtype(view)), n = model_count(m);
    assert_int_equal(vka_tensor_rank(view), m->rank);
    for (uint32_t i = 0; i < m->rank; i++)
        assert_int_equal(vka_tensor_shape(view, i), m->size[i]);
    assert_int_equal(vka_tensor_count(view), n);
    assert_int_equal(vka_tensor_size(view), n * size);
    random_bytes(rng, data, n * size);
    assert_int_equal(vka_tensor_write(view, data, n * size), VKA_OK);
    for (size_t e = 0; e < n; e++)
        memcpy(image + model_at(m, e) * size, data + e * size, size);
    assert_int_equal(vka_tensor_read(view, got, n * size), VKA_OK);
    assert_memory_equal(got, data, n * size);
    assert_int_equal(vka_tensor_read(base, got, vka_tensor_size(base)), VKA_OK);
    assert_memory_equal(got, image, vka_tensor_size(base));
}

static void one_round(struct rng *rng, struct vka_device *device, enum vka_dtype dtype)
{
    static uint8_t image[MOST_BYTES];
    struct model m = random_dense(rng);
    struct vka_tensor *base = NULL, *view = NULL;
    assert_int_equal(vka_tensor_create(device, dtype, m.rank, m.size, &base), VKA_OK);
    assert_true(vka_tensor_size(base) <= MOST_BYTES);
    random_bytes(rng, image, vka_tensor_size(base));
    assert_int_equal(vka_tensor_write(base, image, vka_tensor_size(base)), VKA_OK);
    exchange(rng, base, base, &m, image);
    for (int i = 0; i < 4; i++) { /* views of views */
        struct vka_tensor *next = derive(rng, view ? view : base, &m);
        if (!next)
            continue;
        vka_tensor_destroy(&view);
        view = next;
        exchange(rng, base, view, &m, image);
    }
    vka_tensor_destroy(&view);
    vka_tensor_destroy(&base);
}

static void all_types(bool mapped)
{
    struct vka_device *device = NULL;
    const struct vka_device_info info =
        limits_info(*VKA_INFO(vka_device_info, .no_mapped_memory = !mapped));
    assert_int_equal(vka_device_create(&info, &device), VKA_OK);
    if (mapped && !vka_device_properties(device)->mapped_memory)
        print_message("this device has no mapped memory: staged once more\n");
    assert_true(mapped || !vka_device_properties(device)->mapped_memory);
    for (int dtype = 0; dtype < VKA_DTYPE_COUNT; dtype++) {
        if (!vka_dtype_size((enum vka_dtype)dtype))
            continue; /* test_blocks */
        struct rng rng = {(uint64_t)dtype};
        for (int i = 0; i < ROUNDS; i++)
            one_round(&rng, device, (enum vka_dtype)dtype);
    }
    vka_device_destroy(&device);
}

static void mapped(void **state)
{
    (void)state;
    all_types(true);
}

static void staged(void **state)
{
    (void)state;
    all_types(false);
}

/* More than the staging buffer holds at once, and at an odd offset. */
static void large(void **state)
{
    (void)state;
    const uint32_t n = (33u << 20) + 5;
    struct vka_device *device = NULL;
    struct vka_tensor *base = NULL, *view = NULL;
    struct rng rng = {7};
    uint8_t *data = malloc(n), *got = malloc(n);
    assert_non_null(data);
    assert_non_null(got);
    random_bytes(&rng, data, n);
    assert_int_equal(
        vka_device_create(VKA_INFO(vka_device_info, .no_mapped_memory = true), &device), VKA_OK);
    assert_int_equal(vka_tensor_create(device, VKA_BOOL, 1, &n, &base), VKA_OK);
    assert_int_equal(vka_tensor_write(base, data, n), VKA_OK);
    assert_int_equal(vka_tensor_read(base, got, n), VKA_OK);
    assert_memory_equal(got, data, n);
    assert_int_equal(vka_tensor_slice(base, 0, 3, n - 4, &view), VKA_OK);
    memset(data + 3, 0x5a, n - 4);
    assert_int_equal(vka_tensor_write(view, data + 3, n - 4), VKA_OK);
    assert_int_equal(vka_tensor_read(base, got, n), VKA_OK);
    assert_memory_equal(got, data, n);
    vka_tensor_destroy(&view);
    vka_tensor_destroy(&base);
    vka_device_destroy(&device);
    free(data);
    free(got);
}

/* Zero strides repeat what is read. */
static void repeated(void **state)
{
    (void)state;
    for (int staged_too = 0; staged_too < 2; staged_too++) {
        struct vka_device *device = NULL;
        struct vka_tensor *base = NULL, *view = NULL;
        const uint32_t three = 3, shape[] = {2, 3, 2};
        const uint64_t strides[] = {0, 1, 0};
        const uint16_t data[] = {11, 22, 33};
        const uint16_t want[] = {11, 11, 22, 22, 33, 33, 11, 11, 22, 22, 33, 33};
        uint16_t got[12];
        assert_int_equal(
            vka_device_create(VKA_INFO(vka_device_info, .no_mapped_memory = staged_too), &device),
            VKA_OK);
        assert_int_equal(vka_tensor_create(device, VKA_F16, 1, &three, &base), VKA_OK);
        assert_int_equal(vka_tensor_write(base, data, sizeof data), VKA_OK);
        assert_int_equal(vka_tensor_strided(base, 0, 3, shape, strides, &view), VKA_OK);
        vka_tensor_destroy(&base); /* the view keeps the storage */
        assert_int_equal(vka_tensor_read(view, got, sizeof got), VKA_OK);
        assert_memory_equal(got, want, sizeof want);
        vka_tensor_destroy(&view);
        vka_device_destroy(&device);
    }
}

/* ---- Operations between views of one tensor -------------------------------------------------- */

#define OPERANDS 4 /* q, k, v and the output */
#define ROWS 5
#define WIDTH 6

/* [1][2][ROWS][OPERANDS * WIDTH]: operand p is every fourth column from p on, or WIDTH columns in a row.
 * Elements of a word, of 16 bits, may be of two operands. */
static struct vka_tensor *operand_of(struct vka_tensor *base, uint32_t p, bool side_by_side)
{
    const uint32_t shape[] = {1, 2, ROWS, WIDTH};
    const uint64_t strides[] = {0, ROWS * OPERANDS * WIDTH, OPERANDS * WIDTH,
                                side_by_side ? 1 : OPERANDS};
    struct vka_tensor *view = NULL;
    assert_int_equal(
        vka_tensor_strided(base, side_by_side ? p * WIDTH : p, 4, shape, strides, &view), VKA_OK);
    return view;
}

/* Attention from three operands to the fourth, with keys that are all zero: each output row is the
 * mean of the values, which are whole numbers with a whole mean, exact in every type. */
static void attend_in_place(struct vka_device *device, enum vka_dtype dtype, enum vka_path path,
                            bool side_by_side)
{
    static const uint16_t bits16[2][6] = {{0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500},
                                          {0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0}}; /* 0 .. 5 */
    const uint32_t shape[] = {1, 2, ROWS, OPERANDS * WIDTH};
    const size_t size = vka_dtype_size(dtype);
    uint8_t data[2 * ROWS * OPERANDS * WIDTH * 4], want[sizeof data], got[sizeof data];
    struct vka_tensor *base = NULL, *operand[OPERANDS];
    struct vka_plan *plan = NULL;
    for (uint32_t e = 0; e < 2 * ROWS * OPERANDS * WIDTH; e++) {
        const uint32_t column = e % (OPERANDS * WIDTH), row = e / (OPERANDS * WIDTH) % ROWS;
        const uint32_t p = side_by_side ? column / WIDTH : column % OPERANDS;
        const unsigned before = p == 1 ? 0 : p == 2 ? row : p == 0 ? 3 : 5; /* k 0, v 0 .. 4 */
        for (int after = 0; after < 2; after++) {
            const unsigned x = after && p == 3 ? 2 : before;
            const float x32 = (float)x;
            uint8_t *to = (after ? want : data) + e * size;
            memcpy(to, dtype == VKA_F32 ? (const void *)&x32 : &bits16[dtype == VKA_BF16][x], size);
        }
    }
    const size_t bytes = 2 * ROWS * OPERANDS * WIDTH * size;
    assert_int_equal(vka_tensor_create(device, dtype, 4, shape, &base), VKA_OK);
    assert_int_equal(vka_tensor_write(base, data, bytes), VKA_OK);
    for (uint32_t p = 0; p < OPERANDS; p++)
        operand[p] = operand_of(base, p, side_by_side);
    assert_int_equal(vka_plan_create(device, VKA_INFO(vka_plan_info, .path = path), &plan), VKA_OK);
    assert_int_equal(
        vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = operand[0], .k = operand[1],
                                              .v = operand[2], .output = operand[3])),
        VKA_OK);
    assert_int_equal(vka_plan_finish(plan), VKA_OK);
    assert_int_equal(vka_plan_run(plan, PATIENCE), VKA_OK);
    assert_int_equal(vka_tensor_read(base, got, bytes), VKA_OK);
    assert_memory_equal(got, want, bytes);
    vka_plan_destroy(&plan);
    for (uint32_t p = 0; p < OPERANDS; p++)
        vka_tensor_destroy(&operand[p]);
    vka_tensor_destroy(&base);
}

static void in_place(void **state)
{
    (void)state;
    struct vka_device *device = NULL;
    const struct vka_device_info info = limits_info(*VKA_INFO(vka_device_info, 0));
    assert_int_equal(vka_device_create(&info, &device), VKA_OK);
    for (EACH_TYPE(dtype, dtype_is_float))
        for (int path = VKA_PATH_UNFUSED; path <= VKA_PATH_FUSED; path++)
            for (int side_by_side = 0; side_by_side < 2; side_by_side++)
                attend_in_place(device, dtype, (enum vka_path)path, side_by_side);
    vka_device_destroy(&device);
}

TEST_PROGRAM(views)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mapped),   cmocka_unit_test(staged),   cmocka_unit_test(large),
        cmocka_unit_test(repeated), cmocka_unit_test(in_place),
    };
    if (!have_device("reading and writing tensors"))
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
