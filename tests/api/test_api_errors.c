/* Every documented error of devices, tensors, layers and caches; those of plans are in
 * test_api_errors_attention.c and _plan.c. SPDX-License-Identifier: MIT */
#include "api_errors.h"
#include "test_program.h"

/* Sizes of an info struct that this library does not know. */
#define WRONG_SIZES(type)                                             \
    {                                                                 \
        0, sizeof(struct type) - 1, sizeof(struct type) + 8, SIZE_MAX \
    }

/* ---- Devices --------------------------------------------------------------------------------- */

static char heard[1024];

static void listen(void *user, enum vka_log_level level, const char *message)
{
    (void)user;
    (void)level;
    snprintf(heard, sizeof heard, "%s", message);
}

/* There is no device to ask: the log alone tells. */
static void refuses_device(struct world *w, struct vka_device_info info, enum vka_status want,
                           const char *word)
{
    heard[0] = '\0';
    info.log = listen;
    MAKES_NOTHING(vka_device, want, NULL, vka_device_create(&info, &made));
    if (!has_word(heard, word))
        fail_msg("\"%s\" does not name %s", heard, word);
}

#define DEVICE(want, word, ...)                                                                  \
    refuses_device(                                                                              \
        w, (struct vka_device_info){.struct_size = sizeof(struct vka_device_info), __VA_ARGS__}, \
        want, word)

static void devices(void **state)
{
    struct world *w = *state;
    const size_t sizes[] = WRONG_SIZES(vka_device_info);
    for (size_t i = 0; i < COUNTOF(sizes); i++)
        refuses_device(w, (struct vka_device_info){.struct_size = sizes[i]}, VKA_INVALID,
                       "struct_size");
    FAILS(VKA_INVALID, NULL, vka_device_create(NULL, NULL));
    FAILS(VKA_INVALID, NULL, vka_device_create(VKA_INFO(vka_device_info, .labels = true), NULL));
    DEVICE(VKA_INVALID, "pipeline_cache", .pipeline_cache_size = 1);
    DEVICE(VKA_INVALID, "pipeline_cache_size", .pipeline_cache_size = SIZE_MAX);
    DEVICE(VKA_INVALID, "max_buffer_range", .max_buffer_range = 1);
    DEVICE(VKA_INVALID, "max_buffer_range", .max_buffer_range = 65535);
    DEVICE(VKA_INVALID, "max_allocation", .max_allocation = 1);
    DEVICE(VKA_INVALID, "max_allocation", .max_allocation = (1u << 20) - 1);
    DEVICE(VKA_INVALID, "max_memory", .max_memory = (1u << 20) - 1);
    DEVICE(VKA_INVALID, "device", .device = "");
    DEVICE(VKA_NO_DEVICE, "nonesuch", .device = "nonesuch");
    DEVICE(VKA_NO_DEVICE, "4294967296", .device = "4294967296");
    DEVICE(VKA_NO_DEVICE, "99999", .device = "99999");
    size_t count = 1;
    FAILS(VKA_INVALID, NULL, vka_device_list(NULL, NULL, NULL));
    FAILS(VKA_INVALID, NULL, vka_device_list(NULL, NULL, &count));
    const struct vka_device_info *nonesuch = VKA_INFO(vka_device_info, .device = "nonesuch");
    struct vka_device *none;
    assert_int_equal(vka_device_create(nonesuch, &none), VKA_NO_DEVICE);
    assert_non_null(strstr(vka_device_error(NULL), "\"nonesuch\": there is 0: "));
    assert_null(vka_device_properties(NULL));
}

