#include "check_model.h"

#include "patience.h"

#include <math.h>
#include <string.h>

enum vka_status model_operand(struct check *c, enum vka_dtype dtype, uint32_t rank,
                              const uint32_t *size, struct operand *o)
{
    const struct layout layout = layout_random(&c->rng, rank);
    return operand_create(c->device, dtype, rank, size, &layout, o);
}

enum vka_status model_halves(struct check *c, uint32_t rank, const uint32_t *size, size_t n,
                             struct operand *const o[])
{
    const struct layout dense = layout_dense();
    enum vka_status status = VKA_OK;
    for (size_t i = 0; i < n && status == VKA_OK; i++)
        status = operand_create(c->device, VKA_F16, rank, size, &dense, o[i]);
    return status;
}

enum vka_status model_fill(struct check *c, struct operand *o, double low, double high)
{
    if (!o->view)
        return VKA_OK;
    for (size_t i = 0; i < o->count; i++)
        o->values[i] = operand_round(o->dtype, rng_uniform(&c->rng, low, high));
    return operand_write(o);
}

enum vka_status model_stretch(struct check *c, struct operand *o, const int *powers, size_t n)
{
    const int power = powers[rng_range(&c->rng, 0, n - 1)];
    if (!o->view || o->dtype != VKA_F32 || rng_chance(&c->rng, 50))
        return VKA_OK;
    for (size_t i = 0; i < o->count; i++)
        o->values[i] = ldexp(o->values[i], power);
    return operand_write(o);
}

/* Not every case is long enough to be cut. */
static void check_budget(struct check *c, add_model_op *add, const void *op, struct operand *output,
                         const char *text)
{
    struct vka_plan *whole = NULL, *cut = NULL;
    char why[WHY] = "";
    enum vka_status status =
        vka_plan_create(c->device, VKA_INFO(vka_plan_info, .submit_budget = VKA_NO_BUDGET), &whole);
    if (status == VKA_OK)
        status = vka_plan_create(c->device, VKA_INFO(vka_plan_info, .submit_budget = 1), &cut);
    if (status == VKA_OK)
        status = add(whole, op);
    if (status == VKA_OK)
        status = add(cut, op);
    if (status == VKA_OK && cut->n_pass > whole->n_pass) {
        status = vka_plan_finish(whole);
        if (status == VKA_OK)
            status = vka_plan_finish(cut);
        if (status == VKA_OK && !compare_plans(c->device, whole, cut, &output, 1, &c->rng, why))
            check_fail(c, text, why);
    }
    if (status != VKA_OK)
        check_fail(c, text, vka_device_error(c->device));
    vka_plan_destroy(&whole);
    vka_plan_destroy(&cut);
}

void model_check(struct check *c, enum vka_status status, add_model_op *add, const void *op,
                 struct operand *output, const double *want, const char *text)
{
    struct vka_plan *plan = NULL;
    const long failed = c->n_failed;
    if (status == VKA_OK)
        status = vka_plan_create(c->device, NULL, &plan);
    if (status == VKA_OK)
        status = add(plan, op);
    check_plan(c, plan, status, output, want, compare_limit(output->dtype), text);
    vka_plan_destroy(&plan);
    if (c->n_failed == failed && c->turn == 0)
        check_budget(c, add, op, output, text);
}

void model_run_in_place(struct check *c, struct vka_plan *plan, enum vka_status status,
                        struct operand *result, const double *want, const char *text)
{
    char why[WHY];
    if (status == VKA_OK)
        status = vka_plan_finish(plan);
    if (status == VKA_OK)
        status = vka_plan_run(plan, PATIENCE);
    if (status == VKA_OK)
        status = operand_read(result);
    if (status != VKA_OK)
        check_fail(c, text, vka_device_error(c->device));
    else if (!compare_values(result, want, compare_limit(result->dtype), "in place", text,
                             &c->worst, why))
        check_fail(c, text, why);
    vka_plan_destroy(&plan);
}

void model_time(struct check *c, enum vka_status status, add_model_op *add, const void *op,
                double bytes, const char *text)
{
    struct vka_plan *plan = NULL;
    if (status == VKA_OK)
        status = vka_plan_create(c->device, VKA_INFO(vka_plan_info, .timestamps = true), &plan);
    if (status == VKA_OK)
        status = add(plan, op);
    check_time(c, plan, status, bytes, "GB/s", text);
    vka_plan_destroy(&plan);
}
