/* What the passes of a plan count in 32 bits. SPDX-License-Identifier: MIT */
#include "index_passes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "core/dtype.h"
#include "params/params.h"
#include "params/model.h"
#include "op/common/nonfinite.h"

#define LANES 64u /* invocations of a workgroup of rope, nonfinite and the caches */

/* ---- What a pass counts ----------------------------------------------------------------------- */

/* Whether every element that an operand's offset and strides reach lies in its binding, as 64 bits
 * count them. A stride that 32 bits cut would belong to an axis that reaches further. */
void check_operand(const struct binding *b, enum vka_dtype dtype, uint64_t offset,
                   const uint32_t size[4], const uint32_t stride[4])
{
    uint64_t last = offset;
    for (int i = 0; i < 4; i++)
        last += (size[i] - 1ull) * stride[i];
    assert_true(last <= UINT32_MAX);
    assert_true((last + 1) * vka_dtype_size(dtype) <= b->size);
}

bool are_words(uint32_t dtype, const uint32_t size[4], const struct strided_params *s)
{
    const uint32_t stride[3] = {s->stride0, s->stride1, s->stride2};
    bool words = dtype != VKA_F32 && s->stride3 == 1 && size[3] % 2 == 0 && s->offset % 2 == 0;
    for (int i = 0; i < 3; i++)
        words &= size[i] == 1 || stride[i] % 2 == 0;
    return words;
}

static double check_copy(const struct pass *pass)
{
    struct copy_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t size[4] = {p.shape0, p.shape1, p.shape2, p.shape3};
    const uint32_t from[4] = {p.from0, p.from1, p.from2, p.from3};
    /* Axis 2 as tiles and what is in one. */
    const uint32_t tiles = (p.shape2 - 1) / p.tile + 1;
    const uint32_t in_tile = p.shape2 < p.tile ? p.shape2 : p.tile;
    const uint32_t outer[4] = {p.shape0, p.shape1, tiles, p.shape3};
    const uint32_t to[4] = {p.to0, p.to1, p.to_tile, p.to3};
    check_operand(&pass->bindings[0], pass->key.spec[COPY_FROM_TYPE], p.from_offset, size, from);
    check_operand(&pass->bindings[1], pass->key.spec[COPY_TO_TYPE],
                  p.to_offset + (in_tile - 1ull) * p.to2, outer, to);
    assert_true((uint64_t)pass->groups[0] * COPY_LANES <= 1ull << 32);
    const struct strided_params place = {p.to_offset, p.to0, p.to1, p.to2, p.to3};
    const bool pairs =
        p.tile == UINT32_MAX && are_words(pass->key.spec[COPY_TO_TYPE], size, &place);
    assert_int_equal(pass->key.spec[COPY_PAIRS], pairs);
    assert_true((uint64_t)pass->groups[0] * COPY_LANES * (pairs ? 2 : 1) >= p.shape3);
    assert_true((uint64_t)pass->groups[1] * COPY_EACH >= p.shape2);
    assert_true(pass->groups[2] == (uint64_t)p.shape0 * p.shape1);
    return (double)p.shape0 * p.shape1 * p.shape2 * p.shape3;
}

static double check_nonfinite(const struct pass *pass)
{
    struct nonfinite_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t size[4] = {p.shape0, p.shape1, p.shape2, p.shape3};
    const uint32_t from[4] = {p.from0, p.from1, p.from2, p.from3};
    const double n = (double)p.shape0 * p.shape1 * p.shape2 * p.shape3;
    check_operand(&pass->bindings[0], pass->key.spec[NONFINITE_TYPE], p.from_offset, size, from);
    assert_true(n <= UINT32_MAX);
    assert_true((p.first + (uint64_t)pass->groups[0] * LANES) * 8 <= pass->bindings[1].size);
    return n;
}

