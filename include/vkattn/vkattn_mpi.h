/* vkattn_mpi: attention on many devices, by MPI. SPDX-License-Identifier: MIT
 *
 * Every rank of a communicator has a device of its own. All ranks make the same calls in the same
 * order with the same arguments, except for their own tensors. How the work is split:
 *
 *     VKA_MPI_HEADS     every rank has the whole inputs and output. It computes some heads; the
 *                       contexts are gathered; it computes some columns of the output, which are
 *                       gathered too
 *     VKA_MPI_BATCH     every rank has the whole inputs and output. It computes some batch
 *                       elements; the outputs are gathered
 *     VKA_MPI_SEQUENCE  only attention. Every rank has some positions of q, k, v and the output. It
 *                       exchanges them for all positions of some heads; with more ranks than heads
 *                       it keeps its positions, and key chunks go round all ranks
 *
 * No sum crosses ranks, and key chunks go round in the order of the keys. So on devices of one kind
 * and driver a result has the same bits for every number of ranks: those of one device.
 *
 * A self-attention layer of 8 heads from a file, x and y float32 [batch][n_q][512]:
 *
 *     struct vka_mpi *mpi = NULL;
 *     struct vka_mpi_layer *layer = NULL;
 *     struct vka_mpi_plan *plan = NULL;
 *     struct vka_tensor *in = NULL, *out = NULL;
 *     const uint32_t shape[] = {batch, n_q, 512};
 *     vka_mpi_create(MPI_COMM_WORLD, NULL, &mpi);
 *     vka_mpi_layer_open(mpi, "layer.safetensors",
 *                        VKA_INFO(vka_mpi_layer_info, .layer.n_head = 8), &layer);
 *     vka_tensor_create(vka_mpi_device(mpi), VKA_F32, 3, shape, &in);
 *     vka_tensor_create(vka_mpi_device(mpi), VKA_F32, 3, shape, &out);
 *     vka_mpi_plan_layer(mpi, layer, VKA_INFO(vka_layer_op, .query = in, .output = out,
 *                                             .attention.causal = true), NULL, &plan);
 *     vka_tensor_write(in, x, sizeof x);
 *     vka_mpi_plan_run(plan, VKA_TIMEOUT_DEFAULT);
 *     vka_tensor_read(out, y, sizeof y);
 *
 * Failures. A function that makes something compares the arguments of all ranks before any work. If
 * they differ, or a rank fails, every rank returns a status and the same sentence, which names the
 * rank. The same happens when ranks make different calls, or run different plans, of one object. (A
 * rank cannot report a call with a NULL object or plan to the others.)
 *
 * No call waits for another rank longer than its timeout. If a rank died or stalls, the others
 * return VKA_TIMEOUT; an error of MPI is VKA_IO with the words of MPI. (Open MPI passes such errors
 * to the error handler of MPI_COMM_WORLD, which ends the program unless it is MPI_ERRORS_RETURN.)
 * After TIMEOUT or IO the ranks are no longer in step: every later call on this object returns that
 * status at once; destroying does not free memory that MPI may still write; and MPI_Finalize may
 * wait forever, so end the process by MPI_Abort. When one rank dies, mpirun ends the others, unless
 * told not to (--enable-recovery of Open MPI, -disable-auto-cleanup of MPICH).
 *
 * A rank that lost its device may recover it without the others (vka_device_recover). If there are
 * layers split by heads, all ranks then make these and their plans again.
 *
 * Threads. As for the device of the object. MPI is only called on the calling thread, so
 * MPI_THREAD_FUNNELED is enough. The application initialises MPI.
 *
 * Ownership, statuses and info structs are as in vkattn.h. Destroy an object after everything that
 * was made from it.
 */
#ifndef VKATTN_MPI_H
#define VKATTN_MPI_H

#include <mpi.h>
#include <vkattn/vkattn.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vka_mpi;       /* a communicator and this rank's device */
struct vka_mpi_layer; /* this rank's slice of the weights of a layer */
struct vka_mpi_plan;  /* one operation over all ranks, recorded once, run many times */

enum vka_mpi_split { VKA_MPI_HEADS = 0, VKA_MPI_BATCH, VKA_MPI_SEQUENCE, VKA_MPI_SPLIT_COUNT };

/* ---- Ranks ----------------------------------------------------------------------------------- */

