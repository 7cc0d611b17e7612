/* JSON lines and progress. SPDX-License-Identifier: MIT */
#include "output.h"

#include "options.h"

#include "core/os.h"
#include "io/io.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *json_number(double x)
{
    if (isfinite(x))
        return json_real(x);
    return json_string(isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

json_t *json_text(const char *text)
{
    static const char replacement[] = "\xef\xbf\xbd";
    if (!text)
        return json_null();
    char *valid = malloc(3 * strlen(text) + 1), *to = valid;
    if (!valid)
        return NULL;
    while (*text) {
        const size_t length = vka_io_utf8_length(text, SIZE_MAX);
        memcpy(to, length ? text : replacement, length ? length : 3);
        to += length ? length : 3;
        text += length ? length : 1;
    }
    json_t *string = json_stringn(valid, (size_t)(to - valid));
    free(valid);
    return string;
}

bool json_print_line(json_t *object)
{
    /* What cannot be written is told at the end, by whoever flushes. */
    bool failed = !object || (json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) &&
                              !ferror(stdout));
    json_decref(object);
    if (failed) {
        tool_error("out of memory");
        return false;
    }
    putchar('\n');
    return true;
}

static bool shown;

void progress_show(size_t done, size_t total, const char *what)
{
    if (!os_is_terminal(stderr))
        return;
    fprintf(stderr, "\r\033[K%zu/%zu %.60s", done, total, what);
    fflush(stderr);
    shown = true;
}

void progress_clear(void)
{
    if (shown)
        fputs("\r\033[K", stderr);
    shown = false;
}
