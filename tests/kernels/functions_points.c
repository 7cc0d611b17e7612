/* Where functions of float32 are tried: at each landing not all of them, but all near a point at which
 * code branches, rounds or reduces. */
#include "functions.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ULPS 8        /* on each side of a point */
#define STRIDE 65537u /* of the numbers that are tried everywhere */
#define INFINITE 0x7f800000u

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

void points_push(struct points *p, uint32_t bits)
{
    if (p->n == p->room) {
        p->room = p->room ? 2 * p->room : 1 << 16;
        p->bits = realloc(p->bits, p->room * sizeof *p->bits);
        if (!p->bits) {
            fprintf(stderr, "check_functions: no memory\n");
            exit(1);
        }
    }
    p->bits[p->n++] = bits;
}

void points_near(struct points *p, double x)
{
    const uint32_t middle = bits_of((float)fabs(x));
    for (uint32_t b = middle < ULPS ? 0 : middle - ULPS; b <= middle + ULPS; b++) {
        if (b > INFINITE)
            break;
        points_push(p, b);
        points_push(p, b | 0x80000000u);
    }
}

double points_linear(double a, double x)
{
    return a * x;
}

void points_inverse(struct points *p, double (*u)(double a, double x), double a, double step,
                    double most)
{
    for (double wanted = step; wanted <= most; wanted += step) {
        double low = -150, high = 128; /* powers of two */
        for (int i = 0; i < 100; i++) {
            double middle = (low + high) / 2;
            if (u(a, exp2(middle)) < wanted)
                low = middle;
            else
                high = middle;
        }
        points_near(p, exp2(low));
    }
}

void points_common(struct points *p)
{
    static const uint32_t nan[] = {0x7f800001u, 0x7fbfffffu, 0x7fc00000u, 0x7fffffffu, 0x7fc01234u};
    for (int e = -149; e < 128; e++)
        points_near(p, ldexp(1, e));
    points_near(p, 0);
    points_near(p, INFINITY);
    for (size_t i = 0; i < sizeof nan / sizeof *nan; i++) {
        points_push(p, nan[i]);
        points_push(p, nan[i] | 0x80000000u);
    }
    for (uint64_t b = 0; b <= UINT32_MAX; b += STRIDE)
        points_push(p, (uint32_t)b);
}
