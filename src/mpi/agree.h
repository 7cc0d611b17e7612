/* Agreement between all ranks before work: they have made the same call with the same arguments, and
 * none of them has failed. */
#ifndef VKA_MPI_AGREE_H
#define VKA_MPI_AGREE_H

#include "mpi/comm.h"

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
void terms_add_options(struct terms *terms, const struct vka_attention_options *options,
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

#endif
