/* vkattn: multi-head attention on any Vulkan device. SPDX-License-Identifier: MIT
 *
 * The whole attention layer (query, key and value projections, masked softmax attention per head,
 * concatenation, output projection) runs as compute shaders, recorded once into a command buffer
 * and submitted as often as wanted. This header is the manual.
 *
 * A self-attention layer, x and y float32 [batch][n_q][512]:
 *
 *     struct vka_device *device = NULL;
 *     struct vka_layer *layer = NULL;
 *     struct vka_tensor *in = NULL, *out = NULL;
 *     struct vka_plan *plan = NULL;
 *     vka_device_create(NULL, &device);
 *     vka_layer_create(device, VKA_INFO(vka_layer_info, .n_head = 8, .head_dim = 64,
 *                      .query_dim = 512, .output_dim = 512, .query = {wq, bq}, .key = {wk, bk},
 *                      .value = {wv, bv}, .output = {wo, bo}), &layer);
 *     vka_tensor_create(device, VKA_F32, 3, (const uint32_t[]){batch, n_q, 512}, &in);
 *     vka_tensor_create(device, VKA_F32, 3, (const uint32_t[]){batch, n_q, 512}, &out);
 *     vka_plan_create(device, NULL, &plan);
 *     vka_plan_add_layer(plan, VKA_INFO(vka_layer_op, .layer = layer, .query = in,
 *                                       .output = out, .attention.causal = true));
 *     vka_plan_finish(plan);
 *     vka_tensor_write(in, x, sizeof x);
 *     vka_plan_run(plan, VKA_TIMEOUT_DEFAULT);
 *     vka_tensor_read(out, y, sizeof y);
 *
 * Statuses. A function that can fail returns enum vka_status; what it makes is its last argument,
 * set to NULL on failure. The reason is one sentence, given to the device's log callback and kept
 * for vka_device_error. Nothing is printed, no environment variable is read by this library, and no
 * call waits without end.
 *
 * Ownership. A device owns everything made from it: destroy tensors, layers and plans before their
 * device. A plan keeps what it uses alive, so tensors and layers may be destroyed in any order and
 * before the plans that read them. A destroy function takes a pointer to the handle, accepts NULL
 * and handles that are NULL, and sets the handle to NULL.
 *
 * Threads. A device and everything made from it belong to one thread at a time; the application
 * locks if it shares them. Different devices share nothing and may be used from different threads
 * at the same moment. Functions that differ say so.
 *
 * Forks. A child of fork() has the handles, but not the driver's threads: there every call that
 * needs a device made before is INVALID and says so, and destroying releases the host's memory
 * alone, at once. Nothing of the parent is touched. Handles that another thread was using when the
 * process forked are left alone altogether, and so is exit(), where drivers may crash or hang: a
 * child leaves by _exit or exec. Whether it can make a device of its own is up to the driver.
 *
 * Info structs begin with struct_size, filled by VKA_INFO; every other field's zero is its default.
 */
#ifndef VKATTN_H
#define VKATTN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#if defined(VKA_BUILD)
#define VKA_API __declspec(dllexport)
#elif defined(VKA_STATIC)
#define VKA_API
#else
#define VKA_API __declspec(dllimport)
#endif
#else
#define VKA_API __attribute__((visibility("default")))
#endif

#define VKA_VERSION_MAJOR 0
#define VKA_VERSION_MINOR 1
#define VKA_VERSION_PATCH 0

/* Builds an info struct in place (C only): VKA_INFO(vka_plan_info, .timestamps = true). In C++ fill
 * the struct and its struct_size. */
#define VKA_INFO(type, ...) (&(struct type){.struct_size = sizeof(struct type), __VA_ARGS__})

/* Nanoseconds. Thirty seconds: far beyond any healthy run, well below a user's patience. */
#define VKA_TIMEOUT_DEFAULT 30000000000ull

/* For vka_plan_info.submit_budget. */
#define VKA_NO_BUDGET UINT64_MAX

/* Axes of a tensor at most. */
#define VKA_MAX_RANK 4

/* ---- Statuses and names ---------------------------------------------------------------------- */

enum vka_status {
    VKA_OK = 0,
    VKA_INVALID,     /* the caller's mistake; the sentence names the argument */
    VKA_UNSUPPORTED, /* legal, but not on this device; the sentence names what is missing */
    VKA_NO_DEVICE,   /* no Vulkan loader, no driver, or no device of that name */
    VKA_OUT_OF_HOST_MEMORY,
    VKA_OUT_OF_DEVICE_MEMORY, /* everything made so far stays usable */
    VKA_TIMEOUT,              /* the work goes on; wait again */
    VKA_DEVICE_LOST,          /* the driver gave up on the device: recover it, or make it anew */
    VKA_IO,                   /* a file cannot be read or written, or is malformed (vkattn_io) */
    VKA_INTERNAL,             /* the driver answered what Vulkan does not allow, or a bug here */
    VKA_STATUS_COUNT
};