static void device_questions(void **state)
{
    struct world *w = *state;
    struct vka_kernel_info kernel;
    size_t n = vka_kernel_count(), size = 0, less;
    char data[1] = {0x5a};
    FAILS(VKA_INVALID, NULL, vka_device_kernel(NULL, 0, &kernel));
    FAILS(VKA_INVALID, "info", vka_device_kernel(w->device, 0, NULL));
    FAILS(VKA_INVALID, "index", vka_device_kernel(w->device, n, &kernel));
    FAILS(VKA_INVALID, "index", vka_device_kernel(w->device, SIZE_MAX, &kernel));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(vka_device_kernel(w->device, i, &kernel), VKA_OK);
    FAILS(VKA_INVALID, NULL, vka_device_pipeline_cache(NULL, NULL, &size));
    FAILS(VKA_INVALID, "size", vka_device_pipeline_cache(w->device, NULL, NULL));
    assert_int_equal(vka_device_pipeline_cache(w->device, NULL, &size), VKA_OK);
    less = 0;
    FAILS(VKA_INVALID, "size", vka_device_pipeline_cache(w->device, data, &less));
    assert_true(size > 1);
    less = 1;
    FAILS(VKA_INVALID, "size", vka_device_pipeline_cache(w->device, data, &less));
    assert_int_equal(data[0], 0x5a);
}

/* ---- Tensors --------------------------------------------------------------------------------- */

#define TENSOR(want, word, device, dtype, rank, shape) \
    MAKES_NOTHING(vka_tensor, want, word, vka_tensor_create(device, dtype, rank, shape, &made))
#define SIZES(...)     \
    (const uint32_t[]) \
    {                  \
        __VA_ARGS__    \
    }

static void tensors(void **state)
{
    struct world *w = *state;
    struct vka_device *d = w->device;
    const uint32_t one = 1;
    TENSOR(VKA_INVALID, NULL, NULL, VKA_F32, 1, &one);
    FAILS(VKA_INVALID, "tensor", vka_tensor_create(d, VKA_F32, 1, &one, NULL));
    TENSOR(VKA_INVALID, "dtype", d, VKA_DTYPE_COUNT, 1, &one);
    TENSOR(VKA_INVALID, "dtype", d, (enum vka_dtype) - 1, 1, &one);
    TENSOR(VKA_INVALID, "dtype", d, (enum vka_dtype)99, 1, &one);
    TENSOR(VKA_INVALID, "rank", d, VKA_F32, 0, &one);
    TENSOR(VKA_INVALID, "rank", d, VKA_F32, 5, SIZES(1, 1, 1, 1, 1));
    TENSOR(VKA_INVALID, "rank", d, VKA_F32, UINT32_MAX, &one);
    TENSOR(VKA_INVALID, "shape", d, VKA_F32, 1, NULL);
    /* A GPU of 8 GiB may have allocations of 4: here they end at 1 MiB. */
    TENSOR(
        VKA_UNSUPPORTED,
        "2097152 bytes exceed the device's largest allocation of 1048576; slices of 4 of the 8 of "
        "axis 0 fit",
        d, VKA_F32, 2, SIZES(8, 65536));
    TENSOR(VKA_UNSUPPORTED, "slices of 262144 of the 300000 of axis 1 fit", d, VKA_F32, 2,
           SIZES(1, 300000));
    TENSOR(VKA_UNSUPPORTED, "slices of 1 of the 3 of axis 0 fit", d, VKA_Q8_0, 2,
           SIZES(3, 32 * 30000));
    TENSOR(VKA_UNSUPPORTED, "2125000 bytes exceed", d, VKA_Q8_0, 1, SIZES(2000000));
    TENSOR(VKA_INVALID, "shape", d, VKA_F32, 1, SIZES(0));
    TENSOR(VKA_INVALID, "shape", d, VKA_F16, 2, SIZES(0, 3));
    TENSOR(VKA_INVALID, "shape", d, VKA_BOOL, 2, SIZES(3, 0));
    TENSOR(VKA_INVALID, "shape", d, VKA_I32, 4, SIZES(1, 2, 0, 3));
    TENSOR(VKA_INVALID, "shape", d, VKA_F32, 2, SIZES(UINT32_MAX, UINT32_MAX));
    TENSOR(VKA_INVALID, "shape", d, VKA_F32, 4, SIZES(65536, 65536, 65536, 65536));
    TENSOR(VKA_INVALID, "shape", d, VKA_F32, 4, SIZES(65536, 65536, 65536, 2));
    TENSOR(VKA_UNSUPPORTED, "allocation", d, VKA_F32, 1, SIZES((1u << 18) + 1));
    TENSOR(VKA_UNSUPPORTED, "allocation", d, VKA_BOOL, 1, SIZES((1u << 20) + 1));
    TENSOR(VKA_UNSUPPORTED, "allocation", d, VKA_F32, 3, SIZES(65536, 65536, 65536));
    TENSOR(VKA_UNSUPPORTED, NULL, w->other, VKA_F32, 3, SIZES(65536, 65536, 65536));
    /* The largest allowed is allowed. */
    assert_non_null(T(VKA_F32, 1u << 18));
    assert_non_null(T(VKA_BOOL, 1u << 20));
}

