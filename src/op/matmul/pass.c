/* Adds a matrix product as one pass: chooses its kernel, constants and parameters. */
#include "op/matmul/pass.h"
#include "core/dtype.h"
#include "op/common/axes.h"
#include "params/params.h"
#include "kernel/choose.h"
#include "plan/scratch.h"
#include "plan/settle.h"

#include <stdio.h>
#include <string.h>

/* Whether elements along `inner` are contiguous float32, and every step along the other axes keeps
 * 16-byte alignment. */
static bool vec4_along(const struct vka_tensor *t, uint32_t inner)
{
    bool aligned = t->dtype == VKA_F32 && t->shape.stride[inner] == 1 && t->shape.offset % 4 == 0;
    for (uint32_t i = 0; i < 4; i++)
        aligned &= i == inner || t->shape.size[i] == 1 || t->shape.stride[i] % 4 == 0;
    return aligned;
}

/* Whether B can be read as vec4 along n; the last vec4 must stay in the row or its padding. */
static bool b_vec4(const struct vka_tensor *b)
{
    uint32_t n = b->shape.size[2];
    return vec4_along(b, 2) && (n % 4 == 0 || b->shape.stride[3] >= (n + 3u) / 4 * 4);
}

/* Whether the tensor is whole, aligned vectors of 16 bytes along its last axis. */
static bool has_vectors(const struct vka_tensor *t)
{
    const struct shape *s = &t->shape;
    uint32_t vector = t->dtype == VKA_F32 ? 4 : 8;
    bool whole = s->stride[3] == 1 && s->size[3] % vector == 0 && s->offset % vector == 0;
    for (uint32_t i = 0; i < 3; i++)
        whole &= s->size[i] == 1 || s->stride[i] % vector == 0;
    return whole;
}

/* Whether rows of quantised B are whole multiples of n values, and begin at one: 2, of
 * aligned vectors of 16 bytes; 1, of others. */
static uint32_t multiples_along_k(const struct vka_tensor *t, uint32_t n)
{
    const struct shape *s = &t->shape;
    if (s->size[3] % n != 0)
        return 0;
    bool vectors = true;
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t values = i == 3 ? s->offset : s->size[i] == 1 ? 0 : (uint64_t)s->stride[i];
        if (values % n != 0)
            return 0;
        vectors &= dtype_bytes(t->dtype, values) % 16 == 0;
    }
    return vectors && dtype_bytes(t->dtype, s->size[3]) % 16 == 0 ? 2 : 1;
}

/* Whether rows of quantised B begin at whole words. */
static bool words_along_k(const struct vka_tensor *t)
{
    const struct shape *s = &t->shape;
    bool whole = dtype_is_quantised(t->dtype) && dtype_bytes(t->dtype, s->offset) % 4 == 0;
    for (uint32_t i = 0; i < 3 && whole; i++)
        whole = s->size[i] == 1 || dtype_bytes(t->dtype, (uint64_t)s->stride[i]) % 4 == 0;
    return whole;
}

struct job {
    const struct vka_plan *plan;
    const struct matmul_op *op;
    struct matmul_choice *choice;
};

static struct kernel_set choose(const struct caps *caps, void *given)
{
    const struct job *job = given;
    const struct vka_plan *plan = job->plan;
    const struct matmul_op *op = job->op;
    const uint32_t *a = op->a.shape.size;
    bool row = op->a.dtype == VKA_F32 && (op->a.shape.stride[3] == 1 || a[3] == 1);
    const struct matmul_problem problem = {
        .batch = (uint64_t)a[0] * a[1],
        .m = a[2],
        .n = op->c.shape.size[3],
        .k = a[3],
        .a_type = op->a.dtype,
        .b_type = op->b.dtype,
        .a_plain = row && plan_is_ours(plan, &op->a),
        .a_vec = vec4_along(&op->a, 3),
        .b_vec = !op->b_tile && b_vec4(&op->b),
        .b_tile = op->b_tile,
        .a_vectors = has_vectors(&op->a),
        .b_vectors = has_vectors(&op->b),
        .quantised = dtype_is_quantised(op->b.dtype),
        .b_bundles = BUNDLE_PAIR_WORDS(op->b.dtype) ? multiples_along_k(&op->b, BUNDLE_VALUES) : 0,
        .b_halves = op->b.dtype == VKA_Q6_K ? multiples_along_k(&op->b, BLOCK_VALUES(VKA_Q6_K)) : 0,
        .b_words = words_along_k(&op->b),
        .b_ours = plan_is_ours(plan, &op->b),
        .c_free = op->c.dtype == VKA_F32 && !op->accumulate,
        .hidden = op->hidden,
        .integers = op->integers,
        .cached = op->cached,
    };
    choose_matmul(caps, &problem, job->choice);
    struct kernel_set chosen = KERNEL_SET(job->choice->kernel);
    if (a[3] > TUNE_CHAIN)
        set_add(&chosen, KERNEL_sum_splits);
    if (op->integers)
        set_add(&chosen, KERNEL_quantise);
    return chosen;
}

