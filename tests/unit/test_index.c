/* Tensors of more than 2^31 and 2^32 elements, on a device whose memory is made up: kernels count
 * in 32 bits, so each pass has to show them few enough, and all passes together the whole, or the
 * plan is refused with a sentence. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/block_grid.h"
#include "core/dtype.h"
#include "core/os.h"
#include "params/params.h"
#include "params/strided.h"
#include "op/cache/hadamard.h"
#include "op/common/copy.h"
#include "op/common/nonfinite.h"
#include "op/rotary/heads.h"
#include "huge_devices.h"
#include "index_draw.h"
#include "index_passes.h"
#include "test_program.h"
#include "tune_devices.h"

static void draw_copy(struct vka_device *device, struct vka_plan *plan, struct vka_tensor *t[4],
                      struct made *made)
{
    struct plan_mark mark;
    uint32_t size[4];
    draw_shape(size, 20, 36);
    struct vka_tensor *from = t[0] = draw_tensor(device, below(2) ? VKA_F32 : VKA_BF16, size, true);
    struct vka_tensor *to = t[1] = draw_tensor(device, below(2) ? VKA_F32 : VKA_F16, size, false);
    if (!from || !to)
        return;
    assert_int_equal(plan_begin(plan, __func__, &mark), VKA_OK);
    if (is_made(device, plan_end(plan, &mark, plan_copy(plan, "copy", from, to)))) {
        add_made(made, to);
        assert_true(check_passes(plan).copied == (double)shape_count(&to->shape));
    }
}

static void copies(void **state)
{
    (void)state;
    draw_plans(400, false, draw_copy);
}

static void draw_tiles(struct vka_device *device, struct vka_plan *plan, struct vka_tensor *t[4],
                       struct made *made)
{
    struct plan_mark mark;
    const uint32_t tile = below(2) ? ADDRESS_COLUMNS : TEXEL_COLUMNS;
    uint32_t size[4];
    draw_shape(size, 20, 36);
    const uint64_t row = (uint64_t)size[3] * tile;
    const uint32_t n = (size[2] - 1) / tile + 1;
    struct vka_tensor *from = t[0] = draw_tensor(device, VKA_F16, size, true);
    if (!from || row > UINT32_MAX ||
        vka_tensor_create(device, VKA_F32, 4,
                          (const uint32_t[]){size[0], size[1], n, (uint32_t)row}, &t[1]) != VKA_OK)
        return;
    assert_int_equal(plan_begin(plan, __func__, &mark), VKA_OK);
    if (is_made(device,
                plan_end(plan, &mark, plan_copy_to_tiles(plan, "pack", from, t[1], tile)))) {
        add_made(made, from);
        assert_true(check_passes(plan).copied == (double)shape_count(&from->shape));
    }
}

static void tiles(void **state)
{
    (void)state;
    draw_plans(200, false, draw_tiles);
}

/* Invocations of a pass reach all its features, and no number of one wraps in 32 bits. */
static double count_hadamard(const struct vka_plan *plan)
{
    double features = 0;
    for (size_t i = 0; i < plan->n_pass; i++) {
        const struct pass *pass = &plan->passes[i];
        struct hadamard_params p;
        memcpy(&p, pass->push, sizeof p);
        const uint64_t n = (uint64_t)p.n_row * p.head_dim;
        const uint64_t lanes = (uint64_t)pass->groups[0] * HADAMARD_LANES;
        const uint32_t size[4] = {pass->groups[2], pass->groups[1], p.n_row, p.head_dim};
        const struct strided_params place = {p.to_offset, p.to_batch, p.to_head, p.to_row,
                                             p.to_col};
        const bool pairs = are_words(pass->key.spec[HADAMARD_TO_TYPE], size, &place);
        assert_int_equal(pass->key.spec[HADAMARD_PAIRS], pairs);
        assert_true(n <= lanes * (pairs ? 2 : 1) && lanes <= 1ull << 32 &&
                    p.head_dim % p.block == 0);
        assert_true((uint64_t)p.row_first + p.n_row <= UINT32_MAX);
        features += (double)n * pass->groups[1] * pass->groups[2];
    }
    check_passes(plan);
    return features;
}