static void no_tensor(void **state)
{
    struct world *w = *state;
    struct vka_tensor *tensor = T(VKA_F16, 2, 3);
    assert_int_equal(vka_tensor_dtype(NULL), VKA_DTYPE_COUNT);
    assert_int_equal(vka_tensor_rank(NULL), 0);
    assert_int_equal(vka_tensor_shape(NULL, 0), 0);
    assert_int_equal(vka_tensor_count(NULL), 0);
    assert_int_equal(vka_tensor_size(NULL), 0);
    assert_int_equal(vka_tensor_shape(tensor, 1), 3);
    assert_int_equal(vka_tensor_shape(tensor, 2), 0);
    assert_int_equal(vka_tensor_shape(tensor, UINT32_MAX), 0);
}

#define VIEW(word, call) MAKES_NOTHING(vka_tensor, VKA_INVALID, word, call)

static void permute_and_slice(void **state)
{
    struct world *w = *state;
    struct vka_tensor *t = T(VKA_F32, 2, 3, 4), *line = T(VKA_BOOL, 7);
    VIEW(NULL, vka_tensor_permute(NULL, SIZES(0, 1, 2), &made));
    FAILS(VKA_INVALID, "view", vka_tensor_permute(t, SIZES(0, 1, 2), NULL));
    VIEW("axes", vka_tensor_permute(t, NULL, &made));
    VIEW("axes", vka_tensor_permute(t, SIZES(0, 1, 1), &made));
    VIEW("axes", vka_tensor_permute(t, SIZES(2, 1, 2), &made));
    VIEW("axes", vka_tensor_permute(t, SIZES(0, 1, 3), &made));
    VIEW("axes", vka_tensor_permute(t, SIZES(UINT32_MAX, 1, 2), &made));
    VIEW("axes", vka_tensor_permute(line, SIZES(1), &made));
    VIEW(NULL, vka_tensor_slice(NULL, 0, 0, 1, &made));
    FAILS(VKA_INVALID, "view", vka_tensor_slice(t, 0, 0, 1, NULL));
    VIEW("axis", vka_tensor_slice(t, 3, 0, 1, &made));
    VIEW("axis", vka_tensor_slice(t, UINT32_MAX, 0, 1, &made));
    VIEW("axis", vka_tensor_slice(line, 1, 0, 1, &made));
    VIEW("count", vka_tensor_slice(t, 1, 0, 0, &made));
    VIEW("count", vka_tensor_slice(t, 1, 0, 4, &made));
    VIEW("count", vka_tensor_slice(t, 1, 2, 2, &made));
    VIEW("count", vka_tensor_slice(t, 1, 1, UINT32_MAX, &made)); /* wraps to 0 */
    VIEW("first", vka_tensor_slice(t, 1, 3, 1, &made));
    VIEW("first", vka_tensor_slice(t, 1, UINT32_MAX, 1, &made));
    VIEW("first", vka_tensor_slice(t, 1, UINT32_MAX, 2, &made));
    VIEW("first", vka_tensor_slice(line, 0, 7, 1, &made));
}

