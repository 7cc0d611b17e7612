/* Weights that lie in tensors, packed when a plan runs as those of the host are when a layer is made;
 * and back again. */
#include "op/layer/pack.h"
#include "op/layer/weights.h"
#include "op/common/copy.h"

/* A dense scratch tensor with another shape. */
static struct vka_tensor reshaped(const struct vka_tensor *scratch, const struct shape *shape)
{
    struct vka_tensor t = *scratch;
    t.shape = *shape;
    t.shape.offset = scratch->shape.offset;
    return t;
}

static enum vka_status copy_maps(struct vka_plan *plan, const struct weights *w,
                                 const struct linear_map *maps, const struct vka_tensor *packed)
{
    for (uint32_t p = 0; p < w->n_map; p++) {
        const uint32_t tile = w->b_tile ? w->b_tile : 1;
        const struct vka_tensor from = tensor_rank4(maps[p].weight);
        const struct vka_tensor view =
            tensor_slice_along(packed, 0, w->first[p] / tile, divide_up(w->out[p], tile));
        const struct vka_tensor to = tensor_rank4(&view);
        ENSURE(w->b_tile ? plan_copy_to_tiles(plan, "pack weight", &from, &to, w->b_tile)
                         : plan_copy(plan, "pack weight", &from, &to));
    }
    return VKA_OK;
}

static enum vka_status pack_weight(struct vka_plan *plan, enum vka_dtype dtype,
                                   const struct linear_map *maps, uint32_t in, struct weights *w)
{
    struct vka_tensor scratch;
    bool transposed;
    ENSURE(weights_shape(plan->device, dtype, in, w, &transposed));
    if (!w->b_tile && !transposed && w->n_map == 1 && shape_is_dense(&maps[0].weight->shape)) {
        w->weight = *maps[0].weight;
        return VKA_OK;
    }
    struct shape *shape = &w->weight.shape;
    const uint32_t size[4] = {1, 1, shape->size[0], shape->size[1]};
    ENSURE(plan_scratch(plan, w->weight.dtype, size, &scratch));
    if (transposed)
        *shape = (struct shape){.rank = 2, .size = {w->rows, in}, .stride = {1, shape->size[1]}};
    w->weight = reshaped(&scratch, shape);
    return copy_maps(plan, w, maps, &w->weight);
}

/* A map without a bias has zeros where another has one. */
static enum vka_status pack_bias(struct vka_plan *plan, enum vka_dtype dtype,
                                 const struct linear_map *maps, struct weights *w)
{
    struct vka_tensor scratch, zero;
    bool any = false;
    for (uint32_t p = 0; p < w->n_map; p++)
        any |= maps[p].bias != NULL;
    if (!any)
        return VKA_OK;
    if (w->n_map == 1 && w->rows == w->out[0] && shape_is_dense(&maps[0].bias->shape)) {
        w->bias = *maps[0].bias;
        return VKA_OK;
    }
    ENSURE(plan_scratch(plan, dtype, (const uint32_t[]){1, 1, 1, w->rows}, &scratch));
    ENSURE(plan_constant(plan, 1, &(const uint32_t){0}, &zero));
    zero.dtype = VKA_F32;
    zero.shape.stride[3] = 0;
    for (uint32_t p = 0; p < w->n_map; p++) {
        const struct vka_tensor to = tensor_slice_along(&scratch, 3, w->first[p], w->out[p]);
        zero.shape.size[3] = w->out[p];
        const struct vka_tensor from = maps[p].bias ? tensor_rank4(maps[p].bias) : zero;
        ENSURE(plan_copy(plan, "pack bias", &from, &to));
    }
    struct shape shape;
    shape_dense(1, &w->rows, &shape);
    w->bias = reshaped(&scratch, &shape);
    return VKA_OK;
}

enum vka_status weights_pack(struct vka_plan *plan, enum vka_dtype dtype,
                             const struct weights *layout, const struct linear_map *maps,
                             uint32_t in, struct weights *packed)
{
    *packed = *layout;
    ENSURE(pack_weight(plan, dtype, maps, in, packed));
    return pack_bias(plan, dtype, maps, packed);
}

enum vka_status weights_rows(struct vka_plan *plan, const struct weights *w, uint32_t map,
                             uint32_t in, struct vka_tensor *weight)
{
    struct vka_tensor rows;
    if (!w->b_tile) {
        *weight = tensor_slice_along(&w->weight, 0, w->first[map], w->out[map]);
        return VKA_OK;
    }
    /* Element [i] of row [r] of tile [n] is number (n * in + i) * tile + r. */
    const uint32_t n_tile = divide_up(w->out[map], w->b_tile);
    struct vka_tensor from = tensor_slice_along(&w->weight, 0, w->first[map] / w->b_tile, n_tile);
    const struct shape tiles = {.rank = 4,
                                .size = {1, n_tile, w->b_tile, in},
                                .stride = {0, (uint64_t)in * w->b_tile, 1, w->b_tile},
                                .offset = from.shape.offset};
    from.shape = tiles;
    ENSURE(plan_scratch(plan, from.dtype, tiles.size, &rows));
    ENSURE(plan_copy(plan, "unpack weight", &from, &rows));
    struct shape shape;
    shape_dense(2, (const uint32_t[]){w->out[map], in}, &shape);
    *weight = reshaped(&rows, &shape);
    return VKA_OK;
}
