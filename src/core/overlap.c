/* Tells whether strided views share memory, by solving one equation. `sum` is the distance between
 * the first elements; every axis is a term, a `step` taken 0 to `most` times. The views share an
 * element iff the terms can add up to the sum. */
#include "core/overlap.h"

#define MAX_TERMS (2 * VKA_MAX_RANK + 2) /* the axes of both, and one of units for each element */
#define MAX_SUM (UINT64_MAX >> 2)        /* larger sums count as shared: no buffer is that large */
#define MAX_TRIALS 16384                 /* after so many the answer is that they share */

struct term {
    uint64_t step, most;
};

/* The terms by falling step, and what the search needs about terms i and on. */
struct equation {
    struct term terms[MAX_TERMS];
    uint64_t gcd[MAX_TERMS], reach[MAX_TERMS + 1]; /* of terms i and on */
    uint64_t m[MAX_TERMS], inverse[MAX_TERMS];     /* gcd[i + 1] / gcd[i], of step / gcd modulo m */
    uint32_t n, trials;
};

static uint64_t gcd_of(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* a * b mod m; a, b < m <= MAX_SUM. */
static uint64_t multiply_mod(uint64_t a, uint64_t b, uint64_t m)
{
    uint64_t product = 0;
    for (; b; b >>= 1) {
        if (b & 1)
            product = product < m - a ? product + a : product - (m - a);
        a = a < m - a ? a + a : a - (m - a);
    }
    return product;
}

/* The inverse of a modulo m; a and m have no common divisor. */
static uint64_t invert_mod(uint64_t a, uint64_t m)
{
    int64_t s = 0, next_s = 1;
    uint64_t r = m, next_r = a % m;
    while (next_r) {
        const uint64_t quotient = r / next_r, rest = r % next_r;
        const int64_t last = s - (int64_t)quotient * next_s; /* at most m either way */
        s = next_s;
        next_s = last;
        r = next_r;
        next_r = rest;
    }
    return s < 0 ? (uint64_t)(s + (int64_t)m) : (uint64_t)s % m;
}

/* The smallest x with low <= a x mod m <= high, by Euclid's algorithm; 0 < low <= high < m.
 * UINT64_MAX if there is none, or none with a x <= MAX_SUM. */
static uint64_t first_between(uint64_t a, uint64_t m, uint64_t low, uint64_t high)
{
    a %= m;
    if (!a)
        return UINT64_MAX;
    const uint64_t x = (low + a - 1) / a;
    if (x * a <= high)
        return x;
    /* a x - m y lies there: no multiple of a does, so m y mod a lies between these. */
    const uint64_t y = first_between(m % a, a, a - high % a, a - low % a);
    return y > MAX_SUM / m ? UINT64_MAX : (low + m * y + a - 1) / a;
}

static void sort_terms(struct equation *e)
{
    for (uint32_t i = 1; i < e->n; i++)
        for (uint32_t j = i; j > 0 && e->terms[j].step > e->terms[j - 1].step; j--) {
            const struct term term = e->terms[j];
            e->terms[j] = e->terms[j - 1];
            e->terms[j - 1] = term;
        }
}

/* Merges two terms if the larger step is a multiple of the smaller one and leaves no gap. */
static bool merge_terms(struct equation *e)
{
    for (uint32_t i = 0; i < e->n; i++)
        for (uint32_t j = i + 1; j < e->n; j++) {
            struct term *large = &e->terms[i], *small = &e->terms[j];
            const uint64_t ratio = large->step / small->step;
            if (large->step % small->step || ratio > small->most + 1)
                continue;
            small->most += ratio * large->most;
            *large = e->terms[--e->n];
            sort_terms(e);
            return true;
        }
    return false;
}

static void add_term(struct equation *e, uint64_t step, uint64_t most)
{
    if (step && most)
        e->terms[e->n++] = (struct term){step, most};
}

/* Solves three terms, if the last step divides the others: modulo the second step, the first term
 * must come as close to the sum as the last term reaches. */
static bool solve_three(const struct equation *e, uint32_t at, uint64_t sum, uint64_t low,
                        uint64_t high)
{
    const uint64_t divisor = e->gcd[at], a = e->terms[at].step / divisor;
    const uint64_t m = e->terms[at + 1].step / divisor, reach = e->terms[at + 2].most; /* below m */
    const uint64_t rest = (sum / divisor - a * low) % m;
    if (rest <= reach)
        return true;
    return first_between(a, m, rest - reach, rest) <= high - low;
}

/* Whether terms `at` and on can add up to sum. */
static bool solve(struct equation *e, uint32_t at, uint64_t sum)
{
    if (sum == 0)
        return true;
    if (at == e->n || sum > e->reach[at] || sum % e->gcd[at])
        return false;
    if (at + 1 == e->n)
        return true;
    const uint64_t step = e->terms[at].step, left = e->reach[at + 1];
    uint64_t low = sum > left ? (sum - left + step - 1) / step : 0, high = sum / step;
    if (high > e->terms[at].most)
        high = e->terms[at].most;
    if (low > high)
        return false;
    if (at + 3 == e->n && e->gcd[at] == e->terms[at + 2].step)
        return solve_three(e, at, sum, low, high);
    /* What is left must be a multiple of the other steps' divisor: x = first modulo m. */
    const uint64_t m = e->m[at];
    const uint64_t first = multiply_mod(sum / e->gcd[at] % m, e->inverse[at], m);
    low += (first + m - low % m) % m;
    for (uint64_t x = low; x <= high; x += m)
        if (e->trials++ >= MAX_TRIALS || solve(e, at + 1, sum - x * step))
            return true;
    return false;
}

static bool can_add_up(struct equation *e, uint64_t sum)
{
    sort_terms(e);
    while (merge_terms(e))
        ;
    for (uint32_t i = e->n; i-- > 0;) {
        const struct term *term = &e->terms[i];
        const uint64_t later = i + 1 < e->n ? e->gcd[i + 1] : term->step;
        e->gcd[i] = gcd_of(term->step, later);
        e->reach[i] = e->reach[i + 1] + term->step * term->most;
        e->m[i] = later / e->gcd[i];
        e->inverse[i] = invert_mod(term->step / e->gcd[i], e->m[i]);
    }
    return solve(e, 0, sum);
}

bool shape_is_distinct(const struct shape *shape)
{
    if (shape_extent(shape) > MAX_SUM / 2)
        return false;
    /* Two indices that first differ on axis i, by 1 + x; on each later axis by -(size - 1) + y. */
    for (uint32_t i = 0; i < shape->rank; i++) {
        struct equation e = {.n = 0};
        uint64_t sum = 0;
        if (shape->size[i] == 1)
            continue;
        add_term(&e, shape->stride[i], shape->size[i] - 2u);
        for (uint32_t j = i + 1; j < shape->rank; j++) {
            const uint64_t steps = shape->size[j] - 1u;
            add_term(&e, shape->stride[j], 2 * steps);
            sum += shape->stride[j] * steps;
        }
        if (sum >= shape->stride[i] && can_add_up(&e, sum - shape->stride[i]))
            return false;
    }
    return true;
}

bool shape_overlaps(const struct placed_shape *a, const struct placed_shape *b)
{
    const struct placed_shape *const both[] = {a, b};
    uint64_t end[2];
    for (int i = 0; i < 2; i++) {
        const uint64_t extent = shape_extent(both[i]->shape);
        if (extent > MAX_SUM / 4 / both[i]->size || both[i]->first > MAX_SUM / 4)
            return true;
        end[i] = both[i]->first + extent * both[i]->size;
    }
    if (a->first >= end[1] || b->first >= end[0])
        return false;
    /* The sum is the last byte of b minus the first byte of a: the axes of a, and those of b
     * counted from their ends, must add up to it. Counted by a divisor of all steps. */
    const uint64_t apart = a->first > b->first ? a->first - b->first : b->first - a->first;
    const uint64_t divisor = gcd_of(gcd_of(a->size, b->size), apart);
    struct equation e = {.n = 0};
    for (int i = 0; i < 2; i++) {
        const struct shape *shape = both[i]->shape;
        add_term(&e, 1, both[i]->size / divisor - 1);
        for (uint32_t axis = 0; axis < shape->rank; axis++)
            add_term(&e, shape->stride[axis] * (both[i]->size / divisor), shape->size[axis] - 1u);
    }
    return can_add_up(&e, (end[1] - a->first) / divisor - 1);
}
