#include "../patience.h"
#include "ranks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ranks_fail(const char *file, int line, const char *format, ...)
{
    int rank;
    va_list arguments;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fprintf(stderr, "%s:%d: rank %d: ", file, line, rank);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

struct vka_mpi *ranks_begin(int *argc, char ***argv)
{
    struct vka_mpi *mpi = NULL;
    MPI_Init(argc, argv);
    bool staging = *argc > 1 && !strcmp((*argv)[*argc - 1], "--staging");
    *argc -= staging;
    const struct vka_device_info device = {.struct_size = sizeof device,
                                           .no_mapped_memory = staging};
    enum vka_status status = vka_mpi_create(
        MPI_COMM_WORLD, VKA_INFO(vka_mpi_info, .device = &device, .timeout = PATIENCE), &mpi);
    if (status == VKA_NO_DEVICE) {
        fprintf(stderr, "SKIPPED: no Vulkan device: nothing was tested over ranks\n");
        MPI_Finalize();
        exit(SKIPPED);
    }
    REQUIRE(status == VKA_OK, "vka_mpi_create: %s", vka_status_name(status));
    return mpi;
}

int ranks_end(struct vka_mpi **mpi)
{
    if (vka_mpi_rank(*mpi) == 0)
        printf("%d ranks on %s: passed\n", vka_mpi_size(*mpi),
               vka_device_properties(vka_mpi_device(*mpi))->driver);
    vka_mpi_destroy(mpi);
    MPI_Finalize();
    return 0;
}

void *ranks_read(struct vka_tensor *tensor)
{
    void *data = malloc(vka_tensor_size(tensor));
    REQUIRE(data && vka_tensor_read(tensor, data, vka_tensor_size(tensor)) == VKA_OK,
            "a tensor cannot be read");
    return data;
}

void ranks_poison(struct vka_tensor *tensor)
{
    size_t size = vka_tensor_size(tensor);
    void *data = malloc(size);
    REQUIRE(data, "out of memory");
    memset(data, 0xff, size);
    REQUIRE(vka_tensor_write(tensor, data, size) == VKA_OK, "a tensor cannot be written");
    free(data);
}

bool ranks_same(struct vka_tensor *tensor, const void *want, size_t *index)
{
    size_t size = vka_tensor_size(tensor), element = vka_dtype_size(vka_tensor_dtype(tensor));
    char *got = ranks_read(tensor);
    size_t i = 0;
    while (i < size && got[i] == ((const char *)want)[i])
        i++;
    *index = i / element;
    free(got);
    return i == size;
}
