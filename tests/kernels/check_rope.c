/* RMS norm and rotation: types x dimensions x pairings x positions, near and very far. */
#include "check.h"

#include <op/common/copy.h>
#include <op/rotary/heads.h>
#include <reference/reference.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 3
#define HEADS 2
#define ROWS 7
#define SURPLUS 61 /* canary elements behind the kernel's output */
#define LIMIT ((int64_t)1 << 30)

static const uint32_t dims[][2] = {
    /* head_dim, how many of them rotate */
    {1, 0}, {2, 2}, {6, 4}, {7, 6}, {64, 64}, {80, 32}, {130, 130},
};

static const int32_t positions[] = {
    0, 5, -7, 1000000, -1000000, (1 << 24) + 1, -(1 << 24) - 1, 1 << 30, INT32_MIN, INT32_MAX};

/* Where offsets are NULL: the last row stands at 2^31 - 1. */
static const uint32_t firsts[] = {0, 0, 0, 12345, (1u << 24) - 3, 1u << 30, INT32_MAX - ROWS + 1};

static const float bases[] = {0, 0, 500000, 1, 1.0000001f, 3, 1e30f, FLT_MAX};

struct rope_case {
    struct vka_rope rope;
    uint32_t head_dim, first;
    enum per_batch offsets;
    float epsilon;
    struct operand from, norm, offset, to; /* norm and offset: view NULL where absent */
    double frequencies[65];
    double *want; /* [BATCH][HEADS][ROWS][head_dim] */
};

static void print_case(const struct rope_case *t, char text[CASE_TEXT])
{
    int length = snprintf(
        text, CASE_TEXT, "%s dim %u, %u rotate%s, base %g%s, factor %g, epsilon %g%s, first %u",
        vka_dtype_name(t->from.dtype), t->head_dim, t->rope.dim,
        t->rope.interleaved ? " interleaved" : "", (double)t->rope.base,
        t->rope.frequencies ? ", frequencies" : "", (double)t->rope.attention_factor,
        (double)t->epsilon, t->norm.view ? ", norm" : "", t->first);
    for (size_t i = 0; i < t->offset.count; i++)
        length += snprintf(text + length, CASE_TEXT - (size_t)length, "%s %.0f",
                           i ? "" : ", offsets", t->offset.values[i]);
}

static enum vka_status create(struct check *c, enum vka_dtype type, bool norm, struct rope_case *t)
{
    const uint32_t size[4] = {BATCH, HEADS, ROWS, t->head_dim};
    struct layout from = layout_random(&c->rng, 4), to = layout_random(&c->rng, 4);
    struct layout plain = {.order = {0}, .step = 1, .offset = 5};
    const uint32_t n_offset = t->offsets == PER_BATCH_EACH ? BATCH : 1;
    enum vka_status status = operand_create(c->device, type, 4, size, &from, &t->from);
    if (status == VKA_OK)
        status = operand_create(c->device, VKA_F32, 4, size, &to, &t->to);
    if (status == VKA_OK && norm)
        status = operand_create(c->device, VKA_F32, 1, &t->head_dim, &plain, &t->norm);
    if (status == VKA_OK && t->offsets)
        status = operand_create(c->device, VKA_I32, 1, &n_offset, &plain, &t->offset);
    t->want = calloc((size_t)BATCH * HEADS * ROWS * t->head_dim, sizeof *t->want);
    return status == VKA_OK && !t->want ? VKA_OUT_OF_HOST_MEMORY : status;
}

static void oracle(struct rope_case *t)
{
    memcpy(t->want, t->from.values, t->from.count * sizeof *t->want);
    for (size_t bh = 0; bh < BATCH * HEADS; bh++) {
        size_t batch = t->offset.count > 1 ? bh / HEADS : 0;
        double *x = t->want + bh * ROWS * t->head_dim;
        int64_t first = t->first;
        if (t->offset.view) {
            first = (int64_t)t->offset.values[batch];
            first = first < -LIMIT ? -LIMIT : first > LIMIT ? LIMIT : first;
        }
        if (t->norm.view)
            ref_rms_norm(x, ROWS, t->head_dim, t->norm.values, (double)t->epsilon);
        ref_rope(x, ROWS, t->head_dim, &t->rope, first);
    }
}

