/* Weights of linear maps on the device, in the layout that its kernels want. */
#ifndef VKA_OP_WEIGHTS_H
#define VKA_OP_WEIGHTS_H

#include "op/linear.h"

/* One linear map: weight [out][in] in host memory, NULL: absent; bias [out] or NULL. */
struct weight_part {
    const struct vka_linear_weights *host;
    uint32_t out;
};

#define MAX_WEIGHT_PARTS 3

/* Linear maps of one input, joined along `out`: one product computes all of them. */
struct weights {
    struct vka_tensor weight; /* [out][in] or packed, storage NULL where absent */
    struct vka_tensor bias;   /* [out], storage NULL if absent */
    uint32_t panel;           /* 0: not packed; see matmul_op */
    uint32_t n_part;
    uint32_t first[MAX_WEIGHT_PARTS], out[MAX_WEIGHT_PARTS]; /* rows of each part */
};

/* Uploads the maps of type dtype as type `stored`, and keeps a copy on the host if `keep`. Biases are
 * of type dtype, float32 where that is a block type. */
enum vka_status weights_upload(struct vka_device *device, enum vka_dtype dtype,
                               enum vka_dtype stored, bool keep, const struct weight_part *parts,
                               uint32_t n_part, uint32_t in, struct weights *weights);
void weights_free(struct weights *weights);

/* Columns of parts first .. last in a product's output, padding between them included. */
uint32_t weights_width(const struct weights *weights, uint32_t first, uint32_t last);

/* output[...][weights_width] = the parts of input. */
enum vka_status weights_apply(struct vka_plan *plan, const char *name,
                              const struct weights *weights, uint32_t first, uint32_t last,
                              const struct vka_tensor *input, const struct vka_tensor *output);

#endif
