/* vkattn: caches of keys and values for decoding. SPDX-License-Identifier: MIT
 *
 * vkattn.h includes it. examples/decode.c is a program.
 *
 * A cache holds the keys and values of `batch` sequences in `n_layer` layers, up to `capacity`
 * positions each, and the lengths of the sequences, which all layers share, on the device. An
 * operation with a cache appends its n_new keys and values to one layer of every sequence and
 * attends over all of that layer: query i has the position old length + i, kv_length is the new
 * length, and n_kv is `capacity` (for the shapes of a mask and of returned scores). So one recorded
 * plan serves every decoding step: write the input, run, read the output. What stands behind a
 * length, be it of an earlier request or in a page of another sequence, has no effect on a result.
 *
 * A step of a plan is one operation for each layer. The first operation of a step adds to the
 * lengths, the others append at the same positions; all have the same n_new, n_append and q_start.
 * An operation on a layer that the step has had, and every plan, begins a new step. A step that
 * leaves out a layer leaves undefined keys and values in it.
 *
 * n_append says how many new positions each sequence keeps, so that sequences of one batch may take
 * prompts of different lengths, or with 0 wait. Query i has its position and attends over what was
 * kept, whether position i was kept or not. With q_start (vka_attention_op) the new rows of all
 * sequences are packed instead, each as many as it has: a step of tokens and slices of prompts
 * computes no others.
 *
 * A sequence in which the new keys do not fit keeps its length, and nothing is appended to it; the
 * other sequences are not affected. vka_plan_wait for that run returns VKA_INVALID and names the
 * sequence. Later runs append nothing to that sequence and return VKA_INVALID too, whatever n_append
 * says, until a function below changes the sequence: vka_cache_truncate to the length that it has is
 * enough. vka_plan_wait reports on the ticket that it is given: tickets can be waited for in any
 * order and any number of times, with any number of runs in flight and any number of plans that
 * share the cache. Changing a sequence by vka_cache_truncate, vka_cache_set_pages or vka_cache_fork
 * (the copy) clears what earlier runs reported about it.
 *
 * A layer may hold a state of fixed size instead of keys and values: the matrices of linear attention,
 * the last rows of a causal convolution, or both. vka_plan_add_linear_attention and
 * vka_plan_add_causal_conv take it as cache and cache_layer, are operations of the step as those of
 * attention are, and change it in place; their lengths are its n_append. One that holds both is a layer
 * of two operations. A state begins as zeros, and stays as it is where a sequence appends nothing, for
 * want of room too, and in a step that leaves its layer out. It cannot go back: with one in a cache
 * vka_cache_truncate takes 0, which makes it zeros, and the length that the sequence has. Where a state is
 * no longer finite, vka_plan_wait for the run and for later ones returns VKA_INVALID and names sequence and
 * layer, until the sequence is changed; a run that appends to it then tells it again, unless it was
 * truncated to 0.
 *
 * A paged cache keeps its positions in pages of `page_size` positions. The pages come from a pool
 * that all sequences share; a table on the device lists the pages of each sequence, for all layers. */
#ifndef VKATTN_CACHE_H
#define VKATTN_CACHE_H

#include <vkattn/vkattn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What one layer of a cache holds: keys and values, with n_kv_head above 0 and the fields as of
 * vka_cache_info, or a state, with n_state or channels above 0, or both of these. */
struct vka_cache_layer_info {
    size_t struct_size;
    uint32_t n_kv_head;
    uint32_t head_dim;
    uint32_t value_dim; /* 0: head_dim */
    enum vka_dtype key_dtype, value_dtype;
    const float *key_scales, *value_scales;
    bool no_hadamard;
    /* F32 [batch][n_state][head_dim][value_dim]: the state of vka_linear_attention_op. */
    uint32_t n_state;
    /* F32 [batch][channels][conv_rows]: past and present of vka_causal_conv_op, whose (width - 1) *
     * dilation is conv_rows. */
    uint32_t channels, conv_rows;
};

