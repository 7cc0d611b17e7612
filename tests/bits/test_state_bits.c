/* The bits of linear attention, token by token and by chunks: a sequence of a ragged or padded batch has
 * those that it has alone, whatever the neighbours, the budget and, in a family, the slices that it comes
 * in; what is no number reaches no earlier token. With the argument `matrices` keys are of float16, and
 * chunks are taken by matrix units. SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <vkattn/vkattn_model.h>

#include "patience.h"
#include "core/arith.h"
#include "plan/plan.h"
#include "problems/operand.h"
#include "problems/rng.h"
#include "problems/turns.h"
#include "test_program.h"

enum {
    SEQUENCES = 5,
    MOST = 150, /* rows of a sequence */
    HEADS = 2,
    KEYS = 12, /* features of a key, and of a value */
    VALUES = 8,
    ROW = HEADS * VALUES,
    STATE = HEADS * KEYS * VALUES,
    WHOLE = 1000, /* rows for which the rule takes chunks */
    SMALL_RANGE = 70000
};
enum rows { DENSE, PADDED, RAGGED };
enum { Q, K, V, DECAY, BETA, STATES, STARTS, Y, OPERANDS };

static const uint32_t rows_of[SEQUENCES] = {1, MOST, 0, 63, 64};
static const uint32_t width_of[] = {[Q] = KEYS, [K] = KEYS, [V] = VALUES, [DECAY] = 1, [BETA] = 1};

/* What a run gives, in the places of all sequences. */
struct result {
    float y[SEQUENCES][MOST][ROW], state[SEQUENCES][STATE];
    uint32_t recurrent, chunked; /* passes */
};

/* Sequences first .. first + count - 1, of each its rows begin .. end - 1. */
struct run {
    enum rows rows;
    uint32_t first, count, begin, end;
    uint32_t whole_n_q;
    uint64_t budget, workspace;
};

static struct vka_device *device;
static bool by_matrices;
static enum kernel wanted_kernel;

/* A number of sequence 1, which is no number. */
static struct {
    int operand;
    uint32_t row, at;
    float value;
} poison;
static bool poisoned;

static void check(enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s", vka_status_name(status), vka_device_error(device));
}

/* Keys shorter than 1, and decays of which some are strong. */
static float value_of(int operand, uint32_t sequence, uint32_t row, uint32_t at)
{
    if (poisoned && operand == poison.operand && sequence == 1 && row == poison.row &&
        at == poison.at)
        return poison.value;
    struct rng rng = {((uint64_t)operand << 48) + ((uint64_t)sequence << 32) + (row << 10) + at};
    const double x = rng_uniform(&rng, -1, 1);
    return operand == DECAY  ? (float)(x > 0.8 ? -20 * x : 0.05 * (x - 1))
           : operand == BETA ? (float)(x + 1) / 2
           : operand == K    ? (float)x / sqrtf(KEYS)
                             : (float)x;
}

static uint32_t count_rows(const struct run *r, uint32_t i)
{
    const uint32_t n = rows_of[r->first + i];
    return (n < r->end ? n : r->end) - (n < r->begin ? n : r->begin);
}

/* The first row of sequence i where they are packed; that of `count` is behind the last. */
static uint32_t start_of(const struct run *r, uint32_t i)
{
    uint32_t start = 0;
    for (uint32_t before = 0; before < i; before++)
        start += count_rows(r, before);
    return start;
}

/* Rows of each of the tensors' batches. */
static uint32_t rows_together(const struct run *r)
{
    uint32_t n = 1;
    for (uint32_t i = 0; i < r->count; i++)
        n = count_rows(r, i) > n ? count_rows(r, i) : n;
    return r->rows == RAGGED ? start_of(r, r->count) : n;
}

/* Where feature 0 of a head's row is in a tensor of [batch][head][row][width]. */
static size_t place_of(const struct run *r, uint32_t i, uint32_t head, uint32_t row, uint32_t width)
{
    const uint32_t batch = r->rows == RAGGED ? 0 : i;
    const uint32_t at = r->rows == RAGGED ? start_of(r, i) + row : row;
    return (((size_t)batch * HEADS + head) * rows_together(r) + at) * width;
}

static struct vka_tensor *create(const struct run *r, enum vka_dtype dtype, uint32_t width,
                                 float **values, size_t *count)
{
    const uint32_t batch = r->rows == RAGGED ? 1 : r->count;
    const uint32_t size[4] = {batch, HEADS, rows_together(r), width};
    struct vka_tensor *t = NULL;
    *count = (size_t)batch * HEADS * size[2] * width;
    *values = malloc(*count * sizeof **values);
    assert_non_null(*values);
    for (size_t i = 0; i < *count; i++)
        (*values)[i] = NAN; /* rows that are not of a sequence reach nothing */
    check(vka_tensor_create(device, dtype, width == 1 ? 3 : 4, size, &t));
    return t;
}

