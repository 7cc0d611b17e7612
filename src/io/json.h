/* Reads the JSON of safetensors headers: objects, strings, null and arrays of whole numbers; passes
 * over any other value. */
#ifndef VKA_IO_JSON_H
#define VKA_IO_JSON_H

#include <stdbool.h>
#include <stdint.h>

/* A text that is read from front to back, token by token. The caller knows which token must come
 * next, so nothing here recurses or allocates. */
struct vka_io_json {
    const char *begin, *at, *end;
    char *strings; /* where the next string goes; end - begin bytes are enough for all strings */
    const char *wrong; /* the error found at `at`, static storage; NULL: none so far */
};

/* Skips white space, and then the character if it comes next; returns whether it did. */
bool vka_io_json_take(struct vka_io_json *json, char wanted);

/* Steps to the next item of an object or array after its opening bracket; *first is true before the
 * first item. False after the last item, and, with `wrong` set, if a comma is missing. */
bool vka_io_json_next(struct vka_io_json *json, char close, bool *first);

/* Reads a string: resolves its escapes and ends it with a NUL; it holds no other NUL. False with
 * `wrong` set if there is none. */
bool vka_io_json_string(struct vka_io_json *json, const char **string);

/* Skips white space, and then the word null if it comes next; returns whether it did. */
bool vka_io_json_null(struct vka_io_json *json);

/* Skips a value of any kind. False with `wrong` set if it is none, or nested in more than 64 others. */
bool vka_io_json_skip(struct vka_io_json *json);

/* Reads a whole number that fits and consists of digits only: no sign, fraction, exponent or
 * leading zero. False if there is none; `wrong` is not changed. */
bool vka_io_json_number(struct vka_io_json *json, uint64_t *number);

#endif
