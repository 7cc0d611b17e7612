/* The types and constants of a module into which specialization constants are built, see
 * gpu/fold.h. */
#ifndef VKA_GPU_FOLD_CONSTANT_H
#define VKA_GPU_FOLD_CONSTANT_H

#include "gpu/fold_op.h"

#include <stddef.h>

#define MALFORMED "is no module that specialization constants can be built into"

enum {
    OP_TYPE_BOOL = 20,
    OP_TYPE_INT = 21,
    OP_TYPE_FLOAT = 22,
    OP_TYPE_VECTOR = 23,
    OP_TYPE_MATRIX = 24,
    OP_TYPE_ARRAY = 28,
    OP_TYPE_STRUCT = 30,
    OP_CONSTANT_TRUE = 41,
    OP_CONSTANT_FALSE = 42,
    OP_CONSTANT = 43,
    OP_CONSTANT_COMPOSITE = 44,
    OP_CONSTANT_NULL = 46,
};

struct id {
    uint32_t at;      /* of the type or constant in out[]; 0: none so far */
    uint32_t spec_id; /* + 1; 0: none */
};

struct fold {
    const uint32_t *values;
    uint32_t n_value;
    struct id *ids; /* [n_id]; those from the module's bound on are new */
    uint32_t n_id, next;
    uint32_t *out;
    size_t n, room;     /* words */
    uint32_t workgroup; /* the id of the constant; 0: none */
    const char *why;
};

/* Notes the first reason; returns false. */
bool fold_fail(struct fold *f, const char *why);

/* Appends an instruction: `length` words w, or room for them where w is NULL. */
uint32_t *fold_put(struct fold *f, uint32_t opcode, uint32_t length, const uint32_t *w);

/* Notes that an instruction in out[] defines the id, once. */
bool fold_define(struct fold *f, uint32_t id, const uint32_t *w);

/* The type or constant of an id, in out[]; NULL with the reason noted. */
const uint32_t *fold_find(struct fold *f, uint32_t id);

/* Appends a constant with the words w[length] but for opcode, type and id; NULL: length is 3. */
bool fold_put_constant(struct fold *f, const uint32_t *w, uint32_t length, uint32_t opcode,
                       uint32_t type, uint32_t id);

bool fold_get_scalar(struct fold *f, uint32_t id, struct fold_scalar *x);

/* Appends the value of an OpSpecConstantOp. */
bool fold_operation(struct fold *f, const uint32_t *w, uint32_t length);

static inline uint32_t opcode_of(const uint32_t *w)
{
    return w[0] & 0xffff;
}

static inline uint32_t length_of(const uint32_t *w)
{
    return w[0] >> 16;
}

#endif