struct vka_cache_info {
    size_t struct_size;
    uint32_t batch;   /* sequences */
    uint32_t n_layer; /* 0: 1; with layers their number */
    uint32_t n_kv_head;
    uint32_t head_dim;
    uint32_t value_dim; /* 0: head_dim */
    uint32_t capacity;  /* the most positions of a sequence */
    /* F32, F16, BF16, Q8_0, Q4_0 or F8_E4M3. Fused kernels read every type as it is: no other copy of
     * the cache is made. With the last three the path is the fused one, no scores are returned, and a
     * layer's keys or values must fit max_buffer_range.
     * Q8_0 and Q4_0: blocks of 32 features, a row is padded to whole blocks with zeros. The scale d,
     * float16, is the largest magnitude of the block times float32(1 / 127), or for Q4_0 the value
     * of largest magnitude divided by -8; a value becomes the nearest multiple of d, halves away
     * from 0, from -127 d to 127 d, or -8 d to 7 d. A block with NaN or Inf reads as NaN, and so
     * does one whose d no float16 holds: with a magnitude above 8.3e6, of Q4_0 5.2e5 (after the
     * Hadamard matrix).
     * F8_E4M3: x of head h becomes the nearest number of that type to x * (1 / scale[h]), both in
     * float32, ties to even; beyond 448, Inf too, it is 448 or -448; NaN stays NaN. It is read as
     * that number times scale[h]. A row is padded to whole 32 features with zeros. */
    enum vka_dtype key_dtype, value_dtype;
    /* Scales of keys or values of F8_E4M3: [n_kv_head], from 2^-126 to 2^126, for all layers. NULL:
     * all 1. They are copied. */
    const float *key_scales, *value_scales;
    /* Keys of type Q4_0 are multiplied by a Hadamard matrix before they are quantised, after their
     * norm and rotary embedding. Queries are too, so the scores stay as they are, but an outlier is
     * shared by all features. Values of type Q4_0 are too, and the output is multiplied back. The
     * matrix acts on each block of as many features as the largest power of two that divides the
     * head, at least 16. true: no Hadamard matrix. */
    bool no_hadamard;
    /* Positions of a page, a multiple of 16 from 16 to 256; 0: not paged, each sequence is
     * contiguous. A sequence has count = capacity / page_size (rounded up) entries in the table. At
     * first sequence b has pages b * count .. b * count + count - 1, as far as the pool goes. */
    uint32_t page_size;
    uint32_t n_page; /* of a paged cache: pages of the pool; 0: enough for all sequences */
    /* [n_layer]: each layer by itself, in place of the fields from n_kv_head to value_dim and from
     * key_dtype to no_hadamard, which are 0 or NULL then. They are copied. NULL: all layers are as those
     * fields say. */
    const struct vka_cache_layer_info *layers;
};

/* Makes an empty cache. INVALID; UNSUPPORTED (a limit of the device: max_allocation bounds the keys
 * or values of a layer); memory statuses. */
VKA_API enum vka_status vka_cache_create(struct vka_device *device,
                                         const struct vka_cache_info *info,
                                         struct vka_cache **cache);
VKA_API void vka_cache_destroy(struct vka_cache **cache);

/* The following functions first wait, up to 30 s, for all work in flight on the device. All of
 * them: INVALID; TIMEOUT; DEVICE_LOST; memory statuses. vka_cache_length and vka_cache_fork also:
 * INTERNAL, where the driver left a length beyond the capacity; vka_cache_truncate sets it right. */

/* The number of positions that a sequence holds. */
VKA_API enum vka_status vka_cache_length(struct vka_cache *cache, uint32_t sequence,
                                         uint32_t *length);

/* Removes all positions from `length` on; length is at most what the sequence holds, and 0 empties
 * it. If a layer has a state, length is 0 or what the sequence holds, else INVALID. In a paged cache
 * the sequence then needs pages of its own from `length` on: each page there
 * that it shares with another sequence is replaced by a free page, or by none when no page is free.
 * A shared page of which it keeps some rows is copied to a free page; INVALID if none is free. On failure
 * nothing has changed, but that a sequence whose states are no longer known takes no new positions until
 * it is truncated to 0. */
VKA_API enum vka_status vka_cache_truncate(struct vka_cache *cache, uint32_t sequence,
                                           uint32_t length);

/* Makes sequence `to` a copy of `from`; what `to` held is lost. In a paged cache full pages are
 * shared and a last page that is not full is copied to a free page; INVALID if none is free, and
 * then nothing has changed. After another failure `to` may be empty. */
VKA_API enum vka_status vka_cache_fork(struct vka_cache *cache, uint32_t from, uint32_t to);

/* Sets entries first .. first + count - 1 of the table of a sequence of a paged cache. pages[count]
 * are page numbers below n_page. Runs append to whatever page the table names, so pages that
 * sequences share should be full. INVALID below the sequence's length if a layer has a state. */
VKA_API enum vka_status vka_cache_set_pages(struct vka_cache *cache, uint32_t sequence,
                                            uint32_t first, uint32_t count, const uint32_t *pages);

#ifdef __cplusplus
}
#endif
#endif
