/* One run of a plan: computes on the device and waits for other ranks until a deadline. */
#ifndef VKA_MPI_RUN_H
#define VKA_MPI_RUN_H

#include "mpi/comm.h"

/* One run of a plan on this rank: its deadline, its status and its times. */
struct run {
    struct vka_mpi *mpi;
    uint64_t deadline;
    MPI_Request meeting; /* in progress while the first round is computed, see run_meet */
    bool met;
    enum vka_status status; /* the first failure of this rank's device: the others must not wait for
                               what it cannot compute, so it goes on exchanging */
    struct vka_mpi_stats stats;
};

/* Starts to send the others which plan is run; plans are counted from 1. */
enum vka_status run_begin(struct vka_mpi *mpi, uint64_t timeout, uint32_t plan, struct run *run);

/* Call it before the first exchange. INVALID, on all ranks, if one runs another plan. */
enum vka_status run_meet(struct run *run);

/* Keeps the first failure of this rank's device. */
void run_note(struct run *run, enum vka_status status);

/* Submits and waits, while MPI makes progress on the requests; n 0: on `meeting`. */
enum vka_status run_compute(struct run *run, struct vka_plan *plan, int n, MPI_Request *requests);

/* Waits for other ranks. */
enum vka_status run_wait(struct run *run, int n, MPI_Request *requests);

/* Copy between a tensor and dense host memory. */
void run_read(struct run *run, struct vka_tensor *from, void *to);
void run_write(struct run *run, struct vka_tensor *to, const void *from);

/* Exchanges whether a device failed; returns the status of the run, the same on every rank. */
enum vka_status run_end(struct run *run);

#endif