static void reshape(void **state)
{
    struct world *w = *state;
    struct vka_tensor *t = T(VKA_F32, 2, 3, 4), *turned = NULL, *slice = NULL;
    assert_int_equal(vka_tensor_permute(t, SIZES(0, 2, 1), &turned), VKA_OK);
    assert_int_equal(vka_tensor_slice(t, 2, 0, 3, &slice), VKA_OK);
    world_keep(w, turned);
    world_keep(w, slice);
    VIEW(NULL, vka_tensor_reshape(NULL, 1, SIZES(24), &made));
    FAILS(VKA_INVALID, "view", vka_tensor_reshape(t, 1, SIZES(24), NULL));
    VIEW("rank", vka_tensor_reshape(t, 0, SIZES(24), &made));
    VIEW("rank", vka_tensor_reshape(t, 5, SIZES(24, 1, 1, 1, 1), &made));
    VIEW("shape", vka_tensor_reshape(t, 1, NULL, &made));
    VIEW("shape", vka_tensor_reshape(t, 1, SIZES(23), &made));
    VIEW("shape", vka_tensor_reshape(t, 1, SIZES(25), &made));
    VIEW("shape", vka_tensor_reshape(t, 2, SIZES(0, 24), &made));
    VIEW("shape", vka_tensor_reshape(t, 2, SIZES(1u << 31, (1u << 31) + 12), &made));
    VIEW("copy", vka_tensor_reshape(turned, 1, SIZES(24), &made));
    VIEW("copy", vka_tensor_reshape(turned, 2, SIZES(2, 12), &made));
    VIEW("copy", vka_tensor_reshape(slice, 2, SIZES(2, 9), &made));
}

#define STRIDES(...)   \
    (const uint64_t[]) \
    {                  \
        __VA_ARGS__    \
    }

/* Views of a block type leave its last axis as it is. */
static void blocks(void **state)
{
    struct world *w = *state;
    struct vka_tensor *t = T(VKA_Q4_0, 2, 3, 64);
    uint8_t data[2 * 3 * 2 * 18] = {0};
    VIEW("last axis", vka_tensor_create(w->device, VKA_Q8_0, 2, SIZES(32, 33), &made));
    VIEW("last axis", vka_tensor_create(w->device, VKA_Q4_K, 1, SIZES(32), &made));
    VIEW("axes", vka_tensor_permute(t, SIZES(0, 2, 1), &made));
    VIEW("axes", vka_tensor_permute(t, SIZES(2, 1, 0), &made));
    VIEW("last", vka_tensor_slice(t, 2, 0, 32, &made));
    VIEW("last", vka_tensor_slice(t, 2, 32, 32, &made));
    VIEW("last axis", vka_tensor_reshape(t, 2, SIZES(24, 16), &made));
    VIEW("offset", vka_tensor_strided(t, 16, 1, SIZES(32), STRIDES(1), &made));
    VIEW("strides", vka_tensor_strided(t, 0, 2, SIZES(2, 32), STRIDES(48, 1), &made));
    VIEW("strides", vka_tensor_strided(t, 0, 1, SIZES(32), STRIDES(2), &made));
    VIEW("last axis", vka_tensor_strided(t, 0, 1, SIZES(16), STRIDES(1), &made));
    VIEW("storage", vka_tensor_strided(t, 352, 1, SIZES(64), STRIDES(1), &made));
    assert_int_equal(vka_tensor_size(t), sizeof data);
    assert_int_equal(vka_tensor_write(t, data, sizeof data), VKA_OK);
    FAILS(VKA_INVALID, "size", vka_tensor_write(t, data, sizeof data - 1));
    data[7 * 18 + 1] = 0x7c; /* infinity */
    FAILS(VKA_INVALID, "block 7", vka_tensor_write(t, data, sizeof data));
    data[7 * 18] = 1; /* NaN */
    FAILS(VKA_INVALID, "elements 224", vka_tensor_write(t, data, sizeof data));
}

