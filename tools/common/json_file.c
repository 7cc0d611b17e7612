/* Files of JSON of a model's folder. SPDX-License-Identifier: MIT */
#include "json_file.h"
#include "core/os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_BYTES (64u << 20)

enum vka_status file_read_whole(const char *path, size_t most, char **bytes, size_t *size,
                                char why[VKA_IO_ERROR_SIZE])
{
    char text[96];
    uint64_t n = 0;
    *bytes = NULL;
    FILE *file = os_open_file(path, &n);
    if (!file) {
        os_error_text(errno, text, sizeof text);
        snprintf(why, VKA_IO_ERROR_SIZE, "%.400s: cannot open: %s", path, text);
        return VKA_IO;
    }
    if (n == OS_NO_SIZE || n == 0 || n > most) {
        snprintf(why, VKA_IO_ERROR_SIZE, "%.400s: %s", path,
                 n == OS_NO_SIZE ? "not a regular file"
                 : n == 0        ? "is empty"
                                 : "is larger than any such file");
        fclose(file);
        return VKA_IO;
    }
    *bytes = malloc((size_t)n + 1);
    *size = *bytes ? fread(*bytes, 1, (size_t)n, file) : 0;
    fclose(file);
    if (*bytes && *size == n) {
        (*bytes)[n] = '\0';
        return VKA_OK;
    }
    const bool memory = !*bytes;
    free(*bytes);
    *bytes = NULL;
    snprintf(why, VKA_IO_ERROR_SIZE, "%.400s: cannot be read to its end", path);
    return memory ? VKA_OUT_OF_HOST_MEMORY : VKA_IO;
}

enum vka_status json_file_read(const char *path, json_t **value, char why[VKA_IO_ERROR_SIZE])
{
    char *bytes;
    size_t size;
    json_error_t error;
    *value = NULL;
    enum vka_status status = file_read_whole(path, MOST_BYTES, &bytes, &size, why);
    if (status != VKA_OK)
        return status;
    *value = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &error);
    free(bytes);
    if (*value)
        return VKA_OK;
    snprintf(why, VKA_IO_ERROR_SIZE, "%.400s: line %d: %.80s", path, error.line, error.text);
    return VKA_INVALID;
}

enum vka_status json_file_read_if_there(const char *path, json_t **value,
                                        char why[VKA_IO_ERROR_SIZE])
{
    *value = NULL;
    return os_look(path) == OS_NOTHING ? VKA_OK : json_file_read(path, value, why);
}