static enum vka_status fill(struct check *c, struct rope_case *t)
{
    struct operand *inputs[] = {&t->from, &t->norm, &t->offset};
    enum vka_status status = VKA_OK;
    for (size_t i = 0; i < 2; i++)
        for (size_t j = 0; j < inputs[i]->count; j++)
            inputs[i]->values[j] = rng_uniform(&c->rng, -2, 2);
    for (size_t j = 0; j < t->offset.count; j++)
        t->offset.values[j] = positions[rng_range(&c->rng, 0, COUNTOF(positions) - 1)];
    for (size_t i = 0; i < 3 && status == VKA_OK; i++)
        if (inputs[i]->view)
            status = operand_write(inputs[i]);
    if (status == VKA_OK)
        oracle(t);
    return status;
}

/* The kernel writes to scratch: a plan that already holds a larger one, which compare_runs fills,
 * shows what lies behind it. The result is copied to t->to. */
static enum vka_status add(struct vka_plan *plan, const struct rope_case *t,
                           struct vka_tensor *scratch)
{
    const uint32_t size[4] = {1, 1, 1, (uint32_t)t->from.count + SURPLUS};
    struct plan_mark mark;
    struct vka_tensor rotated = *t->from.view;
    enum vka_status status = plan_begin(plan, __func__, &mark);
    if (status == VKA_OK)
        status = plan_end(plan, &mark, plan_scratch(plan, VKA_F32, size, scratch));
    if (status == VKA_OK)
        status = plan_begin(plan, __func__, &mark);
    if (status != VKA_OK)
        return status;
    status = plan_rotary(plan, "rotate", &t->rope, t->norm.view, t->epsilon, t->offset.view, NULL,
                         t->first, VKA_F32, &rotated);
    if (status == VKA_OK && rotated.storage != scratch->storage)
        status = VKA_INTERNAL; /* this test relies on the plan using free scratch again */
    if (status == VKA_OK)
        status = plan_copy(plan, "out", &rotated, t->to.view);
    return plan_end(plan, &mark, status);
}

static void run_case(struct check *c, enum vka_dtype type, bool norm, struct rope_case *t)
{
    char text[CASE_TEXT] = "operands";
    struct vka_plan *plan = NULL;
    struct vka_tensor scratch;
    enum vka_status status = create(c, type, norm, t);
    size_t used = t->from.count * sizeof(float), size = used + SURPLUS * sizeof(float);
    uint8_t *got = malloc(size);
    if (status == VKA_OK)
        status = got ? fill(c, t) : VKA_OUT_OF_HOST_MEMORY;
    print_case(t, text);
    if (status == VKA_OK)
        status = vka_plan_create(c->device, NULL, &plan);
    if (status == VKA_OK)
        status = add(plan, t, &scratch);
    check_plan(c, plan, status, &t->to, t->want, compare_limit(VKA_F32), text);
    bool whole = status != VKA_OK || vka_tensor_read(&scratch, got, size) == VKA_OK;
    for (size_t i = used; i < size && status == VKA_OK && whole; i++)
        whole = got[i] == SECOND_SOIL;
    if (!whole)
        check_fail(c, text, "what lies behind the output was overwritten");
    vka_plan_destroy(&plan);
    operand_destroy(&t->from);
    operand_destroy(&t->to);
    operand_destroy(&t->norm);
    operand_destroy(&t->offset);
    free(t->want);
    free(got);
}

