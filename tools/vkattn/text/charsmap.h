/* SentencePiece's table of what letters are normalised to: a double array of 32-bit cells, whose
 * values are places in the texts behind it. SPDX-License-Identifier: MIT */
#ifndef TEXT_CHARSMAP_H
#define TEXT_CHARSMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct charsmap {
    const unsigned char
        *cells; /* [n_cell] of 4 bytes, little-endian, in the file; NULL: no table */
    uint32_t n_cell;
    const char *texts; /* [size], each ends with 0 */
    size_t size;
};

/* False: the table is cut off, or its texts have no end. size 0: no table. */
bool charsmap_read(const void *data, size_t size, struct charsmap *map);

/* The longest begin of a text that the table has: its bytes, or 0, and what becomes of it. */
size_t charsmap_find(const struct charsmap *map, const char *text, size_t size, const char **to);

#endif