static void strided(void **state)
{
    struct world *w = *state;
    struct vka_tensor *t = T(VKA_F16, 4, 6), *slice = NULL, *view = NULL;
    assert_int_equal(vka_tensor_slice(t, 0, 1, 2, &slice), VKA_OK);
    world_keep(w, slice);
    VIEW(NULL, vka_tensor_strided(NULL, 0, 1, SIZES(1), STRIDES(1), &made));
    FAILS(VKA_INVALID, "view", vka_tensor_strided(t, 0, 1, SIZES(1), STRIDES(1), NULL));
    VIEW("rank", vka_tensor_strided(t, 0, 0, SIZES(1), STRIDES(1), &made));
    VIEW("rank", vka_tensor_strided(t, 0, 5, SIZES(1, 1, 1, 1, 1), STRIDES(1, 1, 1, 1, 1), &made));
    VIEW("shape", vka_tensor_strided(t, 0, 1, NULL, STRIDES(1), &made));
    VIEW("strides", vka_tensor_strided(t, 0, 1, SIZES(1), NULL, &made));
    VIEW("shape", vka_tensor_strided(t, 0, 2, SIZES(2, 0), STRIDES(1, 1), &made));
    VIEW("shape",
         vka_tensor_strided(t, 0, 4, SIZES(65536, 65536, 65536, 2), STRIDES(0, 0, 0, 0), &made));
    VIEW("offset", vka_tensor_strided(t, 24, 1, SIZES(1), STRIDES(1), &made));
    VIEW("offset", vka_tensor_strided(t, UINT64_MAX, 1, SIZES(1), STRIDES(1), &made));
    VIEW("offset", vka_tensor_strided(t, UINT64_MAX - 5, 1, SIZES(12), STRIDES(1), &made));
    VIEW("strides", vka_tensor_strided(t, 0, 1, SIZES(25), STRIDES(1), &made));
    VIEW("strides", vka_tensor_strided(t, 1, 1, SIZES(24), STRIDES(1), &made));
    VIEW("strides", vka_tensor_strided(t, 0, 2, SIZES(2, 2), STRIDES(23, 1), &made));
    VIEW("strides", vka_tensor_strided(t, 0, 1, SIZES(2), STRIDES(UINT64_MAX), &made));
    VIEW("strides", vka_tensor_strided(t, 0, 1, SIZES(3), STRIDES(1ull << 63), &made));
    VIEW("strides",
         vka_tensor_strided(t, 0, 2, SIZES(2, 2), STRIDES(1ull << 63, 1ull << 63), &made));
    VIEW("storage", vka_tensor_strided(slice, 18, 1, SIZES(1), STRIDES(1), &made));
    VIEW("storage", vka_tensor_strided(slice, 0, 1, SIZES(19), STRIDES(1), &made));
    /* From a slice to the storage's end is inside. */
    assert_int_equal(vka_tensor_strided(slice, 0, 1, SIZES(18), STRIDES(1), &view), VKA_OK);
    vka_tensor_destroy(&view);
}

static void read_and_write(void **state)
{
    struct world *w = *state;
    struct vka_tensor *t = T(VKA_F16, 3, 5);
    uint16_t data[16], before[16];
    memset(data, 0x5a, sizeof data);
    memcpy(before, data, sizeof data);
    FAILS(VKA_INVALID, NULL, vka_tensor_write(NULL, data, 30));
    FAILS(VKA_INVALID, NULL, vka_tensor_read(NULL, data, 30));
    FAILS(VKA_INVALID, "data", vka_tensor_write(t, NULL, 30));
    FAILS(VKA_INVALID, "data", vka_tensor_read(t, NULL, 30));
    const size_t sizes[] = {0, 1, 15, 29, 31, 32, 60, SIZE_MAX};
    for (size_t i = 0; i < COUNTOF(sizes); i++) {
        FAILS(VKA_INVALID, "size", vka_tensor_write(t, data, sizes[i]));
        FAILS(VKA_INVALID, "size", vka_tensor_read(t, data, sizes[i]));
    }
    assert_memory_equal(data, before, sizeof data);
}

/* ---- Layers ---------------------------------------------------------------------------------- */

static const float numbers[4096];

static struct vka_layer_info good_layer(void)
{
    const struct vka_linear_weights both = {numbers, numbers};
    return *VKA_INFO(vka_layer_info, .n_head = 4, .head_dim = 8, .query_dim = 16, .query = both,
                     .key = both, .value = both, .output = both);
}