/* The values in float16. */
static void narrow(float *values, size_t count)
{
    uint8_t *to = (uint8_t *)values;
    for (size_t i = 0; i < count; i++)
        operand_encode(VKA_F16, (double)values[i], to + 2 * i);
}

static struct vka_tensor *fill(const struct run *r, int operand)
{
    const uint32_t width = width_of[operand];
    const bool narrowed = by_matrices && (operand == Q || operand == K);
    float *values;
    size_t count;
    struct vka_tensor *t = create(r, narrowed ? VKA_F16 : VKA_F32, width, &values, &count);
    for (uint32_t i = 0; i < r->count; i++)
        for (uint32_t row = 0; row < count_rows(r, i); row++)
            for (uint32_t at = 0; at < HEADS * width; at++)
                values[place_of(r, i, at / width, row, width) + at % width] =
                    value_of(operand, r->first + i, r->begin + row, at);
    if (narrowed)
        narrow(values, count);
    check(vka_tensor_write(t, values, count * (narrowed ? 2 : sizeof *values)));
    free(values);
    return t;
}

static struct vka_tensor *fill_starts(const struct run *r)
{
    const uint32_t count = r->rows == RAGGED ? r->count + 1 : r->count;
    int32_t values[SEQUENCES + 1];
    struct vka_tensor *t = NULL;
    if (r->rows == DENSE)
        return NULL;
    for (uint32_t i = 0; i < count; i++)
        values[i] = (int32_t)(r->rows == RAGGED ? start_of(r, i) : count_rows(r, i));
    check(vka_tensor_create(device, VKA_I32, 1, &count, &t));
    check(vka_tensor_write(t, values, count * sizeof *values));
    return t;
}

static void read_rows(const struct run *r, struct vka_tensor *y, struct result *result)
{
    float *values;
    size_t count;
    struct vka_tensor *same = create(r, VKA_F32, VALUES, &values, &count);
    check(vka_tensor_read(y, values, count * sizeof *values));
    for (uint32_t i = 0; i < r->count; i++)
        for (uint32_t row = 0; row < count_rows(r, i); row++)
            for (uint32_t head = 0; head < HEADS; head++)
                memcpy(&result->y[r->first + i][r->begin + row][head * VALUES],
                       &values[place_of(r, i, head, row, VALUES)], VALUES * sizeof *values);
    vka_tensor_destroy(&same);
    free(values);
}

static void count_passes(const struct vka_plan *plan, struct result *result)
{
    result->recurrent = result->chunked = 0;
    for (size_t i = 0; i < plan->n_pass; i++) {
        result->recurrent += plan->passes[i].key.kernel == KERNEL_linear_recurrent;
        result->chunked += plan->passes[i].key.kernel == wanted_kernel;
    }
}

/* Takes a run's states from a result, and puts what it gives there. */
static void run(const struct run *r, struct result *result)
{
    const uint32_t states[4] = {r->count, HEADS, KEYS, VALUES};
    struct vka_tensor *t[OPERANDS] = {NULL};
    struct vka_plan *plan = NULL;
    float *none;
    size_t count;
    for (int i = Q; i <= BETA; i++)
        t[i] = fill(r, i);
    t[STARTS] = fill_starts(r);
    t[Y] = create(r, VKA_F32, VALUES, &none, &count);
    free(none);
    check(vka_tensor_create(device, VKA_F32, 4, states, &t[STATES]));
    const size_t size = r->count * sizeof result->state[0];
    check(vka_tensor_write(t[STATES], result->state[r->first], size));
    check(vka_plan_create(device,
                          VKA_INFO(vka_plan_info, .submit_budget = r->budget,
                                   .whole_n_q = r->whole_n_q, .workspace_limit = r->workspace),
                          &plan));
    check(vka_plan_add_linear_attention(
        plan, VKA_INFO(vka_linear_attention_op, .rule = VKA_RULE_GATED_DELTA, .q = t[Q], .k = t[K],
                       .v = t[V], .decay = t[DECAY], .beta = t[BETA], .past_state = t[STATES],
                       .present_state = t[STATES], .lengths = r->rows == PADDED ? t[STARTS] : NULL,
                       .q_start = r->rows == RAGGED ? t[STARTS] : NULL, .output = t[Y])));
    check(vka_plan_finish(plan));
    count_passes(plan, result);
    check(vka_plan_run(plan, PATIENCE));
    read_rows(r, t[Y], result);
    check(vka_tensor_read(t[STATES], result->state[r->first], size));
    vka_plan_destroy(&plan);
    for (int i = 0; i < OPERANDS; i++)
        vka_tensor_destroy(&t[i]);
}

