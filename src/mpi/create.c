/* Makes the object: a communicator of its own, and a device for each rank. */
#include "mpi/agree.h"

#include <stdio.h>
#include <stdlib.h>

/* Chooses the device of rank `local` of this host, by turns among those of the most capable kind: a
 * rank with a slower device would only delay the others. */
static enum vka_status choose_device(struct vka_mpi *mpi, const struct vka_device_info *info,
                                     uint32_t local, char index[16])
{
    struct log *log = &mpi->log;
    enum vka_status status = VKA_OK;
    size_t n = 0, room, alike = 0;
    struct vka_device_properties *list = NULL;
    enum vka_device_type best = VKA_DEVICE_OTHER;
    TRY(vka_device_list(info, NULL, &n));
    room = n;
    list = calloc(room, sizeof *list);
    CHECK_ALLOC(list);
    TRY(vka_device_list(info, list, &n));
    n = n < room ? n : room; /* devices may have come or gone since the first call */
    for (size_t i = 0; i < n; i++)
        best = list[i].type > best ? list[i].type : best;
    for (size_t i = 0; i < n; i++)
        alike += list[i].type == best;
    size_t wanted = local % alike;
    for (size_t i = 0; i < n; i++)
        if (list[i].type == best && wanted-- == 0)
            snprintf(index, 16, "%u", list[i].index);
fail:
    free(list);
    return status;
}

static enum vka_status create_device(struct vka_mpi *mpi, const struct vka_mpi_info *given,
                                     uint32_t local)
{
    enum vka_status status = VKA_OK;
    char index[16];
    struct vka_device_info info = {.struct_size = sizeof info};
    if (given && given->device)
        info = *given->device;
    if (!info.device) {
        TRY(choose_device(mpi, &info, local, index));
        info.device = index;
    }
    TRY(vka_device_create(&info, &mpi->device));
    return VKA_OK;
fail:
    return log_error(&mpi->log, status, "vka_mpi_create: no device: %s", vka_status_name(status));
}

static enum vka_status duplicate(struct vka_mpi *mpi, MPI_Comm comm, uint64_t deadline)
{
    MPI_Request request;
    ENSURE(comm_check(mpi, MPI_Comm_rank(comm, &mpi->rank), "MPI_Comm_rank"));
    ENSURE(comm_check(mpi, MPI_Comm_size(comm, &mpi->size), "MPI_Comm_size"));
    ENSURE(comm_check(mpi, MPI_Comm_idup(comm, &mpi->comm, &request), "MPI_Comm_idup"));
    ENSURE(comm_wait(mpi, 1, &request, deadline, "vka_mpi_create"));
    return comm_check(mpi, MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN),
                      "MPI_Comm_set_errhandler");
}

/* Checks what would keep this rank from communicating at all. */
static enum vka_status check_comm(struct log *log, const char *caller, MPI_Comm comm)
{
    int inter = 0;
    ENSURE_ARG(comm_works(), "%s: MPI_Init has not been called, or MPI_Finalize has", caller);
    ENSURE_ARG(comm != MPI_COMM_NULL, "%s: comm is MPI_COMM_NULL", caller);
    ENSURE_ARG(MPI_Comm_test_inter(comm, &inter) == MPI_SUCCESS && !inter,
               "%s: comm is an inter-communicator (see MPI_Intercomm_merge)", caller);
    return VKA_OK;
}

static bool is_info(const struct vka_mpi_info *info)
{
    return info && info->struct_size == sizeof *info;
}

static bool is_device_info(const struct vka_device_info *info)
{
    return info && info->struct_size == sizeof *info;
}

static enum vka_status check_arguments(struct log *log, const char *caller,
                                       const struct vka_mpi_info *info, struct vka_mpi **out)
{
    ENSURE_ARG(out, "%s: mpi is NULL", caller);
    ENSURE_ARG(!info || is_info(info), "%s: struct_size is %zu, not %zu", caller, info->struct_size,
               sizeof *info);
    ENSURE_ARG(!info || !info->device || is_device_info(info->device),
               "%s: device's struct_size is %zu, not %zu", caller, info->device->struct_size,
               sizeof *info->device);
    return VKA_OK;
}

enum vka_status vka_mpi_create(MPI_Comm comm, const struct vka_mpi_info *info, struct vka_mpi **out)
{
    enum vka_status status = VKA_OK;
    struct log own = {0}, *log = &own;
    struct vka_mpi *mpi = NULL;
    const struct terms none = {0};
    uint32_t local = 0;
    if (out)
        *out = NULL;
    if (is_info(info) && is_device_info(info->device))
        own = (struct log){.callback = info->device->log, .user = info->device->log_user};
    TRY(check_comm(log, __func__, comm));
    mpi = calloc(1, sizeof *mpi);
    CHECK_ALLOC(mpi);
    *mpi = (struct vka_mpi){.comm = MPI_COMM_NULL, .size = 1, .log = own};
    mpi->timeout = is_info(info) && info->timeout ? info->timeout : VKA_TIMEOUT_DEFAULT;
    uint64_t deadline = clock_deadline(mpi->timeout);
    TRY(duplicate(mpi, comm, deadline));
    TRY(comm_meet(mpi, deadline, &local));
    TRY(comm_agree(mpi, __func__, check_arguments(&mpi->log, __func__, info, out), &none));
    TRY(comm_agree(mpi, __func__, create_device(mpi, info, local), &none));
    *out = mpi;
    return VKA_OK;

fail:
    vka_mpi_destroy(&mpi);
    return status;
}

void vka_mpi_destroy(struct vka_mpi **slot)
{
    if (!slot || !*slot)
        return;
    struct vka_mpi *mpi = *slot;
    *slot = NULL;
    vka_device_destroy(&mpi->device);
    if (mpi->broken) /* MPI may still write to it */
        return;
    if (mpi->comm != MPI_COMM_NULL && comm_works())
        MPI_Comm_free(&mpi->comm);
    free(mpi->messages);
    free(mpi);
}

int vka_mpi_rank(const struct vka_mpi *mpi)
{
    return mpi ? mpi->rank : 0;
}

int vka_mpi_size(const struct vka_mpi *mpi)
{
    return mpi ? mpi->size : 0;
}

struct vka_device *vka_mpi_device(struct vka_mpi *mpi)
{
    return mpi ? mpi->device : NULL;
}

const char *vka_mpi_error(const struct vka_mpi *mpi)
{
    return mpi ? mpi->log.error : "";
}