/* "VKA_OK" and so on; "unknown status" beyond. Static storage. Any thread. */
VKA_API const char *vka_status_name(enum vka_status status);

enum vka_dtype {
    VKA_F32 = 0,
    VKA_F16,  /* IEEE binary16 */
    VKA_BF16, /* the upper half of a float32 */
    VKA_I32,  /* lengths and offsets */
    VKA_BOOL, /* one byte, 0 or not 0 */
    VKA_DTYPE_COUNT
};

/* Bytes of one element, 0 for an unknown type. Any thread. */
VKA_API size_t vka_dtype_size(enum vka_dtype dtype);

/* "f32", "f16", "bf16", "i32", "bool"; "unknown" beyond. Static storage. Any thread. */
VKA_API const char *vka_dtype_name(enum vka_dtype dtype);

/* ---- Devices --------------------------------------------------------------------------------- */

struct vka_device; /* a Vulkan device with its queue, memory and kernels */
struct vka_tensor; /* element type, shape and strides over a device buffer */
struct vka_layer;  /* the weights of one attention layer, packed for the kernels */
struct vka_plan;   /* operations on tensors, recorded once, submitted many times */
struct vka_cache;  /* keys and values seen so far, with their lengths on the device */

enum vka_log_level { VKA_LOG_ERROR = 0, VKA_LOG_WARNING, VKA_LOG_INFO, VKA_LOG_LEVEL_COUNT };

/* One message, a sentence without a newline. Called on the thread that made the call; must not call
 * back into vkattn. */
typedef void vka_log_callback(void *user, enum vka_log_level level, const char *message);

struct vka_device_info {
    size_t struct_size;
    /* NULL: the most capable. Digits: the index in vka_device_list. Else: part of the name, any
     * case; not empty. */
    const char *device;
    /* NULL: silent. */
    vka_log_callback *log;
    void *log_user;
    /* A blob from vka_device_pipeline_cache and its bytes. One of another device or driver, or with
     * a byte that was not written so, is ignored; of another build of this library, what its
     * self-tests found. It is no secret, and no proof against one who means harm: keep it where the
     * user alone writes. */
    const void *pipeline_cache;
    size_t pipeline_cache_size;
    /* Measured choices of kernels, which `vkattn tune` writes, and their bytes; see
     * vka_device_verdict_head. One of another device, driver or build of this library, or one that
     * is malformed, is left aside with a warning to log. */
    const char *verdict;
    size_t verdict_size;
    /* Enable the Khronos validation layer where it is installed. Its errors and warnings reach log
     * as errors. */
    bool validation;
    /* Name passes for debuggers, where the driver has VK_EXT_debug_utils. */
    bool labels;
    /* Limits below the driver's own, for tests and for sharing a device; 0: the driver's. What
     * passes one is cut, with the same bits, but for these, which are UNSUPPORTED:
     * - above max_allocation: a tensor, a weight, a cache; what lies between the passes of a key
     *   head of one batch element, or of one batch element of a layer;
     * - above max_buffer_range: one row of any tensor, where strides spread its elements; on the
     *   unfused path, the scores of one query in float32;
     * - on the fused path: the rows of a mask that one tile of queries reads; of a ragged batch the
     *   queries, keys, values and output of a head; with matrix units the keys or values of a head;
     * - with a cache: the keys or values of one head of a sequence, and all blocks of a paged one;
     * - what is cut into more than 16,384 passes of a plan. */
    uint64_t max_buffer_range;  /* bytes of a buffer that one kernel may see; at least 65536 */
    uint64_t max_allocation;    /* bytes of one allocation; at least 1 MiB */
    uint32_t max_shared_memory; /* bytes a workgroup; at least 4096 */
    /* Bytes of all allocations together, at least 1 MiB. What passes that, or what the driver would
     * give now (VK_EXT_memory_budget), is OUT_OF_DEVICE_MEMORY. */
    uint64_t max_memory;
    bool no_mapped_memory; /* copy through staging even where device memory is mapped */
    bool no_timeline;      /* wait by fences even where timeline semaphores are there */
    bool skip_self_test;   /* take every kernel for right, see vka_device_self_test */
};

/* Makes a device: discrete GPUs before integrated before virtual before CPU drivers. info may be
 * NULL. NO_DEVICE; UNSUPPORTED (Vulkan below 1.1); INVALID (limits below the least); memory
 * statuses. The log alone tells why, as there is no device to ask. Safe from several threads. */
VKA_API enum vka_status vka_device_create(const struct vka_device_info *info,
                                          struct vka_device **device);

/* Waits for work in flight, ten seconds at most; where it is not done by then, what the driver may
 * still use is left until the process ends. In a forked child nothing is waited for. Everything
 * made from the device must have been destroyed before. */
