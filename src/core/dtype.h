/* Element types: sizes, names and classes. */
#ifndef VKA_CORE_DTYPE_H
#define VKA_CORE_DTYPE_H

#include <vkattn/vkattn.h>

/* Quantised activations, see params/types.h: a type of scratch alone, that the API does not know.
 * The last axis may end within a block. */
#define DTYPE_ACTIVATION ((enum vka_dtype)VKA_DTYPE_COUNT)

/* F32, F16 or BF16. */
bool dtype_is_float(enum vka_dtype dtype);
bool dtype_is_valid(enum vka_dtype dtype);

/* Values in blocks that share scales. */
bool dtype_is_block(enum vka_dtype dtype);

/* Int8 or a block type. */
bool dtype_is_quantised(enum vka_dtype dtype);

/* Quantised, and its values are integers times scales: int8 activations can be multiplied by it. */
bool dtype_has_integers(enum vka_dtype dtype);

/* Types of cached keys and values whose scales lie behind all rows. */
bool dtype_is_scaled(enum vka_dtype dtype);

/* The cached types with one scale for each head, given with the cache. */
bool dtype_is_head_scaled(enum vka_dtype dtype);

/* Keys and values that are multiplied by a Hadamard matrix before a cache quantises them. */
bool dtype_has_hadamard(enum vka_dtype dtype);

/* The names of the types that a cache may have, with commas between them. */
const char *dtype_cached_names(void);

/* Whether the products of shaders/cpu/ read it. */
bool dtype_has_cpu_kernels(enum vka_dtype dtype);

/* Values in a word of cached keys and values; 0: no cache has the type. */
uint32_t dtype_word_values(enum vka_dtype dtype);

/* Gives what vka_dtype_block gives, and knows DTYPE_ACTIVATION too. */
void dtype_block(enum vka_dtype dtype, uint32_t *values, uint32_t *bytes);

/* Bytes of `count` elements; of a block type, count is whole blocks. */
uint64_t dtype_bytes(enum vka_dtype dtype, uint64_t count);

#endif
