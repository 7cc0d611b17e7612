/* Pages of one file that needs nothing from elsewhere. SPDX-License-Identifier: MIT */
#ifndef TOOLS_HTML_H
#define TOOLS_HTML_H

#include <jansson.h>
#include <vkattn/vkattn_io.h>

#include <stdio.h>

/* Up to the title, which the caller writes with what else belongs to the head. style follows
 * base.css. */
void html_put_head(FILE *out, const char *style);

/* base.js and script. */
void html_put_script(FILE *out, const char *script);

/* Text from outside, with <, >, &, " and ' as entities. */
void html_put_text(FILE *out, const char *text);

/* An entry of <dl class="facts">; more is a line below the value. */
void html_put_fact(FILE *out, const char *name, const char *value, const char *more);

/* A share 0 .. 1 in steps of 1/4095 as two characters; base.js reads them back. NaN stays one. */
void html_put_share(FILE *out, double share);

/* JSON that nothing in it can end the <script> around. False without memory. */
bool html_put_json(FILE *out, const json_t *json);

/* The last part of a path. */
const char *html_file_name(const char *path);

/* Writes what put(out, data) writes to a new file beside path, which then takes its place. put
 * returns false without memory. A status other than VKA_OK has a sentence in error
 * (VKA_IO_ERROR_SIZE characters). */
enum vka_status html_write(const char *path, bool (*put)(FILE *out, const void *data),
                           const void *data, char *error);

#endif
