/* A communicator with a device: waiting with a deadline, and agreeing before work. */
#ifndef VKA_MPI_COMM_H
#define VKA_MPI_COMM_H

#include "core/status.h"

#include <vkattn/vkattn_mpi.h>

struct message;

/* MPI may write to it while ranks are out of step: it stays then. */
struct vka_mpi {
    MPI_Comm comm; /* a duplicate of our own */
    int rank, size;
    struct vka_device *device;
    uint64_t timeout;       /* ns */
    enum vka_status broken; /* not OK: ranks are out of step, and every call returns this */
    struct log log;
    struct message *messages;   /* [size + 1]: of all ranks, at their last agreement; this rank's */
    int worst[2][2], own[2][2]; /* numbers and the ranks that have them */
    uint32_t n_layer, n_plan;   /* made by all ranks so far */
};

/* Nanoseconds of a clock that only goes forward. */
uint64_t clock_now(void);

/* The deadline that lies `timeout` ns ahead. */
uint64_t clock_deadline(uint64_t timeout);

/* What an MPI call returned, as a status: IO with MPI's words, and the object is broken. */
enum vka_status comm_check(struct vka_mpi *mpi, int code, const char *call);

/* Of a loop that asks again and again: lets others have the core, and rests after the first few
 * times. */
void comm_pause(unsigned asked);

/* OK where ranks are in step and MPI is at work; else what every call returns. */
enum vka_status comm_ready(struct vka_mpi *mpi, const char *caller);

/* Waits for n requests until the deadline; TIMEOUT breaks the object, and the requests' memory must
 * be left alone then. */
enum vka_status comm_wait(struct vka_mpi *mpi, int n, MPI_Request *requests, uint64_t deadline,
                          const char *caller);

/* Lets MPI work on the requests, without waiting. */
enum vka_status comm_progress(struct vka_mpi *mpi, int n, MPI_Request *requests);

/* Keeps the device's sentence as the object's, and returns status. */
enum vka_status comm_device_error(struct vka_mpi *mpi, enum vka_status status);

/* What a rank calls a function with: a line for each argument, which must be the same on all. Names
 * and numbers alone: there is room for more than the longest call has. */
struct terms {
    int32_t each[4]; /* what may differ: see comm_each */
    size_t length;
    bool cut; /* more than there is room for: comm_agree fails */
    char text[3072];
};

/* What one rank tells the others. */
struct message {
    int32_t status, each[4];
    char text[sizeof(struct terms) + 64]; /* the call and its terms, or the sentence of a failure */
};

__attribute__((format(printf, 2, 3))) void terms_add(struct terms *terms, const char *format, ...);

/* "name: f32 [2, 3]", or "name: none". */
void terms_add_tensor(struct terms *terms, const char *name, const struct vka_tensor *tensor);
void terms_add_options(struct terms *terms, const struct vka_attention_options *o);

/* Exchanges with all ranks how far this one has come: status, and its terms where that is OK. OK
 * only where all are OK and have the same terms; else the same sentence on every rank, and the
 * status of the first rank that failed or INVALID. */
enum vka_status comm_agree(struct vka_mpi *mpi, const char *caller, enum vka_status status,
                           const struct terms *terms);

/* Terms.each of a rank, since the last agreement. */
const int32_t *comm_each(const struct vka_mpi *mpi, int rank);

/* Room for the messages of all ranks, and `local`: the ranks of this host with a lower number, by
 * the names that MPI gives hosts. */
enum vka_status comm_meet(struct vka_mpi *mpi, uint64_t deadline, uint32_t *local);

/* Starts telling all ranks which call this one makes, before it exchanges anything else: sizes that
 * do not fit each other would be an error of MPI, which may end the program. plan: the number of
 * the plan that it runs; 0: it makes something. */
enum vka_status comm_announce(struct vka_mpi *mpi, uint32_t plan, MPI_Request *request);

/* Once that is done: INVALID, on all ranks, where they make different calls. */
enum vka_status comm_compare_calls(struct vka_mpi *mpi, const char *caller);

/* The highest status of all ranks, and the first rank that has it: worst[2]. */
enum vka_status comm_worst(struct vka_mpi *mpi, enum vka_status own, uint64_t deadline,
                           const char *caller, int worst[2]);

/* Exchanges whether all ranks have what only some devices can: OK where all are OK, UNSUPPORTED
 * where some are that and the others OK; the status of one that failed, on it alone. */
enum vka_status comm_all_support(struct vka_mpi *mpi, enum vka_status status, const char *caller);

#endif
