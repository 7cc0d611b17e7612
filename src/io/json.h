/* The JSON of safetensors headers: objects, strings, arrays of whole numbers, nothing else. */
#ifndef VKA_IO_JSON_H
#define VKA_IO_JSON_H

#include <stdbool.h>
#include <stdint.h>

/* A text being read from front to back, token by token. Whoever reads knows what has to come, so
 * nothing here recurses or allocates. */
struct vka_io_json {
    const char *begin, *at, *end;
    char *strings;     /* where the next string goes; end - begin bytes hold all of a text */
    const char *wrong; /* what is not JSON, found at `at`; NULL: nothing so far. Static storage. */
};

/* Takes one character, and the white space before it, if it is there. */
bool vka_io_json_take(struct vka_io_json *json, char wanted);

/* Steps to the next item of an object or array whose opening bracket has been taken; *first is true
 * before the first one. False behind the last, and with `wrong` set where a comma is missing. */
bool vka_io_json_next(struct vka_io_json *json, char close, bool *first);

/* A string, its escapes resolved, terminated by a 0, of which it holds no other. False: `wrong`. */
bool vka_io_json_string(struct vka_io_json *json, const char **string);

/* A whole number that fits, written in digits alone: no sign, fraction, exponent or leading zero.
 * False where there is none; `wrong` stays as it is. */
bool vka_io_json_number(struct vka_io_json *json, uint64_t *number);

#endif
