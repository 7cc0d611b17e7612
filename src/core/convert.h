/* Conversion between element types. */
#ifndef VKA_CORE_CONVERT_H
#define VKA_CORE_CONVERT_H

#include <vkattn/vkattn.h>

/* Rounds to nearest, ties to even. */
uint16_t dtype_to_f16(float x);

/* Element `index` of an array of a float type. */
float dtype_to_float(const void *data, size_t index, enum vka_dtype dtype);

#endif