VKA_API void vka_device_destroy(struct vka_device **device);

/* After VKA_DEVICE_LOST, which every call that needs the device returns from then on: makes it anew
 * below all handles. Layers made with keep_weights come back, and plans give the same bits as
 * before; tensors are there with undefined contents, caches are empty, tickets of before are lost.
 * Plans of layers made without keep_weights give DEVICE_LOST for good. On failure the device stays
 * lost, and may be tried again. INVALID where it is not lost; UNSUPPORTED where it, or memory that
 * a tensor wraps, is the application's; statuses of vka_device_create. */
VKA_API enum vka_status vka_device_recover(struct vka_device *device);

/* The sentence of the last call that failed on this device or on anything made from it; "" before
 * the first. Valid until the next failure. */
VKA_API const char *vka_device_error(const struct vka_device *device);

enum vka_device_type {
    VKA_DEVICE_OTHER = 0,
    VKA_DEVICE_CPU,
    VKA_DEVICE_VIRTUAL,
    VKA_DEVICE_INTEGRATED,
    VKA_DEVICE_DISCRETE,
    VKA_DEVICE_TYPE_COUNT
};

/* What a device is and can do, read once from the driver; lowered limits included. */
struct vka_device_properties {
    char name[256];
    char driver[256]; /* name and version in the driver's own words */
    uint32_t index;   /* as vka_device_info.device takes it */
    enum vka_device_type type;
    uint32_t vendor_id, device_id;
    uint32_t driver_version;    /* the driver's own encoding */
    uint32_t api_version;       /* VK_MAKE_API_VERSION's encoding */
    uint64_t memory;            /* bytes of the device-local heaps */
    bool mapped_memory;         /* the host reads and writes device memory in place */
    uint32_t subgroup_size;     /* invocations */
    uint32_t max_workgroup;     /* invocations */
    uint32_t max_shared_memory; /* bytes a workgroup */
    uint64_t max_buffer_range;  /* bytes a binding */
    uint64_t max_allocation;    /* bytes */
    bool storage16;             /* 16-bit loads and stores */
    bool float16;               /* float16 arithmetic */
    bool bfloat16;              /* VK_KHR_shader_bfloat16 */
    bool subgroup_arithmetic;   /* reductions in compute shaders */
    bool subgroup_ballot;       /* broadcasts in compute shaders */
    bool timeline, timestamps;
    uint32_t cooperative_matrix_count;
    struct {
        uint32_t m, n, k;     /* subgroup scope */
        char types[24];       /* "f16*f16+f32" */
    } cooperative_matrix[16]; /* the first 16 */
};

/* Lists all Vulkan devices. On entry *count is the room in properties (0 with NULL to ask), on
 * return the number of devices. info may be NULL; only its log is used. NO_DEVICE without a loader
 * or driver; memory statuses. Safe from several threads. */
VKA_API enum vka_status vka_device_list(const struct vka_device_info *info,
                                        struct vka_device_properties *properties, size_t *count);

/* Valid as long as the device. */
VKA_API const struct vka_device_properties *vka_device_properties(const struct vka_device *device);

/* Measured choices of kernels. A verdict is text: two lines that name device, driver and build of
 * this library, then lines of
 *
 *     kernel PROBLEM KERNEL VARIANT   as vka_pass_info.problem names a problem; a PROBLEM that ends
 *     path PROBLEM fused|unfused      in * stands for all that begin like it; VARIANT is 0 to 7, 0
 *     demote KERNEL                   what the rules would take, others smaller tiles and the like
 *
 * the first that fits deciding. It only picks among what the rules could give: one that fits no
 * longer is as good as none. path is what VKA_PATH_AUTO takes; a demoted kernel is not used. With a
 * verdict, the bits of a row may depend on how many rows and keys there are.
 *
 * Writes the two lines, cut to size bytes and terminated; returns the length of the whole. */
VKA_API size_t vka_device_verdict_head(const struct vka_device *device, char *text, size_t size);

/* Some drivers compile wrong code. So a kernel solves a small problem whose result is known before
 * it is first used on a device, in vka_layer_create or vka_plan_add_..., which then submit to the
 * device and wait for it, and may return TIMEOUT. One that gets it wrong, or loses the
 * device for the second time, is a warning to log, is not used from then on and is missing in
 * vka_device_kernel. Others take its place; where there is none, UNSUPPORTED says that it failed.
 * What was found outlives vka_device_recover, and goes into the blob of vka_device_pipeline_cache.
 *
 * This call tests now all kernels that the rules choose here, skip_self_test or not. That some fail
 * is OK. DEVICE_LOST; TIMEOUT; memory statuses. */
VKA_API enum vka_status vka_device_self_test(struct vka_device *device);

