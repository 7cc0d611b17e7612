/* Valid calls with one thing made wrong at random, thousands of them: each is refused, leaves the
 * plan as it was, and the valid calls give the same bits afterwards. What is drawn is wrong by its
 * making: every axis of every operand of an example is tied to another operand's.
 *
 *     test_gpu api_random [COUNT [SEED]]         SPDX-License-Identifier: MIT
 */
#include <stdlib.h>

#include "patience.h"
#include "api_errors.h"
#include "example.h"
#include "problems/rng.h"
#include "test_program.h"

/* ---- The valid calls ------------------------------------------------------------------------- */

static struct instance valid[N_EXAMPLE];

static void make_valid(struct world *w)
{
    for (size_t i = 0; i < N_EXAMPLE; i++)
        if (example_create(&examples[i], w->device, VKA_F32, &valid[i]) != VKA_OK)
            fail_msg("the tensors of %s: %s", examples[i].name, vka_device_error(w->device));
}

/* Says of some numbers that they are given, as which each is as wrong, or as right, as it was. */
static void draw_given(const struct example *example, struct rng *rng, char *op)
{
    for (size_t i = 0; i < example->n_field; i++)
        if (example->fields[i].fault == GIVEN)
            field_set(&example->fields[i], op, rng_range(rng, 0, 31) & example->fields[i].limit);
}

/* A plan of all valid calls; rng NULL: as they are, else whatever is given. */
static struct vka_plan *plan_valid(struct world *w, struct rng *rng)
{
    struct vka_plan *plan = NULL;
    assert_int_equal(vka_plan_create(w->device, NULL, &plan), VKA_OK);
    for (size_t i = 0; i < N_EXAMPLE; i++) {
        alignas(max_align_t) char op[EXAMPLE_BYTES];
        example_copy(&valid[i], op);
        if (rng)
            draw_given(&examples[i], rng, op);
        if (examples[i].add(plan, op) != VKA_OK)
            fail_msg("the valid %s: %s", examples[i].name, vka_device_error(w->device));
    }
    return plan;
}

/* A hash of what all tensors hold after a run. */
static uint64_t run_valid(struct world *w)
{
    uint64_t hash = 14695981039346656037u;
    struct vka_plan *plan = plan_valid(w, NULL);
    for (size_t i = 0; i < N_EXAMPLE; i++)
        assert_int_equal(example_fill(&valid[i]), VKA_OK);
    assert_int_equal(vka_plan_finish(plan), VKA_OK);
    assert_int_equal(vka_plan_run(plan, PATIENCE), VKA_OK);
    for (size_t i = 0; i < N_EXAMPLE; i++)
        for (size_t j = 0; j < examples[i].n_field; j++) {
            unsigned char bytes[1024];
            const struct vka_tensor *tensor = valid[i].tensors[j];
            if (!tensor)
                continue;
            assert_in_range(vka_tensor_size(tensor), 1, sizeof bytes);
            assert_int_equal(vka_tensor_read(valid[i].tensors[j], bytes, vka_tensor_size(tensor)),
                             VKA_OK);
            for (size_t k = 0; k < vka_tensor_size(tensor); k++)
                hash = (hash ^ bytes[k]) * 1099511628211u;
        }
    vka_plan_destroy(&plan);
    return hash;
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
        if (!field_takes(f, dtype))
            return dtype;
    }
}

/* One axis of another length, which nothing broadcasts from. */
static void wrong_axis(const struct field *f, struct rng *rng, uint32_t *shape)
{
    uint32_t axis;
    do
        axis = rng_range(rng, 0, f->rank - 1);
    while (f->fault == FREE && axis == f->limit);
    const uint32_t right = shape[axis];
    const bool last = axis == f->rank - 1, repeats = f->fault == MASK || f->fault == BROADCAST;
    while (shape[axis] == right || (repeats && shape[axis] == 1) ||
           (f->fault == MASK && last && shape[axis] < right) ||
           (f->fault == INTEGERS && shape[axis] == 1))
        shape[axis] = rng_range(rng, 1, 40);
}

/* A tensor that the call cannot take; NULL may be one. */
static struct vka_tensor *wrong_tensor(struct world *w, const struct field *f, struct rng *rng)
{
    uint32_t shape[VKA_MAX_RANK] = {1, 1, 1, 1}, rank = f->rank;
    const enum vka_dtype right = field_dtype(f);
    memcpy(shape, f->shape, f->rank * sizeof *shape);
    switch (rng_range(rng, 0, f->fault == KEPT ? 2 : 4)) {
    case 0:
        return field_is_needed(f) ? NULL : tensor_of(w->other, right, rank, shape);
    case 1:
        return tensor_of(w->other, right, rank, shape);
    case 2:
        return tensor_of(w->device, wrong_dtype(f, rng), rank, shape);
    case 3:
        if (f->fault != MASK && f->fault != BROADCAST && rank < VKA_MAX_RANK)
            return tensor_of(w->device, right, rank + 1, shape); /* with an axis of 1 behind */
        break;
    default:
        break;
    }
    wrong_axis(f, rng, shape);
    return tensor_of(w->device, right, rank, shape);
}

