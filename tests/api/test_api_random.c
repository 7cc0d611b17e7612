/* Valid calls with one thing made wrong at random, thousands of them: each is refused, leaves the
 * plan as it was, and the valid call gives the same bits afterwards. What is drawn is wrong by its
 * making: every axis of every operand here is tied to another operand's.
 *
 *     test_gpu api_random [COUNT [SEED]]         SPDX-License-Identifier: MIT
 */
#include <stdlib.h>

#include "patience.h"
#include "api_errors.h"
#include "api_random_fields.h"
#include "test_program.h"
#include "problems/rng.h"

/* ---- The valid calls ------------------------------------------------------------------------- */

union op {
    struct vka_attention_op attention;
    struct vka_layer_op layer;
    struct vka_linear_op linear;
    struct vka_norm_op norm;
    struct vka_norm_backward_op norm_backward;
    struct vka_gather_op gather;
    struct vka_gather_backward_op gather_backward;
    struct vka_cross_entropy_op entropy;
    struct vka_square_error_op square;
    struct vka_optimiser_op optimiser;
};

static enum vka_status add_attention(struct vka_plan *plan, const union op *op)
{
    return vka_plan_add_attention(plan, &op->attention);
}

static enum vka_status add_layer(struct vka_plan *plan, const union op *op)
{
    return vka_plan_add_layer(plan, &op->layer);
}

static enum vka_status add_linear(struct vka_plan *plan, const union op *op)
{
    return vka_plan_add_linear(plan, &op->linear);
}

#define ADD(name, function)                                                      \
    static enum vka_status add_##name(struct vka_plan *plan, const union op *op) \
    {                                                                            \
        return function(plan, &op->name);                                        \
    }
ADD(norm, vka_plan_add_norm)
ADD(norm_backward, vka_plan_add_norm_backward)
ADD(gather, vka_plan_add_gather)
ADD(gather_backward, vka_plan_add_gather_backward)
ADD(entropy, vka_plan_add_cross_entropy)
ADD(square, vka_plan_add_square_error)
ADD(optimiser, vka_plan_add_optimiser)

enum { N_RUN = 3 }; /* calls of which the results are compared */

static const struct call {
    const char *name;
    enum vka_status (*add)(struct vka_plan *plan, const union op *op);
    size_t size;
    const struct field *fields;
    size_t n_field;
} calls[] = {
    {"vka_plan_add_attention", add_attention, sizeof(struct vka_attention_op), attention_fields,
     COUNTOF(attention_fields)},
    {"vka_plan_add_layer", add_layer, sizeof(struct vka_layer_op), layer_fields,
     COUNTOF(layer_fields)},
    {"vka_plan_add_linear", add_linear, sizeof(struct vka_linear_op), linear_fields,
     COUNTOF(linear_fields)},
#define CALL(name, function, type)                                                        \
    {                                                                                     \
#function, add_##name, sizeof(struct type), name##_fields, COUNTOF(name##_fields) \
    }
    CALL(norm, vka_plan_add_norm, vka_norm_op),
    CALL(norm_backward, vka_plan_add_norm_backward, vka_norm_backward_op),
    CALL(gather, vka_plan_add_gather, vka_gather_op),
    CALL(gather_backward, vka_plan_add_gather_backward, vka_gather_backward_op),
    CALL(entropy, vka_plan_add_cross_entropy, vka_cross_entropy_op),
    CALL(square, vka_plan_add_square_error, vka_square_error_op),
    CALL(optimiser, vka_plan_add_optimiser, vka_optimiser_op),
};

static const uint64_t seed_of_data = 99;

/* A tensor of its kind, filled: small numbers, lengths, or bits. */
static struct vka_tensor *valid_tensor(struct world *w, const struct field *f, struct rng *rng)
{
    uint32_t words[2 * 4 * 12 * 8];
    enum vka_dtype dtype = f->fault == INTEGERS ? VKA_I32 : VKA_F32;
    struct vka_tensor *tensor = world_tensor(w, w->device, dtype, f->rank, f->shape);
    size_t size = vka_tensor_size(tensor);
    assert_in_range(size, 4, sizeof words);
    for (size_t i = 0; i < size / 4; i++) {
        float number = (float)rng_uniform(rng, -1, 1);
        if (dtype == VKA_I32)
            words[i] = rng_range(rng, 3, 9);
        else
            memcpy(&words[i], &number, 4);
    }
    assert_int_equal(vka_tensor_write(tensor, words, size), VKA_OK);
    return tensor;
}