struct vka_kernel_info {
    const char *name;    /* its row in shaders/kernels.def */
    const char *missing; /* NULL: usable here; else why not, "needs subgroups of 8" */
    bool built;          /* false: the shader compiler lacked an extension */
    bool tested;         /* it went through its self-test, here or before */
};

/* The number of kernels (any thread), and the index-th one. INVALID past the end. */
VKA_API size_t vka_kernel_count(void);
VKA_API enum vka_status vka_device_kernel(struct vka_device *device, size_t index,
                                          struct vka_kernel_info *info);

/* Copies the pipeline cache, with what self-tests found, to data (room: *size bytes; NULL to ask)
 * and sets *size to its bytes. Give it to vka_device_info.pipeline_cache next time and nothing is
 * compiled or tested again. INVALID when the room is too small; memory statuses. */
VKA_API enum vka_status vka_device_pipeline_cache(struct vka_device *device, void *data,
                                                  size_t *size);

/* ---- Tensors --------------------------------------------------------------------------------- */

/* A new dense tensor, contents undefined. shape[rank], rank 1 to 4, every axis at least 1. INVALID;
 * UNSUPPORTED above max_allocation; memory statuses. */
VKA_API enum vka_status vka_tensor_create(struct vka_device *device, enum vka_dtype dtype,
                                          uint32_t rank, const uint32_t *shape,
                                          struct vka_tensor **tensor);
VKA_API void vka_tensor_destroy(struct vka_tensor **tensor);

/* Views share the elements of tensor, copy nothing and keep the storage alive on their own.
 * INVALID; OUT_OF_HOST_MEMORY. */

/* Axis i of the view is axis axes[i] of tensor; axes[rank] is a permutation. */
VKA_API enum vka_status vka_tensor_permute(struct vka_tensor *tensor, const uint32_t *axes,
                                           struct vka_tensor **view);

/* Elements first .. first + count - 1 of one axis, count at least 1. */
VKA_API enum vka_status vka_tensor_slice(struct vka_tensor *tensor, uint32_t axis, uint32_t first,
                                         uint32_t count, struct vka_tensor **view);

/* The same elements in row-major order under another shape; INVALID where the strides would need a
 * copy. */
VKA_API enum vka_status vka_tensor_reshape(struct vka_tensor *tensor, uint32_t rank,
                                           const uint32_t *shape, struct vka_tensor **view);

/* Any shape and strides (in elements; 0 only on what is read), counted from tensor's first element
 * plus offset. Must stay inside tensor's storage. */
VKA_API enum vka_status vka_tensor_strided(struct vka_tensor *tensor, uint64_t offset,
                                           uint32_t rank, const uint32_t *shape,
                                           const uint64_t *strides, struct vka_tensor **view);

VKA_API enum vka_dtype vka_tensor_dtype(const struct vka_tensor *tensor);
VKA_API uint32_t vka_tensor_rank(const struct vka_tensor *tensor);

/* Length of an axis; 0 past the rank. */
VKA_API uint32_t vka_tensor_shape(const struct vka_tensor *tensor, uint32_t axis);

/* Elements, and the bytes they take when dense. */
VKA_API uint64_t vka_tensor_count(const struct vka_tensor *tensor);
VKA_API size_t vka_tensor_size(const struct vka_tensor *tensor);

/* Copies all elements, dense in row-major order of the tensor's shape, from or to the host; size
 * is vka_tensor_size. Waits first for what is in flight on the device. INVALID; TIMEOUT (30 s);
 * DEVICE_LOST; memory statuses (staging). */
VKA_API enum vka_status vka_tensor_write(struct vka_tensor *tensor, const void *data, size_t size);
VKA_API enum vka_status vka_tensor_read(struct vka_tensor *tensor, void *data, size_t size);

/* ---- Attention ------------------------------------------------------------------------------- */

/* q is [batch][n_head][n_q][head_dim], k is [batch][n_kv_head][n_kv][head_dim],
 * v is [batch][n_kv_head][n_kv][value_dim], each at any strides. n_head is a multiple of
 * n_kv_head; query head h reads key head h / (n_head / n_kv_head). There are fewer than 2^30
 * queries, at most 2^30 keys, and batch * n_head is below 2^31.
 *
 * Query i of batch b stands at position p = query_offset[b] + i. Key j is visible iff all hold:
 *     j < kv_length[b]         where lengths are given
 *     j <= p                   if causal
 *     p - j <= window_left     if window and window_left >= 0
 *     j - p <= window_right    if window and window_right >= 0
 *     the boolean mask is true there, or the float mask is above -inf there
 *
 * The score is s = scale * (q . k); with a softcap c, c * tanh(s / c); then ALiBi and the float
 * mask are added. The softmax runs over the visible keys, in float32. What is hidden cannot reach
 * a result, not even as NaN or Inf. */