struct vka_mpi_info {
    size_t struct_size;
    /* How to make this rank's device; may differ between ranks. If NULL, or if it names no device,
     * the ranks of one host share out the devices of the most capable kind: rank i of the host
     * takes device i modulo their number. */
    const struct vka_device_info *device;
    /* Nanoseconds that a call without a timeout argument waits for other ranks; 0:
     * VKA_TIMEOUT_DEFAULT. */
    uint64_t timeout;
};

/* Duplicates the communicator, which must be an intra-communicator, and makes this rank's device.
 * info may be NULL. All ranks call it, between MPI_Init and MPI_Finalize. INVALID; TIMEOUT; IO;
 * statuses of vka_device_create. Only the log says why it failed. */
VKA_API enum vka_status vka_mpi_create(MPI_Comm comm, const struct vka_mpi_info *info,
                                       struct vka_mpi **mpi);

/* All ranks call it, before MPI_Finalize, unless a call has returned TIMEOUT or IO. */
VKA_API void vka_mpi_destroy(struct vka_mpi **mpi);

VKA_API int vka_mpi_rank(const struct vka_mpi *mpi);
VKA_API int vka_mpi_size(const struct vka_mpi *mpi);

/* This rank's device, on which the tensors of plans are made. It belongs to the object. */
VKA_API struct vka_device *vka_mpi_device(struct vka_mpi *mpi);

/* Why the last failed call on this object, or on anything made from it, failed: one sentence, ""
 * before the first failure. Valid until the next failure. It also goes to the log of
 * vka_mpi_info.device. */
VKA_API const char *vka_mpi_error(const struct vka_mpi *mpi);

/* ---- What a rank computes -------------------------------------------------------------------- */

/* first .. first + count - 1. count is 0 if rank is not in 0 .. size - 1. */
struct vka_mpi_range {
    uint32_t first, count;
};

/* The query heads and key heads of a rank. With at least as many key heads as ranks, a rank has
 * whole groups: key heads with all their query heads. With fewer, several ranks have the same key
 * head and divide its query heads. count may be 0 if there are more ranks than query heads. Needs
 * no object and no MPI. Any thread. */
VKA_API void vka_mpi_heads(uint32_t n_head, uint32_t n_kv_head, int size, int rank,
                           struct vka_mpi_range *query, struct vka_mpi_range *key);

/* The batch elements of a rank; count may be 0. Needs no object and no MPI. Any thread. */
VKA_API struct vka_mpi_range vka_mpi_batch(uint32_t batch, int size, int rank);

/* The positions of a rank: a range from the front and its mirror image from the back, so that all
 * ranks have the same work under a causal mask. The rank's tensors hold the positions of range[0],
 * then those of range[1]. If n is less than size, some ranks have no position. Needs no object and
 * no MPI. Any thread. */
VKA_API void vka_mpi_positions(uint32_t n, int size, int rank, struct vka_mpi_range range[2]);

/* ---- Layers ---------------------------------------------------------------------------------- */

struct vka_mpi_layer_info {
    size_t struct_size;
    enum vka_mpi_split split; /* HEADS: each rank has a slice of the weights; BATCH: each has all */
    /* HEADS: the number of rounds that a rank's heads are computed in; one is sent while the
     * next is computed. 0: two if every rank has two key heads, else one. With a cache it must be
     * 1. */
    uint32_t rounds;
    /* The whole layer. Only this rank's slice of the arrays is read, so they may lie in a mapped
     * file; they may be unaligned. struct_size need not be filled in. keep_weights is UNSUPPORTED
     * for HEADS with an output projection, and so are weights in tensors. */
    struct vka_layer_info layer;
};

/* Makes a layer. All ranks call it. INVALID (also if the arguments of ranks differ); UNSUPPORTED;
 * TIMEOUT; IO; statuses of vka_layer_create. */
VKA_API enum vka_status vka_mpi_layer_create(struct vka_mpi *mpi,
                                             const struct vka_mpi_layer_info *info,
                                             struct vka_mpi_layer **layer);

/* Makes the layer of a safetensors file, which each rank maps. The file holds q_proj.weight,
 * k_proj.weight and v_proj.weight, and may hold o_proj.weight and the biases (q_proj.bias and so
 * on), all of one type: F32, F16 or BF16. info->layer gives n_head, and n_kv_head and interleaved
 * if they are not the default; sizes come from the shapes in the file. IO also if the file is not
 * such a layer, or has a tensor that would be left out of it. */
