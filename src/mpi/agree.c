/* Compares the arguments of all ranks before any work. */
#include "mpi/agree.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void terms_add(struct terms *terms, const char *format, ...)
{
    size_t room = sizeof terms->text - terms->length;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(terms->text + terms->length, room, format, arguments);
    va_end(arguments);
    terms->cut |= length < 0 || (size_t)length + 2 > room;
    if (terms->cut)
        return;
    terms->length += (size_t)length;
    terms->text[terms->length++] = '\n';
    terms->text[terms->length] = '\0';
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

/* FNV-1a of the frequencies of a rotary embedding; 0 for none, or for a dim that the device refuses
 * before it reads them. */
static unsigned long long hash_frequencies(const struct vka_rope *rope, uint32_t head_dim)
{
    unsigned long long hash = 0xcbf29ce484222325u;
    if (!rope->frequencies || rope->dim > head_dim)
        return 0;
    for (uint32_t i = 0; i < rope->dim / 2; i++) {
        unsigned char bytes[sizeof(double)];
        memcpy(bytes, &rope->frequencies[i], sizeof bytes);
        for (size_t b = 0; b < sizeof bytes; b++)
            hash = (hash ^ bytes[b]) * 0x100000001b3u;
    }
    return hash;
}

#define TERM_REAL(x) "%a", (double)(x)
#define TERM_FLAG(x) "%d", (int)(x)
#define TERM_SIGNED(x) "%lld", (long long)(x)
#define TERM_NUMBER(x) "%llu", (unsigned long long)(x)
#define TERM_ROWS(x) "%d", (int)(x)

void terms_add_options(struct terms *terms, const struct vka_attention_options *options,
                       uint32_t head_dim)
{
    terms_add_tensor(terms, "mask", options->mask);
    terms_add_tensor(terms, "kv_length", options->kv_length);
    terms_add_tensor(terms, "query_offset", options->query_offset);
#define OPTION(kind, type, wide, name) terms_add(terms, #name ": " TERM_##kind(options->name));
#include "../attention_options.def"
#undef OPTION
    terms_add(terms, "exact_softmax: %d", options->exact_softmax);
    terms_add(terms, "scores_kind: %d", (int)options->scores_kind);
    terms_add_tensor(terms, "scores", options->scores);
    terms_add_tensor(terms, "log_sum_exp", options->log_sum_exp);
    terms_add(terms, "rope: dim %u, base %a, interleaved %d, frequencies %llx, factor %a",
              options->rope.dim, (double)options->rope.base, options->rope.interleaved,
              hash_frequencies(&options->rope, head_dim), (double)options->rope.attention_factor);
    terms_add_tensor(terms, "q_norm", options->q_norm);
    terms_add_tensor(terms, "k_norm", options->k_norm);
    terms_add_tensor(terms, "sink", options->sink);
    terms_add_tensor(terms, "alibi", options->alibi);
    terms_add(terms, "dropout from: %u, %u, %u", options->dropout_batch, options->dropout_head,
              options->dropout_query);
}

/* Logs the first line in which two texts differ. */
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

/* The result is the same on every rank: all read the same messages in the same order. */
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

static enum vka_status exchange_messages(struct vka_mpi *mpi, uint64_t deadline, const char *caller)
{
    struct message *all = mpi->messages, *own = all + mpi->size;
    MPI_Request request;
    ENSURE(comm_check(
        mpi,
        MPI_Iallgather(own, sizeof *own, MPI_BYTE, all, sizeof *own, MPI_BYTE, mpi->comm, &request),
        "MPI_Iallgather"));
    return comm_wait(mpi, 1, &request, deadline, caller);
}

enum vka_status comm_agree(struct vka_mpi *mpi, const char *caller, enum vka_status own,
                           const struct terms *terms)
{
    ENSURE(comm_ready(mpi, caller));
    MPI_Request request;
    uint64_t deadline = clock_deadline(mpi->timeout);
    struct message *mine = mpi->messages + mpi->size;
    if (own == VKA_OK && terms->cut)
        own = log_error(&mpi->log, VKA_INTERNAL,
                        "%s: the arguments to compare take more than %zu bytes", caller,
                        sizeof terms->text);
    mine->status = (int32_t)own;
    memcpy(mine->each, terms->each, sizeof mine->each);
    snprintf(mine->text, sizeof mine->text, "call: %.48s\n%s", caller, terms->text);
    if (own != VKA_OK)
        snprintf(mine->text, sizeof mine->text, "%s", mpi->log.error);
    ENSURE(comm_announce(mpi, 0, &request));
    ENSURE(comm_wait(mpi, 1, &request, deadline, caller));
    ENSURE(comm_compare_calls(mpi, caller));
    ENSURE(exchange_messages(mpi, deadline, caller));
    return compare(mpi, caller, mpi->messages);
}

const int32_t *comm_each(const struct vka_mpi *mpi, int rank)
{
    return mpi->messages[rank].each;
}

enum vka_status comm_meet(struct vka_mpi *mpi, uint64_t deadline, uint32_t *local)
{
    static const char caller[] = "vka_mpi_create";
    int worst[2], length;
    char host[MPI_MAX_PROCESSOR_NAME] = "";
    static_assert(sizeof host <= sizeof mpi->messages->text, "a host's name is a message");
    mpi->messages = calloc((size_t)mpi->size + 1, sizeof *mpi->messages);
    ENSURE(
        comm_worst(mpi, mpi->messages ? VKA_OK : VKA_OUT_OF_HOST_MEMORY, deadline, caller, worst));
    if (worst[0] != VKA_OK)
        return log_error(&mpi->log, VKA_OUT_OF_HOST_MEMORY, "%s: rank %d is out of host memory",
                         caller, worst[1]);
    ENSURE(comm_check(mpi, MPI_Get_processor_name(host, &length), "MPI_Get_processor_name"));
    snprintf(mpi->messages[mpi->size].text, sizeof host, "%s", host);
    ENSURE(exchange_messages(mpi, deadline, caller));
    *local = 0;
    for (int i = 0; i < mpi->rank; i++)
        *local += strcmp(mpi->messages[i].text, host) == 0;
    return VKA_OK;
}

/* Starts a reduction over all ranks: for each of n numbers (at most 2), the highest and the first
 * rank that has it. */
static enum vka_status start_worst(struct vka_mpi *mpi, int n, const int *own, MPI_Request *request)
{
    for (int i = 0; i < n; i++) {
        mpi->own[i][0] = own[i];
        mpi->own[i][1] = mpi->rank;
    }
    return comm_check(
        mpi, MPI_Iallreduce(mpi->own, mpi->worst, n, MPI_2INT, MPI_MAXLOC, mpi->comm, request),
        "MPI_Iallreduce");
}

enum vka_status comm_worst(struct vka_mpi *mpi, enum vka_status own, uint64_t deadline,
                           const char *caller, int worst[2])
{
    MPI_Request request;
    ENSURE(start_worst(mpi, 1, &(int){(int)own}, &request));
    ENSURE(comm_wait(mpi, 1, &request, deadline, caller));
    memcpy(worst, mpi->worst[0], sizeof mpi->worst[0]);
    return VKA_OK;
}

enum vka_status comm_announce(struct vka_mpi *mpi, uint32_t plan, MPI_Request *request)
{
    return start_worst(mpi, 2, (const int[]){(int)plan, -(int)plan}, request);
}

enum vka_status comm_compare_calls(struct vka_mpi *mpi, const char *caller)
{
    int most = mpi->worst[0][0], least = -mpi->worst[1][0];
    char other[32] = "makes something";
    if (most == least)
        return VKA_OK;
    if (least)
        snprintf(other, sizeof other, "runs plan %d", least);
    return log_error(&mpi->log, VKA_INVALID, "%s: rank %d runs plan %d, rank %d %s", caller,
                     mpi->worst[0][1], most, mpi->worst[1][1], other);
}

enum vka_status comm_all_support(struct vka_mpi *mpi, enum vka_status own, const char *caller)
{
    int worst[2];
    enum vka_status status = comm_worst(mpi, own, clock_deadline(mpi->timeout), caller, worst);
    if (status != VKA_OK)
        return status;
    return own != VKA_OK ? own : worst[0] != VKA_OK ? VKA_UNSUPPORTED : VKA_OK;
}