/* What a row that sees no key gives. */
enum vka_masked_row {
    VKA_MASKED_ZERO = 0, /* weights and context 0: a layer's output row is its output bias */
    VKA_MASKED_UNIFORM,  /* weights 1 / n_kv, as filling the scores with -1e9 gives */
    VKA_MASKED_NAN,
    VKA_MASKED_ROW_COUNT
};

/* Which scores are returned. */
enum vka_scores {
    VKA_SCORES_NONE = 0,
    VKA_SCORES_RAW,     /* s */
    VKA_SCORES_SOFTCAP, /* after the softcap */
    VKA_SCORES_BIAS,    /* after ALiBi and the mask; -inf where hidden */
    VKA_SCORES_SOFTMAX, /* the weights, before dropout */
    VKA_SCORES_COUNT
};

/* Rotary embedding of q at its position p and of k at its index j: pair i turns by
 * position * base^(-2 i / dim), in integers, so that the far positions are as exact as the near
 * ones. INVALID where a position could pass 2^31 - 1. */
struct vka_rope {
    uint32_t dim;     /* leading features that turn, even, at most head_dim; 0: none */
    float base;       /* at least 1; 0: 10000 */
    bool interleaved; /* pairs are (2 i, 2 i + 1); else (i, i + dim / 2) */
};

/* Everything about attention that is not a shape; shared by the attention and layer operations. */
struct vka_attention_options {
    /* BOOL (true: visible; PyTorch's key_padding_mask means the opposite) or F32, F16, BF16
     * (added). Rank 1 to 4, broadcast from the right against [batch][n_head][n_q][n_kv]. A last
     * axis shorter than n_kv, and not 1, hides the keys beyond it. */
    struct vka_tensor *mask;
    /* I32 [batch] or [1], read on the device: visible keys of a batch element, clamped to
     * 0 .. n_kv. NULL: n_kv. */
    struct vka_tensor *kv_length;
    /* I32 [batch] or [1], read on the device: position of query 0, negative allowed, clamped to
     * -2^30 .. 2^30. NULL: the number of past keys. */
    struct vka_tensor *query_offset;
    bool causal;
    /* Apply window_left and window_right, each -1 (unbounded) or at least 0. */
    bool window;
    int32_t window_left, window_right;
    float scale;   /* 0: 1 / sqrt(head_dim) */
    float softcap; /* 0: none */
    enum vka_masked_row masked_row;
    /* [batch][n_head][n_q][n_kv], given iff scores_kind is not NONE. */
    enum vka_scores scores_kind;
    struct vka_tensor *scores;
    /* Past keys are taken as turned already; a new key's index counts the past ones. */
    struct vka_rope rope;
    /* F32 [head_dim] each: RMS norm of every q, every new k, times these weights, before the
     * rotation. norm_epsilon joins the mean square; 0: 1e-6. */
    struct vka_tensor *q_norm, *k_norm;
    float norm_epsilon;
    /* F32 [n_head]: a logit that joins the denominator of each row's softmax and has no value: +inf
     * makes every weight 0, -inf is none. Weights below e^-76 of the greatest, the sink's included,
     * may be 0. A row that sees no key still gives what masked_row says. */
    struct vka_tensor *sink;
    /* F32 [n_head], slopes m: -m * |p - j| is added after the softcap. */
    struct vka_tensor *alibi;
    /* Rate in [0, 1): a weight is kept with probability 1 - rate and divided by it. The draw is
     * word 0 of Philox4x32-10, counter (j, i, h, b), key (low, high half of the seed); the weight
     * is kept iff (word >> 8) * 2^-24 >= rate. */
    float dropout;
    uint64_t dropout_seed;
    /* Added to b, h and i of the draw: where a share of a larger problem begins in it. The first
     * two are at most 65535. */
    uint32_t dropout_batch, dropout_head, dropout_query;
};

