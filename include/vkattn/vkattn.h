/* vkattn: multi-head attention on any Vulkan device. SPDX-License-Identifier: MIT
 *
 * The whole attention layer (query, key and value projections, masked softmax attention per head,
 * concatenation, output projection) runs as compute shaders, recorded once into a command buffer
 * and submitted as often as wanted. This header is the manual; examples/ has programs to copy.
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
 * Statuses. A function that can fail returns enum vka_status. What it makes is its last argument,
 * which is set to NULL on failure. The reason is one sentence; it goes to the device's log callback
 * and is kept for vka_device_error. The library prints nothing, reads no environment variable and
 * never waits without a limit. The comments below list the statuses of each function without their
 * prefix VKA_; "memory statuses" are OUT_OF_HOST_MEMORY and OUT_OF_DEVICE_MEMORY.
 *
 * Ownership. A device owns everything made from it: destroy tensors, layers, caches and plans
 * before their device. A plan keeps alive what it uses, so its tensors, layers and caches may be
 * destroyed before it, in any order. A destroy function takes a pointer to the handle, accepts NULL
 * and handles that are NULL, and sets the handle to NULL.
 *
 * Threads. A device and everything made from it belong to one thread at a time; an application that
 * shares them between threads locks around every call. Different devices share nothing and may be
 * used from different threads at the same time. A function marked "any thread", or "safe from
 * several threads", may run in several threads at once.
 *
 * Forks. After fork() the child has copies of the handles, but not the driver's threads. In the
 * child, calls that need a device made before the fork return INVALID and say why, destroy
 * functions free host memory only and return at once, and nothing of the parent is touched. The
 * child must not use or destroy handles that another thread was using during the fork. It must
 * leave by _exit or exec, as drivers may crash or hang in exit().
 *
 * Info structs begin with struct_size, which VKA_INFO fills in; zero is the default of every other
 * field. A flag VKA_GIVEN_ in the member `given` says that a number is meant even if it is 0. */
#ifndef VKATTN_H
#define VKATTN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define VKA_API /* functions alone: the same declaration serves the DLL and the static library */
#else
#define VKA_API __attribute__((visibility("default")))
#endif

#define VKA_VERSION_MAJOR 0
#define VKA_VERSION_MINOR 1
#define VKA_VERSION_PATCH 0

/* Builds an info struct in place (C only): VKA_INFO(vka_plan_info, .timestamps = true). In C++ take
 * vka::info<vka_plan_info> of vkattn.hpp. */
#define VKA_INFO(type, ...) (&(struct type){.struct_size = sizeof(struct type), __VA_ARGS__})

/* Thirty seconds, in nanoseconds: far longer than any healthy run, short enough for a user. */
#define VKA_TIMEOUT_DEFAULT 30000000000ull

/* For vka_plan_info.submit_budget: a submit may take any time. */
#define VKA_NO_BUDGET UINT64_MAX

/* The most axes that a tensor can have. */
#define VKA_MAX_RANK 4

/* Flags of a member `given`: that number is meant even if it is 0. Other bits are INVALID. */
#define VKA_GIVEN_SCALE 1
#define VKA_GIVEN_EPSILON 2
#define VKA_GIVEN_GRADIENT_SCALE 4
#define VKA_GIVEN_BETA1 8
#define VKA_GIVEN_BETA2 16

/* ---- Statuses and names ---------------------------------------------------------------------- */

enum vka_status {
    VKA_OK = 0,
    VKA_INVALID,     /* the caller's mistake; the sentence names the argument */
    VKA_UNSUPPORTED, /* legal, but not on this device; the sentence names what is missing */
    VKA_NO_DEVICE,   /* no Vulkan loader, no driver, or no device of that name */
    VKA_OUT_OF_HOST_MEMORY,
    VKA_OUT_OF_DEVICE_MEMORY, /* everything made so far stays usable */
    VKA_TIMEOUT,              /* the work goes on; wait again */
    VKA_DEVICE_LOST,          /* the driver gave up on the device: recover it or make another */
    VKA_IO,                   /* a file cannot be read or written, or is malformed (vkattn_io) */
    VKA_INTERNAL,             /* the driver broke Vulkan's rules, or this library has a bug */
    VKA_STATUS_COUNT
};

/* "VKA_OK" and so on; "unknown status" for other values. Static storage. Any thread. */
VKA_API const char *vka_status_name(enum vka_status status);

/* enum vka_dtype: element types, and what they are called, take and are as floats. */
#include <vkattn/vkattn_dtype.h>

/* ---- Devices --------------------------------------------------------------------------------- */

struct vka_device; /* a Vulkan device with its queue, memory and kernels */
struct vka_tensor; /* element type, shape and strides over a device buffer */
struct vka_layer;  /* the weights of one attention layer, packed for the kernels */
struct vka_plan;   /* operations on tensors, recorded once, submitted many times */
struct vka_cache;  /* keys and values seen so far, with their lengths on the device */

enum vka_log_level { VKA_LOG_ERROR = 0, VKA_LOG_WARNING, VKA_LOG_INFO, VKA_LOG_LEVEL_COUNT };

/* Receives a sentence without a newline, on the thread that called vkattn; must not call vkattn. */
typedef void vka_log_callback(void *user, enum vka_log_level level, const char *message);