static double check_rope(const struct pass *pass)
{
    struct rope_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t size[4] = {p.batch, p.n_head, p.n_row, p.head_dim};
    const uint32_t from[4] = {p.from_batch, p.from_head, p.from_row, p.from_col};
    const uint32_t to[4] = {p.to_batch, p.to_head, p.to_row, p.to_col};
    check_operand(&pass->bindings[0], pass->key.spec[ROPE_FROM_TYPE], p.from_offset, size, from);
    check_operand(&pass->bindings[1], pass->key.spec[ROPE_TO_TYPE], p.to_offset, size, to);
    assert_true((double)p.n_head * p.n_row <= (double)UINT32_MAX);
    assert_true((uint64_t)pass->groups[0] * LANES >= (uint64_t)p.n_head * p.n_row);
    assert_true((uint64_t)pass->groups[0] * LANES <= 1ull << 32);
    assert_int_equal(pass->groups[1], p.batch);
    assert_true(p.first_position >= 0 && (uint64_t)p.first_position + p.n_row <= 1ull << 31);
    return (double)p.batch * p.n_head * p.n_row * p.head_dim;
}

/* Elements that one head of a kind reads and writes for each row: of a cache, the first row's. *pairs: stays
 * true if fours of features are whole words; *halves: is set if they have 16 bits. */
static void check_append_rows(const struct pass *pass, const struct append_params *p, uint32_t kind,
                              const uint32_t size[4], bool *pairs, bool *halves)
{
    static const uint32_t slots[] = {1, 2, 0}; /* of keys, values, queries; those written: 3 on */
    const struct append_rows *r = &p->rows[kind];
    const struct binding *from = &pass->bindings[slots[kind]], *to = from + 3;
    const uint32_t *spec = pass->key.spec;
    const uint32_t from_stride[4] = {r->from_batch, r->from_head, r->from_row, r->from_col};
    const uint32_t to_stride[4] = {r->to_batch, r->to_head, r->to_row, 1};
    const uint32_t first[4] = {1, size[1], 1, size[3]};
    const enum vka_dtype stored = (enum vka_dtype)
        spec[kind == APPEND_QUERY ? APPEND_TO_QUERY_TYPE : APPEND_TO_KEY_TYPE + kind];
    check_operand(from, (enum vka_dtype)spec[APPEND_KEY_TYPE + kind], r->from_offset, size,
                  from_stride);
    check_operand(to, stored, r->to_offset, kind == APPEND_QUERY ? size : first, to_stride);
    const struct strided_params place = {r->to_offset, r->to_batch, r->to_head, r->to_row, 1};
    *pairs &= size[3] % 4 == 0 && (stored == VKA_F32 || are_words(stored, size, &place));
    *halves |= stored != VKA_F32;
}

/* Elements of queries and keys that rotate, or stay as they are. */
static double check_append(const struct vka_plan *plan, const struct pass *pass)
{
    struct append_params p;
    memcpy(&p, plan->constants.bytes + pass->bindings[7].offset, sizeof p);
    const uint32_t n_query = pass->groups[1] - p.n_key - p.n_value, batch = pass->groups[2];
    const uint32_t key[4] = {batch, p.n_key, p.n_row, p.head_dim};
    const uint32_t value[4] = {batch, p.n_value, p.n_row, p.value_dim};
    const uint32_t query[4] = {batch, n_query, p.n_row, p.head_dim};
    const uint32_t key_dim = p.n_key ? p.head_dim : 0, value_dim = p.n_value ? p.value_dim : 0;
    const uint32_t widest = key_dim > value_dim ? key_dim : value_dim;
    bool pairs = p.dim % 4 == 0, halves = false;
    if (p.n_key)
        check_append_rows(pass, &p, APPEND_KEY, key, &pairs, &halves);
    if (p.n_value)
        check_append_rows(pass, &p, APPEND_VALUE, value, &pairs, &halves);
    if (n_query)
        check_append_rows(pass, &p, APPEND_QUERY, query, &pairs, &halves);
    assert_int_equal(pass->key.spec[APPEND_PAIRS], pairs && halves);
    const uint32_t each = pairs && halves ? 4 : 2; /* features of an item */
    const uint64_t items_all = ((p.n_row - 1ull) / p.each + 1) * ((widest + each - 1) / each);
    const uint64_t lanes = pass->key.spec[APPEND_LANES];
    assert_true(pass->groups[0] * lanes >= items_all && pass->groups[0] * lanes <= 1ull << 32);
    assert_true(p.n_row + (uint64_t)p.each <= UINT32_MAX);
    return (double)batch * p.n_row * p.head_dim * (n_query + p.n_key);
}

