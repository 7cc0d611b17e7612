#include "core/dtype.h"
#include "core/status.h"
#include "params/params.h"

#include <assert.h>
#include <string.h>

/* One element type, see types.def. */
static const struct row {
    const char *name;
    enum kind { INVALID, FLOAT, INTEGER, WEIGHT, BLOCK, BUNDLES, CACHED } kind;
    uint32_t values, bytes, word;
    bool cpu;
} rows[] = {
#define ROW(a, id, NAME, name, kind, values, bytes, word, scale, offset, cpu) \
    [VKA_##NAME] = {#name, kind, values, bytes, word, cpu},
    TYPES(ROW, ROW, )};

/* What enum vka_dtype and types.def say beside its rows. */
#define CHECK(a, id, NAME, name, kind, values, bytes, word, scale, offset, cpu)                \
    static_assert((int)VKA_##NAME == (id) && TYPE_##NAME == (id), #name ": number");           \
    static_assert(IS_QUANT(id) == ((kind) != FLOAT && (kind) != INTEGER), #name ": IS_QUANT"); \
    static_assert(IS_SCALED(id) == ((word) && (kind) != FLOAT), #name ": IS_SCALED");          \
    static_assert(IS_HEAD_SCALED(id) == ((kind) == CACHED), #name ": IS_HEAD_SCALED");         \
    static_assert(HAS_OFFSET(id) == ((offset) >= 0), #name ": HAS_OFFSET");                    \
    static_assert(!(word) || WORD_VALUES(id) == (word), #name ": WORD_VALUES");                \
    static_assert((kind) == FLOAT || (kind) == INTEGER || (kind) == CACHED ||                  \
                      BLOCK_VALUES(id) == (values),                                            \
                  #name ": BLOCK_VALUES");                                                     \
    static_assert((kind) != BUNDLES || 2 * BUNDLE_VALUES * (bytes) % (4 * (values)) == 0,      \
                  #name ": whole words");
TYPES(CHECK, CHECK, )
#define ONE(a, id, NAME, name, kind, values, bytes, word, scale, offset, cpu) +1
static_assert(TYPES(ONE, ONE, ) == VKA_DTYPE_COUNT && COUNTOF(rows) == VKA_DTYPE_COUNT,
              "a row for each type");

bool dtype_is_valid(enum vka_dtype dtype)
{
    return (unsigned)dtype < COUNTOF(rows);
}

static enum kind kind_of(enum vka_dtype dtype)
{
    return dtype_is_valid(dtype) ? rows[dtype].kind : dtype == DTYPE_ACTIVATION ? BLOCK : INVALID;
}

bool dtype_is_float(enum vka_dtype dtype)
{
    return kind_of(dtype) == FLOAT;
}

bool dtype_is_block(enum vka_dtype dtype)
{
    return kind_of(dtype) == BLOCK || kind_of(dtype) == BUNDLES;
}

bool dtype_is_quantised(enum vka_dtype dtype)
{
    return kind_of(dtype) == WEIGHT || dtype_is_block(dtype);
}

bool dtype_has_integers(enum vka_dtype dtype)
{
    return dtype_is_quantised(dtype) && !HAS_FLOATS(dtype);
}

bool dtype_is_scaled(enum vka_dtype dtype)
{
    return !dtype_is_float(dtype) && dtype_word_values(dtype) != 0;
}

bool dtype_is_head_scaled(enum vka_dtype dtype)
{
    return kind_of(dtype) == CACHED;
}

bool dtype_has_hadamard(enum vka_dtype dtype)
{
    return HAS_HADAMARD(dtype);
}

bool dtype_has_cpu_kernels(enum vka_dtype dtype)
{
    return dtype_is_valid(dtype) && rows[dtype].cpu;
}

uint32_t dtype_word_values(enum vka_dtype dtype)
{
    return dtype_is_valid(dtype) ? rows[dtype].word : 0;
}

size_t vka_dtype_size(enum vka_dtype dtype)
{
    return dtype_is_valid(dtype) && !dtype_is_block(dtype) ? rows[dtype].bytes : 0;
}

void dtype_block(enum vka_dtype dtype, uint32_t *values, uint32_t *bytes)
{
    static const struct row none,
        activation = {.values = ACTIVATION_VALUES, .bytes = ACTIVATION_BYTES};
    const struct row *row = dtype_is_valid(dtype)       ? &rows[dtype]
                            : dtype == DTYPE_ACTIVATION ? &activation
                                                        : &none;
    *values = row->values;
    *bytes = row->bytes;
}

enum vka_status vka_dtype_block(enum vka_dtype dtype, uint32_t *values, uint32_t *bytes)
{
    uint32_t v = 0, b = 0;
    if (dtype_is_valid(dtype))
        dtype_block(dtype, &v, &b);
    if (values)
        *values = v;
    if (bytes)
        *bytes = b;
    return v ? VKA_OK : VKA_INVALID;
}

uint64_t dtype_bytes(enum vka_dtype dtype, uint64_t count)
{
    uint32_t values, bytes;
    dtype_block(dtype, &values, &bytes);
    return values ? count / values * bytes : 0;
}

/* The names of all rows that caches keep, each behind a comma. */
#define CACHED_0u(name)
#define CACHED_1u(name) ", " #name
#define CACHED_2u CACHED_1u
#define CACHED_4u CACHED_1u
#define CACHED_8u CACHED_1u
#define CACHED_NAME(a, id, NAME, name, kind, values, bytes, word, scale, offset, cpu) \
    CACHED_##word(name)

const char *dtype_cached_names(void)
{
    static const char names[] = TYPES(CACHED_NAME, CACHED_NAME, );
    return names + strlen(", ");
}

const char *vka_dtype_name(enum vka_dtype dtype)
{
    return dtype_is_valid(dtype) ? rows[dtype].name : "unknown";
}
