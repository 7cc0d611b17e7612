/* The table of letters. SPDX-License-Identifier: MIT */
#include "charsmap.h"

static uint32_t number_at(const unsigned char *b)
{
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

bool charsmap_read(const void *data, size_t size, struct charsmap *map)
{
    const unsigned char *bytes = data;
    *map = (struct charsmap){0};
    if (!size)
        return true;
    uint32_t cells = size < 4 ? 0 : number_at(bytes);
    if (size < 5 || cells % 4 || cells > size - 5 || bytes[size - 1] != '\0')
        return false;
    *map =
        (struct charsmap){bytes + 4, cells / 4, (const char *)bytes + 4 + cells, size - 4 - cells};
    return true;
}

/* Bits 10 to 30 are an offset, of 256 where bit 9 is set. */
static uint32_t offset_of(uint32_t cell)
{
    return cell & 0x200 ? cell >> 10 << 8 : cell >> 10;
}

size_t charsmap_find(const struct charsmap *map, const char *text, size_t size, const char **to)
{
    size_t found = 0;
    uint32_t at = map->n_cell ? offset_of(number_at(map->cells)) : 0;
    for (size_t i = 0; map->n_cell && i < size; i++) {
        unsigned char byte = (unsigned char)text[i];
        at ^= byte;
        if (at >= map->n_cell)
            break;
        uint32_t cell = number_at(map->cells + 4 * (size_t)at);
        if ((cell & 0x800000ff) != byte)
            break;
        at ^= offset_of(cell);
        if (!(cell & 0x100)) /* no value here */
            continue;
        if (at >= map->n_cell)
            break;
        uint32_t value = number_at(map->cells + 4 * (size_t)at) & 0x7fffffff;
        if (value >= map->size)
            break;
        found = i + 1;
        *to = map->texts + value;
    }
    return found;
}
