#include "mpi/comm.h"
#include "core/os.h"

/* The first tests are made without a pause; then a waiting rank pauses, as there may be fewer cores
 * than ranks. */
#define EAGER_TESTS 200
#define PAUSE_NS 20000

uint64_t clock_deadline(uint64_t timeout)
{
    uint64_t now = os_now();
    return timeout > UINT64_MAX - now ? UINT64_MAX : now + timeout;
}

enum vka_status comm_check(struct vka_mpi *mpi, int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (code == MPI_SUCCESS)
        return VKA_OK;
    MPI_Error_string(code, text, &length);
    mpi->broken = VKA_IO;
    return log_error(&mpi->log, VKA_IO, "rank %d: %s: %s", mpi->rank, call, text);
}

void comm_pause(unsigned asked)
{
    if (asked < EAGER_TESTS)
        os_yield();
    else
        os_sleep(PAUSE_NS);
}

bool comm_works(void)
{
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    return initialized && !finalized;
}

enum vka_status comm_ready(struct vka_mpi *mpi, const char *caller)
{
    if (mpi->broken || comm_works())
        return mpi->broken;
    return log_error(&mpi->log, VKA_INVALID, "%s: MPI_Finalize has been called", caller);
}

enum vka_status comm_progress(struct vka_mpi *mpi, int n, MPI_Request *requests)
{
    int done;
    return comm_check(mpi, MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE), "MPI_Testall");
}

enum vka_status comm_wait(struct vka_mpi *mpi, int n, MPI_Request *requests, uint64_t deadline,
                          const char *caller)
{
    for (unsigned tests = 0;; tests++) {
        int done = 0;
        enum vka_status status =
            comm_check(mpi, MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE), "MPI_Testall");
        if (status != VKA_OK || done)
            return status;
        if (os_now() >= deadline) {
            mpi->broken = VKA_TIMEOUT;
            return log_error(
                &mpi->log, VKA_TIMEOUT,
                "%s: rank %d ran out of time: another rank has died, stalls or made another call",
                caller, mpi->rank);
        }
        comm_pause(tests);
    }
}

enum vka_status comm_device_error(struct vka_mpi *mpi, enum vka_status status)
{
    if (status == VKA_OK)
        return VKA_OK;
    const char *text = vka_device_error(mpi->device);
    return log_error(&mpi->log, status, "%s", *text ? text : vka_status_name(status));
}
