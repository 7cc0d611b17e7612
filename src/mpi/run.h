/* One run on this rank: its deadline, its status and where its time goes. */
#ifndef VKA_MPI_RUN_H
#define VKA_MPI_RUN_H

#include "mpi/comm.h"

/* One run of a plan on this rank. */
struct run {
    struct vka_mpi *mpi;
    uint64_t deadline;
    MPI_Request meeting; /* on its way while the first piece is computed: see run_meet */
    bool met;
    enum vka_status status; /* the first failure of this rank's device: the others must not wait for
                               what it cannot compute, so it goes on exchanging */
    struct vka_mpi_stats stats;
};

/* Starts telling the others that plan `plan`, counted from 1, is run. */
enum vka_status run_begin(struct vka_mpi *mpi, uint64_t timeout, uint32_t plan, struct run *run);

/* Before the first exchange: INVALID, on all ranks, where one runs another plan. */
enum vka_status run_meet(struct run *run);

/* Keeps the first failure of this rank's device. */
void run_note(struct run *run, enum vka_status status);

/* Submits and waits, while MPI works on the requests; n 0: on the meeting. */
enum vka_status run_compute(struct run *run, struct vka_plan *plan, int n, MPI_Request *requests);

/* Waits for other ranks. */
enum vka_status run_wait(struct run *run, int n, MPI_Request *requests);

/* Between a tensor and dense host memory. */
void run_read(struct run *run, struct vka_tensor *from, void *to);
void run_write(struct run *run, struct vka_tensor *to, const void *from);

/* Tells all ranks whether a device failed; the status of the run on every rank. */
enum vka_status run_end(struct run *run);

#endif
