#include "patience.h"
#include "compare.h"

#include <gpu/command.h>
#include <gpu/kernels.h>
#include <kernel/tune.h>
#include <plan/plan.h>
#include <reference/reference.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SOIL 0xff
#define LEAST_COUNT 16 /* finite elements judged together */

double compare_limit(enum vka_dtype dtype)
{
    return dtype == VKA_F32 ? 1e-11 : dtype == VKA_F16 ? 1e-6 : 5e-5;
}

#define MATRIX_STEP 16u /* terms that NVIDIA's units add at a time, as seen on an H100 */

static bool adds_in_matrices(const struct vka_plan *plan)
{
    const uint32_t needs = NEED_MATRIX_F16 | NEED_MATRIX_BF16;
    for (size_t i = 0; plan && i < plan->n_pass; i++)
        if (kernel_table[plan->passes[i].key.kernel].needs & needs)
            return plan->device->caps.properties.type != VKA_DEVICE_CPU;
    return false;
}

double compare_product_limit(const struct vka_plan *plan, enum vka_dtype dtype, uint32_t k)
{
    const double terms = k < TUNE_CHAIN ? k : TUNE_CHAIN;
    const double loss = adds_in_matrices(plan) ? ceil(terms / MATRIX_STEP) * 0x1p-24 : 0;
    return fmax(compare_limit(dtype), loss * loss);
}

/* Rows that should be all 0: the first that is not, or `rows`. */
static size_t find_nonzero(const double *got, const double *want, size_t rows, size_t width)
{
    for (size_t r = 0; r < rows; r++) {
        bool zero = true, met = true;
        for (size_t i = r * width; i < (r + 1) * width; i++) {
            zero &= want[i] == 0;
            met &= got[i] == 0;
        }
        if (zero && !met)
            return r;
    }
    return rows;
}

/* Elements of a row that say something of its error. */
static size_t count_finite(const double *want, size_t width)
{
    size_t count = 0;
    for (size_t i = 0; i < width; i++)
        count += isfinite(want[i]) && want[i] != 0;
    return count;
}

double compare_rows(const double *got, const double *want, size_t rows, size_t width, size_t *row)
{
    double worst = 0;
    size_t start = 0, previous = 0, count = 0; /* rows start .. r are judged together */
    *row = find_nonzero(got, want, rows, width);
    if (*row < rows)
        return INFINITY;
    *row = 0;
    for (size_t r = 0; r < rows; r++) {
        count += count_finite(want + r * width, width);
        if (count < LEAST_COUNT && r + 1 < rows)
            continue;
        if (count < LEAST_COUNT)
            start = previous; /* what is left over joins the rows before */
        size_t n = (r + 1 - start) * width;
        double nmse = ref_row_nmse(got + start * width, want + start * width, 1, n, NULL);
        if (nmse > worst) {
            worst = nmse;
            *row = start;
        }
        previous = start;
        start = r + 1;
        count = 0;
    }
    return worst;
}

/* Fills the plan's scratch memory, but for its constants, with one byte: what no pass of this run wrote
 * may reach no result. */
static enum vka_status soil_scratch(struct vka_plan *plan, int byte)
{
    enum vka_status status = VKA_OK;
    for (size_t i = 0; i < plan->n_scratch && status == VKA_OK; i++) {
        const struct storage *s = plan->scratches[i].storage;
        uint8_t *bytes = plan->scratches[i].constant ? NULL : malloc(s->bytes);
        if (plan->scratches[i].constant)
            continue;
        if (!bytes)
            return VKA_OUT_OF_HOST_MEMORY;
        memset(bytes, byte, s->bytes);
        status = queue_write(plan->device, &s->range, 0, bytes, s->bytes);
        free(bytes);
    }
    return status;
}

static bool run_once(struct vka_plan *plan, struct operand *const *outputs, size_t n,
                     struct rng *rng, int soil, enum vka_status *status)
{
    *status = soil_scratch(plan, soil);
    for (size_t i = 0; i < n && *status == VKA_OK; i++)
        *status = operand_write_noise(outputs[i], rng);
    if (*status == VKA_OK)
        *status = vka_plan_run(plan, PATIENCE);
    for (size_t i = 0; i < n && *status == VKA_OK; i++)
        *status = operand_read(outputs[i]);
    return *status == VKA_OK;
}

static bool same_bits(struct operand *const *outputs, uint8_t *const *first, size_t n,
                      char why[WHY])
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(first[i], outputs[i]->got, outputs[i]->bytes) == 0)
            continue;
        snprintf(why, WHY, "output %zu: a second run gives other bits", i);
        return false;
    }
    return true;
}

