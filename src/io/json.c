/* A strict reader of the JSON (RFC 8259) in safetensors headers. SPDX-License-Identifier: MIT */
#include "io/json.h"
#include "io/io.h"

#include <string.h>

static bool fail(struct vka_io_json *json, const char *wrong)
{
    json->wrong = wrong;
    return false;
}

static void skip_space(struct vka_io_json *json)
{
    while (json->at < json->end &&
           (*json->at == ' ' || *json->at == '\t' || *json->at == '\n' || *json->at == '\r'))
        json->at++;
}

bool vka_io_json_take(struct vka_io_json *json, char wanted)
{
    skip_space(json);
    if (json->at == json->end || *json->at != wanted)
        return false;
    json->at++;
    return true;
}

static bool take_word(struct vka_io_json *json, const char *word)
{
    const size_t length = strlen(word);

    skip_space(json);
    if ((size_t)(json->end - json->at) < length || memcmp(json->at, word, length) != 0)
        return false;
    json->at += length;
    return true;
}

bool vka_io_json_null(struct vka_io_json *json)
{
    return take_word(json, "null");
}

bool vka_io_json_next(struct vka_io_json *json, char close, bool *first)
{
    if (vka_io_json_take(json, close))
        return false;
    if (!*first && !vka_io_json_take(json, ','))
        return fail(json, "a comma or a closing bracket is missing");
    *first = false;
    return true;
}

/* The four hexadecimal digits after \u. */
static bool take_hex(struct vka_io_json *json, uint32_t *value)
{
    *value = 0;
    for (int i = 0; i < 4; i++, json->at++) {
        char c = json->at < json->end ? *json->at : '\0';
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                                : 16;

        if (digit == 16)
            return false;
        *value = *value << 4 | digit;
    }
    return true;
}

/* Writes the character c as UTF-8. */
static char *put_utf8(char *to, uint32_t c)
{
    static const unsigned char leads[] = {0, 0xc0, 0xe0, 0xf0};
    int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;

    *to++ = (char)(leads[more] | c >> 6 * more);
    while (more-- > 0)
        *to++ = (char)(0x80 | (c >> 6 * more & 0x3f));
    return to;
}

/* The rest of an escape after \u: one code unit, or a pair of surrogates. */
static bool take_unicode(struct vka_io_json *json, char **to)
{
    uint32_t c, low;

    if (!take_hex(json, &c))
        return fail(json, "\\u is not followed by four hexadecimal digits");
    if (c == 0)
        return fail(json, "a string holds \\u0000");
    if (c >= 0xd800 && c <= 0xdfff) {
        if (c >= 0xdc00 || json->end - json->at < 6 || *json->at++ != '\\' || *json->at++ != 'u' ||
            !take_hex(json, &low) || low < 0xdc00 || low > 0xdfff)
            return fail(json, "a surrogate has no partner");
        c = 0x10000 + ((c - 0xd800) << 10 | (low - 0xdc00));
    }
    *to = put_utf8(*to, c);
    return true;
}

static bool take_escape(struct vka_io_json *json, char **to)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    char c = json->at < json->end ? *json->at++ : '\0';

    if (c == 'u')
        return take_unicode(json, to);
    for (int i = 0; from[i]; i++) {
        if (from[i] == c) {
            *(*to)++ = into[i];
            return true;
        }
    }
    return fail(json, "a backslash does not begin an escape");
}

bool vka_io_json_string(struct vka_io_json *json, const char **string)
{
    char *to = json->strings;

    *string = to;
    if (!vka_io_json_take(json, '"'))
        return fail(json, "a string is missing");
    while (json->at < json->end && *json->at != '"') {
        char c = *json->at++;

        if ((unsigned char)c < 0x20)
            return fail(json, "a string holds a control character");
        if (c != '\\')
            *to++ = c;
        else if (!take_escape(json, &to))
            return false;
    }
    if (!vka_io_json_take(json, '"'))
        return fail(json, "a string does not end");
    *to = '\0';
    json->strings = to + 1;
    return vka_io_is_utf8(*string, (size_t)(to - *string)) || fail(json, "a string is not UTF-8");
}

bool vka_io_json_number(struct vka_io_json *json, uint64_t *number)
{
    const char *first;

    skip_space(json);
    first = json->at;
    *number = 0;
    while (json->at < json->end && *json->at >= '0' && *json->at <= '9') {
        unsigned digit = (unsigned)(*json->at - '0');

        if (*number > (UINT64_MAX - digit) / 10)
            return false;
        *number = *number * 10 + digit;
        json->at++;
    }
    return json->at != first && (*first != '0' || json->at == first + 1) &&
           (json->at == json->end || (*json->at != '.' && *json->at != 'e' && *json->at != 'E'));
}

static bool skip_digits(struct vka_io_json *json)
{
    const char *first = json->at;

    while (json->at < json->end && *json->at >= '0' && *json->at <= '9')
        json->at++;
    return json->at != first;
}

static bool here(const struct vka_io_json *json, const char *any)
{
    return json->at < json->end && strchr(any, *json->at) && *json->at;
}

/* Skips a number: a sign, digits without a leading zero, a fraction, an exponent. */
static bool skip_number(struct vka_io_json *json)
{
    if (here(json, "-"))
        json->at++;
    if (here(json, "0"))
        json->at++;
    else if (!skip_digits(json))
        return false;
    if (here(json, ".")) {
        json->at++;
        if (!skip_digits(json))
            return false;
    }
    if (here(json, "eE")) {
        json->at++;
        if (here(json, "+-"))
            json->at++;
        return skip_digits(json);
    }
    return true;
}

/* Skips a value that holds no other. */
static bool skip_simple(struct vka_io_json *json)
{
    const char *string;

    skip_space(json);
    if (here(json, "\""))
        return vka_io_json_string(json, &string);
    return take_word(json, "null") || take_word(json, "true") || take_word(json, "false") ||
           skip_number(json) || fail(json, "a value is missing");
}

/* Skips the key and the colon of an object's member. */
static bool skip_key(struct vka_io_json *json)
{
    const char *key;

    return vka_io_json_string(json, &key) &&
           (vka_io_json_take(json, ':') || fail(json, "a colon is missing"));
}

bool vka_io_json_skip(struct vka_io_json *json)
{
    uint64_t objects = 0; /* a bit for each value that is open, the innermost lowest */
    unsigned depth = 0;
    bool first = true;

    do {
        const bool object = vka_io_json_take(json, '{');

        if (object || vka_io_json_take(json, '[')) {
            if (depth++ == 64)
                return fail(json, "a value lies in more than 64 others");
            objects = objects << 1 | object;
            first = true;
        } else if (!skip_simple(json)) {
            return false;
        }
        while (depth > 0 && !vka_io_json_next(json, objects & 1 ? '}' : ']', &first)) {
            if (json->wrong)
                return false;
            depth--;
            objects >>= 1;
            first = false;
        }
        if (depth > 0 && objects & 1 && !skip_key(json))
            return false;
    } while (depth > 0);
    return true;
}
