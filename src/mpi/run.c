#include "mpi/run.h"
#include "core/os.h"
#include "mpi/agree.h"

static const char caller[] = "vka_mpi_plan_run";

enum vka_status run_begin(struct vka_mpi *mpi, uint64_t timeout, uint32_t plan, struct run *run)
{
    *run = (struct run){
        .mpi = mpi,
        .deadline = clock_deadline(timeout),
        .meeting = MPI_REQUEST_NULL,
        .met = mpi->size == 1,
        .stats.total_ms = os_now_ms(),
    };
    return run->met ? VKA_OK : comm_announce(mpi, plan, &run->meeting);
}

enum vka_status run_meet(struct run *run)
{
    if (run->met)
        return VKA_OK;
    ENSURE(run_wait(run, 1, &run->meeting));
    ENSURE(comm_compare_calls(run->mpi, caller));
    run->met = true;
    return VKA_OK;
}

static double since_ms(uint64_t start)
{
    return (double)(os_now() - start) * 1e-6;
}

void run_note(struct run *run, enum vka_status status)
{
    if (run->status == VKA_OK)
        run->status = comm_device_error(run->mpi, status);
}

static uint64_t time_left(const struct run *run)
{
    uint64_t now = os_now();
    return run->deadline > now ? run->deadline - now : 0;
}

/* Waits for the device; MPI makes progress on the requests meanwhile. */
static enum vka_status wait_device(struct run *run, struct vka_plan *plan, uint64_t ticket, int n,
                                   MPI_Request *requests)
{
    struct vka_mpi *mpi = run->mpi;
    enum vka_status status = VKA_OK, waited = VKA_TIMEOUT;
    for (unsigned asked = 0; n && waited == VKA_TIMEOUT && time_left(run); asked++) {
        waited = vka_plan_wait(plan, ticket, 0); /* only asks, and logs nothing */
        if (waited != VKA_TIMEOUT)
            break;
        TRY(comm_progress(mpi, n, requests));
        comm_pause(asked);
    }
    if (waited == VKA_TIMEOUT)
        waited = vka_plan_wait(plan, ticket, time_left(run));
    if (waited != VKA_TIMEOUT)
        run_note(run, waited);
    else
        run->status =
            log_error(&mpi->log, VKA_TIMEOUT,
                      "vka_mpi_plan_run: the device of rank %d did not finish in time", mpi->rank);
fail:
    return status;
}

enum vka_status run_compute(struct run *run, struct vka_plan *plan, int n, MPI_Request *requests)
{
    enum vka_status status;
    uint64_t ticket, start = os_now();
    if (!plan || run->status != VKA_OK)
        return VKA_OK;
    run_note(run, vka_plan_submit(plan, &ticket));
    if (run->status != VKA_OK)
        return VKA_OK;
    if (!n && !run->met)
        status = wait_device(run, plan, ticket, 1, &run->meeting);
    else
        status = wait_device(run, plan, ticket, n, requests);
    run->stats.compute_ms += since_ms(start);
    return status;
}

enum vka_status run_wait(struct run *run, int n, MPI_Request *requests)
{
    uint64_t start = os_now();
    enum vka_status status = comm_wait(run->mpi, n, requests, run->deadline, caller);
    run->stats.wait_ms += since_ms(start);
    return status;
}

void run_read(struct run *run, struct vka_tensor *from, void *to)
{
    uint64_t start = os_now();
    if (run->status == VKA_OK)
        run_note(run, vka_tensor_read(from, to, vka_tensor_size(from)));
    run->stats.copy_ms += since_ms(start);
}

void run_write(struct run *run, struct vka_tensor *to, const void *from)
{
    uint64_t start = os_now();
    if (run->status == VKA_OK)
        run_note(run, vka_tensor_write(to, from, vka_tensor_size(to)));
    run->stats.copy_ms += since_ms(start);
}

enum vka_status run_end(struct run *run)
{
    struct vka_mpi *mpi = run->mpi;
    int worst[2] = {(int)run->status, mpi->rank};
    uint64_t start = os_now();
    if (mpi->size > 1)
        ENSURE(comm_worst(mpi, run->status, run->deadline, caller, worst));
    run->stats.wait_ms += since_ms(start);
    run->stats.total_ms = os_now_ms() - run->stats.total_ms;
    enum vka_status status = (enum vka_status)worst[0];
    if (status != run->status)
        log_error(&mpi->log, status, "%s: rank %d failed with %s", caller, worst[1],
                  vka_status_name(status));
    if (status == VKA_TIMEOUT) /* a device still works on this run: another one would overtake it */
        mpi->broken = status;
    return status;
}
