/* Comparing what all ranks were called with, before any work. */
#include "mpi/comm.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one rank tells the others. */
struct message {
    int32_t status;
    char text[sizeof(struct terms) + 64]; /* the call and its terms, or the sentence of a failure */
};

void terms_add(struct terms *terms, const char *format, ...)
{
    size_t room = sizeof terms->text - terms->length;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(terms->text + terms->length, room, format, arguments);
    va_end(arguments);
    if (length > 0)
        terms->length += (size_t)length < room ? (size_t)length : room - 1;
    if (terms->length + 1 < sizeof terms->text) {
        terms->text[terms->length++] = '\n';
        terms->text[terms->length] = '\0';
    }
}

void terms_add_tensor(struct terms *terms, const char *name, const struct vka_tensor *tensor)
{
    char shape[64] = "";
    size_t length = 0;
    for (uint32_t i = 0; i < vka_tensor_rank(tensor); i++)
        length += (size_t)snprintf(shape + length, sizeof shape - length, "%s%u", i ? ", " : "",
                                   vka_tensor_shape(tensor, i));
    if (tensor)
        terms_add(terms, "%s: %s [%s]", name, vka_dtype_name(vka_tensor_dtype(tensor)), shape);
    else
        terms_add(terms, "%s: none", name);
}

void terms_add_options(struct terms *terms, const struct vka_attention_options *o)
{
    terms_add_tensor(terms, "mask", o->mask);
    terms_add_tensor(terms, "kv_length", o->kv_length);
    terms_add_tensor(terms, "query_offset", o->query_offset);
    terms_add(terms, "causal: %d", o->causal);
    terms_add(terms, "window: %d, %d, %d", o->window, o->window_left, o->window_right);
    terms_add(terms, "scale: %a", (double)o->scale);
    terms_add(terms, "softcap: %a", (double)o->softcap);
    terms_add(terms, "masked_row: %d", (int)o->masked_row);
    terms_add(terms, "scores_kind: %d", (int)o->scores_kind);
    terms_add_tensor(terms, "scores", o->scores);
    terms_add(terms, "rope: dim %u, base %a, interleaved %d", o->rope.dim, (double)o->rope.base,
              o->rope.interleaved);
    terms_add_tensor(terms, "q_norm", o->q_norm);
    terms_add_tensor(terms, "k_norm", o->k_norm);
    terms_add(terms, "norm_epsilon: %a", (double)o->norm_epsilon);
    terms_add_tensor(terms, "sink", o->sink);
    terms_add_tensor(terms, "alibi", o->alibi);
    terms_add(terms, "dropout: %a, seed %llu, from %u, %u, %u", (double)o->dropout,
              (unsigned long long)o->dropout_seed, o->dropout_batch, o->dropout_head,
              o->dropout_query);
}

/* The first line in which two texts differ: its bounds in each. */
static void find_difference(const char *a, const char *b, struct log *log, const char *caller,
                            int rank)
{
    size_t i = 0, line = 0;
    for (; a[i] && a[i] == b[i]; i++)
        if (a[i] == '\n')
            line = i + 1;
    log_error(log, VKA_INVALID, "%s: rank %d has %.*s, rank 0 has %.*s", caller, rank,
              (int)strcspn(b + line, "\n"), b + line, (int)strcspn(a + line, "\n"), a + line);
}

/* The same verdict on every rank, as all look at the same messages in the same order. */
static enum vka_status compare(struct vka_mpi *mpi, const char *caller, const struct message *all)
{
    for (int i = 0; i < mpi->size; i++) {
        enum vka_status status = (enum vka_status)all[i].status;
        if (status != VKA_OK)
            return log_error(&mpi->log, status, "rank %d: %s", i, all[i].text);
    }
    for (int i = 1; i < mpi->size; i++)
        if (strcmp(all[0].text, all[i].text)) {
            find_difference(all[0].text, all[i].text, &mpi->log, caller, i);
            return VKA_INVALID;
        }
    return VKA_OK;
}

enum vka_status comm_agree(struct vka_mpi *mpi, const char *caller, enum vka_status own,
                           const struct terms *terms)
{
    struct log *log = &mpi->log;
    enum vka_status status = VKA_OK;
    if (mpi->broken)
        return mpi->broken;
    MPI_Request request;
    struct message *all = calloc((size_t)mpi->size + 1, sizeof *all), *mine = all + mpi->size;
    CHECK_ALLOC(all);
    mine->status = (int32_t)own;
    snprintf(mine->text, sizeof mine->text, "call: %.48s\n%s", caller, terms->text);
    if (own != VKA_OK)
        snprintf(mine->text, sizeof mine->text, "%s", log->error);
    TRY(comm_check(mpi,
                   MPI_Iallgather(mine, sizeof *mine, MPI_BYTE, all, sizeof *mine, MPI_BYTE,
                                  mpi->comm, &request),
                   "MPI_Iallgather"));
    TRY(comm_wait(mpi, 1, &request, clock_deadline(mpi->timeout), caller));
    TRY(compare(mpi, caller, all));
fail:
    if (!mpi->broken) /* else MPI may still write there */
        free(all);
    return status;
}

enum vka_status comm_all_support(struct vka_mpi *mpi, enum vka_status own, const char *caller)
{
    struct log *log = &mpi->log;
    enum vka_status status = VKA_OK;
    MPI_Request request;
    int *lack = calloc(2, sizeof *lack); /* of some rank, of this one */
    CHECK_ALLOC(lack);
    lack[1] = own != VKA_OK;
    TRY(comm_check(mpi,
                   MPI_Iallreduce(&lack[1], &lack[0], 1, MPI_INT, MPI_MAX, mpi->comm, &request),
                   "MPI_Iallreduce"));
    TRY(comm_wait(mpi, 1, &request, clock_deadline(mpi->timeout), caller));
    status = own != VKA_OK ? own : *lack ? VKA_UNSUPPORTED : VKA_OK;
fail:
    if (!mpi->broken) /* else MPI may still write there */
        free(lack);
    return status;
}