#define LAYER(want, word, ...)                                                           \
    do {                                                                                 \
        struct vka_layer_info info = good_layer();                                       \
        __VA_ARGS__;                                                                     \
        MAKES_NOTHING(vka_layer, want, word, vka_layer_create(w->device, &info, &made)); \
    } while (0)

static void layers(void **state)
{
    struct world *w = *state;
    const struct vka_layer_info good = good_layer();
    const size_t sizes[] = WRONG_SIZES(vka_layer_info);
    MAKES_NOTHING(vka_layer, VKA_INVALID, NULL, vka_layer_create(NULL, &good, &made));
    MAKES_NOTHING(vka_layer, VKA_INVALID, "info", vka_layer_create(w->device, NULL, &made));
    FAILS(VKA_INVALID, "layer", vka_layer_create(w->device, &good, NULL));
    for (size_t i = 0; i < COUNTOF(sizes); i++)
        LAYER(VKA_INVALID, "struct_size", info.struct_size = sizes[i]);
    LAYER(VKA_INVALID, "n_head", info.n_head = 0);
    LAYER(VKA_INVALID, "head_dim", info.head_dim = 0);
    LAYER(VKA_INVALID, "query_dim", info.query_dim = 0);
    LAYER(VKA_INVALID, "n_kv_head", info.n_kv_head = 3);
    LAYER(VKA_INVALID, "n_kv_head", info.n_kv_head = 5);
    LAYER(VKA_INVALID, "n_kv_head", info.n_kv_head = 8);
    LAYER(VKA_INVALID, "n_kv_head", info.n_kv_head = UINT32_MAX);
    LAYER(VKA_INVALID, "head_dim", info.n_head = 65536, info.head_dim = 65536);
    LAYER(VKA_INVALID, "value_dim", info.n_head = 65536, info.value_dim = 65536);
    LAYER(VKA_INVALID, "head_dim", info.head_dim = UINT32_MAX);
    LAYER(VKA_INVALID, "dtype", info.dtype = VKA_I32);
    LAYER(VKA_INVALID, "dtype", info.dtype = VKA_BOOL);
    LAYER(VKA_INVALID, "dtype", info.dtype = VKA_DTYPE_COUNT);
    LAYER(VKA_INVALID, "dtype", info.dtype = (enum vka_dtype) - 1);
    LAYER(VKA_INVALID, "query", info.query.weight = NULL);
    LAYER(VKA_INVALID, "key", info.key.weight = NULL);
    LAYER(VKA_INVALID, "value", info.value.weight = NULL);
    LAYER(VKA_INVALID, "bias", info.output.weight = NULL);
    LAYER(VKA_INVALID, "output_dim", info.output.weight = info.output.bias = NULL,
          info.output_dim = 31);
    LAYER(VKA_INVALID, "output_dim", info.output.weight = info.output.bias = NULL,
          info.output_dim = 33);
    /* Too large for the device: the host arrays, which are short, are not read. */
    LAYER(VKA_UNSUPPORTED, "allocation", info.query_dim = 1u << 20);
    LAYER(VKA_UNSUPPORTED, "allocation", info.key_dim = 1u << 20);
    LAYER(VKA_UNSUPPORTED, "allocation", info.value_input_dim = 1u << 30);
    LAYER(VKA_UNSUPPORTED, "allocation", info.output_dim = 1u << 20);
    LAYER(VKA_UNSUPPORTED, "allocation", info.head_dim = 1u << 20);
}

/* ---- Caches ---------------------------------------------------------------------------------- */

static struct vka_cache_info good_cache(void)
{
    return *VKA_INFO(vka_cache_info, .batch = 2, .n_kv_head = 2, .head_dim = 4, .capacity = 40,
                     .page_size = 16);
}

#define CACHE(want, word, ...)                                                           \
    do {                                                                                 \
        struct vka_cache_info info = good_cache();                                       \
        __VA_ARGS__;                                                                     \
        MAKES_NOTHING(vka_cache, want, word, vka_cache_create(w->device, &info, &made)); \
    } while (0)

