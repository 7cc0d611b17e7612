/* Exit codes, error lines and strict options. SPDX-License-Identifier: MIT */
#include "options.h"
#include "nearest.h"
#include "types.def"

#include "core/os.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each list is what `item` makes of the rows of a kind. */
#define FLOATS(item, id, NAME, name, kind, ...) FLOATS_##kind(item(NAME, name))
#define WEIGHTS(item, id, NAME, name, kind, ...) WEIGHTS_##kind(item(NAME, name))
#define FLOATS_FLOAT(item) item,
#define FLOATS_INTEGER(item)
#define FLOATS_CACHED(item)
#define FLOATS_WEIGHT(item)
#define FLOATS_BLOCK(item)
#define FLOATS_BUNDLES(item)
#define WEIGHTS_FLOAT(item) item,
#define WEIGHTS_INTEGER(item)
#define WEIGHTS_CACHED(item)
#define WEIGHTS_WEIGHT(item) item,
#define WEIGHTS_BLOCK(item) item,
#define WEIGHTS_BUNDLES(item) item,
#define DTYPE_OF(NAME, name) VKA_##NAME
#define NAME_OF(NAME, name) #name
const char *const option_dtypes[] = {TYPES(FLOATS, FLOATS, NAME_OF) NULL};
const char *const option_weights[] = {TYPES(WEIGHTS, WEIGHTS, NAME_OF) NULL};
const enum vka_dtype option_weight_dtypes[] = {TYPES(WEIGHTS, WEIGHTS, DTYPE_OF)};
static_assert(sizeof option_dtypes / sizeof *option_dtypes == VKA_BF16 + 2,
              "float types are the first of vka_dtype");

const char *const option_paths[] = {"auto", "unfused", "fused", NULL};
static_assert(sizeof option_paths / sizeof option_paths[0] == VKA_PATH_COUNT + 1,
              "option_paths follows vka_path");

static const char *program_name = "vkattn", *command_name = "";
static bool (*show_help)(const char *command, const struct option_spec *specs);
static bool helped;

enum tool_exit tool_exit_of(enum vka_status status)
{
    switch (status) {
    case VKA_OK:
        return TOOL_OK;
    case VKA_INVALID:
    case VKA_UNSUPPORTED:
    case VKA_IO:
        return TOOL_USAGE;
    case VKA_NO_DEVICE:
        return TOOL_NO_DEVICE;
    case VKA_OUT_OF_HOST_MEMORY:
    case VKA_OUT_OF_DEVICE_MEMORY:
        return TOOL_MEMORY;
    case VKA_TIMEOUT:
    case VKA_DEVICE_LOST:
        return TOOL_DEVICE_LOST;
    case VKA_INTERNAL:
    case VKA_STATUS_COUNT:
        break;
    }
    return TOOL_FAILED;
}

void tool_set_program(const char *program)
{
    program_name = program;
}

void tool_set_command(const char *command)
{
    command_name = command;
}

void tool_set_help(bool (*show)(const char *command, const struct option_spec *specs))
{
    show_help = show;
}

bool tool_helped(void)
{
    return helped;
}

void tool_error(const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (char *c = line; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    }
    fprintf(stderr, "%s%s%s: %s\n", program_name, *command_name ? " " : "", command_name, line);
}

enum tool_exit tool_end(enum tool_exit code)
{
    char why[96] = "not all was written";
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    if (errno)
        os_error_text(errno, why, sizeof why);
    tool_error("standard output: cannot write: %s", why);
    return code == TOOL_OK ? TOOL_USAGE : code;
}

const char *option_profile_file(const struct device_options *options)
{
    return options->tuning_profile && strcmp(options->tuning_profile, "none")
               ? options->tuning_profile
               : NULL;
}

/* Reads a decimal number at *text and moves *text past it. Stricter than strtoll: no blanks, no
 * plus sign. */
static bool read_integer(const char **text, int64_t min, int64_t max, int64_t *value)
{
    const char *digits = *text + (**text == '-');
    if (*digits < '0' || *digits > '9')
        return false;
    char *end;
    errno = 0;
    long long x = strtoll(*text, &end, 10);
    if (errno || x < min || x > max)
        return false;
    *text = end;
    *value = x;
    return true;
}

static bool set_u32(const struct option_spec *spec, const char *text)
{
    const char *at = text;
    int64_t x;
    if (!read_integer(&at, spec->min, spec->max, &x) || *at) {
        tool_error("--%s: expected a whole number from %" PRId64 " to %" PRId64 ", got '%s'",
                   spec->name, spec->min, spec->max, text);
        return false;
    }
    *(uint32_t *)spec->value = (uint32_t)x;
    return true;
}

static bool set_number(const struct option_spec *spec, const char *text)
{
    char *end = NULL;
    bool decimal = ((*text >= '0' && *text <= '9') || *text == '.') && !strpbrk(text, "xX");
    double x = decimal ? strtod(text, &end) : 0;
    const bool positive = spec->kind == OPTION_POSITIVE;
    if (!end || *end || !isfinite(x) || x < 0 || (positive && x == 0)) {
        tool_error("--%s: expected a decimal number %s, got '%s'", spec->name,
                   positive ? "above 0" : "from 0 on", text);
        return false;
    }
    *(double *)spec->value = x;
    return true;
}