static void make_valid(struct world *w, union op *ops)
{
    struct rng rng = {seed_of_data};
    memset(ops, 0, COUNTOF(calls) * sizeof *ops);
    for (size_t c = 0; c < COUNTOF(calls); c++) {
        for (size_t i = 0; i < calls[c].n_field; i++) {
            const struct field *f = &calls[c].fields[i];
            struct vka_tensor *tensor = f->rank ? valid_tensor(w, f, &rng) : NULL;
            if (f->rank)
                memcpy((char *)&ops[c] + f->offset, &tensor, sizeof tensor);
            if (f->fault == SIZE)
                memcpy((char *)&ops[c] + f->offset, &calls[c].size, sizeof calls[c].size);
        }
    }
    ops[1].layer.layer = w->layer;
    static struct vka_parameter parameter;
    parameter = (struct vka_parameter){T(VKA_F32, 9), T(VKA_F32, 9), T(VKA_F32, 9), T(VKA_F32, 9)};
    struct vka_optimiser_op *optimiser = &ops[COUNTOF(calls) - 1].optimiser;
    optimiser->kind = VKA_ADAM;
    optimiser->parameters = &parameter;
    optimiser->n_parameter = 1;
    optimiser->learning_rate = 0.1;
    struct vka_attention_options *const both[] = {&ops[0].attention.options,
                                                  &ops[1].layer.attention};
    for (size_t i = 0; i < COUNTOF(both); i++) {
        both[i]->causal = both[i]->window = true;
        both[i]->window_left = 6;
        both[i]->window_right = 2;
        both[i]->softcap = 3;
        both[i]->scores_kind = VKA_SCORES_SOFTMAX;
        both[i]->rope.dim = 4;
        both[i]->dropout = 0.25f;
    }
}

static void add_valid(const struct world *w, const union op *ops, size_t n, struct vka_plan *plan)
{
    for (size_t c = 0; c < n; c++)
        if (calls[c].add(plan, &ops[c]) != VKA_OK)
            fail_msg("the valid %s: %s", calls[c].name, vka_device_error(w->device));
}

/* What is made wrong is valid, whatever is given. */
static void check_valid(struct world *w, const union op *ops)
{
    struct vka_plan *plan = NULL;
    assert_int_equal(vka_plan_create(w->device, NULL, &plan), VKA_OK);
    add_valid(w, ops, COUNTOF(calls), plan);
    vka_plan_destroy(&plan);
}

/* The first valid operations in a plan of their own; bits[] receives what they give. */
struct bits {
    float attention[2 * 4 * 3 * 6], layer[2 * 3 * 16], linear[5 * 4], scores[2 * 4 * 3 * 12];
};

static void run_valid(struct world *w, const union op *ops, struct bits *bits)
{
    struct vka_plan *plan = NULL;
    assert_int_equal(vka_plan_create(w->device, NULL, &plan), VKA_OK);
    add_valid(w, ops, N_RUN, plan);
    assert_int_equal(vka_plan_finish(plan), VKA_OK);
    assert_int_equal(vka_plan_run(plan, PATIENCE), VKA_OK);
    const struct {
        struct vka_tensor *tensor;
        float *to;
        size_t size;
    } reads[] = {
        {ops[0].attention.output, bits->attention, sizeof bits->attention},
        {ops[0].attention.options.scores, bits->scores, sizeof bits->scores},
        {ops[1].layer.output, bits->layer, sizeof bits->layer},
        {ops[2].linear.output, bits->linear, sizeof bits->linear},
    };
    for (size_t i = 0; i < COUNTOF(reads); i++)
        assert_int_equal(vka_tensor_read(reads[i].tensor, reads[i].to, reads[i].size), VKA_OK);
    vka_plan_destroy(&plan);
}

/* ---- Making it wrong ------------------------------------------------------------------------- */

static struct vka_tensor *tensor_of(struct vka_device *device, enum vka_dtype dtype, uint32_t rank,
                                    const uint32_t *shape)
{
    struct vka_tensor *tensor = NULL;
    assert_int_equal(vka_tensor_create(device, dtype, rank, shape, &tensor), VKA_OK);
    return tensor;
}