struct vka_device_info {
    size_t struct_size;
    /* Which device. NULL: the most capable one. Digits: its index in vka_device_list. Other text,
     * not empty: some of its name, in upper or lower case. */
    const char *device;
    /* Receives errors, warnings and information, with log_user. NULL: no log. */
    vka_log_callback *log;
    void *log_user;
    /* A blob from vka_device_pipeline_cache, and its size in bytes. A blob that is damaged or comes
     * from another device or driver is ignored; in one from another build of this library, the
     * results of self-tests are ignored. The blob holds no secret. Its checksum does not protect
     * against an attacker: keep it where only the user can write. */
    const void *pipeline_cache;
    size_t pipeline_cache_size;
    /* The kernel choices that `vkattn tune` measured, and their size in bytes; see
     * vka_device_tuning_profile_head. A profile that is malformed or comes from another device,
     * driver or build of this library is ignored, with a warning to log. */
    const char *tuning_profile;
    size_t tuning_profile_size;
    /* Enable the Khronos validation layer if it is installed; what it says goes to log as errors. */
    bool validation;
    /* Name passes for debuggers, if the driver has VK_EXT_debug_utils. */
    bool labels;
    /* Limits below the driver's own, for tests and for sharing a device; 0: the driver's. Work
     * that exceeds a limit is cut into slices that fit, with the same bits. What cannot be cut
     * is UNSUPPORTED when it exceeds
     * - max_allocation: a tensor, a weight or a cache; the intermediate results of one key head of
     *   one batch element, or of one batch element of a layer;
     * - max_buffer_range: one row of a tensor whose strides spread its elements; on the unfused
     *   path, the scores of one query in float32;
     * - max_buffer_range on the fused path: what one query of the heads of a key head reads or writes;
     *   in a ragged batch the queries, keys, values or output of a head; with matrix units the keys
     *   or values of a head;
     * - max_buffer_range with a cache: the keys or values of one head of a sequence, or all pages
     *   of a paged cache;
     * - 16,384 passes: a plan that needs more. */
    uint64_t max_buffer_range;  /* bytes of a buffer that one kernel may see; at least 65536 */
    uint64_t max_allocation;    /* bytes of one allocation; at least 1 MiB */
    uint32_t max_shared_memory; /* bytes a workgroup; at least 4096 */
    /* Bytes of all allocations together, at least 1 MiB. Exceeding that, or what the driver can
     * give at the moment (VK_EXT_memory_budget), is OUT_OF_DEVICE_MEMORY. */
    uint64_t max_memory;
    bool no_mapped_memory; /* copy through staging memory even if device memory can be mapped */
    bool no_timeline;      /* wait on fences even if the device has timeline semaphores */
    bool skip_self_test;   /* use kernels without testing them, see vka_device_self_test */
};

/* Makes a device. The order of preference is discrete GPU, integrated GPU, virtual GPU, CPU driver.
 * info may be NULL. NO_DEVICE; UNSUPPORTED (Vulkan below 1.1, or fewer than 8 storage buffers a
 * stage); INVALID (a limit below its minimum); memory statuses. Only the log says why it failed, as
 * there is no device to ask. Safe from several threads. */
VKA_API enum vka_status vka_device_create(const struct vka_device_info *info,
                                          struct vka_device **device);

/* Waits up to ten seconds for work in flight. If it is not done by then, memory and handles that
 * the driver may still use are left until the process ends. In a forked child it does not wait.
 * Everything made from the device must be destroyed first. */
VKA_API void vka_device_destroy(struct vka_device **device);

/* Makes a lost device usable again. Once a call has returned DEVICE_LOST, every call that needs the
 * device returns it, until this function succeeds. All handles stay valid: plans give the same bits
 * as before, layers made with keep_weights have their weights, tensors have undefined contents,
 * caches are empty, and earlier tickets return DEVICE_LOST. Plans of layers of host weights made
 * without keep_weights return DEVICE_LOST from then on. TIMEOUT: a CPU driver still compiles (see
 * compile_timeout); the device works, and calling again waits on. On another failure the device stays
 * lost, and the call may be repeated. INVALID (it is not lost); UNSUPPORTED (the device, or memory
 * that a tensor wraps, is the application's); statuses of vka_device_create. */
VKA_API enum vka_status vka_device_recover(struct vka_device *device);

/* Why the last failed call on this device, or on anything made from it, failed: one sentence, ""
 * before the first failure. Valid until the next failure. NULL: why the last device that this thread
 * asked for could not be created, adopted or listed. */
VKA_API const char *vka_device_error(const struct vka_device *device);

enum vka_device_type {
    VKA_DEVICE_OTHER = 0,
    VKA_DEVICE_CPU,
    VKA_DEVICE_VIRTUAL,
    VKA_DEVICE_INTEGRATED,
    VKA_DEVICE_DISCRETE,
    VKA_DEVICE_TYPE_COUNT
};

/* What a device is and can do: read once from the driver, and lowered to the limits of
 * vka_device_info. */
