#include "gpu/fold.h"
#include "gpu/fold_constant.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC 0x07230203u
#define HEADER 5u          /* words; the fourth is the bound of ids */
#define MAX_BOUND 4194304u /* of ids, by SPIR-V's universal limits */

enum {
    OP_EXECUTION_MODE = 16,
    OP_TYPE_VOID = 19,
    OP_TYPE_FUNCTION = 33,
    OP_SPEC_CONSTANT_TRUE = 48,
    OP_SPEC_CONSTANT_FALSE = 49,
    OP_SPEC_CONSTANT = 50,
    OP_SPEC_CONSTANT_COMPOSITE = 51,
    OP_SPEC_CONSTANT_OP = 52,
    OP_DECORATE = 71,
    OP_DECORATION_GROUP = 73,
    OP_EXECUTION_MODE_ID = 331,
    OP_SPEC_CONSTANT_REPLICATED = 4462,
};
enum { MODE_LOCAL_SIZE = 17, MODE_LOCAL_SIZE_ID = 38 };
enum { DECORATION_SPEC_ID = 1, DECORATION_BUILT_IN = 11, BUILT_IN_WORKGROUP_SIZE = 25 };

/* Appends a constant that its SpecId may give a value. */
static bool specialize(struct fold *f, const uint32_t *w, uint32_t length)
{
    const uint32_t opcode = opcode_of(w) - OP_SPEC_CONSTANT_TRUE + OP_CONSTANT_TRUE;
    const uint32_t spec = w[2] < f->next ? f->ids[w[2]].spec_id : 0;
    const uint32_t *type = fold_find(f, w[1]);
    if (!type)
        return false;
    if (!spec || spec > f->n_value)
        return fold_put_constant(f, w, length, opcode, w[1], w[2]);
    const uint32_t value = f->values[spec - 1];
    if (opcode != OP_CONSTANT)
        return fold_put_constant(f, NULL, 3, value ? OP_CONSTANT_TRUE : OP_CONSTANT_FALSE, w[1],
                                 w[2]);
    const bool number = opcode_of(type) == OP_TYPE_INT || opcode_of(type) == OP_TYPE_FLOAT;
    if (!number || type[2] != 32)
        return fold_fail(f, "has a specialization constant of other than 32 bits");
    const uint32_t words[4] = {0, 0, 0, value};
    return fold_put_constant(f, words, 4, opcode, w[1], w[2]);
}

static bool decorate(struct fold *f, const uint32_t *w, uint32_t length)
{
    if (length < 3 || w[1] >= f->next || (w[2] == DECORATION_SPEC_ID && length != 4))
        return fold_fail(f, MALFORMED);
    if (w[2] == DECORATION_SPEC_ID) {
        if (f->ids[w[1]].at || f->ids[w[1]].spec_id || w[3] == UINT32_MAX)
            return fold_fail(f, MALFORMED);
        f->ids[w[1]].spec_id = w[3] + 1;
        return true;
    }
    if (length == 4 && w[2] == DECORATION_BUILT_IN && w[3] == BUILT_IN_WORKGROUP_SIZE)
        f->workgroup = w[1];
    return fold_put(f, OP_DECORATE, length, w);
}

/* The least length of a type or a constant, whose words are read later; 0: of neither. */
static uint32_t least_length(uint32_t opcode)
{
    static const uint8_t lengths[] = {
        [OP_TYPE_INT] = 4,           [OP_TYPE_FLOAT] = 3,
        [OP_TYPE_VECTOR] = 4,        [OP_TYPE_MATRIX] = 4,
        [OP_TYPE_ARRAY] = 4,         [OP_CONSTANT_TRUE] = 3,
        [OP_CONSTANT_FALSE] = 3,     [OP_CONSTANT] = 4,
        [OP_CONSTANT_COMPOSITE] = 3, [OP_CONSTANT_NULL] = 3,
        [OP_SPEC_CONSTANT_TRUE] = 3, [OP_SPEC_CONSTANT_FALSE] = 3,
        [OP_SPEC_CONSTANT] = 4,      [OP_SPEC_CONSTANT_COMPOSITE] = 3,
        [OP_SPEC_CONSTANT_OP] = 3,
    };
    const uint32_t least = opcode < sizeof lengths ? lengths[opcode] : 0;
    return least || opcode < OP_TYPE_VOID || opcode > OP_TYPE_FUNCTION ? least : 2;
}