VKA_API enum vka_status vka_mpi_layer_open(struct vka_mpi *mpi, const char *path,
                                           const struct vka_mpi_layer_info *info,
                                           struct vka_mpi_layer **layer);
VKA_API void vka_mpi_layer_destroy(struct vka_mpi_layer **layer);

/* ---- Plans ----------------------------------------------------------------------------------- */

struct vka_mpi_plan_info {
    size_t struct_size;
    enum vka_mpi_split split; /* for vka_mpi_plan_attention; a layer's plan has its layer's split */
    uint32_t rounds;          /* as for layers; a layer's plan by HEADS has its layer's rounds */
    enum vka_path path;
    uint64_t workspace_limit; /* of each of the rounds, as in vka_plan_info */
};

/* Makes a plan that runs a layer on tensors of vka_mpi_device. op->layer is NULL; everything else
 * is as for vka_plan_add_layer over the whole problem. info may be NULL. Returned scores are only
 * written for this rank's heads or batch elements. A cache (HEADS only) holds the key heads of this
 * rank (vka_mpi_heads); it is NULL on a rank that has none, and of the others all have one or none
 * has. Its other layers may hold states, which the plan leaves as they were: linear attention and
 * convolutions belong to plans of one device. All ranks call it. INVALID (also if the arguments of
 * ranks differ); TIMEOUT; IO; statuses of vka_plan_add_layer and vka_plan_finish. */
VKA_API enum vka_status vka_mpi_plan_layer(struct vka_mpi *mpi, struct vka_mpi_layer *layer,
                                           const struct vka_layer_op *op,
                                           const struct vka_mpi_plan_info *info,
                                           struct vka_mpi_plan **plan);

/* Makes a plan that runs attention only. By HEADS and BATCH the tensors are those of the whole
 * problem; present keys and values and returned scores are only written for this rank's heads or
 * batch elements; caches, ragged batches and key chunks are UNSUPPORTED.
 *
 * By SEQUENCE q, k, v and output hold this rank's positions (vka_mpi_positions) along axis 2; each
 * rank needs at least one. Masks, lengths, offsets, sinks and slopes are those of the whole
 * problem. Past, present and returned scores are UNSUPPORTED too.
 *
 * By SEQUENCE with more ranks than heads, key chunks go round. Each is 1 / (2 * size) of the
 * keys and values, rounded up to 128. On its device a rank has its own positions and one key chunk; on
 * the host it has two, as one is sent to all ranks while the one before is computed. With a causal
 * mask size / 2 key chunks are sent ahead, because the ranks have the same work in total but not for
 * each key chunk. If attention over all keys would not be one fused pass on the device of a rank
 * (vka_plan_attention_state), as for VKA_PATH_UNFUSED or for short sequences on CPU drivers, every
 * rank receives all keys and values instead. In both cases an offset is clamped before the first
 * position of the rank is added to it, not after.
 *
 * Statuses as for vka_mpi_plan_layer; UNSUPPORTED. */
VKA_API enum vka_status vka_mpi_plan_attention(struct vka_mpi *mpi,
                                               const struct vka_attention_op *op,
                                               const struct vka_mpi_plan_info *info,
                                               struct vka_mpi_plan **plan);
VKA_API void vka_mpi_plan_destroy(struct vka_mpi_plan **plan);

/* Runs a plan and waits for it, up to timeout nanoseconds for the whole run. All ranks call it. If
 * the device of a rank fails, every rank returns that status; a later run may succeed, but not
 * after TIMEOUT. TIMEOUT; IO; DEVICE_LOST; INVALID (the new keys do not fit a cache, or ranks run
 * different plans). */
VKA_API enum vka_status vka_mpi_plan_run(struct vka_mpi_plan *plan, uint64_t timeout);

/* Where the time of this rank's last run went. */
struct vka_mpi_stats {
    uint64_t sent, received; /* bytes exchanged with other ranks */
    double total_ms;
    double compute_ms; /* the device computed */
    double copy_ms;    /* copies between device and host */
    double wait_ms;    /* neither: the rank only waited for other ranks or for messages */
};
VKA_API void vka_mpi_plan_stats(const struct vka_mpi_plan *plan, struct vka_mpi_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
