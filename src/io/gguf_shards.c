/* Models in several GGUF files. SPDX-License-Identifier: MIT
 *
 * Each shard is a whole GGUF file with some of the tensors. Its keys say which it is: split.no, from
 * 0, of split.count, and split.tensors.count of all shards. The first one has the keys of the model.
 */
#include "io/gguf_shards.h"
#include "io/gguf_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SHARDS 65535 /* split.count is a u16 */
#define TAIL_SIZE 20      /* bytes of "-00001-of-00003.gguf" */
#define TAIL_ROOM 32

/* What the keys of a shard say. */
struct split {
    int64_t no, count, tensors; /* count 1: the file is no shard */
};

static enum vka_status read_number(const struct vka_gguf *file, const char *path, const char *key,
                                   int64_t most, char *error, int64_t *number)
{
    const struct vka_gguf_value *value = vka_gguf_metadata(file, key);

    if (!value)
        return vka_io_fail(error, VKA_IO, path,
                           "split.count says that the file is a shard of a model, but there is no "
                           "key %s",
                           key);
    if (value->type == VKA_GGUF_ARRAY || !vka_gguf_integer(value, 0, number) || *number < 0 ||
        *number > most)
        return vka_io_fail(error, VKA_IO, path, "key %s is not a whole number from 0 to %" PRId64,
                           key, most);
    return VKA_OK;
}

static enum vka_status read_split(const struct vka_gguf *file, const char *path, char *error,
                                  struct split *split)
{
    enum vka_status status = VKA_OK;

    *split = (struct split){0, 1, 0};
    if (vka_gguf_metadata(file, "split.count"))
        status = read_number(file, path, "split.count", MOST_SHARDS, error, &split->count);
    if (status || split->count <= 1)
        return status;
    status = read_number(file, path, "split.no", split->count - 1, error, &split->no);
    if (!status)
        status = read_number(file, path, "split.tensors.count", INT32_MAX, error, &split->tensors);
    return status;
}

/* The end of the name of shard i, from 0; count is at most MOST_SHARDS, of 5 digits. */
static void print_tail(char tail[TAIL_ROOM], size_t i, size_t count)
{
    snprintf(tail, TAIL_ROOM, "-%05u-of-%05u.gguf", (unsigned)i + 1, (unsigned)count);
}

/* Makes path, of any shard, that of shard i. */
static const char *path_of(char *path, size_t i, size_t count)
{
    char tail[TAIL_ROOM];

    print_tail(tail, i, count);
    memcpy(path + strlen(path) - TAIL_SIZE, tail, TAIL_SIZE);
    return path;
}

/* ---- Whether shards are those of one model ------------------------------------------------------ */

static bool is_equal(const struct vka_gguf_value *a, const struct vka_gguf_value *b)
{
    return a->type == b->type && a->item == b->item && a->count == b->count && a->size == b->size &&
           (!a->size || memcmp(a->data, b->data, a->size) == 0);
}

/* Checks that a shard has no key but its own that the first one has not. */
static enum vka_status check_keys(const struct vka_gguf *first, const struct vka_gguf *shard,
                                  const char *path, char *error)
{
    for (size_t i = 0; i < shard->value_count; i++) {
        const struct vka_gguf_value *value = &shard->values[i], *same;

        if (strncmp(value->key, "split.", 6) == 0 ||
            strcmp(value->key, VKA_GGUF_ALIGNMENT_KEY) == 0)
            continue;
        same = vka_gguf_metadata(first, value->key);
        if (!same || !is_equal(value, same))
            return vka_io_fail(error, VKA_IO, path,
                               "the file is a shard of another model: shard 1 has %s key "
                               "'" VKA_IO_NAME "'",
                               same ? "another value of" : "no", value->key);
    }
    return VKA_OK;
}

/* Checks shard i: that it is the one that its name says, and of the model of the first. */
static enum vka_status check_shard(char *path, struct vka_gguf *const *shards, size_t count,
                                   size_t i, const struct split *first, char *error)
{
    struct split split;
    enum vka_status status = read_split(shards[i], path_of(path, i, count), error, &split);

    if (status)
        return status;
    if (split.no != (int64_t)i || split.count != (int64_t)count)
        return vka_io_fail(error, VKA_IO, path,
                           "the file is shard %" PRId64 " of %" PRId64
                           " by its keys, but shard %zu of %zu by its name",
                           split.no + 1, split.count, i + 1, count);
    if (split.tensors != first->tensors)
        return vka_io_fail(
            error, VKA_IO, path,
            "the file is a shard of another model: its split.tensors.count is %" PRId64
            ", but %" PRId64 " in shard 1",
            split.tensors, first->tensors);
    return i ? check_keys(shards[0], shards[i], path, error) : VKA_OK;
}

/* The shard that holds a tensor of all of them. */
static size_t shard_of(struct vka_gguf *const *shards, size_t index)
{
    size_t i = 0;

    while (index >= shards[i]->count)
        index -= shards[i++]->count;
    return i;
}

/* Checks all[], sorted by name, for a tensor of two shards. */
static enum vka_status check_names(char *path, struct vka_gguf *const *shards, size_t count,
                                   const struct vka_gguf_tensor *tensors,
                                   const struct vka_gguf_tensor *const *by_name, size_t total,
                                   char *error)
{
    for (size_t i = 1; i < total; i++) {
        if (strcmp(by_name[i - 1]->name, by_name[i]->name) == 0) {
            const size_t a = shard_of(shards, (size_t)(by_name[i - 1] - tensors));
            const size_t b = shard_of(shards, (size_t)(by_name[i] - tensors));

            return vka_io_fail(error, VKA_IO, path_of(path, a > b ? a : b, count),
                               "tensor '" VKA_IO_NAME "' is in shard %zu too", by_name[i]->name,
                               (a > b ? b : a) + 1);
        }
    }
    return VKA_OK;
}

