#include "gpu/fold_constant.h"

#include <string.h>

#define MAX_COMPONENTS 4u /* of vectors that are evaluated */
#define MAX_DEPTH 8u      /* of indices into a composite */

bool fold_fail(struct fold *f, const char *why)
{
    f->why = f->why ? f->why : why;
    return false;
}

uint32_t *fold_put(struct fold *f, uint32_t opcode, uint32_t length, const uint32_t *w)
{
    uint32_t *to = f->out + f->n;
    if (length > 0xffff || length > f->room - f->n) {
        fold_fail(f, MALFORMED);
        return NULL;
    }
    if (w)
        memcpy(to, w, length * sizeof *w);
    to[0] = length << 16 | opcode;
    f->n += length;
    return to;
}

const uint32_t *fold_find(struct fold *f, uint32_t id)
{
    if (id < f->next && f->ids[id].at)
        return f->out + f->ids[id].at;
    fold_fail(f, MALFORMED);
    return NULL;
}

bool fold_define(struct fold *f, uint32_t id, const uint32_t *w)
{
    if (!w || id >= f->next || f->ids[id].at)
        return fold_fail(f, MALFORMED);
    f->ids[id].at = (uint32_t)(w - f->out);
    return true;
}

static uint32_t new_id(struct fold *f)
{
    return f->next < f->n_id ? f->next++ : 0;
}

bool fold_put_constant(struct fold *f, const uint32_t *w, uint32_t length, uint32_t opcode,
                       uint32_t type, uint32_t id)
{
    uint32_t *to = fold_put(f, opcode, length, w);
    if (!to)
        return false;
    to[1] = type;
    to[2] = id;
    return fold_define(f, id, to);
}

static bool copy(struct fold *f, uint32_t from, uint32_t type, uint32_t id)
{
    const uint32_t *w = fold_find(f, from);
    return w && fold_put_constant(f, w, length_of(w), opcode_of(w), type, id);
}

/* 1 for booleans, 0 for what is no scalar that operations take. */
static uint32_t width_of(const uint32_t *type)
{
    const bool known = opcode_of(type) == OP_TYPE_INT &&
                       (type[2] == 8 || type[2] == 16 || type[2] == 32 || type[2] == 64);
    return opcode_of(type) == OP_TYPE_BOOL ? 1 : known ? type[2] : 0;
}

bool fold_get_scalar(struct fold *f, uint32_t id, struct fold_scalar *x)
{
    const uint32_t *w = fold_find(f, id);
    const uint32_t *type = w && opcode_of(w) >= OP_CONSTANT_TRUE ? fold_find(f, w[1]) : NULL;
    x->width = type ? width_of(type) : 0;
    x->bits = 0;
    if (!x->width)
        return fold_fail(f, "has an operation of specialization constants that are no integers");
    if (opcode_of(w) == OP_CONSTANT && length_of(w) < (x->width == 64 ? 5 : 4))
        return fold_fail(f, MALFORMED);
    if (opcode_of(w) == OP_CONSTANT_TRUE)
        x->bits = 1;
    if (opcode_of(w) == OP_CONSTANT)
        x->bits =
            x->width == 64 ? (uint64_t)w[4] << 32 | w[3] : w[3] & UINT32_MAX >> (32 - x->width);
    return true;
}

static bool put_scalar(struct fold *f, const uint32_t *type, uint32_t type_id, uint32_t id,
                       uint64_t bits)
{
    const uint32_t width = width_of(type);
    if (width == 1)
        return fold_put_constant(f, NULL, 3, bits ? OP_CONSTANT_TRUE : OP_CONSTANT_FALSE, type_id,
                                 id);
    if (width < 32 && type[3] && bits >> (width - 1)) /* narrow ones are extended by their sign */
        bits |= ~UINT64_C(0) << width;
    const uint32_t w[5] = {0, 0, 0, (uint32_t)bits, (uint32_t)(bits >> 32)};
    return fold_put_constant(f, w, width == 64 ? 5 : 4, OP_CONSTANT, type_id, id);
}

/* The id of a constituent of a composite constant, made where it is one of OpConstantNull; 0: none. */
static uint32_t constituent(struct fold *f, uint32_t id, uint32_t index)
{
    const uint32_t *w = fold_find(f, id);
    if (w && opcode_of(w) == OP_CONSTANT_COMPOSITE && index < length_of(w) - 3)
        return w[3 + index];
    const uint32_t *type = w && opcode_of(w) == OP_CONSTANT_NULL ? fold_find(f, w[1]) : NULL;
    const uint32_t kind = type ? opcode_of(type) : 0;
    uint32_t of = 0, made;
    if ((kind == OP_TYPE_VECTOR || kind == OP_TYPE_MATRIX) && index < type[3])
        of = type[2];
    else if (kind == OP_TYPE_ARRAY) /* an index into one is in bounds */
        of = type[2];
    else if (kind == OP_TYPE_STRUCT && index < length_of(type) - 2)
        of = type[2 + index];
    if (of && (made = new_id(f)) && fold_put_constant(f, NULL, 3, OP_CONSTANT_NULL, of, made))
        return made;
    fold_fail(f, MALFORMED);
    return 0;
}

static bool put_composite(struct fold *f, uint32_t type, uint32_t id, const uint32_t *components,
                          uint32_t n)
{
    uint32_t w[3 + MAX_COMPONENTS] = {0};
    memcpy(w + 3, components, n * sizeof *components);
    return fold_put_constant(f, w, 3 + n, OP_CONSTANT_COMPOSITE, type, id);
}

