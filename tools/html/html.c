/* HTML pages in a single file that loads nothing else. SPDX-License-Identifier: MIT */
#include "html.h"

#include "texts.h"

#include "core/os.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void html_put_head(FILE *out, const char *style)
{
    fprintf(out,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
            "img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
            "<meta name=\"color-scheme\" content=\"light dark\">\n<style>\n%s%s</style>\n",
            base_css, style);
}

void html_put_script(FILE *out, const char *script)
{
    fprintf(out, "<script>\n%s%s</script>\n", base_js, script);
}

void html_put_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        const char *at = strchr("<>&\"'", *text);

        if (at)
            fprintf(out, "&#%d;", *at);
        else
            putc(*text, out);
    }
}

void html_put_fact(FILE *out, const char *name, const char *value, const char *more)
{
    fprintf(out, "<div><dt>%s</dt><dd>", name);
    html_put_text(out, value);
    fputs("<small>", out);
    html_put_text(out, more);
    fputs("</small></dd></div>\n", out);
}

void html_put_share(FILE *out, double share)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    if (isnan(share)) {
        fputs("!!", out);
        return;
    }
    const unsigned step = (unsigned)lrint(fmin(fmax(share, 0.0), 1.0) * 4095.0);

    putc(digit[step >> 6], out);
    putc(digit[step & 63], out);
}

bool html_put_json(FILE *out, const json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);

    if (!text)
        return false;
    for (const char *c = text; *c; c++) {
        if (*c == '<') /* inside a string: it occurs nowhere else in JSON */
            fputs("\\u003c", out);
        else
            putc(*c, out);
    }
    free(text);
    return true;
}

const char *html_file_name(const char *path)
{
    return path + os_folder_length(path);
}

enum vka_status html_write(const char *path, bool (*put)(FILE *out, const void *data),
                           const void *data, char *error)
{
    struct os_memory memory;
    const bool open = os_memory_open(&memory);
    bool whole = open && put(memory.stream, data);
    enum vka_status status = VKA_OK;

    if (open && !os_memory_close(&memory))
        whole = false;
    if (!whole) {
        snprintf(error, VKA_IO_ERROR_SIZE, "%s: out of memory", path);
        status = VKA_OUT_OF_HOST_MEMORY;
    } else {
        status = vka_file_write(path, memory.text, memory.size, error);
    }
    free(memory.text);
    return status;
}
