/* Parameters and specialization constants, shared by C and GLSL. Structs hold only 4-byte scalars, so
 * that the layouts agree; push constants take at most 128 bytes. Offsets and strides count elements
 * modulo 2^32: a negative stride is its two's complement. */
#ifndef VKA_PARAMS_H
#define VKA_PARAMS_H

#include "params/types.h"

#include "params/attention.h"
#include "params/cache.h"
#include "params/copy.h"
#include "params/matmul.h"
#endif
