/* Element types: sizes, names, classes and conversion to double. */
#ifndef VKA_CORE_DTYPE_H
#define VKA_CORE_DTYPE_H

#include <vkattn/vkattn.h>

/* F32, F16 or BF16. */
bool dtype_is_float(enum vka_dtype dtype);
bool dtype_is_valid(enum vka_dtype dtype);

/* Element `index` of an array of a float type. */
float dtype_to_float(const void *data, size_t index, enum vka_dtype dtype);

#endif