static void caches(void **state)
{
    struct world *w = *state;
    const struct vka_cache_info good = good_cache();
    const size_t sizes[] = WRONG_SIZES(vka_cache_info);
    MAKES_NOTHING(vka_cache, VKA_INVALID, NULL, vka_cache_create(NULL, &good, &made));
    MAKES_NOTHING(vka_cache, VKA_INVALID, "info", vka_cache_create(w->device, NULL, &made));
    FAILS(VKA_INVALID, "cache", vka_cache_create(w->device, &good, NULL));
    for (size_t i = 0; i < COUNTOF(sizes); i++)
        CACHE(VKA_INVALID, "struct_size", info.struct_size = sizes[i]);
    CACHE(VKA_INVALID, "batch", info.batch = 0);
    CACHE(VKA_INVALID, "n_kv_head", info.n_kv_head = 0);
    CACHE(VKA_INVALID, "head_dim", info.head_dim = 0);
    CACHE(VKA_INVALID, "capacity", info.capacity = 0);
    CACHE(VKA_INVALID, "capacity", info.capacity = UINT32_MAX);
    CACHE(VKA_INVALID, "batch", info.batch = UINT32_MAX);
    CACHE(VKA_INVALID, "key_dtype", info.key_dtype = VKA_I32);
    CACHE(VKA_INVALID, "value_dtype", info.value_dtype = VKA_I32);
    CACHE(VKA_INVALID, "key_dtype", info.key_dtype = VKA_BOOL);
    CACHE(VKA_INVALID, "value_dtype", info.value_dtype = VKA_BOOL);
    CACHE(VKA_INVALID, "key_dtype", info.key_dtype = VKA_DTYPE_COUNT);
    CACHE(VKA_INVALID, "value_dtype", info.value_dtype = VKA_DTYPE_COUNT);
    CACHE(VKA_INVALID, "key_dtype is q4_K, not one of f32, f16", info.key_dtype = VKA_Q4_K);
    CACHE(VKA_INVALID, "Hadamard matrix needs a head", info.value_dtype = VKA_Q4_0,
          info.value_dim = 24);
    static const float bad_scales[] = {0, -1, NAN, INFINITY, -INFINITY, 0x1p-127f, 0x1p127f, -0.0f};
    for (size_t i = 0; i < COUNTOF(bad_scales); i++) {
        const float scales[] = {1, bad_scales[i]};
        CACHE(VKA_INVALID, "key_scales[1] is", info.key_dtype = VKA_F8_E4M3, info.n_kv_head = 2,
              info.key_scales = scales);
        CACHE(VKA_INVALID, "value_scales[1] is", info.value_dtype = VKA_F8_E4M3, info.n_kv_head = 2,
              info.value_scales = scales);
    }
    static const float one_scale[] = {1};
    CACHE(VKA_INVALID, "key_scales is given, but", info.n_kv_head = 1, info.key_scales = one_scale);
    CACHE(VKA_INVALID, "value_scales is given, but the type is q8_0", info.n_kv_head = 1,
          info.value_dtype = VKA_Q8_0, info.value_scales = one_scale);
    CACHE(VKA_INVALID, "n_layer exceeds", info.n_layer = 4097);
    const uint32_t pages[] = {1, 8, 15, 17, 24, 264, 272, 1024, UINT32_MAX};
    for (size_t i = 0; i < COUNTOF(pages); i++)
        CACHE(VKA_INVALID, "page_size", info.page_size = pages[i]);
    CACHE(VKA_INVALID, "n_page", info.page_size = 0, info.n_page = 1);
    CACHE(VKA_INVALID, "n_page", info.n_page = UINT32_MAX);
    CACHE(VKA_INVALID, "pages", info.batch = 1u << 24, info.capacity = 1u << 30);
    CACHE(VKA_UNSUPPORTED, "allocation", info.page_size = 0, info.capacity = 1u << 20);
    CACHE(VKA_UNSUPPORTED, "allocation", info.n_page = 1u << 20);
    CACHE(VKA_UNSUPPORTED, "allocation", info.head_dim = 1u << 20);
}