static void draw_hadamard(struct vka_device *device, struct vka_plan *plan, struct vka_tensor *t[4],
                          struct made *made)
{
    struct plan_mark mark;
    uint32_t size[4], block = 1;
    draw_shape(size, 20, 36);
    while (size[3] % (2 * block) == 0 && below(4))
        block *= 2;
    t[0] = draw_tensor(device, below(2) ? VKA_F32 : VKA_F16, size, true);
    t[1] = draw_tensor(device, below(2) ? VKA_F32 : VKA_BF16, size, false);
    if (!t[0] || !t[1])
        return;
    assert_int_equal(plan_begin(plan, __func__, &mark), VKA_OK);
    if (is_made(device,
                plan_end(plan, &mark, plan_hadamard(plan, "hadamard", block, NULL, t[0], t[1])))) {
        add_made(made, t[1]);
        assert_true(count_hadamard(plan) == (double)shape_count(&t[1]->shape));
    }
}

static void hadamards(void **state)
{
    (void)state;
    draw_plans(200, false, draw_hadamard);
}

static void draw_count(struct vka_device *device, struct vka_plan *plan, struct vka_tensor *t[4],
                       struct made *made)
{
    struct plan_mark mark;
    uint32_t size[4];
    draw_shape(size, 20, 36);
    t[0] = draw_tensor(device, below(2) ? VKA_F32 : VKA_F16, size, false);
    if (!t[0])
        return;
    assert_int_equal(plan_begin(plan, __func__, &mark), VKA_OK);
    if (is_made(device, plan_end(plan, &mark, plan_count_nonfinite(plan, "output", t[0])))) {
        add_made(made, t[0]);
        assert_true(check_passes(plan).scanned == (double)shape_count(&t[0]->shape));
    }
}

static void counts(void **state)
{
    (void)state;
    draw_plans(200, true, draw_count);
}

static void draw_rotation(struct vka_device *device, struct vka_plan *plan, struct vka_tensor *t[4],
                          struct made *made)
{
    struct plan_mark mark;
    uint32_t size[4];
    draw_shape(size, 20, 36);
    t[0] = draw_tensor(device, VKA_F16, size, true);
    if (!t[0])
        return;
    struct vka_tensor rotated = *t[0];
    const struct vka_rope rope = {.dim = size[3] / 2 * 2};
    assert_int_equal(plan_begin(plan, __func__, &mark), VKA_OK);
    enum vka_status status = plan_end(
        plan, &mark, plan_rotary(plan, "rotate", &rope, NULL, 0, NULL, NULL, 0, VKA_F32, &rotated));
    if (size[2] <= INT32_MAX && is_made(device, status)) {
        add_made(made, t[0]);
        assert_true(check_passes(plan).rotated == (double)shape_count(&t[0]->shape));
    }
}

static void rotations(void **state)
{
    (void)state;
    draw_plans(200, false, draw_rotation);
}

/* Rows so long that the words of their frequencies would wrap 2^32. */
static void longest_row(void **state)
{
    (void)state;
    const uint32_t one[4] = {1, 1, 1, 1}, size[4] = {1, 1, 1, UINT32_MAX - 1};
    struct vka_tensor *base = NULL, *row = NULL;
    assert_int_equal(vka_tensor_create(&huge_devices[0], VKA_F32, 4, one, &base), VKA_OK);
    assert_int_equal(vka_tensor_strided(base, 0, 4, size, (const uint64_t[4]){0}, &row), VKA_OK);
    struct vka_plan *plan = new_plan(&huge_devices[0], false);
    struct plan_mark mark;
    struct vka_tensor rotated = *row;
    const struct vka_rope rope = {.dim = UINT32_MAX - 1};
    assert_int_equal(plan_begin(plan, __func__, &mark), VKA_OK);
    assert_int_equal(
        plan_end(plan, &mark,
                 plan_rotary(plan, "rotate", &rope, NULL, 0, NULL, NULL, 0, VKA_F32, &rotated)),
        VKA_UNSUPPORTED);
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&base);
    vka_tensor_destroy(&row);
}

