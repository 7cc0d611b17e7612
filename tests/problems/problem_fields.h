/* The fields of struct problem, for what goes over all of them. */
#ifndef TESTS_PROBLEM_FIELDS_H
#define TESTS_PROBLEM_FIELDS_H

#include "problem.h"

#include <stddef.h>

enum field_kind {
    FIELD_NUMBER = 0, /* of 4 or 8 bytes */
    FIELD_SIGNED,
    FIELD_REAL,
    FIELD_FLAG,
    FIELD_KERNELS, /* a struct kernel_set */
    FIELD_TYPE,    /* from here on an enum, told by a name */
    FIELD_WAY,
    FIELD_PATH,
    FIELD_EACH,
    FIELD_ROWS,
    FIELD_SCORES,
    FIELD_KIND_COUNT
};

#define FIELD_KEEP UINT32_MAX

struct problem_field {
    const char *name;
    size_t offset, size; /* bytes in struct problem */
    enum field_kind kind;
    uint32_t least; /* FIELD_KEEP: shrinking leaves it alone */
};
extern const struct problem_field problem_fields[];
extern const size_t problem_field_count;

/* The value as a number: bits of a float as they are, 0 or 1 of kernels, none or some. */
int64_t problem_field_get(const struct problem *p, const struct problem_field *field);

/* For any kind but kernels. */
void problem_field_set(struct problem *p, const struct problem_field *field, int64_t value);

/* The kernels of a field of that kind. */
struct kernel_set *problem_field_kernels(struct problem *p, const struct problem_field *field);

#endif