/* The last words of rows of A and of their blocks are within the bindings, and invocations of a row
 * are no more than 32 bits count. */
static void check_quantise(const struct pass *pass)
{
    struct quantise_params p;
    memcpy(&p, pass->push, sizeof p);
    double batch = (double)pass->groups[2] / p.n_head - 1, head = p.n_head - 1,
           row = pass->groups[1] - 1;
    double from = (double)p.from_offset + batch * p.from_batch + head * p.from_head +
                  row * p.from_row + (p.k - 1.0) * p.from_col;
    double to = (double)p.to_offset + batch * p.to_batch + head * p.to_head + row * p.to_row +
                p.n_sixteen / 8.0 * (ACTIVATION_BYTES / 4);
    size_t size = vka_dtype_size((enum vka_dtype)pass->key.spec[QUANTISE_FROM_TYPE]);
    assert_true(p.n_sixteen % 8 == 0 && p.n_sixteen * 16ull >= p.k &&
                p.n_sixteen * 16ull < p.k + 128ull);
    assert_true((double)pass->groups[0] * QUANTISE_LANES <= UINT32_MAX);
    assert_true((from + 1) * (double)size <= (double)pass->bindings[0].size);
    assert_true(to * 4 <= (double)pass->bindings[1].size);
}

/* Whether two neighbours of C, of which a pass has so many matrices, are a whole word. */
static bool stores_pairs(const struct matmul_params *p, uint32_t dtype, uint32_t matrices)
{
    const uint32_t size[4] = {matrices > p->n_head ? 2 : 1, p->n_head, p->m, p->n};
    const struct strided_params place = {p->c_offset, p->c_batch, p->c_head, p->c_row, p->c_col};
    return are_words(dtype, size, &place);
}

static void check_sum(const struct pass *pass)
{
    struct sum_params p;
    memcpy(&p, pass->push, sizeof p);
    const struct matmul_params c = {.m = p.m,
                                    .n = p.n,
                                    .n_head = p.n_head,
                                    .c_offset = p.c_offset,
                                    .c_batch = p.c_batch,
                                    .c_head = p.c_head,
                                    .c_row = p.c_row,
                                    .c_col = p.c_col};
    const bool pairs = stores_pairs(&c, pass->key.spec[SUM_C_TYPE], pass->groups[2]);
    assert_int_equal(pass->key.spec[SUM_C_PAIRS], pairs);
    assert_true((uint64_t)pass->groups[0] * SUM_LANES * (pairs ? 2 : 1) >= p.n);
    assert_true(pass->groups[1] == p.m && pass->groups[2] % p.n_head == 0);
}

/* Multiplications. */
static double check_product(const struct pass *pass)
{
    struct matmul_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t *spec = pass->key.spec;
    const bool pairs = stores_pairs(&p, spec[MATMUL_C_TYPE], pass->groups[2]);
    if (pass->key.kernel == KERNEL_matmul_few)
        assert_int_equal(spec[MATMUL_FEW_PAIRS], pairs);
    if (pass->key.kernel == KERNEL_matmul_dot || pass->key.kernel == KERNEL_matmul_dot_plain)
        assert_int_equal(spec[MATMUL_DOT_PAIRS],
                         pairs && spec[MATMUL_DOT_THREADS] * spec[MATMUL_DOT_OWN_COLUMNS] >
                                      spec[MATMUL_DOT_COLUMNS]);
    double matrices = pass->groups[2];
    if (pass->key.kernel == KERNEL_matmul_texel || pass->key.kernel == KERNEL_matmul_address)
        matrices /= p.n_block;
    assert_true((double)p.m * p.n <= (double)UINT32_MAX);
    return matrices * p.m * p.n * p.k;
}

/* Operations around attention: elements of the operand that is written. */
void check_strided(const struct binding *b, uint32_t dtype, const uint32_t size[4],
                   const struct strided_params *s)
{
    const uint32_t stride[4] = {s->stride0, s->stride1, s->stride2, s->stride3};
    check_operand(b, (enum vka_dtype)dtype, s->offset, size, stride);
}