static void draw_product(struct vka_device *device, struct vka_plan *plan, struct vka_tensor *t[4],
                         struct made *made)
{
    uint32_t batch = any_size(12), m = any_size(20), n = any_size(20), k = any_size(14);
    const uint32_t x_size[4] = {1, batch, m, k}, w_size[4] = {1, 1, n, k};
    const uint32_t y_size[4] = {1, batch, m, n};
    struct vka_tensor *x = t[0] = draw_tensor(device, VKA_F16, x_size, true);
    struct vka_tensor *w = t[1] = draw_tensor(device, VKA_F32, w_size, true);
    struct vka_tensor *y = t[2] = draw_tensor(device, VKA_F16, y_size, false);
    if (x && w && y && vka_tensor_reshape(w, 2, w_size + 2, &t[3]) == VKA_OK &&
        is_made(device, vka_plan_add_linear(plan, VKA_INFO(vka_linear_op, .input = x,
                                                           .weight = t[3], .output = y)))) {
        add_made(made, y);
        assert_true(check_passes(plan).multiplied == (double)batch * m * n * k);
    }
}

static void products(void **state)
{
    (void)state;
    draw_plans(200, false, draw_product);
}

/* A product with quantised activations. */
static void draw_integers(struct vka_device *device, struct vka_plan *plan, struct vka_tensor *t[4],
                          struct made *made)
{
    uint32_t batch = any_size(12), m = any_size(20), n = any_size(16), k = 32 * any_size(10);
    const uint32_t x_size[4] = {1, batch, m, k}, w_size[2] = {n, k}, y_size[4] = {1, batch, m, n};
    struct vka_tensor *x = t[0] = draw_tensor(device, VKA_F16, x_size, true);
    struct vka_tensor *y = t[1] = draw_tensor(device, VKA_F16, y_size, false);
    if (x && y && vka_tensor_create(device, VKA_Q8_0, 2, w_size, &t[2]) == VKA_OK &&
        is_made(device,
                vka_plan_add_linear(plan, VKA_INFO(vka_linear_op, .input = x, .weight = t[2],
                                                   .output = y, .activations = VKA_I8)))) {
        add_made(made, x);
        assert_true(check_passes(plan).multiplied == (double)batch * m * n * k);
    }
}

static void integers(void **state)
{
    (void)state;
    draw_plans(200, false, draw_integers);
}

/* Every path, looked at from outside: grids and bindings, and what lies between. */
static void draw_attention(struct vka_device *device, struct vka_plan *plan,
                           struct vka_tensor *t[4], struct made *made)
{
    uint32_t batch = any_size(16), group = any_size(4), heads = any_size(8);
    uint32_t n_q = any_size(18), n_kv = any_size(18), dim = 4 * any_size(6);
    const uint32_t q_size[4] = {batch, heads * group, n_q, dim};
    const uint32_t k_size[4] = {batch, heads, n_kv, dim};
    struct vka_tensor *q = t[0] = draw_tensor(device, VKA_F16, q_size, true);
    struct vka_tensor *k = t[1] = draw_tensor(device, VKA_F16, k_size, true);
    struct vka_tensor *o = t[2] = draw_tensor(device, VKA_F16, q_size, false);
    plan->path = (enum vka_path)below(VKA_PATH_COUNT);
    if (q && k && o &&
        is_made(device, vka_plan_add_attention(
                            plan, VKA_INFO(vka_attention_op, .q = q, .k = k, .v = k, .output = o,
                                           .options.causal = true, .options.rope.dim = dim)))) {
        add_made(made, q);
        struct counted sum = check_passes(plan);
        assert_true(sum.scanned == (double)shape_count(&o->shape));
        assert_true(sum.rotated == (double)shape_count(&q->shape) + shape_count(&k->shape));
    }
}

static void attentions(void **state)
{
    (void)state;
    draw_plans(200, true, draw_attention);
}

/* A step with a cache: rotated by the pass that appends, or before it where that has no room. */
static void draw_append(struct vka_device *device, struct vka_plan *plan, struct vka_tensor *t[4],
                        struct made *made)
{
    uint32_t batch = any_size(8), group = any_size(6), heads = any_size(8), n = any_size(16);
    uint32_t dim = 4 * any_size(6);
    const uint32_t q_size[4] = {batch, heads * group, n, dim}, k_size[4] = {batch, heads, n, dim};
    struct vka_tensor *q = t[0] = draw_tensor(device, VKA_F16, q_size, true);
    struct vka_tensor *k = t[1] = draw_tensor(device, VKA_F16, k_size, true);
    struct vka_tensor *o = t[2] = draw_tensor(device, VKA_F16, q_size, false);
    struct vka_cache *cache = NULL;
    enum vka_status status =
        vka_cache_create(device,
                         VKA_INFO(vka_cache_info, .batch = batch, .n_kv_head = heads,
                                  .head_dim = dim, .key_dtype = below(2) ? VKA_F16 : VKA_F32,
                                  .value_dtype = below(2) ? VKA_BF16 : VKA_F32,
                                  .capacity = n + any_size(12), .page_size = below(2) ? 16 : 0),
                         &cache);
    if (q && k && o && is_made(device, status) &&
        is_made(device,
                vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = q, .k = k, .v = k,
                                                      .output = o, .cache = cache,
                                                      .options.rope.dim = dim - 2 * below(2))))) {
        const double queries = (double)shape_count(&q->shape),
                     keys = (double)shape_count(&k->shape);
        const struct counted sum = check_passes(plan);
        add_made(made, q);
        assert_true(sum.rotated + sum.appended == queries + keys + (sum.rotated != 0 ? keys : 0));
    }
    vka_cache_destroy(&cache);
}

