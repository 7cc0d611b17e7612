/* The tokens of a run: text labels of its queries and keys. SPDX-License-Identifier: MIT */
#include "tokens.h"

#include "core/os.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads a regular file; the caller frees *text. */
static enum vka_status read_text(const char *path, char **text, size_t *size, char *error)
{
    enum vka_status status = VKA_IO;
    uint64_t bytes;
    FILE *file = os_open_file(path, &bytes);
    *text = NULL;
    if (!file) {
        snprintf(error, VKA_IO_ERROR_SIZE, "%s: cannot open: %s", path, strerror(errno));
        goto done;
    }
    if (bytes > TOKENS_MAX_SIZE) { /* or OS_NO_SIZE */
        snprintf(error, VKA_IO_ERROR_SIZE, "%s: expected a file of at most %u bytes", path,
                 TOKENS_MAX_SIZE);
        goto done;
    }
    *text = malloc((size_t)bytes + 1);
    if (!*text) {
        snprintf(error, VKA_IO_ERROR_SIZE, "%s: out of memory", path);
        status = VKA_OUT_OF_HOST_MEMORY;
        goto done;
    }
    *size = fread(*text, 1, (size_t)bytes, file);
    if (ferror(file))
        snprintf(error, VKA_IO_ERROR_SIZE, "%s: cannot be read: %s", path, strerror(errno));
    else
        status = VKA_OK;
done:
    if (file)
        fclose(file);
    return status;
}

/* Adds a line to the last sequence, or to a new one if *begin is true. False if the line is not
 * UTF-8 (jansson checks) or memory ran out. */
static bool add_line(json_t *sequences, bool *begin, const char *line, size_t length)
{
    if (!length) {
        *begin = true;
        return true;
    }
    if (*begin && json_array_append_new(sequences, json_array()))
        return false;
    *begin = false;
    json_t *last = json_array_get(sequences, json_array_size(sequences) - 1);
    return !json_array_append_new(last, json_stringn(line, length));
}

enum vka_status tokens_read(const char *path, char *error, json_t **sequences)
{
    size_t size = 0, number = 1;
    bool begin = true;
    char *text;
    *sequences = NULL;
    enum vka_status status = read_text(path, &text, &size, error);
    if (status != VKA_OK)
        goto done;
    *sequences = json_array();
    if (!*sequences) {
        snprintf(error, VKA_IO_ERROR_SIZE, "%s: out of memory", path);
        status = VKA_OUT_OF_HOST_MEMORY;
        goto done;
    }
    status = VKA_IO;
    for (const char *line = text, *end = text + size; line < end; number++) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        size_t length = (size_t)((next ? next : end) - line);
        bool carriage = length && line[length - 1] == '\r';
        if (!add_line(*sequences, &begin, line, length - carriage)) {
            snprintf(error, VKA_IO_ERROR_SIZE,
                     "%s: expected UTF-8 text, got other bytes in line %zu", path, number);
            goto done;
        }
        line = next ? next + 1 : end;
    }
    if (!json_array_size(*sequences))
        snprintf(error, VKA_IO_ERROR_SIZE, "%s: expected one line for each token, got none", path);
    else
        status = VKA_OK;
done:
    free(text);
    if (status != VKA_OK) {
        json_decref(*sequences);
        *sequences = NULL;
    }
    return status;
}

enum vka_status tokens_check(const char *path, const json_t *sequences, bool pairs, uint32_t batch,
                             uint32_t n_q, uint32_t n_kv, char *error)
{
    const size_t of_each = pairs ? 2 : 1, n = json_array_size(sequences);
    if (n != of_each && n != of_each * batch) {
        snprintf(error, VKA_IO_ERROR_SIZE,
                 "%s: expected %zu or %zu sequences with an empty line between, got %zu", path,
                 of_each, of_each * batch, n);
        return VKA_IO;
    }
    for (size_t i = 0; i < n; i++) {
        const size_t got = json_array_size(json_array_get(sequences, i));
        const uint32_t want = pairs && i % 2 == 0 ? n_q : n_kv;
        if (got == want)
            continue;
        snprintf(error, VKA_IO_ERROR_SIZE,
                 "%s: expected %" PRIu32 " tokens in sequence %zu, one on each line, got %zu", path,
                 want, i + 1, got);
        return VKA_IO;
    }
    return VKA_OK;
}

/* Sequence `which` of a batch element, or of all batch elements if there is only one set. */
static const json_t *sequence_of(const json_t *sequences, size_t of_each, uint32_t b, size_t which)
{
    const bool own = json_array_size(sequences) > of_each;
    return json_array_get(sequences, (own ? b * of_each : 0) + which);
}

const json_t *tokens_of_queries(const json_t *sequences, bool pairs, uint32_t b)
{
    return sequence_of(sequences, pairs ? 2 : 1, b, 0);
}

const json_t *tokens_of_keys(const json_t *sequences, bool pairs, uint32_t b)
{
    return sequence_of(sequences, pairs ? 2 : 1, b, pairs);
}