struct vka_attention_op {
    size_t struct_size;
    struct vka_tensor *q; /* [batch][n_head][n_q][head_dim] */
    struct vka_tensor *k; /* [batch][n_kv_head][n_new][head_dim] */
    struct vka_tensor *v; /* [batch][n_kv_head][n_new][value_dim] */
    /* [batch][n_head][n_q][value_dim]; a permuted view of [batch][n_q][n_head * value_dim]
     * concatenates the heads. */
    struct vka_tensor *output;
    /* [batch][n_kv_head][n_past][...]: stand before k and v, so that n_kv = n_past + n_new. Both or
     * neither. */
    struct vka_tensor *past_key, *past_value;
    /* [batch][n_kv_head][n_kv][...]: receive past and new ones, keys as the scores see them (normed
     * and turned). Both or neither. */
    struct vka_tensor *present_key, *present_value;
    /* The past lies in a cache and k and v join it, see below; instead of past, present, kv_length
     * and query_offset. */
    struct vka_cache *cache;
    /* A ragged batch: n sequences packed end to end along the row axes of q, k, v and output, whose
     * batch is 1. I32 [n + 1] each, read on the device: sequence s has rows q_start[s] ..
     * q_start[s + 1] - 1 of q and kv_start likewise of k and v, clamped so that they stay inside.
     * Both rise from sequence to sequence; where q_start does not, what the rows hold is undefined.
     * Positions and indices count from the sequence's own first row; kv_length and query_offset are
     * [n] or [1]. Rows outside all sequences are left as they are. Fused path only; no mask,
     * returned scores, rope, past, present or cache. Both or neither. */
    struct vka_tensor *q_start, *kv_start;
    /* Keys block by block, as they come from a file or from another device: k and v are keys
     * key_first .. key_first + n_new - 1 of n_key; lengths, positions and the mask's last axis are
     * those of all n_key. `state` carries the softmax of every row from one block to the next: F32
     * of rank 1, not a view, with vka_plan_attention_state elements. The blocks of one output are
     * run in the order of their keys, in one plan or in several that are made alike, and each
     * begins at a multiple of 128; the last writes output. The bits are those of all keys at once.
     * Nothing of a block but its keys is cut, for the budget of a submit: its rows and its state
     * are within the device's limits. Fused path only; no returned scores, past, present, cache or
     * ragged batch. n_key 0: no blocks; one block of all keys is none, and reads no state. */
    struct vka_tensor *state;
    uint32_t key_first, n_key;
    struct vka_attention_options options;
};

/* ---- Layers ---------------------------------------------------------------------------------- */

struct vka_linear_weights {
    const void *weight; /* host, [out][in] as PyTorch stores it */
    const void *bias;   /* host, [out]; NULL: none */
};

struct vka_layer_info {
    size_t struct_size;
    uint32_t n_head;
    uint32_t n_kv_head;       /* 0: n_head */
    uint32_t head_dim;        /* of queries and keys */
    uint32_t value_dim;       /* 0: head_dim */
    uint32_t query_dim;       /* width of the query input */
    uint32_t key_dim;         /* 0: query_dim */
    uint32_t value_input_dim; /* 0: key_dim */
    uint32_t output_dim;      /* rows of output.weight; 0: n_head * value_dim */
    /* Of all weights and biases, on the host and on the device: F32, F16 or BF16. */
    enum vka_dtype dtype;
    /* Keep a copy of the weights on the host, for vka_device_recover. */
    bool keep_weights;
    /* Heads lie d * n_head + h in a projection's output; else h * head_dim + d. The concatenated
     * heads are h * value_dim + d either way. */
    bool interleaved;
    struct vka_linear_weights query;  /* [n_head * head_dim][query_dim] */
    struct vka_linear_weights key;    /* [n_kv_head * head_dim][key_dim] */
    struct vka_linear_weights value;  /* [n_kv_head * value_dim][value_input_dim] */
    struct vka_linear_weights output; /* [output_dim][n_head * value_dim]; weight NULL: the
                                         concatenated heads are the output */
};

/* Uploads and packs the weights; the host arrays are not needed afterwards. INVALID; UNSUPPORTED
 * (limits); memory statuses. */
VKA_API enum vka_status vka_layer_create(struct vka_device *device,
                                         const struct vka_layer_info *info,
                                         struct vka_layer **layer);
VKA_API void vka_layer_destroy(struct vka_layer **layer);

enum vka_layout {
    VKA_BATCH_FIRST = 0, /* [batch][n][width] */
    VKA_SEQUENCE_FIRST,  /* [n][batch][width] */
    VKA_LAYOUT_COUNT
};

struct vka_layer_op {
    size_t struct_size;
    struct vka_layer *layer;
    struct vka_tensor *query;  /* [batch][n_q][query_dim] */
    struct vka_tensor *key;    /* [batch][n_kv][key_dim]; NULL: query */
    struct vka_tensor *value;  /* [batch][n_kv][value_input_dim]; NULL: key */
    struct vka_tensor *output; /* [batch][n_q][output_dim] */
    enum vka_layout layout;    /* of these four */
    struct vka_cache *cache;   /* key and value are new ones that join it */
    struct vka_attention_options attention;
};

/* ---- Caches ---------------------------------------------------------------------------------- */

/* Keys and values of `batch` sequences, up to `capacity` positions each. An operation with a cache
 * appends its n_new keys and values behind those of each sequence, at positions that the device
 * keeps, and attends over all of them: query i stands at the old length + i, n_kv is `capacity`
 * (for a mask's and the returned scores' shape), and kv_length is the new length. So one recorded
 * plan serves every step of decoding: write the input, run, read the output.
 *
 * A sequence whose new keys do not fit keeps its length and gets nothing appended, and the wait for
 * that run returns VKA_INVALID saying which; the other sequences are as they should be. Each run
 * has its own verdict: vka_plan_wait tells of the ticket that it is given, in whatever order and
 * however often tickets are waited for, however many are in flight, whichever plans share the
 * cache. Once a sequence has been changed by vka_cache_truncate, _fork (the one copied to) or
 * _set_blocks, what earlier runs found about it is forgotten. */