void check_items(const struct pass *pass, double items)
{
    double groups = (double)pass->groups[0] * pass->groups[1];
    assert_true(pass->groups[0] <= ITEM_GRID &&
                (pass->groups[1] == 1 || pass->groups[0] == ITEM_GRID));
    assert_true(groups * ITEM_LANES * ITEMS_EACH >= items);
    assert_true(items + ITEM_GRID * ITEM_LANES * ITEMS_EACH <= 4294967296.0);
}

static double check_map(const struct pass *pass)
{
    struct map_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t size[4] = {p.size0, p.size1, p.size2, p.size3};
    check_strided(&pass->bindings[0], pass->key.spec[ELEMENT_X_TYPE], size, &p.x);
    check_strided(&pass->bindings[2], pass->key.spec[ELEMENT_Y_TYPE], size, &p.y);
    check_items(pass, (double)p.size0 * p.size1 * p.size2 * (p.size3 / 2 + p.size3 % 2));
    return (double)p.size0 * p.size1 * p.size2 * p.size3;
}

static double check_norm(const struct pass *pass)
{
    struct norm_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t size[4] = {p.size0, p.size1, p.size2, p.size3};
    double rows = 1;
    for (uint32_t i = 0; i < 4 - pass->key.spec[NORM_INNER]; i++)
        rows *= size[i];
    check_strided(&pass->bindings[0], pass->key.spec[NORM_X_TYPE], size, &p.x);
    check_strided(&pass->bindings[5], pass->key.spec[NORM_Y_TYPE], size, &p.y);
    assert_true((double)pass->groups[0] * pass->groups[1] >= rows);
    assert_true(pass->groups[1] == 1 || pass->groups[0] == NORM_GRID);
    assert_true(rows + NORM_GRID <= 4294967296.0);
    return (double)p.size0 * p.size1 * p.size2 * p.size3;
}

static double check_scatter(const struct pass *pass)
{
    struct scatter_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t size[4] = {p.size0, p.size1, p.size2, p.size3};
    uint32_t to[4] = {p.size0, p.size1, p.size2, p.size3};
    to[p.axis] = p.extent;
    check_strided(&pass->bindings[0], pass->key.spec[SCATTER_X_TYPE], size, &p.x);
    check_strided(&pass->bindings[2], pass->key.spec[SCATTER_Y_TYPE], to, &p.y);
    to[3] = size[3];
    const bool pairs = are_words(pass->key.spec[SCATTER_Y_TYPE], to, &p.y);
    assert_int_equal(pass->key.spec[SCATTER_PAIRS], !pairs        ? 0
                                                    : p.axis == 3 ? SCATTER_PLACES
                                                                  : SCATTER_WORDS);
    check_items(pass, (double)p.size0 * p.size1 * p.size2 * (p.size3 / (pairs ? 2 : 1)));
    return (double)p.size0 * p.size1 * p.size2 * p.size3;
}

static double check_rotary(const struct pass *pass)
{
    struct rotary_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t size[4] = {p.batch, p.n_head, p.n, p.head_dim};
    check_strided(&pass->bindings[0], pass->key.spec[ROTARY_X_TYPE], size, &p.x);
    check_strided(&pass->bindings[5], pass->key.spec[ROTARY_Y_TYPE], size, &p.y);
    const bool pairs = p.dim % 4 == 0 && are_words(pass->key.spec[ROTARY_Y_TYPE], size, &p.y);
    assert_int_equal(pass->key.spec[ROTARY_PAIRS], pairs);
    check_items(pass,
                (double)p.batch * p.n_head * p.n * ((p.head_dim - p.dim / 2) / (pairs ? 2 : 1)));
    return (double)p.batch * p.n_head * p.n * p.head_dim;
}

/* Each pass of a table that needs several sees all of y. */
static double check_gather(const struct pass *pass)
{
    struct gather_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t size[4] = {p.size0, p.size1, p.size2, p.size3};
    const uint32_t table_size[4] = {1, 1, p.n_row, p.size3};
    const uint32_t table_stride[4] = {0, 0, p.table_row, p.table_col};
    check_strided(&pass->bindings[2], pass->key.spec[GATHER_Y_TYPE], size, &p.y);
    check_operand(&pass->bindings[1], pass->key.spec[GATHER_TABLE_TYPE], p.table_offset, table_size,
                  table_stride);
    check_items(pass, (double)p.size0 * p.size1 * p.size2 * ((p.size3 - 1) / 4 + 1));
    return p.first ? 0 : (double)p.size0 * p.size1 * p.size2 * p.size3;
}

