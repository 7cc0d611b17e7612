/* Parameters and specialization constants of the operations around attention, shared by C and GLSL.
 * The rules of params.h, which is included before this file, hold here too. */
#ifndef VKA_MODEL_H
#define VKA_MODEL_H

#ifdef VULKAN
#define U32 uint
#define I32 int
#define F32 float
#define STRUCT(tag) tag
#else
#include <stdint.h>
#define U32 uint32_t
#define I32 int32_t
#define F32 float
#define STRUCT(tag) struct tag
#endif

#define TYPE_NONE 99 /* in place of an element type: there is no such tensor */

/* A tensor of rank 4: where its first element is, and its strides. */
struct strided_params {
    U32 offset, stride0, stride1, stride2, stride3;
};

/* ---- norm: y = normalised (x + residual) * weight + bias ----------------------------------------
 * One workgroup a row. A row is the last INNER axes; its elements are counted in row-major order.
 * Element e of the weight is at weight_offset + e * weight_step. Row r of n_row is workgroup
 * r % NORM_GRID, r / NORM_GRID. Buffers: 0 x, 1 residual, 2 weight, 3 bias, 4 sum, 5 y. */
struct norm_params {
    U32 size0, size1, size2, size3;
    STRUCT(strided_params) x, residual, sum, y;
    U32 weight_offset, weight_step, bias_offset, bias_step;
    F32 epsilon;
};
#define NORM_LANES 0 /* a power of two */
#define NORM_X_TYPE 1
#define NORM_RESIDUAL_TYPE 2 /* TYPE_NONE: none */
#define NORM_WEIGHT_TYPE 3
#define NORM_BIAS_TYPE 4
#define NORM_SUM_TYPE 5
#define NORM_Y_TYPE 6
#define NORM_CENTER 7 /* subtract the mean: layer norm; else RMS norm */
#define NORM_INNER 8
#define NORM_SUM_PAIRS 9 /* two neighbours of the sum are a whole word; of y */
#define NORM_Y_PAIRS 10
#define NORM_SPECS 11
#define NORM_GRID 32768u
#define NORM_BLOCK 64u /* pairs that a lane adds in one chain; then these sums */

/* ---- units: most of the kernels below number the parts of their work, here called units --------
 * A workgroup takes UNIT_LANES * UNIT_RUN of them, strided over its invocations; group g is
 * workgroup g % UNIT_GRID, g / UNIT_GRID. */
#define UNIT_LANES 64
#define UNIT_RUN 4
#define UNIT_GRID 32768u

/* ---- map: y = f(x), f(x) + b or f(x) * b ---------------------------------------------------------
 * A unit is two neighbours of axis 3. Buffers: 0 x, 1 b, 2 y. */
struct map_params {
    U32 size0, size1, size2, size3;
    STRUCT(strided_params) x, b, y;
    F32 alpha; /* of SiLU */
};
#define ELEMENT_X_TYPE 0
#define ELEMENT_B_TYPE 1 /* TYPE_NONE: none */
#define ELEMENT_Y_TYPE 2
#define ELEMENT_FUNCTION 3 /* enum vka_activation */
#define ELEMENT_MULTIPLY 4 /* by b; else it is added */
#define ELEMENT_PAIRS 5    /* two neighbours of y are a whole word */
#define ELEMENT_SPECS 6
#define ELEMENT_IDENTITY 0
#define ELEMENT_GELU 1
#define ELEMENT_GELU_TANH 2
#define ELEMENT_SILU 3
#define ELEMENT_RELU 4
#define ELEMENT_TANH 5
#define ELEMENT_SIGMOID 6

#ifndef VULKAN
_Static_assert(sizeof(struct map_params) <= 128, "push constants");
_Static_assert(sizeof(struct norm_params) <= 128, "push constants");
#endif

#undef U32
#undef I32
#undef F32
#undef STRUCT
#endif
