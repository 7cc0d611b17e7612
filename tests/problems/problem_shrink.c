/* Takes away from a problem that fails what it fails without. */
#include "problem_fields.h"

#include <ctype.h>
#include <string.h>

struct shrinking {
    struct problem best;
    problem_fails *fails;
    void *user;
    int left; /* tries */
};

/* Makes a problem whole after a field of another has changed. */
static void mend(struct problem *p, const struct problem *before)
{
    if (p->way == WAY_PACKED || p->way == WAY_LAYER)
        p->n_new = p->n_q;
    if (p->way == WAY_LAYER && p->capacity < p->n_q)
        p->capacity = p->n_q;
    const uint32_t full[4] = {p->batch, problem_n_head(p), p->n_q, problem_n_kv(p)};
    for (uint32_t i = 0; i < p->mask_rank; i++) {
        const uint32_t n = p->mask_shape[i + before->mask_rank - p->mask_rank]; /* the last axes */
        p->mask_shape[i] = n < full[4 - p->mask_rank + i] ? n : full[4 - p->mask_rank + i];
    }
    if (p->rope.dim > p->head_dim)
        p->rope.dim = p->head_dim & ~1u;
}

static bool take(struct shrinking *s, const struct problem *p)
{
    if (s->left-- <= 0 || !s->fails(p, s->user))
        return false;
    s->best = *p;
    return true;
}

static bool try(struct shrinking *s, const struct problem_field *field, int64_t value)
{
    struct problem p = s->best;
    problem_field_set(&p, field, value);
    mend(&p, &s->best);
    return problem_field_get(&p, field) == value && take(s, &p); /* else another field sets it */
}

/* Takes kernels out of a set, one at a time. Whether the set changed. */
static bool shrink_kernels(struct shrinking *s, const struct problem_field *field)
{
    bool changed = false;
    for (uint32_t k = 0; k < KERNEL_COUNT; k++) {
        struct problem p = s->best;
        struct kernel_set *kernels = problem_field_kernels(&p, field);
        if (!set_has(*kernels, k))
            continue;
        *kernels = set_minus(*kernels, KERNEL_SET(k));
        changed |= take(s, &p);
    }
    return changed;
}

/* Takes steps towards the least value, first the whole way, then halves of the last that was too
 * far. Whether the field changed. */
static bool shrink_number(struct shrinking *s, const struct problem_field *field)
{
    bool changed = false;
    const int64_t least = field->least;
    for (int64_t step = problem_field_get(&s->best, field) - least; step > 0;) {
        const int64_t value = problem_field_get(&s->best, field);
        if (value - step >= least && try(s, field, value - step))
            changed = true;
        else
            step /= 2;
    }
    return changed;
}

static bool shrink_field(struct shrinking *s, const struct problem_field *field)
{
    const int64_t value = problem_field_get(&s->best, field);
    if (field->least == FIELD_KEEP || value == field->least)
        return false;
    if (field->kind == FIELD_KERNELS)
        return shrink_kernels(s, field);
    if (field->kind == FIELD_NUMBER && value > 0)
        return shrink_number(s, field);
    return field->kind != FIELD_NUMBER && try(s, field, field->least);
}

int problem_shrink(struct problem *p, problem_fails *fails, void *user, int most)
{
    struct shrinking s = {*p, fails, user, most};
    for (bool changed = true; changed && s.left > 0;) {
        changed = false;
        for (size_t i = 0; i < problem_field_count; i++)
            changed |= shrink_field(&s, &problem_fields[i]);
    }
    *p = s.best;
    return s.left < 0 ? most : most - s.left;
}

bool problem_same_reason(const char *a, const char *b)
{
    while (*a && *a == *b && !isdigit((unsigned char)*a)) {
        a++;
        b++;
    }
    return *a == *b || isdigit((unsigned char)*a) || isdigit((unsigned char)*b);
}