static enum vka_dtype wrong_dtype(const struct field *f, struct rng *rng)
{
    for (;;) {
        enum vka_dtype dtype = (enum vka_dtype)rng_range(rng, 0, VKA_BOOL);
        bool is_float = dtype == VKA_F32 || dtype == VKA_F16 || dtype == VKA_BF16;
        bool right = f->fault == INTEGERS ? dtype == VKA_I32
                     : f->fault == FLOATS ? dtype == VKA_F32
                     : f->fault == MASK   ? is_float || dtype == VKA_BOOL
                                          : is_float;
        if (!right)
            return dtype;
    }
}

/* One axis of another length, which nothing broadcasts from. */
static void wrong_axis(const struct field *f, struct rng *rng, uint32_t *shape)
{
    uint32_t axis = rng_range(rng, 0, f->rank - 1), right = shape[axis];
    bool last = axis == f->rank - 1;
    while (shape[axis] == right || (f->fault == MASK && shape[axis] == 1) ||
           (f->fault == MASK && last && shape[axis] < right) ||
           (f->fault == INTEGERS && shape[axis] == 1))
        shape[axis] = rng_range(rng, 1, 40);
}

/* A tensor that the call cannot take; NULL may be one. */
static struct vka_tensor *wrong_tensor(struct world *w, const struct field *f, struct rng *rng)
{
    uint32_t shape[VKA_MAX_RANK] = {1, 1, 1, 1}, rank = f->rank;
    enum vka_dtype right = f->fault == INTEGERS ? VKA_I32 : VKA_F32;
    memcpy(shape, f->shape, f->rank * sizeof *shape);
    switch (rng_range(rng, 0, 4)) {
    case 0:
        return f->fault == OPERAND || f->fault == OUTPUT ? NULL
                                                         : tensor_of(w->other, right, rank, shape);
    case 1:
        return tensor_of(w->other, right, rank, shape);
    case 2:
        return tensor_of(w->device, wrong_dtype(f, rng), rank, shape);
    case 3:
        if (f->fault != MASK && rank < VKA_MAX_RANK)
            return tensor_of(w->device, right, rank + 1, shape); /* with an axis of 1 behind */
        break;
    default:
        break;
    }
    wrong_axis(f, rng, shape);
    return tensor_of(w->device, right, rank, shape);
}

/* A view of the right shape with an axis whose elements are one. */
static struct vka_tensor *folded(struct vka_tensor *whole, const struct field *f, struct rng *rng)
{
    uint64_t strides[VKA_MAX_RANK], next = 1;
    struct vka_tensor *view = NULL;
    for (uint32_t i = f->rank; i-- > 0; next *= f->shape[i])
        strides[i] = next;
    strides[rng_range(rng, 0, f->rank - 1)] = 0;
    assert_int_equal(vka_tensor_strided(whole, 0, f->rank, f->shape, strides, &view), VKA_OK);
    return view;
}

static float wrong_float(enum fault fault, struct rng *rng)
{
    const float none[] = {NAN, INFINITY, -INFINITY};
    float number = (float)ldexp(rng_uniform(rng, 0.5, 1), (int)rng_range(rng, 0, 60) - 30);
    uint32_t kind = rng_range(rng, 0, 5);
    if (fault == FINITE || kind < COUNTOF(none))
        return none[kind % COUNTOF(none)];
    return fault == RATE && kind == 5 ? 1 + number : -number;
}

static uint32_t wrong_word(const struct field *f, struct rng *rng)
{
    uint32_t word;
    switch ((int)f->fault) {
    case ENUM:
        return rng_range(rng, f->limit, UINT32_MAX);
    case GIVEN: /* any bits with one that is not of the limit */
        do
            word = 1u << rng_range(rng, 0, 31);
        while (word & f->limit);
        return word | (uint32_t)rng_next(rng);
    case WINDOW: /* INT32_MIN up to -2 */
        return rng_range(rng, 1u << 31, UINT32_MAX - 1);
    case EVEN:
        return rng_chance(rng, 50) ? rng_range(rng, 0, UINT32_MAX / 2) * 2 + 1
                                   : rng_range(rng, f->limit + 1, UINT32_MAX);
    default:
        return rng_range(rng, 65536, UINT32_MAX);
    }
}