static bool map_scalar(struct fold *f, const struct fold_op *op, const uint32_t *operands,
                       uint32_t type_id, uint32_t id)
{
    struct fold_scalar x[3];
    uint64_t bits;
    const uint32_t *type = fold_find(f, type_id);
    for (uint32_t i = 0; i < (op->kind == FOLD_SELECT ? 1 : op->n_operand); i++)
        if (!fold_get_scalar(f, operands[i], &x[i]))
            return false;
    if (op->kind == FOLD_SELECT) /* between constants of any type */
        return x[0].width == 1 ? copy(f, operands[x[0].bits ? 1 : 2], type_id, id)
                               : fold_fail(f, MALFORMED);
    if (!type || !width_of(type) || !fold_op_evaluate(op, x, width_of(type), &bits))
        return fold_fail(f, MALFORMED);
    return put_scalar(f, type, type_id, id, bits);
}

static bool is_vector(const uint32_t *type)
{
    return opcode_of(type) == OP_TYPE_VECTOR;
}

/* Evaluates an operation on scalars, or on each component of vectors. */
static bool map(struct fold *f, const struct fold_op *op, const uint32_t *operands,
                uint32_t type_id, uint32_t id)
{
    const uint32_t *type = fold_find(f, type_id), *first = fold_find(f, operands[0]);
    const uint32_t *taken =
        first && opcode_of(first) >= OP_CONSTANT_TRUE ? fold_find(f, first[1]) : NULL;
    uint32_t components[MAX_COMPONENTS];
    if (!type || !taken)
        return fold_fail(f, MALFORMED);
    if (!is_vector(taken)) /* a boolean may select vectors */
        return map_scalar(f, op, operands, type_id, id);
    if (!is_vector(type) || type[3] > MAX_COMPONENTS)
        return fold_fail(f, MALFORMED);
    for (uint32_t i = 0; i < type[3]; i++) {
        uint32_t x[3] = {0};
        for (uint32_t o = 0; o < op->n_operand; o++)
            if (!(x[o] = constituent(f, operands[o], i)))
                return false;
        components[i] = new_id(f);
        if (!components[i] || !map_scalar(f, op, x, type[2], components[i]))
            return fold_fail(f, MALFORMED);
    }
    return put_composite(f, type_id, id, components, type[3]);
}

static bool shuffle(struct fold *f, const uint32_t *operands, uint32_t n, uint32_t type,
                    uint32_t id)
{
    const uint32_t *first = fold_find(f, operands[0]);
    const uint32_t *taken =
        first && opcode_of(first) >= OP_CONSTANT_TRUE ? fold_find(f, first[1]) : NULL;
    uint32_t components[MAX_COMPONENTS];
    if (!taken || !is_vector(taken) || n - 2 > MAX_COMPONENTS)
        return fold_fail(f, MALFORMED);
    for (uint32_t i = 0; i < n - 2; i++) {
        const uint32_t index = operands[2 + i];
        const bool left = index < taken[3];
        components[i] = constituent(f, operands[left ? 0 : 1], left ? index : index - taken[3]);
        if (!components[i])
            return false;
    }
    return put_composite(f, type, id, components, n - 2);
}

static bool extract(struct fold *f, const uint32_t *operands, uint32_t n, uint32_t type,
                    uint32_t id)
{
    uint32_t from = operands[0];
    for (uint32_t i = 1; i < n; i++)
        if (!(from = constituent(f, from, operands[i])))
            return false;
    return copy(f, from, type, id);
}

/* Appends a copy of a composite in which `object` stands at the n indices. */
static bool insert(struct fold *f, uint32_t object, uint32_t composite, const uint32_t *indices,
                   uint32_t n, uint32_t id)
{
    const uint32_t *w = fold_find(f, composite);
    if (!w || opcode_of(w) != OP_CONSTANT_COMPOSITE || n < 1 || n > MAX_DEPTH ||
        indices[0] >= length_of(w) - 3)
        return fold_fail(f, MALFORMED);
    if (n > 1) {
        const uint32_t inner = new_id(f);
        if (!inner || !insert(f, object, w[3 + indices[0]], indices + 1, n - 1, inner))
            return fold_fail(f, MALFORMED);
        object = inner;
    }
    if (!copy(f, composite, w[1], id))
        return false;
    f->out[f->ids[id].at + 3 + indices[0]] = object;
    return true;
}

bool fold_operation(struct fold *f, const uint32_t *w, uint32_t length)
{
    const struct fold_op *op = length > 3 ? fold_op_find(w[3]) : NULL;
    const uint32_t *operands = w + 4, n = length - 4;
    if (!op || op->kind == FOLD_UNKNOWN)
        return fold_fail(f, op ? op->why : MALFORMED);
    if (op->kind < FOLD_SHUFFLE ? n != op->n_operand : n < op->n_operand)
        return fold_fail(f, MALFORMED);
    if (op->kind == FOLD_SHUFFLE)
        return shuffle(f, operands, n, w[1], w[2]);
    if (op->kind == FOLD_EXTRACT)
        return extract(f, operands, n, w[1], w[2]);
    if (op->kind == FOLD_INSERT)
        return insert(f, operands[0], operands[1], operands + 2, n - 2, w[2]);
    return map(f, op, operands, w[1], w[2]);
}