struct vka_cache_info {
    size_t struct_size;
    uint32_t batch; /* sequences */
    uint32_t n_kv_head;
    uint32_t head_dim;
    uint32_t value_dim;   /* 0: head_dim */
    uint32_t capacity;    /* positions of a sequence */
    enum vka_dtype dtype; /* F32, F16 or BF16 */
    /* Paged: positions of a block, a multiple of 16 from 16 to 256; 0: one stretch a sequence. Each
     * sequence has capacity / block_size blocks (rounded up), found through a table on the device.
     * At first sequence b has blocks b * count .. b * count + count - 1, past the pool none. */
    uint32_t block_size;
    uint32_t n_block; /* paged: blocks in the pool; 0: enough for all sequences */
};

/* An empty cache. INVALID; UNSUPPORTED (limits); memory statuses. */
VKA_API enum vka_status vka_cache_create(struct vka_device *device,
                                         const struct vka_cache_info *info,
                                         struct vka_cache **cache);
VKA_API void vka_cache_destroy(struct vka_cache **cache);

/* These wait first for what is in flight on the device (30 s at most): TIMEOUT, DEVICE_LOST. */

/* Positions that a sequence holds. */
VKA_API enum vka_status vka_cache_length(struct vka_cache *cache, uint32_t sequence,
                                         uint32_t *length);

/* Forgets all positions from `length` on, which is at most what the sequence holds; 0 empties it.
 * Paged: blocks that another sequence shares are left to it and replaced by free ones, as far as
 * there are any, a partial one by a copy; INVALID where there is none for the copy. On failure
 * nothing has changed. */
VKA_API enum vka_status vka_cache_truncate(struct vka_cache *cache, uint32_t sequence,
                                           uint32_t length);

/* Makes sequence `to` a copy of `from`. Paged: full blocks are shared, a last, partial one is
 * copied to a free block; INVALID where there is none, and nothing has changed then. What `to` had
 * is forgotten; where the copy fails midway (other statuses) it may be empty. */
VKA_API enum vka_status vka_cache_fork(struct vka_cache *cache, uint32_t from, uint32_t to);

/* Paged: sets entries first .. first + count - 1 of a sequence's block table; each below n_block. A
 * run appends to whatever block the table names: one that sequences are to share should be full. */
VKA_API enum vka_status vka_cache_set_blocks(struct vka_cache *cache, uint32_t sequence,
                                             uint32_t first, uint32_t count,
                                             const uint32_t *blocks);

/* ---- Plans ----------------------------------------------------------------------------------- */

enum vka_path {
    VKA_PATH_AUTO = 0,
    VKA_PATH_UNFUSED, /* scores, softmax and weighted sum as passes of their own, in slices */
    VKA_PATH_FUSED,   /* one pass without a buffer of scores; returned scores take passes of their
                         own */
    VKA_PATH_COUNT
};

struct vka_plan_info {
    size_t struct_size;
    enum vka_path path;
    /* Bytes aimed at for a slice of scores; 0: 64 MiB. One row is the least. */
    uint64_t workspace_limit;
    bool timestamps;      /* measure each pass on the device */
    bool count_nonfinite; /* count NaN and Inf in what operations write: vka_plan_nonfinite */
    /* Nanoseconds that one submit may take on the device, 0: 200 ms, VKA_NO_BUDGET: any time. A
     * system takes a GPU for hung that is busy with one submit for seconds, and draws nothing
     * meanwhile.
     *
     * A run is so many submits that none is predicted to take longer, and passes are cut to that
     * end: products along batch, rows, columns and k, attention along batch, heads, queries and
     * keys. The bits stay the same. The prediction counts operations, at a rate that is cautious
     * for the type of device; the first vkattn plan on a device that would go over the budget by it
     * measures the rate, in vka_plan_add_..., which then waits for the device, some 20 ms a kernel
     * where it is idle. What a device knows alone (lengths, positions, the sequences of a ragged
     * batch) is taken as the most it can be. A prediction is none of other programs' work. Not cut
     * are 256 k of one tile of a product, one tile of rows against a few keys, and the rows of one
     * workgroup elsewhere. */
    uint64_t submit_budget;
    /* The plan has a share of a larger problem and is to give the bits that the whole gives there:
     * the sizes of the whole, by which attention's kernels are chosen. 0: as in the operation. The
     * first two come together, the first a multiple of the second. */
    uint32_t whole_n_head, whole_n_kv_head, whole_n_q;
};

/* An empty plan. info may be NULL. INVALID; OUT_OF_HOST_MEMORY. */
VKA_API enum vka_status vka_plan_create(struct vka_device *device, const struct vka_plan_info *info,
                                        struct vka_plan **plan);

