/* Prints JSON lines to stdout, and progress to a terminal. SPDX-License-Identifier: MIT */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Makes a number; values that JSON does not have become the strings "nan", "inf" and "-inf". */
json_t *json_number(double x);

/* Makes a string of text that may hold any bytes, for example a path: each byte that is not UTF-8
 * becomes U+FFFD. NULL becomes null. Returns NULL if memory ran out. */
json_t *json_text(const char *text);

/* Prints one object as one line and releases it. If memory ran out while it was made, prints an
 * error line and returns false. */
bool json_print_line(json_t *object);

/* Prints "3/20 what" over the last such line on stderr if that is a terminal; else nothing. */
void progress_show(size_t done, size_t total, const char *what);

/* Removes that line; call it before anything else is printed. */
void progress_clear(void);

#endif
