/* What kernels on strided tensors share, for C and GLSL. The rules of params.h hold here too. A kernel
 * with matrices includes this rather than model.h, whose every change would make its module stale. */
#ifndef VKA_STRIDED_H
#define VKA_STRIDED_H

#include "params/begin.h"

/* A tensor of rank 4: where its first element is, and its strides. */
struct strided_params {
    U32 offset, stride0, stride1, stride2, stride3;
};

/* Most kernels on such tensors number what they have to do, here in items: one or a few results of
 * one invocation. A workgroup takes ITEM_LANES * ITEMS_EACH of them, strided over its invocations;
 * group g is workgroup g % ITEM_GRID, g / ITEM_GRID. */
#define ITEM_LANES 64
#define ITEMS_EACH 4
#define ITEM_GRID 32768u

#include "params/end.h"
#endif
