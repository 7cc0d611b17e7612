/* Any bytes as the config of a case file: a well-formed file around them is refused, or opened. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case/case.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

#define MOST 1024 /* bytes of the config */

/* JSON text as the inside of a JSON string. */
static size_t escape(const unsigned char *data, size_t size, char *text)
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++)
        n += (size_t)(data[i] == '"' || data[i] == '\\' ? sprintf(text + n, "\\%c", data[i])
                      : data[i] < 32                    ? sprintf(text + n, "\\u%04x", data[i])
                                                        : sprintf(text + n, "%c", data[i]));
    return n;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static const char before[] =
        "{\"__metadata__\":{\"format\":\"attention-case-1\",\"kind\":\"sdpa\",\"name\":\"n\","
        "\"source\":\"s\",\"rtol\":\"1e-5\",\"atol\":\"1e-6\",\"config\":\"";
    static const char after[] =
        "\"},\"expect.output\":{\"dtype\":\"F32\",\"shape\":[1,2,1,4],\"data_offsets\":[0,32]},"
        "\"key\":{\"dtype\":\"F32\",\"shape\":[1,2,1,4],\"data_offsets\":[32,64]},"
        "\"query\":{\"dtype\":\"F32\",\"shape\":[1,2,1,4],\"data_offsets\":[64,96]},"
        "\"value\":{\"dtype\":\"F32\",\"shape\":[1,2,1,4],\"data_offsets\":[96,128]}}";
    static char file[8 + sizeof before + 6 * MOST + sizeof after + 128];
    char error[VKA_IO_ERROR_SIZE] = "";
    struct case_file *c = NULL;
    if (size > MOST)
        return 0;
    size_t n = 8;
    n += (size_t)sprintf(file + n, "%s", before);
    n += escape(data, size, file + n);
    n += (size_t)sprintf(file + n, "%s", after);
    uint64_t header = n - 8;
    for (int i = 0; i < 8; i++)
        file[i] = (char)(header >> 8 * i);
    memset(file + n, 0, 128);
    enum vka_status status = case_parse("bytes", file, n + 128, error, &c);
    if (status != VKA_OK && (c || status != VKA_IO || !error[0]))
        abort();
    if (status == VKA_OK && c->config.num_heads == 0)
        abort();
    case_close(&c);
    return 0;
}
