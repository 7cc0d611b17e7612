/* Shared by the subcommands of vkattn: exit codes, error lines and strict options.
 * SPDX-License-Identifier: MIT */
#ifndef TOOLS_OPTIONS_H
#define TOOLS_OPTIONS_H

#include "core/format.h"

#include <vkattn/vkattn.h>

/* The exit codes of the process; scripts rely on the numbers. */
enum tool_exit {
    TOOL_OK = 0,
    TOOL_FAILED = 1, /* a comparison failed, the validation layer reported something, or a bug */
    TOOL_USAGE = 2,  /* bad usage, bad input, no place for output, or more than the device can do */
    TOOL_NO_DEVICE = 3,  /* no usable device */
    TOOL_MEMORY = 4,     /* out of host or device memory */
    TOOL_DEVICE_LOST = 5 /* device lost or timed out */
};

/* The exit code for a status of the library. */
enum tool_exit tool_exit_of(enum vka_status status);

/* The command, "bench layer" and so on, for every error line; static storage. */
void tool_set_command(const char *command);

/* Prints one line to stderr: "vkattn COMMAND: ...". Control characters become '?', so that a name
 * from a file cannot split the line or control the terminal. */
FORMAT_PRINTF(1, 2) void tool_error(const char *format, ...);

/* Writes what stdout still holds. If that or an earlier write failed, as on a full disk or a closed pipe,
 * prints an error line and returns TOOL_USAGE in place of TOOL_OK. Returns any other code as it is. */
enum tool_exit tool_end(enum tool_exit code);

enum option_kind {
    OPTION_FLAG = 0, /* bool: set to true */
    OPTION_TEXT,     /* const char *: not empty */
    OPTION_U32,      /* uint32_t: min .. max */
    OPTION_NUMBER,   /* double: decimal, finite, from 0 on */
    OPTION_POSITIVE, /* double: such a number above 0 */
    OPTION_PAIR,     /* int64_t[2]: "A,B", each min .. max */
    OPTION_CHOICE,   /* int: the index in choices, which end with NULL */
    OPTION_KIND_COUNT
};

/* A long option "--name"; lists of them end with a NULL name. */
struct option_spec {
    const char *name;
    enum option_kind kind;
    void *value;
    int64_t min, max;
    const char *const *choices;
};

/* The options of every subcommand that uses a device. */
struct device_options {
    const char *device; /* index or some of a name; NULL: the most capable */
    bool validate;      /* enable the validation layer; a message of it is a failure */
    bool no_cache;      /* neither read nor write the pipeline cache file */
    bool no_self_test;  /* use kernels without testing them */
    /* The file of a tuning profile, or "none"; NULL: the one in the user's cache folder. */
    const char *tuning_profile;
    const char *profile_text; /* not an option: a tuning profile that is used instead of a file */
    uint32_t timeout_s;       /* of one wait for the device */
    uint32_t budget_ms;       /* of a submit; 0: none */
    int64_t limits[2];        /* max_buffer_range, max_allocation in bytes; 0: the driver's */
};

/* The file of the tuning profile that the options name; NULL: none. */
const char *option_profile_file(const struct device_options *options);

#define DEVICE_OPTIONS_DEFAULT ((struct device_options){.timeout_s = 120, .budget_ms = 200})

/* The rows for struct device_options in an option_spec list. */
#define DEVICE_OPTION_SPECS(o)                                             \
    {"device", OPTION_TEXT, &(o)->device, 0, 0, NULL},                     \
        {"validate", OPTION_FLAG, &(o)->validate, 0, 0, NULL},             \
        {"no-cache", OPTION_FLAG, &(o)->no_cache, 0, 0, NULL},             \
        {"no-self-test", OPTION_FLAG, &(o)->no_self_test, 0, 0, NULL},     \
        {"tuning-profile", OPTION_TEXT, &(o)->tuning_profile, 0, 0, NULL}, \
        {"timeout", OPTION_U32, &(o)->timeout_s, 1, 86400, NULL},          \
        {"submit-budget", OPTION_U32, &(o)->budget_ms, 0, 86400000, NULL}, \
    {                                                                      \
        "limits", OPTION_PAIR, (o)->limits, 0, INT64_MAX, NULL             \
    }

/* The most rows of an option_spec list. */
#define OPTION_SPECS_MAX 32

/* Reads the options of argv[1] .. argv[argc - 1]. Other arguments are moved to the end of argv, the
 * first of them to *first. On failure it prints what was expected and returns false. */
bool options_parse(int argc, char **argv, const struct option_spec *specs, int *first);

/* The program's name in error lines, "vkattn" if not called. Keeps the pointer. */
void tool_set_program(const char *program);

/* What --help does where a command has no such option: `show` prints what the command tool_set_command
 * named takes, and options_parse returns false. False: it could not. */
void tool_set_help(bool (*show)(const char *command, const struct option_spec *specs));

/* Whether --help was shown, and all is well. */
bool tool_helped(void);

/* Parses the words of commands that take only options. */
bool options_parse_only(int argc, char **argv, const struct option_spec *specs);

/* Parses the words of commands that take one thing more, which a sentence calls `what`. */
bool options_parse_one(int argc, char **argv, const struct option_spec *specs, const char *what,
                       const char **one);

/* The choices of --dtype and --path, in the order of the enums. */
extern const char *const option_dtypes[];
/* All types of weights: their names, and the types. */
extern const char *const option_weights[];
extern const enum vka_dtype option_weight_dtypes[];
extern const char *const option_paths[];

/* Whether --device TEXT matches this device: its index, or some of its name in any case. NULL
 * matches all. */
bool tool_device_matches(const struct vka_device_properties *device, const char *text);

#endif
