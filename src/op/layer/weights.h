/* Weights of linear maps on the device, in the layout that its kernels want. */
#ifndef VKA_OP_WEIGHTS_H
#define VKA_OP_WEIGHTS_H

#include "op/matmul/linear.h"

/* One linear map: weight [out][in] in host memory or a tensor; bias [out] or NULL. */
struct linear_map {
    const struct vka_linear_weights *host;
    uint32_t out;
    const struct vka_tensor *weight, *bias; /* in place of host */
};

#define MAX_LINEAR_MAPS 3

/* Linear maps of one input, joined along `out`: one product computes all of them. */
struct weights {
    struct vka_tensor weight; /* [out][in] or packed, storage NULL where absent */
    struct vka_tensor bias;   /* [out], storage NULL if absent */
    uint32_t b_tile;          /* 0: not packed; see matmul_op */
    uint32_t n_map, rows;     /* rows of all maps and of the padding between them */
    uint32_t first[MAX_LINEAR_MAPS], out[MAX_LINEAR_MAPS]; /* rows of each map */
};

/* Uploads the maps of type dtype as type `stored`, and keeps a copy on the host if `keep`. Biases are
 * of type dtype, float32 where that is a block type. */
enum vka_status weights_upload(struct vka_device *device, enum vka_dtype dtype,
                               enum vka_dtype stored, bool keep, const struct linear_map *maps,
                               uint32_t n_map, uint32_t in, struct weights *weights);
/* Makes the layout of weights_upload without contents, for weights_pack. Both may test kernels. */
enum vka_status weights_lay_out(struct vka_device *device, const struct linear_map *maps,
                                uint32_t n_map, enum vka_dtype stored, struct weights *weights);

/* Gives the weight of a layout its type and its dense shape, [rows][in], [tiles][in * tile] or
 * *transposed: [in][pitch]. */
enum vka_status weights_shape(struct vka_device *device, enum vka_dtype dtype, uint32_t in,
                              struct weights *weights, bool *transposed);

void weights_free(struct weights *weights);

/* Columns of maps first .. last in a product's output, padding between them included. */
uint32_t weights_width(const struct weights *weights, uint32_t first, uint32_t last);

/* output[...][weights_width] = the maps of input, quantised first where `integers` says so. */
enum vka_status weights_apply(struct vka_plan *plan, const char *name,
                              const struct weights *weights, uint32_t first, uint32_t last,
                              const struct vka_tensor *input, bool integers,
                              const struct vka_tensor *output);

#endif