enum vka_status matmul_choose(struct vka_plan *plan, const struct matmul_op *op,
                              struct matmul_choice *choice)
{
    return plan_settle(plan, 0, choose, &(struct job){plan, op, choice});
}

static uint32_t sums_of(const struct matmul_op *op)
{
    const struct matmul_span *span = &op->span;
    return (op->scale ? SUMS_SCALE : 0) | (span->sums.storage ? SUMS_LOAD : 0) |
           (span->keeps ? SUMS_KEEP : 0) | (span->open ? SUMS_OPEN : 0) |
           (op->accumulate ? SUMS_ADD : 0) | (op->a.shape.size[3] > MATMUL_GROUP ? SUMS_GROUPS : 0);
}

/* A kernel that reads blocks reads float32 A, and is told what A was. */
static struct matmul_operands operands_of(const struct matmul_op *op,
                                          const struct matmul_choice *choice)
{
    bool packed = op->packed_a && matmul_reads_blocks(choice->kernel);
    return (struct matmul_operands){
        .a_type = packed ? op->packed_a : op->a.dtype,
        .b_type = op->b.dtype,
        .c_type = op->c.dtype,
        .bias_type = op->bias ? op->bias->dtype : BIAS_NONE,
        .relu = op->relu,
        .hidden = op->hidden,
        .sums = sums_of(op),
        .m = op->c.shape.size[2],
        .n = op->c.shape.size[3],
        .k = op->a.shape.size[3],
        .c_vectors = has_vectors(&op->c),
        .c_pairs = axes_are_pairs(&op->c, (uint32_t)op->c.shape.offset),
    };
}

/* Strides of quantised A or B, in bytes. */
static void set_strides(const struct vka_tensor *t, uint32_t *batch, uint32_t *head, uint32_t *row)
{
    uint32_t size;
    const struct shape blocks = tensor_blocks(t, &size);
    *batch = (uint32_t)(blocks.stride[0] * size);
    *head = (uint32_t)(blocks.stride[1] * size);
    *row = (uint32_t)(blocks.stride[2] * size);
}

static void set_params(const struct vka_plan *plan, const struct matmul_op *op,
                       const struct vka_tensor *grid, uint32_t n_block, struct pass *pass)
{
    const uint32_t *a = op->a.shape.size;
    struct matmul_params p = {
        .m = a[2],
        .n = op->c.shape.size[3],
        .k = a[3],
        .alpha = op->alpha,
        .n_head = a[1],
        .group = op->group,
        .a_batch = (uint32_t)op->a.shape.stride[0],
        .a_head = (uint32_t)op->a.shape.stride[1],
        .a_row = (uint32_t)op->a.shape.stride[2],
        .a_col = (uint32_t)op->a.shape.stride[3],
        .b_batch = (uint32_t)op->b.shape.stride[0],
        .b_head = (uint32_t)op->b.shape.stride[1],
        .b_row = (uint32_t)op->b.shape.stride[2],
        .b_col = (uint32_t)op->b.shape.stride[3],
        .c_batch = (uint32_t)op->c.shape.stride[0],
        .c_head = (uint32_t)op->c.shape.stride[1],
        .c_row = (uint32_t)op->c.shape.stride[2],
        .c_col = (uint32_t)op->c.shape.stride[3],
        .n_block = n_block,
    };
    plan_bind(plan, pass, 0, &op->a, false, &p.a_offset);
    plan_bind(plan, pass, 1, &op->b, false, &p.b_offset);
    plan_bind(plan, pass, 2, op->bias ? op->bias : &op->b, false, &p.bias_offset);
    plan_bind(plan, pass, 3, &op->c, true, &p.c_offset);
    plan_bind(plan, pass, 4, &op->b, false, NULL); /* unused without sums */
    if (dtype_is_quantised(op->b.dtype))
        set_strides(&op->b, &p.b_batch, &p.b_head, &p.b_row);
    if (op->a.dtype == DTYPE_ACTIVATION)
        set_strides(&op->a, &p.a_batch, &p.a_head, &p.a_row);
    if (kernel_table[pass->key.kernel].buffers > 5)
        plan_bind(plan, pass, 5, op->scale ? op->scale : &op->b, false,
                  op->scale ? &p.scale_offset : NULL);
    if (kernel_table[pass->key.kernel].buffers > 6)
        plan_bind(plan, pass, 6, grid, false, NULL);
    if (op->span.sums.storage) {
        const struct vka_tensor *sums = &op->span.sums;
        plan_bind(plan, pass, 4, sums, false, &p.sums_offset);
        p.sums_batch = (uint32_t)sums->shape.stride[0];
        p.sums_head = (uint32_t)sums->shape.stride[1];
        p.sums_row = (uint32_t)sums->shape.stride[2];
    }
    pass_set_push(pass, &p, sizeof p);
}

