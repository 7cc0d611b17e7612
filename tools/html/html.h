/* HTML pages in a single file that loads nothing else. SPDX-License-Identifier: MIT */
#ifndef TOOLS_HTML_H
#define TOOLS_HTML_H

#include <jansson.h>
#include <vkattn/vkattn_io.h>

#include <stdio.h>

/* Writes the page up to the title; the caller writes the title and the rest of the head. style
 * follows base.css. */
void html_put_head(FILE *out, const char *style);

/* Writes base.js and script. */
void html_put_script(FILE *out, const char *script);

/* Writes text from outside, with <, >, &, " and ' as entities. */
void html_put_text(FILE *out, const char *text);

/* Writes an entry of <dl class="facts">; more is a line below the value. */
void html_put_fact(FILE *out, const char *name, const char *value, const char *more);

/* Writes a fraction 0 .. 1 as two characters, in steps of 1/4095, which base.js decodes; NaN
 * too. */
void html_put_share(FILE *out, double share);

/* Writes JSON so that nothing in it can end the <script> around it. False if memory ran out. */
bool html_put_json(FILE *out, const json_t *json);

/* The last name of a path. */
const char *html_file_name(const char *path);

/* Writes the output of put(out, data) to a new file beside path, which is then renamed. put returns
 * false if memory ran out. A status other than VKA_OK has a sentence in error (VKA_IO_ERROR_SIZE
 * characters). */
enum vka_status html_write(const char *path, bool (*put)(FILE *out, const void *data),
                           const void *data, char *error);

#endif
