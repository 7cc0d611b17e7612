/* vkattn_mpi: one attention layer on many devices, by MPI. SPDX-License-Identifier: MIT
 *
 * Every rank of a communicator has a device of its own and makes the same calls in the same order
 * with the same arguments, its own tensors aside. How the work is split:
 *
 *     VKA_MPI_HEADS     inputs and output whole on every rank; each computes some heads, the
 *                       contexts are gathered, each computes some columns of the output, gathered
 *     VKA_MPI_BATCH     inputs and output whole on every rank; each computes some batch elements,
 *                       the outputs are gathered
 *     VKA_MPI_SEQUENCE  attention alone: each rank has some positions of q, k, v and the output,
 *                       and exchanges them for all positions of some heads; where ranks outnumber
 *                       heads, keys and values go round all ranks in blocks, and each computes its
 *                       positions
 *
 * No sum crosses ranks, and blocks go round in the order of their keys: on devices of one kind and
 * driver a result has the same bits for every number of ranks, and the bits of the same operation
 * on one device.
 *
 * A self-attention layer of 8 heads out of a file, x and y float32 [batch][n_q][512]:
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
 * Failures. A function that makes something compares the arguments of all ranks before any work:
 * where they differ, or one rank has failed, every rank returns a status and the same sentence,
 * which names the rank. So it is where ranks make different calls, or run different plans, of one
 * object; but a rank cannot tell the others of a call on a NULL object or plan. No call waits
 * longer than its timeout for another rank: one that died or stalls is VKA_TIMEOUT, and an error of
 * MPI is VKA_IO with MPI's own words. (Open MPI hands such an error to the error handler of
 * MPI_COMM_WORLD, which ends the program unless it is MPI_ERRORS_RETURN.) What the ranks do is no
 * longer in step then: every later call on this object returns that status at once, destroying
 * leaves to MPI the memory that it may still write, and MPI_Finalize may wait for ever: end the
 * process by MPI_Abort. mpirun ends the others itself when one dies, unless told not to
 * (--enable-recovery of Open MPI, -disable-auto-cleanup of MPICH). A rank whose device was lost may
 * recover it, alone (vka_device_recover); a layer by heads and its plans are made anew then, by
 * all.
 *
 * Threads. As the device of the object; MPI calls are made on the calling thread alone, so
 * MPI_THREAD_FUNNELED is enough. MPI is initialised by the application.
 *
 * Ownership, statuses and info structs as in vkattn.h. An object is destroyed after all that was
 * made from it.
 */
#ifndef VKATTN_MPI_H
#define VKATTN_MPI_H

#include <mpi.h>
#include <vkattn/vkattn.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vka_mpi;       /* a communicator and this rank's device */
struct vka_mpi_layer; /* this rank's share of the weights of a layer */
struct vka_mpi_plan;  /* one operation over all ranks, recorded once, run many times */

enum vka_mpi_split { VKA_MPI_HEADS = 0, VKA_MPI_BATCH, VKA_MPI_SEQUENCE, VKA_MPI_SPLIT_COUNT };

/* ---- Ranks ----------------------------------------------------------------------------------- */

struct vka_mpi_info {
    size_t struct_size;
    /* Of this rank's device; may differ between ranks. NULL, or without a device named: of the most
     * capable kind of device on the host, the one numbered as this rank is among the ranks of the
     * host, and round again. */
    const struct vka_device_info *device;
    /* Nanoseconds that a call without a timeout of its own waits for other ranks; 0:
     * VKA_TIMEOUT_DEFAULT. */
    uint64_t timeout;
};

/* Duplicates the communicator, an intra-communicator, and makes the device. info may be NULL. All
 * ranks call it, between MPI_Init and MPI_Finalize. INVALID; TIMEOUT; IO; what vka_device_create
 * gives. The log alone tells why. */
VKA_API enum vka_status vka_mpi_create(MPI_Comm comm, const struct vka_mpi_info *info,
                                       struct vka_mpi **mpi);

/* All ranks call it, before MPI_Finalize, unless a call has given TIMEOUT or IO. */
VKA_API void vka_mpi_destroy(struct vka_mpi **mpi);

VKA_API int vka_mpi_rank(const struct vka_mpi *mpi);
VKA_API int vka_mpi_size(const struct vka_mpi *mpi);

/* Tensors of plans are made on it. Belongs to the object. */
VKA_API struct vka_device *vka_mpi_device(struct vka_mpi *mpi);

/* The sentence of the last call that failed on this object or on what was made from it; "" before
 * the first. Valid until the next failure. It also goes to the log of vka_mpi_info.device. */
VKA_API const char *vka_mpi_error(const struct vka_mpi *mpi);

/* ---- Shares ---------------------------------------------------------------------------------- */

/* count is 0 where the rank is not one of 0 .. size - 1. */
struct vka_mpi_range {
    uint32_t first, count;
};

/* The heads of a rank. Where there are at least as many key heads as ranks, whole groups; else a
 * key head is shared by several ranks, which divide its group; count may be 0 where ranks outnumber
 * query heads. Arithmetic alone. Any thread. */
VKA_API void vka_mpi_heads(uint32_t n_head, uint32_t n_kv_head, int size, int rank,
                           struct vka_mpi_range *query, struct vka_mpi_range *key);

/* The batch elements of a rank; count may be 0. Any thread. */
VKA_API struct vka_mpi_range vka_mpi_batch(uint32_t batch, int size, int rank);

