#include "op/layer/weights.h"
#include "core/convert.h"
#include "op/matmul/linear.h"
#include "core/dtype.h"
#include "plan/settle.h"
#include "kernel/matmul_lane.h"

#include <stdlib.h>
#include <string.h>

/* Writes a weight or bias, and keeps a host copy if `keep`. */
static enum vka_status write_tensor(struct vka_tensor *tensor, bool keep, const void *data)
{
    enum vka_status status = VKA_OK;
    TRY(vka_tensor_write(tensor, data, vka_tensor_size(tensor)));
    TRY(storage_keep(tensor->storage, keep ? data : NULL));
fail:
    return status;
}

/* Index of element [o][i] of [out][in] in the device's layout, with rows of `pitch` elements. */
static uint64_t place(const struct weights *w, bool transposed, uint64_t pitch, uint64_t in,
                      uint64_t o, uint64_t i)
{
    if (w->b_tile)
        return o / w->b_tile * w->b_tile * in + i * w->b_tile + o % w->b_tile;
    return transposed ? i * pitch + o : o * pitch + i;
}

/* Writes the maps to data, which is 0 before, in the device's layout. */
static void arrange(const struct weights *w, enum vka_dtype dtype, bool transposed, uint64_t pitch,
                    const struct linear_map *maps, uint32_t in, void *data)
{
    size_t size = vka_dtype_size(dtype);
    for (uint32_t p = 0; p < w->n_map; p++)
        for (uint64_t o = 0; o < maps[p].out; o++)
            for (uint64_t i = 0; i < in; i++) {
                uint64_t to = place(w, transposed, pitch, in, w->first[p] + o, i);
                const char *from = maps[p].host->weight;
                if (w->b_tile)
                    ((float *)data)[to] = dtype_to_float(from, o * in + i, dtype);
                else
                    memcpy((char *)data + to * size, from + (o * in + i) * size, size);
            }
}

enum vka_status weights_shape(struct vka_device *device, enum vka_dtype dtype, uint32_t in,
                              struct weights *w, bool *transposed)
{
    uint64_t rows = w->rows, pitch = in;
    *transposed = !w->b_tile && tune_transposes_weights(&device->caps);
    if (w->b_tile) {
        rows = w->rows / w->b_tile;
        pitch = (uint64_t)in * w->b_tile;
    } else if (*transposed) {
        rows = in;
        pitch = (w->rows + 3ull) / 4 * 4;
    }
    w->weight.dtype = w->b_tile ? VKA_F32 : dtype;
    if (pitch > UINT32_MAX ||
        !shape_dense(2, (const uint32_t[]){(uint32_t)rows, (uint32_t)pitch}, &w->weight.shape))
        return log_error(&device->log, VKA_UNSUPPORTED,
                         "a weight of %u rows of %u does not fit one allocation", w->rows, in);
    return VKA_OK;
}

/* Uploads the weight in the layout that the device's kernels want. */
static enum vka_status upload_weight(struct vka_device *device, enum vka_dtype dtype, bool keep,
                                     const struct linear_map *maps, uint32_t in, struct weights *w)
{
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    void *data = NULL;
    bool transposed;
    TRY(weights_shape(device, dtype, in, w, &transposed));
    const uint32_t pitch = w->weight.shape.size[1];
    TRY(storage_create(device, MEMORY_DEVICE, vka_tensor_size(&w->weight), &w->weight.storage));
    data = calloc(1, vka_tensor_size(&w->weight));
    CHECK_ALLOC(data);
    arrange(w, dtype, transposed, pitch, maps, in, data);
    TRY(write_tensor(&w->weight, keep, data));
    if (transposed)
        w->weight.shape = (struct shape){.rank = 2, .size = {w->rows, in}, .stride = {1, pitch}};
fail:
    free(data);
    return status;
}

/* Quantises rows of floats. */
static enum vka_status encode_rows(struct log *log, enum vka_dtype dtype, const void *from,
                                   uint32_t rows, uint32_t in, enum vka_dtype stored, char *to)
{
    uint32_t values, bytes;
    float *row = malloc(in * sizeof *row);
    ENSURE_ALLOC(row);
    vka_dtype_block(stored, &values, &bytes);
    for (uint64_t o = 0; o < rows; o++) {
        for (uint32_t i = 0; i < in; i++)
            row[i] = dtype_to_float(from, o * in + i, dtype);
        if (vka_dtype_encode(stored, row, in / values, to + dtype_bytes(stored, o * in)) !=
            VKA_OK) {
            free(row);
            return log_error(log, VKA_INVALID,
                             "vka_layer_create: row %llu of a weight has NaN, Inf or values beyond "
                             "float16, which %s does not hold",
                             (unsigned long long)o, vka_dtype_name(stored));
        }
    }
    free(row);
    return VKA_OK;
}

