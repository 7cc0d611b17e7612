/* A problem as a line of text, and read back from it. */
#include "problem_fields.h"

#include <gpu/kernels.h>

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP FIELD_KEEP
#define SCALAR(kind, name, least) \
    {#name, offsetof(struct problem, name), sizeof((struct problem *)0)->name, FIELD_##kind, least},
#define FIELD(kind, type, name, least) SCALAR(kind, name, least)
#define MEMBER(type, name)
const struct problem_field problem_fields[] = {
#include "problem.def"
};
#undef MEMBER
#undef FIELD
#undef SCALAR
const size_t problem_field_count = sizeof problem_fields / sizeof *problem_fields;

static_assert(sizeof(enum vka_dtype) == 4 && sizeof(float) == 4, "numbers have 1, 4 or 8 bytes");

/* The name of an enum's value or of a kernel, or NULL where there is none. */
static const char *name_of(enum field_kind kind, int64_t value)
{
    static const char *const names[FIELD_KIND_COUNT][6] = {
        [FIELD_WAY] = {"dense", "packed", "layer", "backward"},
        [FIELD_PATH] = {"auto", "unfused", "fused"},
        [FIELD_EACH] = {"none", "one", "each"},
        [FIELD_ROWS] = {"zero", "uniform", "nan"},
        [FIELD_SCORES] = {"none", "raw", "softcap", "bias", "softmax"},
    };
    if (kind == FIELD_KERNELS)
        return value < KERNEL_COUNT ? kernel_table[value].name : NULL;
    if (kind == FIELD_TYPE)
        return value < VKA_DTYPE_COUNT ? vka_dtype_name((enum vka_dtype)value) : NULL;
    return value < 6 ? names[kind][value] : NULL;
}

int64_t problem_field_get(const struct problem *p, const struct problem_field *field)
{
    const char *at = (const char *)p + field->offset;
    if (field->kind == FIELD_KERNELS)
        return !set_is_empty(*(const struct kernel_set *)(const void *)at);
    if (field->kind == FIELD_FLAG)
        return *(const bool *)at;
    if (field->kind == FIELD_SIGNED)
        return *(const int32_t *)(const void *)at;
    if (field->size == 8)
        return (int64_t) * (const uint64_t *)(const void *)at;
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

void problem_field_set(struct problem *p, const struct problem_field *field, int64_t value)
{
    char *at = (char *)p + field->offset;
    const uint32_t word = (uint32_t)value;
    if (field->kind == FIELD_FLAG)
        *(bool *)at = value != 0;
    else if (field->size == sizeof word)
        memcpy(at, &word, sizeof word);
    else
        memcpy(at, &value, sizeof value);
}

struct kernel_set *problem_field_kernels(struct problem *p, const struct problem_field *field)
{
    assert(field->kind == FIELD_KERNELS);
    return (struct kernel_set *)(void *)((char *)p + field->offset);
}

/* ---- To text --------------------------------------------------------------------------------- */

/* name=value, or the name alone of a flag; 0 where there is nothing to tell. */
static int say(const struct problem *p, const struct problem_field *field, char *text, size_t size)
{
    const int64_t value = problem_field_get(p, field);
    const uint32_t bits = (uint32_t)value;
    float real;
    memcpy(&real, &bits, sizeof real);
    if (value == 0 || field->kind == FIELD_FLAG)
        return value ? snprintf(text, size, " %s", field->name) : 0;
    if (field->kind == FIELD_REAL)
        return snprintf(text, size, " %s=%.9g", field->name, (double)real);
    if (field->kind == FIELD_SIGNED)
        return snprintf(text, size, " %s=%" PRId64, field->name, value);
    if (field->kind == FIELD_NUMBER)
        return snprintf(text, size, " %s=%" PRIu64, field->name, (uint64_t)value);
    if (field->kind != FIELD_KERNELS)
        return snprintf(text, size, " %s=%s", field->name, name_of(field->kind, value));
    struct problem copy = *p;
    int length = 0;
    for (int k = 0; k < KERNEL_COUNT; k++)
        if (set_has(*problem_field_kernels(&copy, field), k) && (size_t)length < size)
            length += snprintf(text + length, size - (size_t)length, "%s%s",
                               length ? "," : " disabled_kernels=", kernel_table[k].name);
    return length;
}

const char *problem_text(const struct problem *p, char text[PROBLEM_TEXT])
{
    char line[PROBLEM_TEXT + 1] = " ";
    size_t length = 0;
    for (size_t i = 0; i < problem_field_count && length < sizeof line; i++)
        length += (size_t)say(p, &problem_fields[i], line + length, sizeof line - length);
    memcpy(text, line + 1, PROBLEM_TEXT);
    return text;
}

/* ---- From text ------------------------------------------------------------------------------- */

/* The number of a name of `length` bytes; -1: there is none. */
static int64_t find_name(enum field_kind kind, const char *text, size_t length)
{
    const char *name;
    for (int64_t i = 0; (name = name_of(kind, i)) != NULL; i++)
        if (strlen(name) == length && memcmp(name, text, length) == 0)
            return i;
    return -1;
}

static bool read_kernels(const char *text, struct kernel_set *kernels)
{
    *kernels = NO_KERNELS;
    for (size_t length; *text; text += length + (text[length] == ',')) {
        length = strcspn(text, ",");
        const int64_t kernel = find_name(FIELD_KERNELS, text, length);
        if (kernel < 0)
            return false;
        set_add(kernels, (uint32_t)kernel);
    }
    return true;
}

static bool read_value(const struct problem_field *field, const char *text, int64_t *value)
{
    char *end = NULL;
    errno = 0;
    if (field->kind >= FIELD_TYPE)
        return (*value = find_name(field->kind, text, strlen(text))) >= 0;
    if (field->kind == FIELD_REAL) {
        const float real = strtof(text, &end);
        uint32_t bits;
        memcpy(&bits, &real, sizeof bits);
        *value = bits;
    } else if (field->kind == FIELD_SIGNED) {
        *value = strtol(text, &end, 10);
    } else {
        *value = (int64_t)strtoull(text, &end, 10);
        if (*text == '-' || (field->size == 4 && *value >> 32))
            return false;
    }
    return *text && *end == '\0' && errno == 0;
}

static bool read_word(struct problem *p, char *word)
{
    char *equals = strchr(word, '=');
    int64_t value = 1;
    if (equals)
        *equals = '\0';
    for (size_t i = 0; i < problem_field_count; i++) {
        const struct problem_field *field = &problem_fields[i];
        if (strcmp(field->name, word) != 0)
            continue;
        if ((field->kind == FIELD_FLAG) == (equals != NULL) ||
            (equals && field->kind != FIELD_KERNELS && !read_value(field, equals + 1, &value)))
            return false;
        if (field->kind == FIELD_KERNELS)
            return read_kernels(equals + 1, problem_field_kernels(p, field));
        problem_field_set(p, field, value);
        return true;
    }
    return false;
}

bool problem_read(const char *text, struct problem *p, char wrong[PROBLEM_TEXT])
{
    char word[PROBLEM_TEXT];
    memset(p, 0, sizeof *p);
    for (size_t length; *text; text += length + (text[length] == ' ')) {
        length = strcspn(text, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        snprintf(wrong, PROBLEM_TEXT, "%s", word);
        if (length && !read_word(p, word))
            return false;
    }
    return true;
}