struct vka_device_properties {
    char name[256];
    char driver[256]; /* name and version in the driver's own words */
    uint32_t index;   /* as vka_device_info.device takes it */
    enum vka_device_type type;
    uint32_t vendor_id, device_id;
    uint32_t driver_version; /* the driver's own encoding */
    uint32_t api_version;    /* VK_MAKE_API_VERSION's encoding */
    uint64_t memory;         /* bytes of the device-local heaps */
    bool mapped_memory;      /* the host writes device memory in place, and reads it so if cached */
    uint32_t subgroup_size;  /* invocations */
    uint32_t max_workgroup;  /* invocations */
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

/* Lists all Vulkan devices. On entry *count is the room in properties, in elements (0, with
 * properties NULL, to ask for the number); on return it is the number of devices. info may be NULL;
 * only its log is used. NO_DEVICE (no Vulkan loader or no driver); memory statuses. Safe from
 * several threads. */
VKA_API enum vka_status vka_device_list(const struct vka_device_info *info,
                                        struct vka_device_properties *properties, size_t *count);

/* The properties of a device; valid as long as the device. */
VKA_API const struct vka_device_properties *vka_device_properties(const struct vka_device *device);

/* A tuning profile is text. Two lines name the device, the driver and the build of this library;
 * the lines after them hold one measured choice each:
 *
 *     kernel PROBLEM KERNEL VARIANT   use this kernel
 *     path PROBLEM fused|unfused      what VKA_PATH_AUTO takes
 *     demote KERNEL                   never use this kernel
 *
 * PROBLEM is a name as in vka_pass_info.problem, or the beginning of names followed by *. VARIANT
 * is 0 to 7: 0 has the tile sizes that the rules prefer, others have smaller tiles and the like.
 * The first line that matches a problem decides. A line that the rules do not allow on the device
 * has no effect. With a profile, the bits of a row may depend on the number of rows and keys.
 *
 * Writes the two first lines for the device to text, cut to size bytes with a NUL at the end, and
 * returns their whole length. */
VKA_API size_t vka_device_tuning_profile_head(const struct vka_device *device, char *text,
                                              size_t size);

/* Self-tests find kernels that a driver compiles to wrong code. Before a kernel is first used on a
 * device, it solves a small problem whose result is known: in vka_layer_create and
 * vka_plan_add_..., which then submit work, wait for it, and may return TIMEOUT. A kernel that is
 * wrong, that loses the device for the second time, or that the driver's compiler refuses has a
 * warning in the log, and another takes its place in every plan; if there is none: UNSUPPORTED, or
 * a memory status if the compiler had too little. The results survive vka_device_recover and, but
 * for refusals, are in the blob of vka_device_pipeline_cache.
 * Tests now all kernels that the rules choose on this device, even with skip_self_test. OK if some
 * of them fail. DEVICE_LOST; TIMEOUT; memory statuses. */
VKA_API enum vka_status vka_device_self_test(struct vka_device *device);

struct vka_kernel_info {
    const char *name;    /* its row in shaders/kernels.def */
    const char *missing; /* NULL: usable on this device; else why not: "needs subgroups of 8" */
    bool tested;         /* its self-test has run, in this process or an earlier one */
    const char *refused; /* NULL, or why the driver refused a pipeline of it; others may do */
};

/* The number of kernels (any thread), and the kernel at an index. INVALID (index past the end). */
VKA_API size_t vka_kernel_count(void);
VKA_API enum vka_status vka_device_kernel(struct vka_device *device, size_t index,
                                          struct vka_kernel_info *info);

/* Copies the pipeline cache and the results of self-tests to data, which has room for *size bytes,
 * and sets *size to the bytes written. With data NULL it only sets *size to the bytes needed. A
 * device made with this blob as vka_device_info.pipeline_cache compiles and tests nothing again.
 * INVALID (too little room); memory statuses. */
VKA_API enum vka_status vka_device_pipeline_cache(struct vka_device *device, void *data,
                                                  size_t *size);

/* ---- Tensors --------------------------------------------------------------------------------- */

/* Makes a dense tensor with undefined contents. shape[rank], rank 1 to 4, every axis at least 1; of
 * a block type, the last axis is a multiple of the values of a block.
 * INVALID; UNSUPPORTED (larger than max_allocation); memory statuses. */
VKA_API enum vka_status vka_tensor_create(struct vka_device *device, enum vka_dtype dtype,
                                          uint32_t rank, const uint32_t *shape,
                                          struct vka_tensor **tensor);
VKA_API void vka_tensor_destroy(struct vka_tensor **tensor);

/* Views share the elements of a tensor and copy nothing. A view keeps the storage alive, so the
 * tensor may be destroyed first. In a tensor of a block type the last axis is whole blocks, and no
 * view divides or moves it. All of them: INVALID; OUT_OF_HOST_MEMORY. */

/* Axis i of the view is axis axes[i] of the tensor; axes[rank] is a permutation. */
VKA_API enum vka_status vka_tensor_permute(struct vka_tensor *tensor, const uint32_t *axes,
                                           struct vka_tensor **view);

/* Elements first .. first + count - 1 of one axis, count at least 1. */
VKA_API enum vka_status vka_tensor_slice(struct vka_tensor *tensor, uint32_t axis, uint32_t first,
                                         uint32_t count, struct vka_tensor **view);

/* Makes a view of all elements in row-major order with another shape. INVALID if that would need a
 * copy. */
VKA_API enum vka_status vka_tensor_reshape(struct vka_tensor *tensor, uint32_t rank,
                                           const uint32_t *shape, struct vka_tensor **view);

/* Any shape and strides. offset and strides count elements; offset starts at the tensor's first
 * element. The view must stay inside the tensor's storage. A stride of 0 is allowed only in tensors
 * that are read. */
VKA_API enum vka_status vka_tensor_strided(struct vka_tensor *tensor, uint64_t offset,
                                           uint32_t rank, const uint32_t *shape,
                                           const uint64_t *strides, struct vka_tensor **view);

VKA_API enum vka_dtype vka_tensor_dtype(const struct vka_tensor *tensor);
VKA_API uint32_t vka_tensor_rank(const struct vka_tensor *tensor);

/* The length of an axis; 0 for an axis that the tensor does not have. */
VKA_API uint32_t vka_tensor_shape(const struct vka_tensor *tensor, uint32_t axis);

/* The number of elements (values, in block types), and the bytes that they take when dense. */
VKA_API uint64_t vka_tensor_count(const struct vka_tensor *tensor);
VKA_API size_t vka_tensor_size(const struct vka_tensor *tensor);

/* Copy all elements from or to the host, where they are dense and in row-major order; size must be
 * vka_tensor_size. They first wait for all work in flight on the device. INVALID (also a block to be
 * written whose scale is NaN or Inf; the sentence names it); TIMEOUT (30 s); DEVICE_LOST; memory
 * statuses (for staging memory). */
VKA_API enum vka_status vka_tensor_write(struct vka_tensor *tensor, const void *data, size_t size);
VKA_API enum vka_status vka_tensor_read(struct vka_tensor *tensor, void *data, size_t size);

/* ---- Attention ------------------------------------------------------------------------------- */

/* The attention contract. q is [batch][n_head][n_q][head_dim], k is
 * [batch][n_kv_head][n_kv][head_dim], v is [batch][n_kv_head][n_kv][value_dim], each with any
 * strides. n_head is a multiple of n_kv_head; query head h reads key head h / (n_head / n_kv_head).
 * There are fewer than 2^30 queries and at most 2^30 keys, and batch * n_head is below 2^31.
 *
 * Query i of batch element b has the position p = query_offset[b] + i. Key j is visible to it iff
 * all of these hold:
 *     j < kv_length[b]         if lengths are given
 *     j <= p                   if causal
 *     p - j <= window_left     if window and window_left >= 0
 *     j - p <= window_right    if window and window_right >= 0
 *     the boolean mask is true there, or the float mask is above -inf there
 *
 * The score is s = scale * (q . k). With a softcap c it becomes c * tanh(s / c). Then ALiBi and the
 * float mask are added. The softmax runs over the visible keys, in float32. A hidden key or value
 * never affects a result, even if it is NaN or Inf, but where VKA_MASKED_UNIFORM averages values:
 * those at or behind kv_length[b], with a cache its length, affect no result, score or gradient. */

/* The result of a fully masked row: a query to which no key is visible. */
enum vka_masked_row {
    VKA_MASKED_ZERO = 0, /* weights and context 0: a layer's output row is its output bias */
    /* Weights 1 / m for the m = min(n_kv, kv_length[b]) keys before the length, hidden ones too, as
     * where their scores are -1e9; 0 where m is 0. */
    VKA_MASKED_UNIFORM,
    VKA_MASKED_NAN, /* weights and context NaN */
    VKA_MASKED_ROW_COUNT
};

/* Which scores are returned. */
enum vka_scores {
    VKA_SCORES_NONE = 0,
    /* Scores of keys at or behind kv_length[b] are -inf, and weights 0. */
    VKA_SCORES_RAW,     /* s */
    VKA_SCORES_SOFTCAP, /* after the softcap */
    VKA_SCORES_BIAS,    /* after ALiBi and the mask; -inf for hidden keys */
    VKA_SCORES_SOFTMAX, /* the weights, before dropout */
    VKA_SCORES_COUNT
};

/* Rotary embedding: rotates q by its position p and k by its index j. Pair i is rotated by
 * position * base^(-2 i / dim) radians, or position * frequencies[i]. The angle is computed in
 * integers, as exact at far positions as at near ones. INVALID if a position could pass 2^31 - 1. */
struct vka_rope {
    uint32_t dim;     /* the first features, which are rotated: even, at most head_dim; 0: none,
                       * and no other field is given */
    float base;       /* at least 1; 0: 10000 */
    bool interleaved; /* pairs are (2 i, 2 i + 1); else (i, i + dim / 2) */
    /* In place of base: [dim / 2], radians a position, in magnitude at most 1; vka_rope_frequencies
     * (vkattn_model.h) gives those of scaled models. Read by the call that takes this struct. */
    const double *frequencies;
    float attention_factor; /* multiplies cosines and sines; above 0, or 0 for 1 */
};

/* Everything about attention but its shapes; used by the attention and the layer operation. */
struct vka_attention_options {
    /* BOOL (true: visible; PyTorch's key_padding_mask means the opposite) or F32, F16, BF16
     * (added to the scores). Rank 1 to 4, aligned right and broadcast against
     * [batch][n_head][n_q][n_kv]. A last axis shorter than n_kv and not 1 hides the keys beyond it. */
    struct vka_tensor *mask;
    /* I32 [batch] or [1], read on the device: keys of each, clamped to 0 .. n_kv. NULL: n_kv. */
    struct vka_tensor *kv_length;
    /* I32 [batch] or [1], read on the device: the position of query 0, which may be negative,
     * clamped to -2^30 .. 2^30. NULL: the number of past keys. */
    struct vka_tensor *query_offset;
    bool causal;
    /* Apply window_left and window_right, each -1 (no limit) or at least 0. */
    bool window;
    int32_t window_left, window_right;
    uint32_t given; /* VKA_GIVEN_SCALE, VKA_GIVEN_EPSILON */
    float scale;    /* 0: 1 / sqrt(head_dim), unless given */
    float softcap;  /* 0: none; others count as at least 2^-126 and at most 2^104 */
    enum vka_masked_row masked_row;
    /* Receives the scores, [batch][n_head][n_q][n_kv]; given iff scores_kind is not NONE. */
    enum vka_scores scores_kind;
    struct vka_tensor *scores;
    /* F32 [batch][n_head][n_q], rows as those of q, in a ragged batch too; NULL: none. Receives for
     * each query the natural logarithm of the sum of e^s over its visible keys, s being the score
     * after softcap, ALiBi and mask, and of e^sink; dropout does not enter it. -inf in a fully masked
     * row, whatever masked_row says; NaN where a visible score is NaN or +inf, as in the output. Of
     * key chunks the last one writes it. */
    struct vka_tensor *log_sum_exp;
    /* Rotates q and the new keys. Past keys are not rotated again; the index of a new key counts
     * the past keys before it. */
    struct vka_rope rope;
    /* F32 [head_dim] each: before the rotation, every q (or new k) is divided by its root mean
     * square and multiplied by these weights. norm_epsilon is added to the mean square; 0: 1e-6,
     * unless given. */
    struct vka_tensor *q_norm, *k_norm;
    float norm_epsilon;
    /* F32 [n_head]: a logit that is added to the denominator of the softmax of each row and has no
     * value. +inf makes every weight 0, -inf has no effect. Weights below e^-76 of the largest (the
     * sink's counts) may be 0. The result of a fully masked row is still masked_row. */
    struct vka_tensor *sink;
    /* F32 [n_head], the slopes m: -m * |p - j| is added to the score after the softcap. In float32: a
     * distance up to 2^24 is exact, and the error of what is added is at most 2^-23 of it. So keys about
     * 2^30 away have the slopes of distances that are multiples of 64 or 128. */
    struct vka_tensor *alibi;
    /* The rate, in [0, 1): a weight is kept with probability 1 - rate, and then divided by
     * 1 - rate. The draw is word 0 of Philox4x32-10 with the counter (j, i, h, b) and the key (low
     * half, high half of dropout_seed); the weight is kept iff (word >> 8) * 2^-24 >= rate.
     * UNSUPPORTED where h or b would pass 65535. */
    float dropout;
    uint64_t dropout_seed;
    /* Added to b, h and i of the draw, for an operation that is a slice of a larger problem:
     * where the slice begins in it. The first two are at most 65535. */
    uint32_t dropout_batch, dropout_head, dropout_query;
    /* Compute the softmax with twice the digits of float32, as ONNX's softmax_precision of float64
     * asks for: from scores of float32, weights within 0.501 units in their last place. It takes the
     * unfused path. UNSUPPORTED: on the fused path, and of what that path alone does (ragged
     * batches, key chunks, a cache of a block type); more keys than one workgroup adds, 65,536 at
     * least. Gradients are computed without it. */
    bool exact_softmax;
};

struct vka_attention_op {
    size_t struct_size;
    struct vka_tensor *q; /* [batch][n_head][n_q][head_dim] */
    struct vka_tensor *k; /* [batch][n_kv_head][n_new][head_dim] */
    struct vka_tensor *v; /* [batch][n_kv_head][n_new][value_dim] */
    /* [batch][n_head][n_q][value_dim]. To concatenate the heads, give a permuted view of a tensor
     * [batch][n_q][n_head * value_dim]. */
    struct vka_tensor *output;
    /* [batch][n_kv_head][n_past][...]: come before k and v, n_kv = n_past + n_new. Both or neither. */
    struct vka_tensor *past_key, *past_value;
    /* [batch][n_kv_head][n_kv][...]: receive past and new keys and values; the keys as they enter
     * the scores (normalised and rotated). Give both or neither. */
    struct vka_tensor *present_key, *present_value;
    /* Holds the past keys and values, and k and v are appended to its layer cache_layer: see
     * vkattn_cache.h. n_append: I32 [batch] or [1], read on the device: how many of its new keys
     * and values each sequence keeps, the first ones, clamped to 0 .. their number; NULL: all. Not
     * together with past, present, kv_length or query_offset. */
    struct vka_cache *cache;
    uint32_t cache_layer;
    struct vka_tensor *n_append;
    /* A ragged batch: n sequences packed end to end along the row axes of q, k, v and output, whose
     * batch is 1. I32 [n + 1] each, read on the device. Sequence s has rows q_start[s] ..
     * q_start[s + 1] - 1 of q and output, and rows kv_start[s] .. kv_start[s + 1] - 1 of k and v,
     * clamped to the tensors. Neither may decrease from one sequence to the next; rows of output
     * are undefined if q_start does. Positions and indices count from the first row of the
     * sequence; kv_length and query_offset are [n] or [1]. Rows of output outside all sequences are
     * not written. Fused path only; no returned scores, past or present.
     *
     * Without a cache give both, and no mask or rope. With one give q_start alone: n is the batch
     * of the cache, and k and v are packed as q, one new key for each query. Each sequence appends
     * its own rows, the first n_append of them, and its queries follow its old length, so that
     * prompts, slices of them and single tokens share a step; a sequence without rows waits. Rows
     * of no sequence, behind q_start[n] in a plan recorded for more, are not appended and cost next
     * to nothing here. If q_start decreases, what is appended and the lengths of such sequences are
     * undefined too. A mask has the packed rows, [1][n_head][n_q][capacity]. The bits are those of
     * each sequence in a batch of its own, by plans with the same whole_n_q. */
    struct vka_tensor *q_start, *kv_start;
    /* Key chunks, for keys that come one after another from a file or another device: k and v are keys
     * key_first .. key_first + n_new - 1 of n_key keys in all. Lengths, positions and the last axis
     * of the mask are those of all n_key keys. `state` carries the softmax of every row from one
     * key chunk to the next: F32 of rank 1, not a view, with at least as many elements as
     * vka_plan_attention_state says. The operations for the key chunks of one output run in the order
     * of the keys, in one plan or in several made with the same path and whole_ sizes; each chunk
     * begins at a multiple of 128, and the last one writes output. The bits are those of all keys
     * at once. To meet the submit budget only the keys of a chunk are split further, so its rows
     * and its state must be within the device's limits. Fused path only; no returned scores, past,
     * present, cache or ragged batch. n_key 0: no key chunks. One that is all n_key keys is plain
     * attention, and its state is not read. */
    struct vka_tensor *state;
    uint32_t key_first, n_key;
    struct vka_attention_options options;
};

/* ---- Layers ---------------------------------------------------------------------------------- */

struct vka_linear_weights {
    const void *weight; /* on the host, [out][in] as PyTorch stores it */
    const void *bias;   /* on the host, [out]; NULL: none */
};

/* Weights in tensors of the layer's dtype, at any strides, which the layer keeps alive. */
struct vka_linear_tensors {
    struct vka_tensor *weight; /* [out][in] */
    struct vka_tensor *bias;   /* [out]; NULL: none */
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
    /* The type of all weights and biases, on the host and on the device: F32, F16 or BF16; or a
     * block type of the weights, whose biases are F32. Widths of inputs are then whole blocks. */
    enum vka_dtype dtype;
    /* A type of vka_dtype_encode: the host quantises weights of F32, F16 or BF16; the device has no
     * other copy. F32: it does not. */
    enum vka_dtype quantise;
    /* Keep a copy of the weights on the host, so that vka_device_recover can restore them. */
    bool keep_weights;
    /* Feature d of head h is column d * n_head + h of a projection's output; if false, column
     * h * head_dim + d. In the concatenated heads it is always column h * value_dim + d. */
    bool interleaved;
    struct vka_linear_weights query;  /* [n_head * head_dim][query_dim] */
    struct vka_linear_weights key;    /* [n_kv_head * head_dim][key_dim] */
    struct vka_linear_weights value;  /* [n_kv_head * value_dim][value_input_dim] */
    struct vka_linear_weights output; /* [output_dim][n_head * value_dim]; weight NULL: the
                                         concatenated heads are the output */
    /* In place of all of these, for weights that an optimiser writes: each run reads what the
     * tensors hold then, with the bits of such host weights. It first packs them into scratch of
     * their size, unless kernels read them as they are. No block types, quantise, keep_weights. */
    struct vka_linear_tensors query_tensors, key_tensors, value_tensors, output_tensors;
};

/* A layer appends no rows of its own to the projected keys and values (PyTorch's add_bias_kv and
 * add_zero_attn). Input rows can: give key and value no bias but two more columns, the bias and the
 * row to append. The input then has 1, 0 in them in its own rows, 0, 1 (and 0 elsewhere) in the row
 * to append, and 0 everywhere in a row of zeros.
 *
 * Makes a layer: uploads and packs the weights. The host arrays are not needed afterwards. May test
 * kernels, see vka_device_self_test. INVALID; UNSUPPORTED (a limit of the device); DEVICE_LOST;
 * TIMEOUT; memory statuses. */
VKA_API enum vka_status vka_layer_create(struct vka_device *device,
                                         const struct vka_layer_info *info,
                                         struct vka_layer **layer);
VKA_API void vka_layer_destroy(struct vka_layer **layer);

enum vka_layout {
    VKA_BATCH_FIRST = 0, /* [batch][n][width] */
    VKA_SEQUENCE_FIRST,  /* [n][batch][width] */
    VKA_LAYOUT_COUNT
};

/* Inside a layer q, k, v and context are float32. Where inputs, weights (but blocks) and output are
 * of one 16-bit type that a GPU has matrix units for, it rounds each to that type; rotated rows too. */
struct vka_layer_op {
    size_t struct_size;
    struct vka_layer *layer;
    struct vka_tensor *query;  /* [batch][n_q][query_dim] */
    struct vka_tensor *key;    /* [batch][n_kv][key_dim]; NULL: query */
    struct vka_tensor *value;  /* [batch][n_kv][value_input_dim]; NULL: key */
    struct vka_tensor *output; /* [batch][n_q][output_dim] */
    enum vka_layout layout;    /* of these four */
    struct vka_cache *cache;   /* holds the past; the new keys and values are appended to it */
    uint32_t cache_layer;      /* see vka_attention_op, n_append and q_start too */
    struct vka_tensor *n_append;
    /* With a cache: I32 [n + 1], the rows of all four tensors, whose batch is 1, are packed
     * sequences. Rows of output outside all of them are undefined. */
    struct vka_tensor *q_start;
    enum vka_dtype activations; /* of its products, see vka_linear_op; I8: for block types alone */
    struct vka_attention_options attention;
};

/* ---- Plans (caches: vkattn_cache.h) ---------------------------------------------------------- */

enum vka_path {
    VKA_PATH_AUTO = 0, /* the faster one by the rules, or by the tuning profile */
    VKA_PATH_UNFUSED,  /* scores, softmax and weighted sum in passes of their own, slice by slice */
    VKA_PATH_FUSED,    /* one pass that stores no scores; returned scores take extra passes */
    VKA_PATH_COUNT
};

struct vka_plan_info {
    size_t struct_size;
    enum vka_path path;
    /* The bytes that a slice of scores should take at most, or what linear attention keeps of chunks;
     * 0: 64 MiB. A slice is at least one row, however long that is, or one chunk. */
    uint64_t workspace_limit;
    bool timestamps;      /* measure each pass on the device */
    bool count_nonfinite; /* count NaN and Inf in the outputs, see vka_plan_nonfinite */
    /* Nanoseconds that one submit may take on the device; 0: 200 ms, VKA_NO_BUDGET: any time. An
     * operating system resets a GPU that is busy with one submit for seconds, and nothing can be
     * drawn meanwhile.
     *
     * A run is split into submits, each predicted to fit the budget, and long passes are split for
     * it: products along batch, rows, columns and k, attention along batch, heads, queries and
     * keys. The bits stay the same. The smallest slices are never cut: one tile of a product over
     * 256 of k, one tile of query rows against a few keys, elsewhere the rows of one workgroup.
     *
     * A prediction counts operations and divides by a rate, at first a cautious one for the type of
     * device. The first plan of a device that would exceed the budget at that rate measures the
     * real one in vka_plan_add_..., which then waits, about 20 ms a kernel. Lengths, positions and
     * sequences that only the device knows count as the largest possible, other programs as none. */
    uint64_t submit_budget;
    /* For a plan that computes a slice of a larger problem, with the same bits as the whole: the
     * sizes of the whole, by which attention kernels are chosen. 0: the operation's. Give the first
     * two together, the first a multiple of the second. In a ragged batch whole_n_q is that of a
     * sequence; 0: their mean, so that decoding has the kernel for few rows. */
    uint32_t whole_n_head, whole_n_kv_head, whole_n_q;
    uint64_t compile_timeout; /* ns that a CPU driver may compile the plan's kernels; 0: 600 s */
};

/* Makes an empty plan. info may be NULL. INVALID; OUT_OF_HOST_MEMORY. */
VKA_API enum vka_status vka_plan_create(struct vka_device *device, const struct vka_plan_info *info,
                                        struct vka_plan **plan);

/* Does not wait: the memory of a plan in flight is freed when its work is done. */
VKA_API void vka_plan_destroy(struct vka_plan **plan);

struct vka_linear_op {
    size_t struct_size;
    struct vka_tensor *input; /* [...][in] */
    /* [out][in]: F32, F16, BF16, I8 or a block type, read as it is; no other copy is made. With F32
     * input, quantised weights count as their float32 values; terms of a block may be summed before its
     * scale, so that input of 2^112 or more can overflow, and an infinite scale gives infinity for NaN.
     * With F16 or BF16 input they are first rounded to that type. */
    struct vka_tensor *weight;
    struct vka_tensor *bias;   /* [out]; NULL: none */
    struct vka_tensor *output; /* [...][out], its leading axes as those of input */
    bool relu_input;           /* apply max(x, 0) to the input when it is read */
    /* F32 [out], needed where weight is I8, taken where it is of blocks, as nvfp4 of files has a scale of
     * the tensor: row o of the weight is weight_scale[o] * weight[o][...]. The scale multiplies the
     * sum. */
    struct vka_tensor *weight_scale;
    /* Add to what output holds, as a residual connection does: output += f(input) weight^T + bias.
     * The addition is in float32, before the result is rounded to the type of output. So the bits of
     * a float32 output are those of this product into another tensor, followed by vka_binary_op. */
    bool accumulate;
    /* F32 (0, the default): the input counts as it is. I8: it is quantised first, and products are
     * sums of integers, four an instruction where the device has integer dot products: for GPUs, and
     * less exact, so never chosen unasked. The weight is then I8 or a block type. Each 16 neighbours
     * along `in` (of a row, from its first on) share a scale: the largest magnitude among them / 127,
     * rounded up to 12 significant bits. Each counts as the nearest multiple of it, halves away from
     * 0. Scales below 2^-120 count as 0. relu_input comes first. A NaN or Inf in a row makes all of
     * its results NaN. The normalised squared error of a row is about 2.3e-5 where values are
     * normally distributed; a few large ones among small ones cost more. A row has the same bits
     * whatever other rows there are. */
    enum vka_dtype activations;
};

/* Add an operation to a plan that is not finished. Operations run in the order in which they were
 * added; each sees what the ones before it wrote. F32, F16 and BF16 tensors mix freely; sums run in
 * float32. An output must not share an element with an input of the same operation, but may lie
 * between its elements, as other columns of one tensor do. They may test kernels
 * (vka_device_self_test) and measure rates (submit_budget), and then wait for the device. INVALID
 * (the sentence names the argument); UNSUPPORTED (it names the limit); DEVICE_LOST; TIMEOUT; memory
 * statuses. On failure nothing was added. */
VKA_API enum vka_status vka_plan_add_linear(struct vka_plan *plan, const struct vka_linear_op *op);
VKA_API enum vka_status vka_plan_add_attention(struct vka_plan *plan,
                                               const struct vka_attention_op *op);
VKA_API enum vka_status vka_plan_add_layer(struct vka_plan *plan, const struct vka_layer_op *op);

/* Sets *count to the elements that op->state must have, see vka_attention_op; adds nothing and does
 * not read op->state. It is 0 if attention over all n_key keys would not be one fused pass in this
 * plan: key chunks are UNSUPPORTED then. It may test kernels: statuses of vka_plan_add_attention. */
VKA_API enum vka_status
vka_plan_attention_state(struct vka_plan *plan, const struct vka_attention_op *op, uint64_t *count);

/* Finishes a plan: uploads its parameters and records the commands. Call it once; nothing can be
 * added afterwards. The upload may wait for work in flight. INVALID; TIMEOUT: a CPU driver compiled
 * for longer than compile_timeout: call it again to wait on; DEVICE_LOST; memory statuses. */
VKA_API enum vka_status vka_plan_finish(struct vka_plan *plan);

/* Starts a run of the recorded work and returns at once. *ticket, which vka_plan_wait takes, is set
 * unless ticket is NULL. The submits of one device run one after the other. Without timeline
 * semaphores at most 16 are in flight: the next one first waits for the oldest (up to 30 s:
 * TIMEOUT). INVALID (the plan is not finished); DEVICE_LOST; memory statuses. If a run of several
 * submits fails, its first ones may still run: outputs are undefined, and a cache may be longer. */
VKA_API enum vka_status vka_plan_submit(struct vka_plan *plan, uint64_t *ticket);

/* Waits for the run of a ticket of this plan, up to timeout nanoseconds. TIMEOUT: it is still
 * running, wait again; a timeout of 0 only asks, and its TIMEOUT is not logged. DEVICE_LOST: also
 * if the driver reports success but did not do the work, as every submit ends with a word that is
 * checked here. INVALID: the run is done, but the new keys did not fit a sequence of a cache; or
 * the ticket is later than this plan's last run, or earlier than its first. */
VKA_API enum vka_status vka_plan_wait(struct vka_plan *plan, uint64_t ticket, uint64_t timeout);

/* vka_plan_submit, then vka_plan_wait with that ticket; statuses of both. */
VKA_API enum vka_status vka_plan_run(struct vka_plan *plan, uint64_t timeout);

struct vka_pass_info {
    const char *name;   /* what it computes: "scores", "softmax", ... */
    const char *kernel; /* its row in shaders/kernels.def */
    const char *detail; /* tile, element types, grid */
    const char *reason; /* why this kernel */
    /* The problem that the kernel was chosen for, by its name in tuning profiles; NULL if there was
     * nothing to choose. */
    const char *problem;
    double gpu_ms; /* time on the device, of the last run waited for; negative: not measured */
};

/* The number of passes (dispatches) of a finished plan, and the pass at an index. The strings live
 * as long as the plan. INVALID (index past the end). */
VKA_API size_t vka_plan_pass_count(const struct vka_plan *plan);
VKA_API enum vka_status vka_plan_pass(struct vka_plan *plan, size_t index,
                                      struct vka_pass_info *info);

/* The NaN and Inf in one tensor that an operation wrote, counted right after it was written, by a
 * plan made with count_nonfinite. Each such tensor takes one more pass. Values that the caller
 * asked for count too: -inf for hidden keys in scores of kind BIAS and for fully masked rows in
 * log_sum_exp, NaN in fully masked rows with VKA_MASKED_NAN. */
struct vka_nonfinite_info {
    const char *name;  /* "output", "scores", "log_sum_exp", "present_key" or "present_value"; of
                          operations of training the member, such as "loss" */
    uint64_t nan, inf; /* elements; inf of either sign */
};

/* The number of such tensors, in the order of the operations, and the counts of the last run for
 * the tensor at an index. INVALID (the last run has not been waited for; index past the end). */
VKA_API size_t vka_plan_nonfinite_count(const struct vka_plan *plan);
VKA_API enum vka_status vka_plan_nonfinite(const struct vka_plan *plan, size_t index,
                                           struct vka_nonfinite_info *info);

/* The bytes of device memory that a finished plan owns. */
VKA_API uint64_t vka_plan_workspace(const struct vka_plan *plan);

/* Writes one line for each pass (name, kernel, detail, reason) to text, cut to size bytes and
 * terminated by NUL. Returns the length of the text in full. */
VKA_API size_t vka_plan_describe(const struct vka_plan *plan, char *text, size_t size);

#ifdef __cplusplus
}
#endif

#include <vkattn/vkattn_cache.h>

#endif
