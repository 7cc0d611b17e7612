/* What goes to stdout as JSON lines, and progress on a terminal. SPDX-License-Identifier: MIT */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* A number; what JSON cannot spell becomes the string "nan", "inf" or "-inf". */
json_t *json_number(double x);

/* Text that may hold anything, a path say: each byte that is not UTF-8 becomes U+FFFD. null for
 * NULL; NULL without memory. */
json_t *json_text(const char *text);

/* Prints one object as one line and releases it. False, after an error line, where memory ran out
 * while it was made. */
bool json_print_line(json_t *object);

/* "3/20 what" over the last such line on stderr, where that is a terminal; nothing elsewhere. */
void progress_show(size_t done, size_t total, const char *what);

/* Takes the line away, before anything else is printed. */
void progress_clear(void);

#endif