static void reset(struct result *result)
{
    memset(result, 0, sizeof *result);
    for (uint32_t i = 0; i < SEQUENCES; i++)
        for (uint32_t at = 0; at < STATE; at++)
            result->state[i][at] = value_of(STATES, i, 0, at);
}

static void compare(const struct result *got, const struct result *want, const char *how)
{
    for (uint32_t i = 0; i < SEQUENCES; i++)
        if (memcmp(got->y[i], want->y[i], sizeof got->y[i]) != 0 ||
            memcmp(got->state[i], want->state[i], sizeof got->state[i]) != 0)
            fail_msg("%s: the sequence of %u rows has other bits", how, rows_of[i]);
}

static struct result alone, other;

static void each_alone(uint32_t whole_n_q)
{
    reset(&alone);
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        const struct run r = {DENSE, i, 1, 0, MOST, whole_n_q, 0, 0};
        if (rows_of[i] == 0)
            continue;
        run(&r, &alone);
        const bool chunked = (whole_n_q ? whole_n_q : rows_of[i]) >= 64;
        if (!alone.chunked != !chunked || !alone.recurrent != chunked)
            fail_msg("%u rows, whole_n_q %u: the rule takes another kernel", rows_of[i], whole_n_q);
    }
}

/* Packed rows and padded ones are taken in turn at a landing: each makes pipelines of its own. */
static bool takes(enum rows rows)
{
    const uint32_t turn = turn_of(2);
    return turn == 2 || (turn == 1) == (rows == RAGGED);
}

static void neighbours(void **state)
{
    static const char *const names[][2] = {[PADDED] = {"padded", "padded, with a budget of 1 ns"},
                                           [RAGGED] = {"ragged", "ragged, with a budget of 1 ns"}};
    (void)state;
    each_alone(0);
    for (enum rows rows = PADDED; rows <= RAGGED; rows++)
        for (uint64_t budget = 0; budget <= 1 && takes(rows); budget++) {
            const struct run r = {rows, 0, SEQUENCES, 0, MOST, 0, budget, 0};
            reset(&other);
            run(&r, &other);
            assert_true(other.chunked > budget && other.recurrent > budget);
            compare(&other, &alone, names[rows][budget]);
        }
}

/* Room for few chunks: two by the plan's limit, one or more by what the device allocates, and by bindings,
 * which hold the queries of four sequences, but not of all. */
static void little_room(void **state)
{
    struct vka_device_properties *has = &device->caps.properties;
    const uint64_t most = has->max_allocation, range = has->max_buffer_range;
    (void)state;
    each_alone(0);
    for (enum rows rows = PADDED; rows <= RAGGED; rows++)
        for (int i = 0; i < 3 && takes(rows); i++) {
            static const char *const whats[] = {"a small workspace", "small allocations",
                                                "less than the queries in a binding"};
            const struct run r = {rows, 0, SEQUENCES, 0, MOST, 0, VKA_NO_BUDGET, i ? 0 : 70000};
            if (i == 2 && rows == RAGGED) /* whose rows are not sliced */
                continue;
            reset(&other);
            has->max_allocation = i == 1 ? 200000 : most;
            has->max_buffer_range = i == 2 ? SMALL_RANGE : range;
            run(&r, &other);
            has->max_allocation = most;
            has->max_buffer_range = range;
            assert_true(other.chunked > 2);
            compare(&other, &alone, whats[i]);
        }
}

/* Slices of so many rows, each with the states of the one before. */
static void run_slices(uint32_t rows, uint32_t whole_n_q)
{
    reset(&other);
    for (uint32_t begin = 0; begin < MOST; begin += rows) {
        const struct run r = {
            takes(RAGGED) ? RAGGED : PADDED, 0, SEQUENCES, begin, begin + rows, whole_n_q, 0, 0};
        run(&r, &other);
        if (!other.chunked != (whole_n_q < 64) || !other.recurrent != (whole_n_q >= 64))
            fail_msg("whole_n_q %u: the rule takes another kernel", whole_n_q);
    }
}

/* whole_n_q takes one family for all. */
static void slices(void **state)
{
    (void)state;
    each_alone(1);
    run_slices(47, 1);
    compare(&other, &alone, "token by token, in slices of 47 rows");
    each_alone(WHOLE);
    run_slices(64, WHOLE);
    compare(&other, &alone, "by chunks, in slices of 64 rows");
}

