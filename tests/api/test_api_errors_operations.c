/* The errors that all operations have: no plan, no op, another size of a struct, and each field
 * of each example made wrong in every way that its kind knows. SPDX-License-Identifier: MIT */
#include "api_errors.h"
#include "example.h"
#include "test_program.h"

/* Whether an error names a field: its last member that is not a gradient's tensor; of an array,
 * and of its length, the element or the array. */
static bool names(const char *said, const struct field *f)
{
    char word[64];
    snprintf(word, sizeof word, "%s", f->name);
    char *end = strstr(word, ".tensor");
    if (end)
        *end = '\0';
    char *last = strrchr(word, '.');
    last = last ? last + 1 : word;
    end = strchr(last, '[');
    if (f->fault != COUNT && !end)
        return has_word(said, last);
    if (end)
        end[-1] = '\0'; /* the plural's s */
    return strstr(said, f->fault == COUNT ? last + strlen("n_") : last);
}

static void fails(struct world *w, const struct example *e, const struct field *f, const void *op)
{
    expect_begin(w);
    const enum vka_status status = e->add(w->plan, op);
    if (status == VKA_OK)
        fail_msg("%s takes a wrong %s", e->name, f->name);
    if (!names(vka_device_error(w->device), f))
        fail_msg("%s does not name %s: %s", e->name, f->name, vka_device_error(w->device));
    expect_end(w, status, VKA_INVALID, e->name, __LINE__);
}

/* The bytes at a field are others. */
static void fails_with(struct world *w, const struct instance *good, const struct field *f,
                       const void *bytes)
{
    alignas(max_align_t) char op[EXAMPLE_BYTES];
    example_copy(good, op);
    memcpy(op + f->offset, bytes, f->size);
    fails(w, good->example, f, op);
}

static void wrong_tensors(struct world *w, const struct instance *good, const struct field *f)
{
    static const enum vka_dtype dtypes[] = {VKA_F32, VKA_F16, VKA_BF16, VKA_I32, VKA_BOOL, VKA_I8};
    const uint32_t *shape = f->shape;
    struct vka_tensor *tensor = NULL;
    if (field_is_needed(f))
        fails_with(w, good, f, &tensor);
    tensor = world_tensor(w, w->other, field_dtype(f), f->rank, shape);
    fails_with(w, good, f, &tensor);
    for (size_t i = 0; i < COUNTOF(dtypes); i++) {
        tensor = world_tensor(w, w->device, dtypes[i], f->rank, shape);
        if (!field_takes(f, dtypes[i]))
            fails_with(w, good, f, &tensor);
    }
}

static void wrong_numbers(struct world *w, const struct instance *good, const struct field *f,
                          const double *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        alignas(max_align_t) char op[EXAMPLE_BYTES];
        example_copy(good, op);
        field_set(f, op, numbers[i]);
        fails(w, good->example, f, op);
    }
}

#define NUMBERS(...)                                         \
    wrong_numbers(w, good, f, (const double[]){__VA_ARGS__}, \
                  sizeof((double[]){__VA_ARGS__}) / sizeof(double))

static void wrong_field(struct world *w, const struct instance *good, const struct field *f)
{
    const size_t sizes[] = {0, (size_t)f->number - 1, (size_t)f->number + 8, SIZE_MAX};
    switch (f->fault) {
    case SIZE:
        for (size_t i = 0; i < COUNTOF(sizes); i++)
            fails_with(w, good, f, &sizes[i]);
        return;
    case LAYER:
        fails_with(w, good, f, &w->foreign);
        fails_with(w, good, f, &(void *){NULL});
        return;
    case LINK:
        fails_with(w, good, f, &(void *){NULL});
        return;
    case ENUM:
        NUMBERS(f->limit, UINT32_MAX);
        return;
    case FINITE:
        NUMBERS(NAN, INFINITY, -INFINITY);
        return;
    case POSITIVE:
        NUMBERS(NAN, INFINITY, -1);
        return;
    case RATE:
        NUMBERS(NAN, f->limit + 1, -1);
        return;
    case GIVEN:
        NUMBERS(1u << 31, ~f->limit);
        return;
    case WINDOW:
        NUMBERS(-2, INT32_MIN);
        return;
    case EVEN:
        NUMBERS(f->limit - 1, f->limit + 2);
        return;
    case SHORT:
        NUMBERS(65536, UINT32_MAX);
        return;
    case COUNT:
        NUMBERS(0);
        return;
    case ANY:
        return;
    case OPERAND:
    case OUTPUT:
    case FREE:
    case BROADCAST:
    case OPTIONAL:
    case GRADIENT:
    case KEPT:
    case FLOATS:
    case MASK:
    case INDICES:
    case DRAWN:
    case INTEGERS:
        wrong_tensors(w, good, f);
    }
}

static void operations(void **state)
{
    struct world *w = *state;
    struct vka_plan *finished = NULL;
    assert_int_equal(vka_plan_create(w->device, NULL, &finished), VKA_OK);
    const struct vka_linear_op linear = {.struct_size = sizeof linear,
                                         .input = T(VKA_F32, 5, 3),
                                         .weight = T(VKA_F32, 4, 3),
                                         .output = T(VKA_F32, 5, 4)};
    assert_int_equal(vka_plan_add_linear(finished, &linear), VKA_OK);
    assert_int_equal(vka_plan_finish(finished), VKA_OK);
    for (size_t i = 0; i < N_EXAMPLE; i++) {
        const struct example *e = &examples[i];
        struct instance good;
        assert_int_equal(example_create(e, w->device, VKA_F32, &good), VKA_OK);
        FAILS(VKA_INVALID, NULL, e->add(NULL, good.op));
        FAILS(VKA_INVALID, "op", e->add(w->plan, NULL));
        FAILS(VKA_INVALID, "finished", e->add(finished, good.op));
        for (size_t j = 0; j < e->n_field; j++)
            wrong_field(w, &good, &e->fields[j]);
        if (e->add(w->plan, good.op) != VKA_OK)
            fail_msg("%s: %s", e->name, vka_device_error(w->device));
        example_destroy(&good);
    }
    vka_plan_destroy(&finished);
}

TEST_PROGRAM(api_errors_operations)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(operations),
                                       cmocka_unit_test(world_is_well)};
    if (!have_device("the errors of all operations"))
        return 77;
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
