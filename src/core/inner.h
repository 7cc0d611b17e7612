/* The type of an operation's own intermediate values. */
#ifndef VKA_CORE_INNER_H
#define VKA_CORE_INNER_H

#include <vkattn/vkattn.h>

#include <stdbool.h>

/* Whether the device multiplies matrices of a 16-bit type in units of their own. Not CPU drivers, which
 * compute a matrix in many steps. By its properties alone: self-tests and profiles change no type. */
bool inner_has_matrices(const struct vka_device_properties *device, enum vka_dtype dtype);

/* The type in which the values between the steps of an operation are kept, so that its products run
 * on matrix units: the one type of all n operands, where that is F16 or BF16 and the device has units
 * for it; else F32. */
enum vka_dtype inner_dtype(const struct vka_device_properties *device,
                           const enum vka_dtype operands[], size_t n);

/* The type in which a layer keeps its queries, keys, values and context. Its operands are query, key,
 * value and output (rows), and its weights but those of a block type, which kernels decode to the
 * rows' type. */
enum vka_dtype inner_dtype_of_layer(const struct vka_device_properties *device,
                                    enum vka_dtype weights, const enum vka_dtype rows[4]);

#endif