static void appends_drawn(void **state)
{
    (void)state;
    draw_plans(400, false, draw_append);
}

/* One element in place of any number. */
static struct vka_tensor *shared_element(struct vka_device *device, uint32_t rank,
                                         const uint32_t *size)
{
    struct vka_tensor *base = NULL, *view = NULL;
    assert_int_equal(vka_tensor_create(device, VKA_F16, 1, (const uint32_t[]){1}, &base), VKA_OK);
    assert_int_equal(vka_tensor_strided(base, 0, rank, size, (const uint64_t[4]){0}, &view),
                     VKA_OK);
    vka_tensor_destroy(&base);
    return view;
}

/* Sizes past which positions wrap int32, or batch times heads uint32: on any path. */
static void past_int32(void **state)
{
    (void)state;
    static const struct {
        uint32_t batch, heads, n_q, n_kv;
    } cases[] = {
        {1, 1, 1, (1u << 30) + 1},
        {1, 1, 1u << 30, 1},
        {1u << 17, 1u << 15, 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int path = 0; path < VKA_PATH_COUNT; path++) {
            struct vka_device *device = &huge_devices[1];
            const uint32_t q_size[4] = {cases[i].batch, cases[i].heads, cases[i].n_q, 1};
            const uint32_t k_size[4] = {cases[i].batch, cases[i].heads, cases[i].n_kv, 1};
            struct vka_tensor *q = shared_element(device, 4, q_size);
            struct vka_tensor *k = shared_element(device, 4, k_size), *o = NULL;
            assert_int_equal(vka_tensor_create(device, VKA_F16, 4, q_size, &o), VKA_OK);
            struct vka_plan *plan = new_plan(device, false);
            plan->path = (enum vka_path)path;
            assert_int_equal(vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = q, .k = k,
                                                                   .v = k, .output = o)),
                             VKA_INVALID);
            vka_plan_destroy(&plan);
            vka_tensor_destroy(&q);
            vka_tensor_destroy(&k);
            vka_tensor_destroy(&o);
        }
}

/* A layer whose keys pass 2^31: the kernels would take their number for negative, and see none. */
static void layer_past_int32(void **state)
{
    (void)state;
    struct vka_device *device = &huge_devices[0];
    const float one[1] = {1};
    const struct vka_linear_weights w = {.weight = one};
    struct vka_layer *layer = NULL;
    assert_int_equal(vka_layer_create(device,
                                      VKA_INFO(vka_layer_info, .n_head = 1, .head_dim = 1,
                                               .query_dim = 1, .query = w, .key = w, .value = w),
                                      &layer),
                     VKA_OK);
    struct vka_tensor *q = shared_element(device, 3, (const uint32_t[]){1, 1, 1}), *o = NULL;
    struct vka_tensor *k = shared_element(device, 3, (const uint32_t[]){1, (1u << 31) + 5, 1});
    assert_int_equal(vka_tensor_create(device, VKA_F16, 3, (const uint32_t[]){1, 1, 1}, &o),
                     VKA_OK);
    struct vka_plan *plan = new_plan(device, false);
    assert_int_equal(vka_plan_add_layer(plan, VKA_INFO(vka_layer_op, .layer = layer, .query = q,
                                                       .key = k, .output = o)),
                     VKA_INVALID);
    vka_plan_destroy(&plan);
    vka_layer_destroy(&layer);
    vka_tensor_destroy(&q);
    vka_tensor_destroy(&k);
    vka_tensor_destroy(&o);
}

