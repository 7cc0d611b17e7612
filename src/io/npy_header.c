/* The dictionary in a npy header, as numpy writes it. SPDX-License-Identifier: MIT
 *
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
 *
 * The keys come in any order, with either quote, with or without a trailing comma, with white space
 * between tokens. Nothing else of Python is accepted: no escapes, comments, string prefixes or
 * underscores between digits.
 */
#include "io/npy_header.h"
#include "io/io.h"

#include <string.h>

struct cursor {
    const char *at, *end;
};

static void skip_space(struct cursor *c)
{
    while (c->at < c->end && *c->at && strchr(" \t\n\r\f", *c->at))
        c->at++;
}

/* Skips white space, and then the character if it comes next; returns whether it did. */
static bool take(struct cursor *c, char wanted)
{
    skip_space(c);
    if (c->at == c->end || *c->at != wanted)
        return false;
    c->at++;
    return true;
}

static bool take_word(struct cursor *c, const char *word)
{
    size_t length = strlen(word);

    skip_space(c);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0)
        return false;
    c->at += length;
    return true;
}

/* Reads a string without escapes; *text and *length are what is between the quotes. */
static bool take_string(struct cursor *c, const char **text, size_t *length)
{
    char quote = '\'';

    if (!take(c, quote)) {
        quote = '"';
        if (!take(c, quote))
            return false;
    }
    *text = c->at;
    while (c->at < c->end && *c->at != quote) {
        if (*c->at == '\\' || *c->at == '\n')
            return false;
        c->at++;
    }
    *length = (size_t)(c->at - *text);
    return take(c, quote);
}

/* Reads a decimal number without leading zeros that fits. */
static bool take_number(struct cursor *c, uint64_t *number)
{
    const char *first;

    skip_space(c);
    first = c->at;
    *number = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9') {
        unsigned digit = (unsigned)(*c->at - '0');

        if (*number > (UINT64_MAX - digit) / 10)
            return false;
        *number = *number * 10 + digit;
        c->at++;
    }
    return c->at != first && (*first != '0' || c->at == first + 1);
}

static const char *take_descr(struct cursor *c, struct vka_npy_header *header)
{
    const char *text;
    size_t length;

    if (!take_string(c, &text, &length))
        return "has a descr that is not a plain string";
    if (length && *text == '>')
        return "has a big-endian descr, which is not supported";
    header->dtype = vka_io_dtype_described(text, length);
    return header->dtype == VKA_IO_DTYPE_COUNT ? "has a descr that is not supported" : NULL;
}

static const char *take_order(struct cursor *c, struct vka_npy_header *header)
{
    header->fortran_order = take_word(c, "True");
    if (!header->fortran_order && !take_word(c, "False"))
        return "has a fortran_order that is neither True nor False";
    return NULL;
}

static const char *take_shape(struct cursor *c, struct vka_npy_header *header)
{
    bool comma = true;

    header->rank = 0;
    if (!take(c, '('))
        return "has a shape that is not a tuple";
    while (!take(c, ')')) {
        if (header->rank == VKA_IO_MAX_RANK)
            return "has a shape of more than 8 axes";
        if (!comma || !take_number(c, &header->shape[header->rank++]))
            return "has a shape that is not a tuple of whole numbers";
        comma = take(c, ',');
    }
    /* (3) is not a tuple but a number in brackets. */
    if (header->rank == 1 && !comma)
        return "has a shape that is not a tuple";
    return NULL;
}

/* Reads one key, its colon and its value. */
static const char *take_entry(struct cursor *c, unsigned *seen, struct vka_npy_header *header)
{
    static const struct {
        const char *key;
        const char *(*take)(struct cursor *c, struct vka_npy_header *header);
    } entries[] = {{"descr", take_descr}, {"fortran_order", take_order}, {"shape", take_shape}};
    const char *text;
    size_t length;

    if (!take_string(c, &text, &length))
        return "has a key that is not a plain string";
    for (unsigned i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        if (strlen(entries[i].key) != length || memcmp(entries[i].key, text, length) != 0)
            continue;
        if (*seen & 1u << i)
            return "has a key twice";
        *seen |= 1u << i;
        return take(c, ':') ? entries[i].take(c, header) : "has a key without a value";
    }
    return "has a key beside descr, fortran_order and shape";
}

const char *vka_npy_header_parse(const char *text, size_t length, struct vka_npy_header *header)
{
    struct cursor c = {text, text + length};
    bool comma = true;
    unsigned seen = 0;

    *header = (struct vka_npy_header){.dtype = VKA_IO_DTYPE_COUNT};
    /* A blank before the dictionary may be an indent in Python. */
    if (length == 0 || *text != '{')
        return "is not a dictionary";
    c.at++;
    while (!take(&c, '}')) {
        const char *wrong = comma ? take_entry(&c, &seen, header) : "lacks a comma or an end";

        if (wrong)
            return wrong;
        comma = take(&c, ',');
    }
    /* Padding may follow, and a newline at the end: a blank after that would be an indent in
     * Python. */
    while (c.at < c.end && *c.at && strchr(" \t\f", *c.at))
        c.at++;
    while (c.at < c.end && (*c.at == '\r' || *c.at == '\n'))
        c.at++;
    if (c.at != c.end)
        return "goes on after its dictionary";
    return seen == 7 ? NULL : "lacks one of descr, fortran_order and shape";
}
