/* The word that a misspelt one was meant to be. SPDX-License-Identifier: MIT */
#include "nearest.h"

#include <string.h>

#define LONGEST 31

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How many letters are inserted, deleted, changed or swapped with their neighbour. */
static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t d[LONGEST + 1][LONGEST + 1];
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            if (!i || !j) {
                d[i][j] = i + j;
                continue;
            }
            size_t change = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            d[i][j] = least(change, 1 + least(d[i - 1][j], d[i][j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[n][m];
}

void nearest_offer(struct nearest *n, const char *known)
{
    size_t length = strlen(n->word), other = strlen(known);
    if (length > LONGEST || other > LONGEST)
        return;
    size_t found = distance(n->word, length, known, other);
    if (3 * found > length + 1 || (n->best && found >= n->distance))
        return;
    n->best = known;
    n->distance = found;
}