static bool set_pair(const struct option_spec *spec, const char *text)
{
    const char *at = text;
    int64_t x[2];
    if (!read_integer(&at, spec->min, spec->max, &x[0]) || *at++ != ',' ||
        !read_integer(&at, spec->min, spec->max, &x[1]) || *at) {
        tool_error("--%s: expected two whole numbers from %" PRId64 " to %" PRId64
                   " with a comma between, got '%s'",
                   spec->name, spec->min, spec->max, text);
        return false;
    }
    memcpy(spec->value, x, sizeof x);
    return true;
}

static bool set_choice(const struct option_spec *spec, const char *text)
{
    char list[256] = "";
    for (int i = 0; spec->choices[i]; i++) {
        if (!strcmp(spec->choices[i], text)) {
            *(int *)spec->value = i;
            return true;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", spec->choices[i]);
    }
    tool_error("--%s: expected one of %s, got '%s'", spec->name, list, text);
    return false;
}

static bool set_option(const struct option_spec *spec, const char *text)
{
    switch (spec->kind) {
    case OPTION_FLAG:
        *(bool *)spec->value = true;
        return true;
    case OPTION_TEXT:
        if (!*text) {
            tool_error("--%s: expected a value, got an empty one", spec->name);
            return false;
        }
        *(const char **)spec->value = text;
        return true;
    case OPTION_U32:
        return set_u32(spec, text);
    case OPTION_NUMBER:
    case OPTION_POSITIVE:
        return set_number(spec, text);
    case OPTION_PAIR:
        return set_pair(spec, text);
    case OPTION_CHOICE:
        return set_choice(spec, text);
    case OPTION_KIND_COUNT:
        break;
    }
    return false;
}

/* Prints what is wrong with a word for which getopt_long returned '?'. */
static void refuse_option(const char *word, const struct option_spec *specs)
{
    const char letter[3] = {'-', (char)optopt};
    size_t length = strcspn(word, "=");
    for (int i = 0; !optopt && specs[i].name && word[length]; i++) {
        if (length == strlen(specs[i].name) + 2 && !strncmp(word + 2, specs[i].name, length - 2)) {
            tool_error("--%s: expected no value, got '%s'", specs[i].name, word + length + 1);
            return;
        }
    }
    char name[32] = "";
    if (!optopt && length >= 2 && length - 2 < sizeof name)
        memcpy(name, word + 2, length - 2);
    struct nearest nearest = {.word = name};
    for (int i = 0; *name && specs[i].name; i++)
        nearest_offer(&nearest, specs[i].name);
    if (*name && show_help)
        nearest_offer(&nearest, "help");
    tool_error("unknown option '%s'%s%s%s '%s%s%s%s' lists the options", optopt ? letter : word,
               nearest.best ? ": did you mean '--" : ";", nearest.best ? nearest.best : "",
               nearest.best ? "'?" : "", show_help ? program_name : "", show_help ? " " : "",
               show_help ? command_name : "", show_help ? " --help" : "--help");
}

bool options_parse(int argc, char **argv, const struct option_spec *specs, int *first)
{
    struct option table[OPTION_SPECS_MAX + 2] = {0};
    int n = 0;
    for (int i = 0; specs[i].name; i++, n++) {
        assert(i < OPTION_SPECS_MAX);
        table[i] = (struct option){
            .name = specs[i].name,
            .has_arg = specs[i].kind == OPTION_FLAG ? no_argument : required_argument,
        };
    }
    if (show_help)
        table[n] = (struct option){.name = "help", .has_arg = no_argument};
    int c, index = 0, n_operand = 0;
    optind = 1;
    opterr = 0;
    /* Operands come in order, as 1, whatever $POSIXLY_CORRECT says: they are gathered at the begin of
     * argv, which is read by then. */
    while ((c = getopt_long(argc, argv, "-:", table, &index)) != -1) {
        if (c == 1) {
            argv[1 + n_operand++] = optarg;
            continue;
        }
        /* To MinGW a value that is too much lacks too. */
        if (c == ':' && !strchr(argv[optind - 1], '=')) {
            tool_error("%s: expected a value after it", argv[optind - 1]);
            return false;
        }
        if (c != 0) {
            refuse_option(argv[optind - 1], specs);
            return false;
        }
        if (index == n) {
            helped = show_help(command_name, specs);
            return false;
        }
        if (!set_option(&specs[index], optarg))
            return false;
    }
    while (optind < argc) /* behind -- */
        argv[1 + n_operand++] = argv[optind++];
    *first = argc - n_operand;
    memmove(argv + *first, argv + 1, (size_t)n_operand * sizeof *argv);
    return true;
}

bool options_parse_only(int argc, char **argv, const struct option_spec *specs)
{
    int first;
    if (!options_parse(argc, argv, specs, &first))
        return false;
    if (first < argc) {
        tool_error("expected only options, got '%s'", argv[first]);
        return false;
    }
    return true;
}

bool tool_device_matches(const struct vka_device_properties *device, const char *text)
{
    if (!text)
        return true;
    if (text[strspn(text, "0123456789")] == '\0')
        return strtoull(text, NULL, 10) == device->index;
    size_t length = strlen(text);
    for (const char *at = device->name; strlen(at) >= length; at++) {
        size_t same = 0;
        while (same < length &&
               tolower((unsigned char)at[same]) == tolower((unsigned char)text[same]))
            same++;
        if (same == length)
            return true;
    }
    return false;
}

bool options_parse_one(int argc, char **argv, const struct option_spec *specs, const char *what,
                       const char **one)
{
    int first;
    if (!options_parse(argc, argv, specs, &first))
        return false;
    if (argc - first != 1) {
        tool_error("expected one %s, got %d", what, argc - first);
        return false;
    }
    *one = argv[first];
    return true;
}