/* Whether a number of sequence 1 has other bits than without poison, or is finite where it must not be. */
static void compare_poisoned(const char *what)
{
    for (uint32_t row = 0; row < MOST; row++)
        for (uint32_t at = 0; at < ROW; at++) {
            const float got = other.y[1][row][at], want = alone.y[1][row][at];
            const bool reached =
                row >= poison.row && at / VALUES == 0 && (poison.operand != V || at == poison.at);
            if (reached ? isfinite(got) : memcmp(&got, &want, sizeof got) != 0)
                fail_msg("%s: row %u, value %u: %g", what, row, at, (double)got);
        }
}

/* NaN or Inf of a key, decay or beta reaches all values of its head, of a value those of its column, from its
 * token on. */
static void no_numbers(void **state)
{
    static const float values[] = {NAN, INFINITY};
    const struct run r = {DENSE, 1, 1, 0, MOST, WHOLE, 0, 0};
    (void)state;
    reset(&alone);
    run(&r, &alone);
    static const int operands[] = {K, V, DECAY, BETA};
    static const char *const names[] = {"a key", "a value", "a decay", "a beta"};
    for (size_t o = 0; o < COUNTOF(operands); o++)
        for (size_t i = 0; i < COUNTOF(values); i++) {
            poison.operand = operands[o];
            poison.row = 70;           /* within the second chunk */
            poison.at = o < 2 ? 3 : 0; /* feature, or head */
            poison.value = values[i];
            poisoned = true;
            reset(&other);
            run(&r, &other);
            poisoned = false;
            assert_true(other.chunked > 0);
            compare_poisoned(names[o]);
        }
}

/* Passes that keep no state, in a plan that neither gets nor returns one. */
static uint32_t count_lost(struct vka_tensor *const t[OPERANDS], uint64_t budget)
{
    struct vka_plan *plan = NULL;
    uint32_t lost = 0;
    check(vka_plan_create(device, VKA_INFO(vka_plan_info, .submit_budget = budget, .whole_n_q = 1),
                          &plan));
    check(vka_plan_add_linear_attention(
        plan, VKA_INFO(vka_linear_attention_op, .rule = VKA_RULE_GATED_DELTA, .q = t[Q], .k = t[K],
                       .v = t[V], .decay = t[DECAY], .beta = t[BETA], .output = t[Y])));
    for (size_t i = 0; i < plan->n_pass; i++)
        lost += plan->passes[i].bindings[6].storage == t[Q]->storage; /* which stands in */
    vka_plan_destroy(&plan);
    return lost;
}

/* The rate that the first plan measures, which has a margin, may cut tokens that the cautious one would not
 * have: the state passes from pass to pass all the same. Nothing is run. */
static void state_between_passes(void **state)
{
    const uint32_t size[4] = {1, HEADS, 512, 128};
    struct vka_tensor *t[OPERANDS] = {NULL};
    (void)state;
    for (int i = Q; i < OPERANDS; i++)
        check(vka_tensor_create(device, VKA_F32, i == DECAY || i == BETA ? 3 : 4, size, &t[i]));
    for (double budget = 1e7; budget < 1e9; budget *= 1.3) {
        memset(&device->rates, 0, sizeof device->rates);
        assert_true(count_lost(t, (uint64_t)budget) <= HEADS);
    }
    memset(&device->rates, 0, sizeof device->rates);
    for (int i = 0; i < OPERANDS; i++)
        vka_tensor_destroy(&t[i]);
}

TEST_PROGRAM_ARGUMENTS(state_bits)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(state_between_passes),
                                       cmocka_unit_test(neighbours), cmocka_unit_test(little_room),
                                       cmocka_unit_test(slices), cmocka_unit_test(no_numbers)};
    if (vka_device_create(VKA_INFO(vka_device_info, .skip_self_test = true), &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, no bits of states were compared\n");
        return 77;
    }
    const bool by_address = argc > 1 && strcmp(argv[1], "address") == 0;
    if (!by_address)
        device->caps.properties.type = VKA_DEVICE_DISCRETE; /* goes by chunks */
    by_matrices = argc > 1 && strcmp(argv[1], "matrices") == 0;
    wanted_kernel = by_matrices  ? KERNEL_linear_chunked_coop
                    : by_address ? KERNEL_linear_chunked_address
                                 : KERNEL_linear_chunked;
    if (kernel_missing(wanted_kernel, &device->caps)) {
        fprintf(stderr, "SKIPPED: %s\n", kernel_missing(wanted_kernel, &device->caps));
        vka_device_destroy(&device);
        return 77;
    }
    if (by_matrices) /* heads are narrower than the rule takes */
        set_add(&device->caps.without, KERNEL_linear_chunked);
    const int failed = _cmocka_run_group_tests("state_bits", tests, COUNTOF(tests), NULL, NULL);
    vka_device_destroy(&device);
    return failed;
}