static bool fold_instruction(struct fold *f, const uint32_t *w, uint32_t length)
{
    const uint32_t opcode = opcode_of(w), least = least_length(opcode);
    if (length < least)
        return fold_fail(f, MALFORMED);
    switch (opcode) {
    case OP_SPEC_CONSTANT_OP:
        return fold_operation(f, w, length);
    case OP_SPEC_CONSTANT_TRUE:
    case OP_SPEC_CONSTANT_FALSE:
    case OP_SPEC_CONSTANT:
        return specialize(f, w, length);
    case OP_SPEC_CONSTANT_COMPOSITE:
        return fold_put_constant(f, w, length, OP_CONSTANT_COMPOSITE, w[1], w[2]);
    case OP_DECORATE:
        return decorate(f, w, length);
    case OP_DECORATION_GROUP:
        if (length < 2 || w[1] >= f->next || f->ids[w[1]].spec_id)
            return fold_fail(f, "gives a group of decorations a specialization constant's id");
        break;
    case OP_SPEC_CONSTANT_REPLICATED:
        return fold_fail(f, "has OpSpecConstantCompositeReplicateEXT, which is not built in");
    default:
        break;
    }
    const uint32_t *to = fold_put(f, opcode, length, w);
    return to && (!least || fold_define(f, w[opcode <= OP_TYPE_FUNCTION ? 1 : 2], to));
}

/* Gives an execution mode of a workgroup's size the numbers of constants: ids[3]. */
static bool set_size(struct fold *f, uint32_t *w, const uint32_t *ids)
{
    struct fold_scalar x[3];
    for (int i = 0; i < 3; i++)
        if (!fold_get_scalar(f, ids[i], &x[i]) || x[i].width != 32)
            return fold_fail(f, MALFORMED);
    w[0] = 6u << 16 | OP_EXECUTION_MODE;
    w[2] = MODE_LOCAL_SIZE;
    for (int i = 0; i < 3; i++)
        w[3 + i] = (uint32_t)x[i].bits;
    return true;
}

/* The constant for the size of workgroups comes before an execution mode, so that both agree. */
static bool set_sizes(struct fold *f)
{
    const uint32_t *sizes = f->workgroup ? fold_find(f, f->workgroup) : NULL;
    if (f->workgroup &&
        (!sizes || opcode_of(sizes) != OP_CONSTANT_COMPOSITE || length_of(sizes) != 6))
        return fold_fail(f, MALFORMED);
    for (uint32_t *w = f->out + HEADER; w < f->out + f->n; w += length_of(w)) {
        const bool by_id = opcode_of(w) == OP_EXECUTION_MODE_ID;
        if ((!by_id && opcode_of(w) != OP_EXECUTION_MODE) || length_of(w) != 6 ||
            w[2] != (by_id ? MODE_LOCAL_SIZE_ID : MODE_LOCAL_SIZE) || !(sizes || by_id))
            continue;
        const uint32_t ids[3] = {w[3], w[4], w[5]};
        if (!set_size(f, w, sizes ? sizes + 3 : ids))
            return false;
    }
    return true;
}

static bool fold_words(struct fold *f, const uint32_t *words, size_t n_word)
{
    memcpy(f->out, words, HEADER * sizeof *words);
    f->n = HEADER;
    for (size_t at = HEADER, length; at < n_word; at += length) {
        length = length_of(words + at);
        if (length == 0 || length > n_word - at)
            return fold_fail(f, MALFORMED);
        if (!fold_instruction(f, words + at, (uint32_t)length))
            return fold_fail(f, MALFORMED);
    }
    f->out[3] = f->next;
    return set_sizes(f) && (fold_is_plain(f->out, f->n) || fold_fail(f, MALFORMED));
}

bool fold_is_plain(const uint32_t *words, size_t n_word)
{
    for (size_t at = HEADER, length; at < n_word; at += length) {
        const uint32_t opcode = opcode_of(words + at);
        length = length_of(words + at);
        if (length == 0 || length > n_word - at || opcode == OP_SPEC_CONSTANT_REPLICATED ||
            (opcode >= OP_SPEC_CONSTANT_TRUE && opcode <= OP_SPEC_CONSTANT_OP) ||
            (opcode == OP_DECORATE && length > 2 && words[at + 2] == DECORATION_SPEC_ID))
            return false;
    }
    return true;
}

enum vka_status fold_module(const uint32_t *words, size_t n_word, const uint32_t *values,
                            uint32_t n_value, struct folded *result)
{
    *result = (struct folded){.why = MALFORMED};
    if (n_word < HEADER || n_word > UINT32_MAX / 64 || words[0] != MAGIC || words[3] < 1 ||
        words[3] > MAX_BOUND)
        return VKA_UNSUPPORTED;
    /* A vector's operation grows most: 5 words become 4 constants of 5 words and a composite
     * of 7. */
    struct fold f = {.values = values, .n_value = n_value, .next = words[3], .room = 6 * n_word};
    f.n_id = f.next + (uint32_t)n_word;
    f.ids = calloc(f.n_id, sizeof *f.ids);
    f.out = malloc(f.room * sizeof *f.out);
    enum vka_status status = VKA_OUT_OF_HOST_MEMORY;
    if (f.ids && f.out)
        status = fold_words(&f, words, n_word) ? VKA_OK : VKA_UNSUPPORTED;
    free(f.ids);
    if (status != VKA_OK) {
        free(f.out);
        f.out = NULL;
    }
    *result = (struct folded){.words = f.out, .n_word = f.n, .why = f.why};
    return status;
}