/* ---- Joining ----------------------------------------------------------------------------------- */

/* Gives shards[0] the tensors of all shards. */
static enum vka_status take_tensors(char *path, struct vka_gguf *const *shards, size_t count,
                                    size_t total, char *error)
{
    struct vka_gguf_tensor *tensors = malloc((total + 1) * sizeof *tensors);
    struct vka_gguf **rest = malloc(count * sizeof *rest);
    const struct vka_gguf_tensor **by_name = NULL;
    enum vka_status status = VKA_OK;
    size_t filled = 0;

    for (size_t i = 0; tensors && i < count; i++) {
        if (shards[i]->count)
            memcpy(tensors + filled, shards[i]->tensors, shards[i]->count * sizeof *tensors);
        filled += shards[i]->count;
    }
    if (tensors && rest)
        by_name = vka_gguf_by_name(tensors, total);
    if (!by_name)
        status = vka_io_fail(error, VKA_OUT_OF_HOST_MEMORY, path, "out of memory");
    else
        status = check_names(path, shards, count, tensors, by_name, total, error);
    if (status) {
        free(tensors);
        free(rest);
        free(by_name);
        return status;
    }
    memcpy(rest, shards + 1, (count - 1) * sizeof *rest);
    free(shards[0]->tensors);
    free(shards[0]->by_name);
    shards[0]->tensors = tensors;
    shards[0]->by_name = by_name;
    shards[0]->count = total;
    shards[0]->rest = rest;
    shards[0]->rest_count = count - 1;
    return VKA_OK;
}

enum vka_status vka_gguf_join(char *path, struct vka_gguf *const *shards, size_t count, char *error)
{
    struct split first;
    enum vka_status status = read_split(shards[0], path_of(path, 0, count), error, &first);
    size_t total = 0;

    for (size_t i = 0; i < count && !status; i++) {
        status = check_shard(path, shards, count, i, &first, error);
        total += shards[i]->count;
    }
    if (status)
        return status;
    if (total != (size_t)first.tensors)
        return vka_io_fail(error, VKA_IO, path_of(path, 0, count),
                           "split.tensors.count is %" PRId64
                           ", but the %zu shards have %zu tensors",
                           first.tensors, count, total);
    return take_tensors(path, shards, count, total, error);
}

/* Opens the shards that are missing in shards[]. */
static enum vka_status open_rest(char *path, struct vka_gguf **shards, size_t count, char *error)
{
    char why[VKA_IO_ERROR_SIZE];

    for (size_t i = 0; i < count; i++) {
        enum vka_status status =
            shards[i] ? VKA_OK : vka_gguf_open_one(path_of(path, i, count), why, &shards[i]);

        if (status)
            return vka_io_fail(error, status, NULL, "%s (shard %zu of %zu of a model)", why, i + 1,
                               count);
    }
    return VKA_OK;
}

/* Opens the others beside shards[at], and joins them. On failure shards[at] alone stays open. */
static enum vka_status open_all(char *path, struct vka_gguf **shards, size_t count, size_t at,
                                char *error)
{
    enum vka_status status = open_rest(path, shards, count, error);

    if (!status)
        status = vka_gguf_join(path, shards, count, error);
    for (size_t i = 0; status && i < count; i++)
        if (i != at)
            vka_gguf_close(&shards[i]);
    return status;
}

/* Checks that the name of a shard is one that others can be found by. */
static enum vka_status check_name(const char *path, const struct split *split, char *error)
{
    const size_t length = strlen(path);
    char tail[TAIL_ROOM];

    print_tail(tail, (size_t)split->no, (size_t)split->count);
    if (length >= TAIL_SIZE && strcmp(path + length - TAIL_SIZE, tail) == 0)
        return VKA_OK;
    return vka_io_fail(error, VKA_IO, path,
                       "the file is shard %" PRId64 " of %" PRId64
                       " of a model, but its name does not end in %s",
                       split->no + 1, split->count, tail);
}

/* Opens the other shards of the model of which *file is one, and makes *file all of it. */
static enum vka_status open_shards(const char *path, char *error, struct vka_gguf **file)
{
    struct split split;
    enum vka_status status = read_split(*file, path, error, &split);

    if (status || split.count <= 1)
        return status;
    status = check_name(path, &split, error);
    if (status)
        return status;

    const size_t size = strlen(path) + 1;
    struct vka_gguf **shards = calloc((size_t)split.count, sizeof *shards);
    char *own = malloc(size);

    if (shards && own) {
        memcpy(own, path, size);
        shards[split.no] = *file;
        status = open_all(own, shards, (size_t)split.count, (size_t)split.no, error);
        if (!status)
            *file = shards[0];
    } else {
        status = vka_io_fail(error, VKA_OUT_OF_HOST_MEMORY, path, "out of memory");
    }
    free(shards);
    free(own);
    return status;
}

enum vka_status vka_gguf_open(const char *path, char *error, struct vka_gguf **file)
{
    enum vka_status status = vka_gguf_open_one(path, error, file);

    if (status)
        return status;
    status = open_shards(path, error, file);
    if (status)
        vka_gguf_close(file);
    return status;
}