/* Never waits: a plan in flight is freed when its work is done. */
VKA_API void vka_plan_destroy(struct vka_plan **plan);

struct vka_linear_op {
    size_t struct_size;
    struct vka_tensor *input;  /* [...][in] */
    struct vka_tensor *weight; /* [out][in] */
    struct vka_tensor *bias;   /* [out]; NULL: none */
    struct vka_tensor *output; /* [...][out], leading axes as input's */
    bool relu_input;           /* max(x, 0) on the input as it is read */
};

/* Operations run in the order they were added, each seeing what those before it wrote. Element
 * types mix freely among F32, F16 and BF16; sums run in float32. An output may share no element
 * with an input of its operation; it may lie between an input's elements, as other columns of one
 * tensor do. INVALID names the argument that does not fit, UNSUPPORTED the limit; nothing has been
 * added then. Memory statuses; DEVICE_LOST. */
VKA_API enum vka_status vka_plan_add_linear(struct vka_plan *plan, const struct vka_linear_op *op);
VKA_API enum vka_status vka_plan_add_attention(struct vka_plan *plan,
                                               const struct vka_attention_op *op);
VKA_API enum vka_status vka_plan_add_layer(struct vka_plan *plan, const struct vka_layer_op *op);

/* The elements that op->state has to have; nothing is added, and op->state is not read. *count is 0
 * where attention over all n_key keys would not be one fused pass here: blocks are UNSUPPORTED
 * then. Statuses of vka_plan_add_attention, as the kernel is tested here. */
VKA_API enum vka_status
vka_plan_attention_state(struct vka_plan *plan, const struct vka_attention_op *op, uint64_t *count);

/* Allocates the workspace, builds the pipelines and records. Once; nothing can be added then. */
VKA_API enum vka_status vka_plan_finish(struct vka_plan *plan);

/* Starts the recorded work and returns at once. ticket may be NULL. The submits of one device run
 * one after the other; without timeline semaphores at most 16 are in flight, and this waits for the
 * first of them (30 s at most: TIMEOUT). INVALID before vka_plan_finish; DEVICE_LOST; memory
 * statuses: where the run is several submits, the first may run all the same then, so that outputs
 * are undefined and a cache may be longer. */
VKA_API enum vka_status vka_plan_submit(struct vka_plan *plan, uint64_t *ticket);

/* Waits for a ticket of this plan, timeout in nanoseconds. TIMEOUT: still running, wait again; with
 * a timeout of 0 this only asks, and TIMEOUT is not logged. DEVICE_LOST, also where the driver says
 * success and did nothing: every submit ends with a word that is checked here. INVALID: the run is
 * done, but a cache had no room for a sequence in it. */
VKA_API enum vka_status vka_plan_wait(struct vka_plan *plan, uint64_t ticket, uint64_t timeout);

/* Submit and wait. */
VKA_API enum vka_status vka_plan_run(struct vka_plan *plan, uint64_t timeout);

struct vka_pass_info {
    const char *name;   /* what it computes: "scores", "softmax", ... */
    const char *kernel; /* its row in shaders/kernels.def */
    const char *detail; /* tile, element types, grid */
    const char *reason; /* why this kernel */
    /* What a verdict's lines call the problem that the kernel was chosen for; NULL where there was
     * no choice. */
    const char *problem;
    double gpu_ms; /* of the last run waited for; negative where not measured */
};

/* The number of passes (dispatches) of a finished plan, and the index-th one. The strings live as
 * long as the plan. INVALID past the end. */
VKA_API size_t vka_plan_pass_count(const struct vka_plan *plan);
VKA_API enum vka_status vka_plan_pass(struct vka_plan *plan, size_t index,
                                      struct vka_pass_info *info);

/* What a plan made with count_nonfinite found in one tensor that an operation wrote, right after it
 * was written: scores of kind BIAS hold -inf where hidden, and rows that see no key NaN where
 * masked_row says so. Costs one more pass over each such tensor. */
struct vka_nonfinite_info {
    const char *name;  /* "output", "scores", "present_key" or "present_value" */
    uint64_t nan, inf; /* elements; inf of either sign */
};

/* The number of such tensors, in the order of the operations, and what was found in the index-th by
 * the last run, once it has been waited for. INVALID before, and past the end. */
VKA_API size_t vka_plan_nonfinite_count(const struct vka_plan *plan);
VKA_API enum vka_status vka_plan_nonfinite(const struct vka_plan *plan, size_t index,
                                           struct vka_nonfinite_info *info);

/* Device bytes that the finished plan owns. */
VKA_API uint64_t vka_plan_workspace(const struct vka_plan *plan);

/* Writes a line a pass (name, kernel, detail, reason) to text, cut to size bytes and terminated.
 * Returns the length of the whole. */
VKA_API size_t vka_plan_describe(const struct vka_plan *plan, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