static void cache_operations(void **state)
{
    struct world *w = *state;
    const struct vka_cache_info info = good_cache(); /* 3 pages a sequence, 6 in all */
    struct vka_cache *cache = NULL;
    uint32_t length = 77;
    assert_int_equal(vka_cache_create(w->device, &info, &cache), VKA_OK);
    FAILS(VKA_INVALID, NULL, vka_cache_length(NULL, 0, &length));
    FAILS(VKA_INVALID, "sequence", vka_cache_length(cache, 2, &length));
    FAILS(VKA_INVALID, "sequence", vka_cache_length(cache, UINT32_MAX, &length));
    FAILS(VKA_INVALID, "length", vka_cache_length(cache, 0, NULL));
    assert_int_equal(length, 77);
    FAILS(VKA_INVALID, NULL, vka_cache_truncate(NULL, 0, 0));
    FAILS(VKA_INVALID, "sequence", vka_cache_truncate(cache, 2, 0));
    FAILS(VKA_INVALID, "length", vka_cache_truncate(cache, 0, 1)); /* it is empty */
    FAILS(VKA_INVALID, "length", vka_cache_truncate(cache, 1, UINT32_MAX));
    FAILS(VKA_INVALID, NULL, vka_cache_fork(NULL, 0, 1));
    FAILS(VKA_INVALID, "sequence", vka_cache_fork(cache, 2, 1));
    FAILS(VKA_INVALID, "sequence", vka_cache_fork(cache, 0, 2));
    FAILS(VKA_INVALID, "from", vka_cache_fork(cache, 1, 1));
    FAILS(VKA_INVALID, NULL, vka_cache_set_pages(NULL, 0, 0, 1, SIZES(0)));
    FAILS(VKA_INVALID, "sequence", vka_cache_set_pages(cache, 2, 0, 1, SIZES(0)));
    FAILS(VKA_INVALID, "first", vka_cache_set_pages(cache, 0, 4, 0, SIZES(0)));
    FAILS(VKA_INVALID, "first", vka_cache_set_pages(cache, 0, UINT32_MAX, 1, SIZES(0)));
    FAILS(VKA_INVALID, "count", vka_cache_set_pages(cache, 0, 0, 4, SIZES(0, 1, 2, 3)));
    FAILS(VKA_INVALID, "count", vka_cache_set_pages(cache, 0, 1, UINT32_MAX, SIZES(0)));
    FAILS(VKA_INVALID, "pages", vka_cache_set_pages(cache, 0, 0, 1, NULL));
    FAILS(VKA_INVALID, "pages", vka_cache_set_pages(cache, 0, 0, 1, SIZES(6)));
    FAILS(VKA_INVALID, "pages", vka_cache_set_pages(cache, 0, 0, 3, SIZES(5, 4, UINT32_MAX)));
    vka_cache_destroy(&cache);
    assert_null(cache);
    FAILS(VKA_INVALID, "page_size", vka_cache_set_pages(w->cache, 0, 0, 0, NULL));
    vka_cache_destroy(NULL);
    vka_cache_destroy(&cache);
}

/* After all that, the device still computes. */
static void device_is_well(void **state)
{
    struct world *w = *state;
    assert_true(layer_check(w->device, &layer_plain, 9) <= LAYER_NMSE);
    assert_true(layer_check(w->other, &layer_plain, 9) <= LAYER_NMSE);
}

TEST_PROGRAM(api_errors)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices),
        cmocka_unit_test(device_questions),
        cmocka_unit_test(tensors),
        cmocka_unit_test(no_tensor),
        cmocka_unit_test(permute_and_slice),
        cmocka_unit_test(reshape),
        cmocka_unit_test(blocks),
        cmocka_unit_test(strided),
        cmocka_unit_test(read_and_write),
        cmocka_unit_test(layers),
        cmocka_unit_test(caches),
        cmocka_unit_test(cache_operations),
        cmocka_unit_test(device_is_well),
    };
    if (!have_device("errors of devices, tensors, layers and caches"))
        return 77;
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