/* The positions of a rank: a slice from the front and its mirror from the back, so that causal work
 * is the same for all. The rank's tensor holds first those of range[0], then those of range[1];
 * together they are 0 on some ranks where n is less than size. Any thread. */
VKA_API void vka_mpi_positions(uint32_t n, int size, int rank, struct vka_mpi_range range[2]);

/* ---- Layers ---------------------------------------------------------------------------------- */

struct vka_mpi_layer_info {
    size_t struct_size;
    enum vka_mpi_split split; /* HEADS: a share of the weights on each rank; BATCH: all on each */
    /* HEADS: parts of each rank's heads, so that one travels while the next is computed; 0: two
     * where every rank has two key heads, else one. With a cache, 1. */
    uint32_t pieces;
    /* Of the whole layer. Of the arrays only this rank's share is read: they may lie in a mapped
     * file, aligned to nothing. struct_size need not be filled. keep_weights is UNSUPPORTED by
     * HEADS with an output projection. */
    struct vka_layer_info layer;
};

/* All ranks call it. INVALID (also where ranks differ); UNSUPPORTED; TIMEOUT; IO; what
 * vka_layer_create gives. */
VKA_API enum vka_status vka_mpi_layer_create(struct vka_mpi *mpi,
                                             const struct vka_mpi_layer_info *info,
                                             struct vka_mpi_layer **layer);

/* The same from a safetensors file, which each rank maps: q_proj.weight, q_proj.bias, likewise
 * k_proj, v_proj and o_proj (o_proj and biases may be absent), all F32, F16 or BF16 of one type.
 * info->layer gives n_head, and n_kv_head and interleaved where they matter; sizes come from the
 * shapes. IO also where the file is not such a layer. */
VKA_API enum vka_status vka_mpi_layer_open(struct vka_mpi *mpi, const char *path,
                                           const struct vka_mpi_layer_info *info,
                                           struct vka_mpi_layer **layer);
VKA_API void vka_mpi_layer_destroy(struct vka_mpi_layer **layer);

/* ---- Plans ----------------------------------------------------------------------------------- */

struct vka_mpi_plan_info {
    size_t struct_size;
    enum vka_mpi_split split; /* of vka_mpi_plan_attention; a layer's plan has its layer's */
    uint32_t pieces;          /* as for layers; a layer's plan by HEADS has its layer's */
    enum vka_path path;
    uint64_t workspace_limit; /* of each piece, as in vka_plan_info */
};

/* The layer on tensors of vka_mpi_device; op->layer is NULL, all else as for vka_plan_add_layer
 * over the whole problem. info may be NULL. Returned scores are written for this rank's share
 * alone. A cache (HEADS) has this rank's key heads (vka_mpi_heads) and is NULL on a rank that has
 * none; on others all or none have one. All ranks call it. INVALID (also where ranks differ);
 * TIMEOUT; IO; what vka_plan_add_layer and vka_plan_finish give. */
VKA_API enum vka_status vka_mpi_plan_layer(struct vka_mpi *mpi, struct vka_mpi_layer *layer,
                                           const struct vka_layer_op *op,
                                           const struct vka_mpi_plan_info *info,
                                           struct vka_mpi_plan **plan);

/* Attention alone. By HEADS and BATCH the tensors are those of the whole problem; present keys and
 * values and returned scores are written for this rank's share alone, and cache, ragged batches and
 * blocks of keys are UNSUPPORTED.
 *
 * By SEQUENCE q, k, v and output hold this rank's positions (vka_mpi_positions) along axis 2, of
 * which each rank has one at least. Masks, lengths, offsets, sinks and slopes are those of the
 * whole problem. Past, present and returned scores are UNSUPPORTED too.
 *
 * Where ranks outnumber heads, a rank holds its own positions and one block of keys and values, 1 /
 * (2 * size) of them rounded up to 128, on its device, and two on the host: one travels to all
 * while the one before it is computed; with causal size / 2 travel, as the ranks have the same work
 * in all and not of each block. Where all keys at once would not be one fused pass on a rank's
 * device (vka_plan_attention_state), which is so of short sequences on CPU drivers and of
 * VKA_PATH_UNFUSED, all keys and values come to every rank instead. An offset is clamped there
 * before the rank's first position is added to it, not after. */
VKA_API enum vka_status vka_mpi_plan_attention(struct vka_mpi *mpi,
                                               const struct vka_attention_op *op,
                                               const struct vka_mpi_plan_info *info,
                                               struct vka_mpi_plan **plan);
VKA_API void vka_mpi_plan_destroy(struct vka_mpi_plan **plan);

/* Runs it on all ranks; timeout in nanoseconds, of the whole run. Where a rank's device fails,
 * every rank gets that status and the run after it may succeed, but not after TIMEOUT. TIMEOUT; IO;
 * DEVICE_LOST; INVALID (a cache without room, or other plans on other ranks). */
VKA_API enum vka_status vka_mpi_plan_run(struct vka_mpi_plan *plan, uint64_t timeout);

/* Of this rank's last run. */
struct vka_mpi_stats {
    uint64_t sent, received; /* bytes exchanged with other ranks */
    double total_ms;
    double compute_ms; /* the device was at work */
    double copy_ms;    /* between device and host */
    double wait_ms;    /* neither: only other ranks or transfers were waited for */
};
VKA_API void vka_mpi_plan_stats(const struct vka_mpi_plan *plan, struct vka_mpi_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