/* Positions that the kernel's int32 would wrap, and bases whose turns are not known well enough. */
static void check_refused(struct check *c)
{
    static const struct {
        const char *text;
        float base;
        uint32_t first, rows;
        bool offsets;
    } cases[] = {
        {"the row behind 2^31 - 1", 0, INT32_MAX - ROWS + 2, ROWS, false},
        {"rows that wrap 2^32", 0, UINT32_MAX, ROWS, false},
        {"more rows than stand behind the farthest offset", 0, 0, (1u << 30) + 1, true},
        {"base 0.5", 0.5f, 0, ROWS, false},
    };
    const uint32_t size[4] = {1, 1, 1, 2};
    struct vka_tensor *some = NULL;
    struct vka_plan *plan = NULL;
    enum vka_status status = vka_tensor_create(c->device, VKA_F32, 4, size, &some);
    if (status == VKA_OK)
        status = vka_plan_create(c->device, NULL, &plan);
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        struct plan_mark mark;
        if (!check_case(c))
            continue;
        if (status == VKA_OK)
            status = plan_begin(plan, __func__, &mark);
        if (status != VKA_OK) {
            check_fail(c, cases[i].text, vka_device_error(c->device));
            continue;
        }
        const struct vka_rope rope = {.dim = 2, .base = cases[i].base};
        struct vka_tensor rows = *some;
        rows.shape.size[2] = cases[i].rows; /* the same row again and again */
        rows.shape.stride[2] = 0;
        if (plan_end(plan, &mark,
                     plan_rotary(plan, "rotate", &rope, NULL, 0, cases[i].offsets ? some : NULL,
                                 NULL, cases[i].first, VKA_F32, &rows)) != VKA_INVALID)
            check_fail(c, cases[i].text, "was not refused");
    }
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&some);
}

/* From -1 to 1 in steps of 2^-20, so that the double of the oracle holds far angles; now and then 0
 * or a tiny negative one, whose turns round to a whole one. */
static void draw_frequencies(struct check *c, struct rope_case *t)
{
    for (uint32_t i = 0; i < t->rope.dim / 2; i++)
        t->frequencies[i] = rng_chance(&c->rng, 10) ? 0
                            : rng_chance(&c->rng, 10)
                                ? -1e-300
                                : ldexp(rng_range(&c->rng, 0, 1 << 21), -20) - 1;
    t->rope.frequencies = t->frequencies;
    t->rope.base = 0;
}

void check_rope(struct check *c)
{
    check_refused(c);
    for (EACH_TYPE(type, dtype_is_float))
        for (size_t d = 0; d < COUNTOF(dims); d++)
            for (int kind = 0; kind < 12; kind++) { /* pairing x norm x offsets */
                if (!check_case(c))
                    continue;
                struct rope_case t = {
                    .rope = {.dim = dims[d][1],
                             .base = bases[rng_range(&c->rng, 0, COUNTOF(bases) - 1)],
                             .interleaved = kind & 1},
                    .head_dim = dims[d][0],
                    .first = firsts[rng_range(&c->rng, 0, COUNTOF(firsts) - 1)],
                    .offsets = (enum per_batch)(kind / 4),
                    .epsilon = rng_chance(&c->rng, 50) ? 0 : 1e-3f,
                };
                if (rng_chance(&c->rng, 30))
                    t.rope.attention_factor = (float)rng_uniform(&c->rng, -2, 2);
                if (t.rope.dim && rng_chance(&c->rng, 30))
                    draw_frequencies(c, &t);
                run_case(c, type, kind & 2, &t);
            }
}

void bench_rope(struct check *c)
{
    const uint32_t size[4] = {1, 32, 512, 128};
    struct operand from = {0};
    struct layout dense = layout_dense();
    struct vka_plan *plan = NULL;
    struct plan_mark mark;
    enum vka_status status = operand_create(c->device, VKA_F32, 4, size, &dense, &from);
    if (status == VKA_OK)
        status = vka_plan_create(c->device, VKA_INFO(vka_plan_info, .timestamps = true), &plan);
    if (status == VKA_OK)
        status = plan_begin(plan, __func__, &mark);
    if (status == VKA_OK) {
        struct vka_tensor rotated = *from.view;
        status = plan_end(plan, &mark,
                          plan_rotary(plan, "rotate", &(struct vka_rope){.dim = 128}, NULL, 0, NULL,
                                      NULL, 0, VKA_F32, &rotated));
    }
    check_time(c, plan, status, 8.0 * from.count, "GB/s", "32 heads, 512 rows of 128 f32");
    vka_plan_destroy(&plan);
    operand_destroy(&from);
}
