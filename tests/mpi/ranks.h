/* What the tests over ranks share: they run under mpirun, every rank the same, each checks its own
 * results, and a failure on any rank ends the program on all. */
#ifndef TESTS_MPI_RANKS_H
#define TESTS_MPI_RANKS_H

#include <vkattn/vkattn_mpi.h>

#define SKIPPED 77

/* Says where and why, and ends all ranks by MPI_Abort. */
#define REQUIRE(condition, ...)                          \
    do {                                                 \
        if (!(condition))                                \
            ranks_fail(__FILE__, __LINE__, __VA_ARGS__); \
    } while (0)
#define REQUIRE_OK(mpi, call)                                                        \
    do {                                                                             \
        enum vka_status required = (call);                                           \
        REQUIRE(required == VKA_OK, "%s: %s; device: %s", #call, vka_mpi_error(mpi), \
                vka_device_error(vka_mpi_device(mpi)));                              \
    } while (0)

__attribute__((noreturn, format(printf, 3, 4))) void ranks_fail(const char *file, int line,
                                                                const char *format, ...);

/* Starts MPI and makes the object; exits with SKIPPED where there is no Vulkan device. A last
 * argument --staging is taken away: device memory is then not mapped. */
struct vka_mpi *ranks_begin(int *argc, char ***argv);

/* Destroys it, ends MPI, and returns the exit code of a test that has not failed. */
int ranks_end(struct vka_mpi **mpi);

/* Bytes of a tensor as it is read; the caller frees them. */
void *ranks_read(struct vka_tensor *tensor);

/* Fills a tensor with NaN, or with ones where it has no floats. */
void ranks_poison(struct vka_tensor *tensor);

/* Whether the tensor's bytes are `want`; else *index is the first element that differs. */
bool ranks_same(struct vka_tensor *tensor, const void *want, size_t *index);

#endif