/* ---- All ---------------------------------------------------------------------------------------- */

static double check_merge(const struct vka_plan *plan, const struct pass *pass)
{
    struct slices_params p;
    memcpy(&p, plan->constants.bytes + pass->bindings[7].offset, sizeof p);
    const uint32_t size[4] = {p.size0, p.size1, p.size2, p.size3};
    const bool store = pass->key.spec[SLICES_STATE] & SLICES_STORE;
    check_strided(&pass->bindings[0], pass->key.spec[SLICES_X0_TYPE], size, &p.x0);
    check_strided(&pass->bindings[1], pass->key.spec[SLICES_X1_TYPE], size, &p.x1);
    check_strided(&pass->bindings[2], VKA_F32, size, &p.l0);
    check_strided(&pass->bindings[5], pass->key.spec[SLICES_Y_TYPE], size, &p.y);
    if (store) /* two sums behind the columns */
        check_strided(&pass->bindings[5], VKA_F32,
                      (const uint32_t[]){size[0], size[1], size[2], size[3] + 2}, &p.y);
    assert_int_equal(pass->key.spec[SLICES_PAIRS],
                     are_words(pass->key.spec[SLICES_Y_TYPE], size, &p.y));
    if (pass->key.spec[SLICES_STATE] & SLICES_LOAD)
        check_strided(&pass->bindings[4], VKA_F32,
                      (const uint32_t[]){size[0], size[1], size[2], size[3] + 2}, &p.state);
    check_items(pass, (double)p.size0 * p.size1 * p.size2 * ((p.size3 - 1) / 4 + 1));
    return store ? 0 : (double)p.size0 * p.size1 * p.size2 * p.size3;
}

static double check_around(const struct vka_plan *plan, const struct pass *pass)
{
    switch ((int)pass->key.kernel) {
    case KERNEL_map:
        return check_map(pass);
    case KERNEL_norm:
        return check_norm(pass);
    case KERNEL_scatter:
        return check_scatter(pass);
    case KERNEL_rotary:
        return check_rotary(pass);
    case KERNEL_gather:
        return check_gather(pass);
    case KERNEL_merge_slices:
        return check_merge(plan, pass);
    default:
        return check_train_pass(plan, pass) + check_state_pass(plan, pass);
    }
}

struct counted check_passes(const struct vka_plan *plan)
{
    const struct caps *caps = &plan->device->caps;
    struct counted sum = {0};
    for (size_t i = 0; i < plan->n_pass; i++) {
        const struct pass *pass = &plan->passes[i];
        for (int axis = 0; axis < 3; axis++)
            assert_true(pass->groups[axis] >= 1 && pass->groups[axis] <= caps->max_groups[axis]);
        for (uint32_t j = 0; j < kernel_table[pass->key.kernel].buffers; j++) {
            const struct binding *b = &pass->bindings[j];
            assert_true(b->size <= UINT32_MAX);
            const struct memory_range *range = &b->storage->range;
            if (b->storage == plan->constants.storage) /* has no memory yet */
                assert_true(b->offset + b->size <= plan->constants.used);
            else
                assert_true(range->offset + b->offset + b->size <= range->block->size);
        }
        sum.around += check_around(plan, pass);
        if (pass->key.kernel == KERNEL_copy)
            sum.copied += check_copy(pass);
        else if (pass->key.kernel == KERNEL_nonfinite)
            sum.scanned += check_nonfinite(pass);
        else if (pass->key.kernel == KERNEL_rope)
            sum.rotated += check_rope(pass);
        else if (pass->key.kernel == KERNEL_quantise)
            check_quantise(pass);
        else if (pass->key.kernel == KERNEL_sum_splits)
            check_sum(pass);
        else if (pass->key.kernel == KERNEL_cache_append)
            sum.appended += check_append(plan, pass);
        else if (strncmp(kernel_table[pass->key.kernel].name, "matmul", 6) == 0)
            sum.multiplied += check_product(pass);
    }
    return sum;
}