/* Says of some numbers that they are given, as which each is as wrong, or as right, as it was. */
static void draw_given(const struct call *call, struct rng *rng, union op *op)
{
    for (size_t i = 0; i < call->n_field; i++)
        if (call->fields[i].fault == GIVEN) {
            uint32_t given = rng_range(rng, 0, 31) & call->fields[i].limit;
            memcpy((char *)op + call->fields[i].offset, &given, sizeof given);
        }
}

/* Any field but those that are kept. */
static const struct field *draw_field(struct rng *rng, const struct call **call)
{
    size_t all = 0;
    for (size_t c = 0; c < COUNTOF(calls); c++)
        all += calls[c].n_field;
    for (;;) {
        size_t at = rng_range(rng, 0, (uint32_t)all - 1), c = 0;
        while (at >= calls[c].n_field)
            at -= calls[c++].n_field;
        *call = &calls[c];
        if (calls[c].fields[at].fault != KEPT)
            return &calls[c].fields[at];
    }
}

/* Spoils a field of op. The tensor made for that, to be destroyed, or NULL. */
static struct vka_tensor *spoil(struct world *w, const struct field *f, struct rng *rng,
                                union op *op)
{
    char *at = (char *)op + f->offset;
    struct vka_tensor *tensor = NULL;
    if (f->rank) {
        struct vka_tensor *whole;
        memcpy(&whole, at, sizeof whole);
        tensor = f->fault == OUTPUT && rng_chance(rng, 20) ? folded(whole, f, rng)
                                                           : wrong_tensor(w, f, rng);
        memcpy(at, &tensor, sizeof tensor);
    } else if (f->fault == SIZE) {
        size_t size = rng_chance(rng, 50) ? rng_range(rng, 0, 4096) : (size_t)rng_next(rng), right;
        memcpy(&right, at, sizeof right);
        size += size == right;
        memcpy(at, &size, sizeof size);
    } else if (f->fault == NECESSARY) {
        op->layer.layer = rng_chance(rng, 50) ? NULL : w->foreign;
    } else if (f->fault == FINITE || f->fault == POSITIVE || f->fault == RATE) {
        float number = wrong_float(f->fault, rng);
        double wide = (double)number;
        memcpy(at, f->limit == sizeof wide ? (void *)&wide : &number,
               f->limit == sizeof wide ? sizeof wide : sizeof number);
    } else {
        uint32_t word = wrong_word(f, rng);
        memcpy(at, &word, sizeof word);
    }
    return tensor;
}

/* ---- The test -------------------------------------------------------------------------------- */

static unsigned long count = 10000, seed = 1;

static void spoiled_calls(void **state)
{
    struct world *w = *state;
    union op ops[COUNTOF(calls)];
    struct bits first, again;
    struct rng rng = {seed};
    make_valid(w, ops);
    run_valid(w, ops, &first);
    check_valid(w, ops);
    for (unsigned long i = 0; i < count; i++) {
        const struct call *call;
        const struct field *f = draw_field(&rng, &call);
        union op op = ops[call - calls];
        draw_given(call, &rng, &op);
        struct vka_tensor *made = spoil(w, f, &rng, &op);
        expect_begin(w);
        enum vka_status status = call->add(w->plan, &op);
        if (status == VKA_OK)
            fail_msg("call %lu of seed %lu: %s took a fault of kind %d at byte %zu", i, seed,
                     call->name, (int)f->fault, f->offset);
        expect_end(w, status, VKA_INVALID, call->name, (int)i);
        vka_tensor_destroy(&made);
        if (i % 500 == 499) {
            run_valid(w, ops, &again);
            assert_memory_equal(&again, &first, sizeof first);
            union op given[COUNTOF(calls)];
            memcpy(given, ops, sizeof given);
            for (size_t c = 0; c < COUNTOF(calls); c++)
                draw_given(&calls[c], &rng, &given[c]);
            check_valid(w, given);
        }
    }
}

TEST_PROGRAM_ARGUMENTS(api_random)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(spoiled_calls)};
    if (argc > 1)
        count = strtoul(argv[1], NULL, 10);
    if (argc > 2)
        seed = strtoul(argv[2], NULL, 10);
    if (!have_device("calls with one thing wrong"))
        return 77;
    printf("%lu calls, seed %lu\n", count, seed);
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
