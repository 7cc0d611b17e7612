/* JSON lines and progress. SPDX-License-Identifier: MIT */
#include "output.h"

#include "options.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

json_t *json_number(double x)
{
    if (isfinite(x))
        return json_real(x);
    return json_string(isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

json_t *json_text(const char *text)
{
    json_t *string = text ? json_string(text) : NULL;
    return string ? string : json_null();
}

bool json_print_line(json_t *object)
{
    int failed = !object || json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
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
    if (!isatty(STDERR_FILENO))
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
