/* A communicator with a device: waits with a deadline, and agreement between ranks before work. */
#ifndef VKA_MPI_COMM_H
#define VKA_MPI_COMM_H

#include "core/status.h"

#include <vkattn/vkattn_mpi.h>

struct message;

/* Not freed while ranks are out of step, as MPI may still write to it. */
struct vka_mpi {
    MPI_Comm comm; /* our own duplicate */
    int rank, size;
    struct vka_device *device;
    uint64_t timeout;       /* ns */
    enum vka_status broken; /* if not OK, ranks are out of step, and every call returns it */
    struct log log;
    struct message *messages;   /* [size + 1]: of all ranks at the last agreement; then our own */
    int worst[2][2], own[2][2]; /* pairs of a number and the rank that has it */
    uint32_t n_layer, n_plan;   /* how many all ranks have made so far */
};

/* os_now in `timeout` nanoseconds. */
uint64_t clock_deadline(uint64_t timeout);

/* Converts the result of an MPI call to a status. An error is IO with the words of MPI, and breaks
 * the object. */
enum vka_status comm_check(struct vka_mpi *mpi, int code, const char *call);

/* For a loop that polls: yields the core, and sleeps after the first few calls. */
void comm_pause(unsigned asked);

/* OK if the ranks are in step and MPI is initialised; else the status that every call returns. */
enum vka_status comm_ready(struct vka_mpi *mpi, const char *caller);

/* Waits for n requests until the deadline. TIMEOUT breaks the object; the memory of the requests
 * must not be freed then. */
enum vka_status comm_wait(struct vka_mpi *mpi, int n, MPI_Request *requests, uint64_t deadline,
                          const char *caller);

/* Lets MPI make progress on the requests, without waiting. */
enum vka_status comm_progress(struct vka_mpi *mpi, int n, MPI_Request *requests);

/* Copies the device's last sentence to the object, and returns status. */
enum vka_status comm_device_error(struct vka_mpi *mpi, enum vka_status status);

/* TRY and ENSURE of a call on the device, in functions with `mpi`. */
#define TRY_DEVICE(call) TRY(comm_device_error(mpi, call))
#define ENSURE_DEVICE(call) ENSURE(comm_device_error(mpi, call))

/* The arguments of a call, one line each, which must be the same on all ranks. They are only names
 * and numbers, and there is room for more than the longest call needs. */
struct terms {
    int32_t each[4]; /* numbers that may differ between ranks, see comm_each */
    size_t length;
    bool cut; /* there was too little room: comm_agree fails */
    char text[3072];
};

/* What a rank sends to the others. */
struct message {
    int32_t status, each[4];
    char text[sizeof(struct terms) + 64]; /* the call and its terms, or the sentence of a failure */
};

__attribute__((format(printf, 2, 3))) void terms_add(struct terms *terms, const char *format, ...);

/* "name: f32 [2, 3]", or "name: none". */
void terms_add_tensor(struct terms *terms, const char *name, const struct vka_tensor *tensor);
void terms_add_options(struct terms *terms, const struct vka_attention_options *o,
                       uint32_t head_dim);

/* Exchanges status and, if that is OK, terms with all ranks. OK only if all are OK and have the
 * same terms; otherwise every rank has the same sentence, and the status of the first rank that
 * failed, or INVALID. */
enum vka_status comm_agree(struct vka_mpi *mpi, const char *caller, enum vka_status status,
                           const struct terms *terms);

/* terms.each of a rank at the last agreement. */
const int32_t *comm_each(const struct vka_mpi *mpi, int rank);

/* Makes room for the messages of all ranks, and counts in *local the lower ranks on this host, by
 * the host names of MPI. */
enum vka_status comm_meet(struct vka_mpi *mpi, uint64_t deadline, uint32_t *local);

/* Starts to send all ranks which call this one makes, before anything else: messages of different
 * sizes would be an error of MPI, which may end the program. plan: the number of the plan that is
 * run; 0: the call makes something. */
enum vka_status comm_announce(struct vka_mpi *mpi, uint32_t plan, MPI_Request *request);

/* Call it when that is done. INVALID, on all ranks, if they make different calls. */
enum vka_status comm_compare_calls(struct vka_mpi *mpi, const char *caller);

/* worst[2] becomes the highest status of all ranks and the first rank that has it. */
enum vka_status comm_worst(struct vka_mpi *mpi, enum vka_status own, uint64_t deadline,
                           const char *caller, int worst[2]);

/* Exchanges whether every rank's device supports something. OK if all ranks are OK; UNSUPPORTED if
 * some are UNSUPPORTED and the others OK. A rank with another failure returns that status alone. */
enum vka_status comm_all_support(struct vka_mpi *mpi, enum vka_status status, const char *caller);

/* One run of a plan on this rank: its deadline, its status and its times. */
struct run {
    struct vka_mpi *mpi;
    uint64_t deadline;
    MPI_Request meeting; /* in progress while the first piece is computed, see run_meet */
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
