/* The rows that the examples' tables are made of. NOUN is the operation's. */
#ifndef TESTS_OPERATIONS_FIELDS_H
#define TESTS_OPERATIONS_FIELDS_H

#include "example.h"

/* An example that is the operation's struct alone. */
#define ALONE(noun, type)   \
    struct noun##_example { \
        struct type op;     \
    }

#define MEMBER(noun, member)                                            \
    .name = #member, .offset = offsetof(struct noun##_example, member), \
    .size = sizeof((struct noun##_example *)0)->member

#define SHAPE(...) \
    .rank = sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), .shape = {__VA_ARGS__}
#define HOLDS(...)             \
    .values = (const double[]) \
    {                          \
        __VA_ARGS__            \
    }
#define BECOMES(...)           \
    .answer = (const double[]) \
    {                          \
        __VA_ARGS__            \
    }

/* A tensor, by a SHAPE and .seed, HOLDS or BECOMES. */
#define TENSOR(noun, kind, member, ...)                  \
    {                                                    \
        MEMBER(noun, member), .fault = kind, __VA_ARGS__ \
    }

/* A number and its valid value. */
#define NUMBER(noun, kind, member, value, most)                                       \
    {                                                                                 \
        MEMBER(noun, member), .fault = kind, .number = (double)(value), .limit = most \
    }

#define STRUCT_SIZE(noun, member, type)                                    \
    {                                                                      \
        MEMBER(noun, member), .fault = SIZE, .number = sizeof(struct type) \
    }

#define POINTER(noun, member, target)                                                   \
    {                                                                                   \
        MEMBER(noun, member), .fault = LINK,                                            \
                              .number = (double)offsetof(struct noun##_example, target) \
    }

#endif