/* A view of the right shape with an axis whose elements are one; NULL: no axis has two. */
static struct vka_tensor *folded(struct vka_tensor *whole, const struct field *f)
{
    uint64_t strides[VKA_MAX_RANK], next = 1;
    struct vka_tensor *view = NULL;
    bool folds = false;
    for (uint32_t i = f->rank; i-- > 0; next *= f->shape[i]) {
        strides[i] = folds || f->shape[i] == 1 ? next : 0;
        folds |= f->shape[i] > 1;
    }
    if (folds)
        assert_int_equal(vka_tensor_strided(whole, 0, f->rank, f->shape, strides, &view), VKA_OK);
    return view;
}

static float wrong_float(const struct field *f, struct rng *rng)
{
    const float none[] = {NAN, INFINITY, -INFINITY};
    float number = (float)ldexp(rng_uniform(rng, 0.5, 1), (int)rng_range(rng, 0, 60) - 30);
    uint32_t kind = rng_range(rng, 0, 5);
    if (f->fault == FINITE || kind < COUNTOF(none))
        return none[kind % COUNTOF(none)];
    return f->fault == RATE && kind == 5 ? fmaxf(1 + number, f->limit ? nextafterf(1, 2) : 1)
                                         : -number;
}

static uint32_t wrong_word(const struct field *f, struct rng *rng)
{
    uint32_t word;
    switch ((int)f->fault) {
    case COUNT:
        return 0;
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

/* Any field of which some values are wrong. */
static const struct field *draw_field(struct rng *rng, size_t *example)
{
    size_t all = 0;
    for (size_t i = 0; i < N_EXAMPLE; i++)
        all += examples[i].n_field;
    for (;;) {
        size_t at = rng_range(rng, 0, (uint32_t)all - 1);
        for (*example = 0; at >= examples[*example].n_field; ++*example)
            at -= examples[*example].n_field;
        if (examples[*example].fields[at].fault != ANY)
            return &examples[*example].fields[at];
    }
}

/* Spoils a field of op. The tensor made for that, to be destroyed, or NULL. */
static struct vka_tensor *spoil(struct world *w, const struct instance *instance,
                                const struct field *f, struct rng *rng, char *op)
{
    char *at = op + f->offset;
    struct vka_tensor *tensor = NULL;
    size_t size = (size_t)f->number;
    switch ((int)f->fault) {
    case SIZE:
        while (size == (size_t)f->number)
            size = rng_chance(rng, 50) ? rng_range(rng, 0, 4096) : (size_t)rng_next(rng);
        memcpy(at, &size, sizeof size);
        break;
    case LINK:
        memset(at, 0, f->size);
        break;
    case LAYER:
        memcpy(at, rng_chance(rng, 50) ? &w->foreign : &(struct vka_layer *){NULL}, f->size);
        break;
    case FINITE:
    case POSITIVE:
    case RATE:
        field_set(f, op, (double)wrong_float(f, rng));
        break;
    default:
        if (f->fault < TENSOR_FAULTS) {
            if (field_is_written(f) && rng_chance(rng, 20))
                tensor = folded(instance->tensors[f - instance->example->fields], f);
            tensor = tensor ? tensor : wrong_tensor(w, f, rng);
            memcpy(at, &tensor, sizeof tensor);
        } else {
            field_set(f, op, (double)wrong_word(f, rng));
        }
    }
    return tensor;
}

/* ---- The test -------------------------------------------------------------------------------- */

static unsigned long count = 10000, seed = 1;

static void spoiled_calls(void **state)
{
    struct world *w = *state;
    struct rng rng = {seed};
    make_valid(w);
    const uint64_t first = run_valid(w);
    for (unsigned long i = 0; i < count; i++) {
        size_t at;
        alignas(max_align_t) char op[EXAMPLE_BYTES];
        const struct field *f = draw_field(&rng, &at);
        example_copy(&valid[at], op);
        draw_given(&examples[at], &rng, op);
        struct vka_tensor *made = spoil(w, &valid[at], f, &rng, op);
        expect_begin(w);
        enum vka_status status = examples[at].add(w->plan, op);
        if (status == VKA_OK)
            fail_msg("call %lu of seed %lu: %s took a fault of %s", i, seed, examples[at].name,
                     f->name);
        expect_end(w, status, VKA_INVALID, examples[at].name, (int)i);
        vka_tensor_destroy(&made);
        if (i % 500 == 499) {
            struct vka_plan *plan = plan_valid(w, &rng);
            vka_plan_destroy(&plan);
            assert_true(run_valid(w) == first);
        }
    }
    for (size_t i = 0; i < N_EXAMPLE; i++)
        example_destroy(&valid[i]);
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