/* More elements than 2^32 appended to a paged cache whose entries all name one page. */
static void appends(void **state)
{
    (void)state;
    struct vka_device *device = &huge_devices[0];
    struct vka_cache *cache = NULL;
    const uint32_t q_size[4] = {1, 1, 1, 8}, k_size[4] = {1, 1, 1u << 29, 8};
    assert_int_equal(
        vka_cache_create(device,
                         VKA_INFO(vka_cache_info, .batch = 1, .n_kv_head = 1, .head_dim = 8,
                                  .capacity = 1u << 29, .page_size = 256, .n_page = 1),
                         &cache),
        VKA_OK);
    struct vka_tensor *q = shared_element(device, 4, q_size);
    struct vka_tensor *k = shared_element(device, 4, k_size), *o = NULL;
    assert_int_equal(vka_tensor_create(device, VKA_F16, 4, q_size, &o), VKA_OK);
    struct vka_plan *plan = new_plan(device, false);
    plan->path = VKA_PATH_FUSED;
    if (is_made(device,
                vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = q, .k = k, .v = k,
                                                      .output = o, .cache = cache))))
        check_passes(plan);
    vka_plan_destroy(&plan);
    vka_cache_destroy(&cache);
    vka_tensor_destroy(&q);
    vka_tensor_destroy(&k);
    vka_tensor_destroy(&o);
}

static void add_grid_product(struct vka_plan *plan, enum vka_dtype type)
{
    struct vka_tensor *x = NULL, *w = NULL, *y = NULL;
    const uint32_t rows[2] = {1, 256}, size[2] = {8, 256}, results[2] = {1, 8};
    assert_int_equal(vka_tensor_create(plan->device, VKA_F32, 2, rows, &x), VKA_OK);
    assert_int_equal(vka_tensor_create(plan->device, type, 2, size, &w), VKA_OK);
    assert_int_equal(vka_tensor_create(plan->device, VKA_F32, 2, results, &y), VKA_OK);
    assert_int_equal(
        vka_plan_add_linear(plan, VKA_INFO(vka_linear_op, .input = x, .weight = w, .output = y)),
        VKA_OK);
    vka_tensor_destroy(&x);
    vka_tensor_destroy(&w);
    vka_tensor_destroy(&y);
}

/* Where the last pass finds the grid of a type. */
static uint64_t grid_of(const struct vka_plan *plan, enum vka_dtype type)
{
    const struct binding *b = &plan->passes[plan->n_pass - 1].bindings[6];
    const size_t bytes = 16 * GRID_VECTORS(type);
    assert_ptr_equal(b->storage, plan->constants.storage);
    assert_true(b->size >= bytes && b->offset + bytes <= plan->constants.used);
    assert_memory_equal(plan->constants.bytes + b->offset, block_grid(type), bytes);
    return b->offset;
}

/* A plan has the grid of a type once, and again where that of an operation that was taken back lay. */
static void grids(void **state)
{
    (void)state;
    struct vka_plan *plan = new_plan(&huge_devices[0], false);
    add_grid_product(plan, VKA_IQ3_S);
    const uint64_t first = grid_of(plan, VKA_IQ3_S), used = plan->constants.used;
    add_grid_product(plan, VKA_IQ3_S);
    assert_true(grid_of(plan, VKA_IQ3_S) == first && plan->constants.used == used);
    add_grid_product(plan, VKA_IQ1_M);
    assert_true(grid_of(plan, VKA_IQ1_M) >= used);
    check_passes(plan);
    plan->constants.used = 0; /* as after all of them failed */
    add_grid_product(plan, VKA_IQ2_XXS);
    grid_of(plan, VKA_IQ2_XXS);
    add_grid_product(plan, VKA_IQ3_S);
    assert_true(grid_of(plan, VKA_IQ3_S) > 0);
    vka_plan_destroy(&plan);
}

TEST_PROGRAM(index)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies),           cmocka_unit_test(tiles),
        cmocka_unit_test(counts),           cmocka_unit_test(rotations),
        cmocka_unit_test(products),         cmocka_unit_test(integers),
        cmocka_unit_test(attentions),       cmocka_unit_test(appends_drawn),
        cmocka_unit_test(longest_row),      cmocka_unit_test(past_int32),
        cmocka_unit_test(layer_past_int32), cmocka_unit_test(appends),
        cmocka_unit_test(hadamards),        cmocka_unit_test(grids),
    };
    return cmocka_run_group_tests(tests, huge_devices_make, huge_devices_free);
}