/* Bytes of rows of A that stay in a core's cache while all of B is read. */
#define CACHED_BYTES (256u << 10)

/* Tiles of rows in a block, for kernels with packed B. */
static uint32_t tiles_of_block(const struct caps *caps, uint32_t m, uint32_t k, uint32_t rows)
{
    uint32_t all = divide_up(m, rows);
    uint64_t fit = CACHED_BYTES / (4ull * k * rows);
    all = all < caps->max_groups[0] ? all : caps->max_groups[0];
    return fit < 1 ? 1 : fit < all ? (uint32_t)fit : all;
}

void matmul_grid(const struct caps *caps, const struct matmul_op *op,
                 const struct matmul_choice *choice, uint64_t groups[3], uint32_t *n_block)
{
    const uint32_t *c = op->c.shape.size;
    uint32_t tiles = divide_up(c[2], choice->rows);
    groups[0] = divide_up(c[3], choice->columns);
    groups[1] = tiles;
    groups[2] = (uint64_t)c[0] * c[1];
    *n_block = 1;
    if (choice->b_tile) {
        uint32_t block = tiles_of_block(caps, c[2], op->a.shape.size[3], choice->rows);
        *n_block = divide_up(tiles, block);
        groups[1] = groups[0];
        groups[0] = block;
        groups[2] *= *n_block;
    }
}

struct work matmul_work(const struct matmul_op *op, const struct matmul_choice *choice)
{
    const uint32_t *c = op->c.shape.size;
    double tile = 2.0 * choice->rows * choice->columns * op->a.shape.size[3];
    double tiles = (double)divide_up(c[2], choice->rows) * divide_up(c[3], choice->columns);
    double loops = tune_matmul_loops(choice, op->a.shape.size[3]);
    return (struct work){tile * tiles * c[0] * c[1], tile, loops};
}

enum vka_status matmul_add_pass(struct vka_plan *plan, const struct matmul_op *op,
                                const struct matmul_choice *choice)
{
    const uint32_t *a = op->a.shape.size;
    uint32_t n = op->c.shape.size[3], n_block;
    uint64_t groups[3];
    struct vka_tensor grid = op->b; /* not read but for types that have one */
    if (HAS_GRID(op->b.dtype))
        ENSURE(plan_grid(plan, op->b.dtype, &grid));
    const struct matmul_operands operands = operands_of(op, choice);
    struct pass pass = {.name = op->name, .reason = choice->reason};
    matmul_grid(&plan->caps, op, choice, groups, &n_block);
    memcpy(pass.problem, choice->problem, sizeof pass.problem);
    tune_matmul_key(choice, &operands, &pass.key);
    set_params(plan, op, &grid, n_block, &pass);
    pass.work = matmul_work(op, choice);
    if (kernel_table[choice->kernel].needs & NEED_ADDRESS)
        pass.n_address = 2;
    for (int i = 0; i < 3; i++)
        pass.groups[i] = groups[i] < UINT32_MAX ? (uint32_t)groups[i] : UINT32_MAX;
    int length = snprintf(
        pass.detail, sizeof pass.detail, "%ux%ux%u x%u, %s*%s->%s, tile %ux%u", a[2], n, a[3],
        a[0] * a[1], vka_dtype_name(op->integers ? VKA_I8 : op->a.dtype),
        vka_dtype_name(op->b.dtype), vka_dtype_name(op->c.dtype), choice->rows, choice->columns);
    if (choice->subs_m) /* tiles of one size differ in these */
        snprintf(pass.detail + length, sizeof pass.detail - (size_t)length,
                 ", %ux%u subgroups, k %u%s", choice->subs_m, choice->subs_n, choice->depth,
                 choice->halves ? " by halves" : "");
    return plan_add_pass(plan, &pass);
}