/* Uploads rows of blocks in file order, quantising floats. Rows between the maps are 0. */
static enum vka_status upload_blocks(struct vka_device *device, enum vka_dtype dtype,
                                     enum vka_dtype stored, bool keep,
                                     const struct linear_map *maps, uint32_t out, uint32_t in,
                                     struct weights *w)
{
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    char *data = NULL;
    w->weight.dtype = stored;
    if (!shape_dense(2, (const uint32_t[]){out, in}, &w->weight.shape))
        return log_error(log, VKA_UNSUPPORTED,
                         "a weight of %u rows of %u does not fit one allocation", out, in);
    TRY(storage_create(device, MEMORY_DEVICE, vka_tensor_size(&w->weight), &w->weight.storage));
    data = calloc(1, vka_tensor_size(&w->weight));
    CHECK_ALLOC(data);
    for (uint32_t p = 0; p < w->n_map; p++) {
        char *to = data + dtype_bytes(stored, (uint64_t)w->first[p] * in);
        const void *from = maps[p].host->weight;
        if (dtype == stored)
            memcpy(to, from, dtype_bytes(stored, (uint64_t)maps[p].out * in));
        else
            TRY(encode_rows(log, dtype, from, maps[p].out, in, stored, to));
    }
    TRY(write_tensor(&w->weight, keep, data));
fail:
    free(data);
    return status;
}

static enum vka_status upload_bias(struct vka_device *device, enum vka_dtype dtype, bool keep,
                                   const struct linear_map *maps, uint32_t out, struct weights *w)
{
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    size_t size = vka_dtype_size(dtype);
    char *data = calloc(out, size);
    CHECK_ALLOC(data);
    for (uint32_t p = 0; p < w->n_map; p++)
        if (maps[p].host->bias)
            memcpy(data + w->first[p] * size, maps[p].host->bias, maps[p].out * size);
    w->bias.dtype = dtype;
    shape_dense(1, &out, &w->bias.shape);
    TRY(storage_create(device, MEMORY_DEVICE, vka_tensor_size(&w->bias), &w->bias.storage));
    TRY(write_tensor(&w->bias, keep, data));
fail:
    free(data);
    return status;
}

static struct kernel_set choose_packed(const struct caps *caps, void *tile)
{
    enum kernel kernel = tune_packed_kernel(caps);
    *(uint32_t *)tile = tune_weight_tile(caps);
    return kernel == KERNEL_COUNT ? NO_KERNELS : KERNEL_SET(kernel);
}

enum vka_status weights_lay_out(struct vka_device *device, const struct linear_map *maps,
                                uint32_t n_map, enum vka_dtype stored, struct weights *w)
{
    struct log *log = &device->log;
    uint64_t out = 0;
    *w = (struct weights){.n_map = n_map};
    if (!dtype_is_block(stored))
        ENSURE(device_settle(device, choose_packed, &w->b_tile));  /* a tile is for one kernel */
    uint32_t multiple = w->b_tile ? w->b_tile : n_map > 1 ? 4 : 1; /* maps start at whole vec4 */
    for (uint32_t p = 0; p < n_map; p++) {
        w->first[p] = (uint32_t)out;
        w->out[p] = maps[p].out;
        out += (maps[p].out + (uint64_t)multiple - 1) / multiple * multiple;
        ENSURE_ARG(out <= INT32_MAX, "vka_layer_create: projections exceed 2^31 rows");
    }
    w->rows = (uint32_t)out;
    return VKA_OK;
}

enum vka_status weights_upload(struct vka_device *device, enum vka_dtype dtype,
                               enum vka_dtype stored, bool keep, const struct linear_map *maps,
                               uint32_t n_map, uint32_t in, struct weights *w)
{
    bool bias = false;
    ENSURE(weights_lay_out(device, maps, n_map, stored, w));
    for (uint32_t p = 0; p < n_map; p++)
        bias |= maps[p].host->bias != NULL;
    if (dtype_is_block(stored))
        ENSURE(upload_blocks(device, dtype, stored, keep, maps, w->rows, in, w));
    else
        ENSURE(upload_weight(device, dtype, keep, maps, in, w));
    return bias ? upload_bias(device, dtype_is_block(dtype) ? VKA_F32 : dtype, keep, maps, w->rows,
                              w)
                : VKA_OK;
}

void weights_free(struct weights *w)
{
    storage_unref(&w->weight.storage);
    storage_unref(&w->bias.storage);
}

uint32_t weights_width(const struct weights *w, uint32_t first, uint32_t last)
{
    return w->first[last] + w->out[last] - w->first[first];
}

enum vka_status weights_apply(struct vka_plan *plan, const char *name, const struct weights *w,
                              uint32_t first, uint32_t last, const struct vka_tensor *input,
                              bool integers, const struct vka_tensor *output)
{
    uint32_t width = weights_width(w, first, last), tile = w->b_tile ? w->b_tile : 1;
    struct vka_tensor weight =
        tensor_slice_along(&w->weight, 0, w->first[first] / tile, divide_up(width, tile));
    struct vka_tensor bias = w->bias;
    if (bias.storage)
        bias = tensor_slice_along(&w->bias, 0, w->first[first], width);
    return plan_linear(plan, &(struct linear){.name = name,
                                              .input = input,
                                              .weight = &weight,
                                              .b_tile = w->b_tile,
                                              .bias = bias.storage ? &bias : NULL,
                                              .integers = integers,
                                              .output = output});
}