static bool canaries_live(struct operand *const *outputs, size_t n, char why[WHY])
{
    for (size_t i = 0; i < n; i++) {
        size_t damage = operand_damage(outputs[i]);
        if (damage == SIZE_MAX)
            continue;
        snprintf(why, WHY, "output %zu: byte %zu of %zu, outside the view, was overwritten", i,
                 damage, outputs[i]->bytes);
        return false;
    }
    return true;
}

bool compare_runs(struct vka_device *device, struct vka_plan *plan, struct operand *const *outputs,
                  size_t n, struct rng *rng, char why[WHY])
{
    return compare_plans(device, plan, plan, outputs, n, rng, why);
}

bool compare_plans(struct vka_device *device, struct vka_plan *plan, struct vka_plan *other,
                   struct operand *const *outputs, size_t n, struct rng *rng, char why[WHY])
{
    uint8_t *first[COMPARE_MOST] = {0};
    enum vka_status status = VKA_OK;
    struct rng again = *rng; /* the same noise, so that all bytes compare */
    bool ok = n <= COMPARE_MOST && run_once(plan, outputs, n, rng, FIRST_SOIL, &status) &&
              canaries_live(outputs, n, why);
    for (size_t i = 0; i < n && ok; i++) {
        first[i] = malloc(outputs[i]->bytes);
        ok = first[i] != NULL;
        if (ok)
            memcpy(first[i], outputs[i]->got, outputs[i]->bytes);
    }
    ok = ok && run_once(other, outputs, n, &again, SECOND_SOIL, &status) &&
         same_bits(outputs, first, n, why);
    if (status != VKA_OK)
        snprintf(why, WHY, "%s: %s", vka_status_name(status), vka_device_error(device));
    for (size_t i = 0; i < COMPARE_MOST; i++)
        free(first[i]);
    return ok;
}

bool compare_values(const struct operand *o, const double *want, double limit, const char *name,
                    const char *where, struct worst *worst, char why[WHY])
{
    size_t width = o->size[o->rank - 1], row;
    double nmse = compare_rows(o->values, want, o->count / width, width, &row);
    if (worst && isfinite(nmse) && nmse > worst->nmse[o->dtype]) {
        worst->nmse[o->dtype] = nmse;
        snprintf(worst->where[o->dtype], sizeof worst->where[0], "%s row %zu of %s", name, row,
                 where);
    }
    if (nmse <= limit)
        return true;
    size_t at = row * width;
    while (at + 1 < o->count &&
           (isnan(o->values[at]) ? isnan(want[at])
                                 : fabs(o->values[at] - want[at]) <= 1e-2 * fabs(want[at])))
        at++;
    snprintf(why, WHY, "%s: NMSE %.3g above %.3g at row %zu of width %zu; [%zu]: %.9g, not %.9g",
             name, nmse, limit, row, width, at, o->values[at], want[at]);
    return false;
}

#define LOG_SUM_ERROR 2e-6 /* of 1 + |x| */

double compare_terms(const struct operand *o, const double *want, double terms, size_t *row)
{
    const size_t width = o->size[o->rank - 1], rows = o->count / width;
    double all = 0, most = 0;
    for (size_t i = 0; i < o->count; i++)
        all += isfinite(want[i]) ? want[i] * want[i] / (double)rows : 0;
    if (all > 0)
        all = fmax(all, 0.01 * terms * terms * (double)width);
    for (size_t r = 0; r < rows; r++) {
        double error = 0, norm = 0;
        for (size_t i = r * width; i < (r + 1) * width; i++) {
            const double got = o->values[i];
            if (isfinite(want[i]) && isfinite(got)) {
                error += (got - want[i]) * (got - want[i]);
                norm += want[i] * want[i];
            } else if (!(isnan(want[i]) && isnan(got)) && want[i] != got) {
                error = INFINITY;
            }
        }
        if (error > 0)
            error /= fmax(norm, all);
        if (error > most) {
            most = error;
            *row = r;
        }
    }
    return most;
}

bool compare_log_sums(const struct operand *o, const double *want, enum vka_dtype scores,
                      char why[WHY])
{
    const double most = scores == VKA_F32 ? LOG_SUM_ERROR : scores == VKA_F16 ? 0x1p-10 : 0x1p-7;
    for (size_t i = 0; i < o->count; i++) {
        double got = o->values[i], error = fabs(got - want[i]);
        bool same = isnan(want[i]) ? isnan(got) : got == want[i];
        if (same || (isfinite(want[i]) && error <= most * (1 + fabs(want[i]))))
            continue;
        snprintf(why, WHY, "log_sum_exp[%zu]: %.9g, not %.9g", i, got, want[i]);
        return false;
    }
    return true;
}
