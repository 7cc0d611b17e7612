/* What vkattn says of its commands: one table, of which help, the manual page and the completions of
 * three shells are made. SPDX-License-Identifier: MIT */
#ifndef MANUAL_TABLE_H
#define MANUAL_TABLE_H

#include "common/options.h"

/* What a shell completes a value with. A value such as "f32|f16" is completed with its words. */
enum manual_value {
    MANUAL_OTHER = 0, /* numbers, names */
    MANUAL_FILE,
    MANUAL_NPY,
    MANUAL_SAFETENSORS,
    MANUAL_MODEL, /* a GGUF file or a folder */
    MANUAL_DEVICE,
    MANUAL_WEIGHTS, /* all types of weights */
    MANUAL_VALUE_COUNT
};

struct manual_option {
    const char *name;  /* without the dashes; NULL ends a list */
    const char *value; /* "N", "FILE", "f32|f16"; NULL: a flag */
    const char *text;  /* whole sentences */
    enum manual_value completed;
    bool needed; /* without it the command is refused */
};

struct manual_command {
    const char *name;                           /* "run", "bench layer"; NULL ends the list */
    const char *arguments;                      /* "LAYER.safetensors"; "" */
    const char *summary;                        /* a line, without an end */
    const char *text;                           /* whole sentences; "" */
    enum manual_value completed;                /* what the arguments are */
    bool device;                                /* whether it takes manual_device_options */
    const struct manual_option *options, *more; /* lists; more may be NULL */
};

extern const struct manual_command manual_commands[];
extern const struct manual_option manual_device_options[];

/* The command with this name; NULL: none. */
const struct manual_command *manual_find(const char *name);

/* Calls visit for every option of a command: its own, then those of a device. */
void manual_each(const struct manual_command *command,
                 void (*visit)(const struct manual_option *option, void *user), void *user);

/* The types of weights, where an option takes all of them, or what stands in its value between bars:
 * calls visit for each word. */
void manual_words(const struct manual_option *option,
                  void (*visit)(const char *word, int length, void *user), void *user);

#endif
