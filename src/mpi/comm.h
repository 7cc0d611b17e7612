/* A communicator with a device: its state, and waits with a deadline. */
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

/* Whether MPI is initialised and not finalised. */
bool comm_works(void);

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

#endif
