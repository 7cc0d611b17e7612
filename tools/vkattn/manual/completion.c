/* Completions of bash, zsh and fish. SPDX-License-Identifier: MIT */
#include "completion.h"
#include "table.h"

#include <stdio.h>
#include <string.h>

/* Commands of one word, and the operations behind bench. */
static void each_name(bool behind_bench, const char *before, const char *between)
{
    const char *gap = "", *last = "";
    for (const struct manual_command *c = manual_commands; c->name; c++) {
        const char *space = strchr(c->name, ' ');
        size_t length = space ? (size_t)(space - c->name) : strlen(c->name);
        if (behind_bench && space)
            printf("%s%s%s", gap, before, space + 1);
        else if (!behind_bench && (strlen(last) < length || strncmp(last, c->name, length)))
            printf("%s%s%.*s", gap, before, (int)length, c->name);
        else
            continue;
        last = c->name;
        gap = between;
    }
}

static void print_word(const char *word, int length, void *user)
{
    const char **gap = user;
    printf("%s%.*s", *gap, length, word);
    *gap = " ";
}

static bool has_words(const struct manual_option *o)
{
    return o->completed == MANUAL_WEIGHTS ||
           (o->completed == MANUAL_OTHER && o->value && strchr(o->value, '|'));
}

static void print_words(const struct manual_option *option)
{
    const char *gap = "";
    manual_words(option, print_word, &gap);
}

/* What files have, "npy"; "" for any; NULL where a value is no file. */
static const char *extension(enum manual_value completed)
{
    switch (completed) {
    case MANUAL_FILE:
        return "";
    case MANUAL_NPY:
        return "npy";
    case MANUAL_SAFETENSORS:
        return "safetensors";
    case MANUAL_MODEL:
        return "gguf";
    case MANUAL_OTHER:
    case MANUAL_DEVICE:
    case MANUAL_WEIGHTS:
    case MANUAL_VALUE_COUNT:
        break;
    }
    return NULL;
}

/* The first sentence of a text, without its end, with a backslash or an ending of quotes before what
 * the shell or its completion would read. */
static void print_sentence(const char *text, const char *escaped, const char *quote)
{
    const char *end = strstr(text, ". ");
    size_t length = end ? (size_t)(end - text) : strlen(text) - (text[strlen(text) - 1] == '.');
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\'')
            printf("%s", quote);
        else if (strchr(escaped, text[i]))
            printf("\\%c", text[i]);
        else
            putchar(text[i]);
    }
}

static void bash_value(const struct manual_option *o, void *user)
{
    const char *files = extension(o->completed);
    if (!o->value)
        return;
    if (user)
        printf("    '%s:--%s')", (const char *)user, o->name);
    else
        printf("    *:--%s)", o->name);
    if (has_words(o)) {
        printf(" _vkattn_words '");
        print_words(o);
        printf("' ;;\n");
    } else if (o->completed == MANUAL_DEVICE) {
        printf(" _vkattn_words \"$(_vkattn_devices)\" ;;\n");
    } else if (files) {
        printf(" _filedir%s%s ;;\n", *files ? " " : "", files);
    } else {
        printf(" ;;\n");
    }
}

static void bash_flag(const struct manual_option *o, void *user)
{
    (void)user;
    printf("--%s ", o->name);
}

void manual_bash(void)
{
    printf("# bash completion for vkattn, made by 'vkattn help bash'\n\n"
           "_vkattn_words() {\n    mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$cur\")\n}\n\n"
           "# The indices of the devices that are there.\n_vkattn_devices() {\n"
           "    \"${words[0]}\" devices --json 2>/dev/null |\n"
           "        sed -n 's/.*\"index\": *\\([0-9]*\\).*/\\1/p'\n}\n\n"
           "_vkattn() {\n    local cur prev words cword command= i\n"
           "    _init_completion || return\n    for ((i = 1; i < cword; i++)); do\n"
           "        case $command:${words[i]} in\n        ");
    each_name(false, ":", " | ");
    printf(") command=${words[i]} ;;\n        ");
    each_name(true, "bench:", " | ");
    printf(") command=\"bench ${words[i]}\" ;;\n        esac\n    done\n"
           "    case $command:$prev in\n");
    for (const struct manual_command *c = manual_commands; c->name; c++) {
        const struct manual_command own = {.options = c->options, .more = c->more};
        manual_each(&own, bash_value, (void *)c->name);
    }
    for (const struct manual_option *o = manual_device_options; o->name; o++)
        bash_value(o, NULL);
    printf("    *) _vkattn_word ;;\n    esac\n}\n\n# An option, or what a command is given.\n"
           "_vkattn_word() {\n    case $command:$cur in\n    :-*) _vkattn_words '");
    for (const struct manual_option *o = manual_device_options; o->name; o++)
        bash_flag(o, NULL);
    printf("--help --version' ;;\n    :*) _vkattn_words '");
    each_name(false, "", " ");
    printf("' ;;\n    bench:*) _vkattn_words '");
    each_name(true, "", " ");
    printf("' ;;\n    help:*) _vkattn_words '");
    each_name(false, "", " ");
    printf(" man bash zsh fish' ;;\n");
    for (const struct manual_command *c = manual_commands; c->name; c++) {
        const char *files = extension(c->completed);
        if (!c->device)
            continue;
        printf("    '%s':-*) _vkattn_words '", c->name);
        manual_each(c, bash_flag, NULL);
        printf("--help' ;;\n");
        if (files)
            printf("    '%s':*) _filedir %s ;;\n", c->name, files);
    }
    printf("    esac\n}\n\ncomplete -F _vkattn vkattn\n");
}

static void zsh_option(const struct manual_option *o, void *user)
{
    const char *files = extension(o->completed);
    (void)user;
    printf("        '--%s[", o->name);
    print_sentence(o->text, "[]:\\", "'\\''");
    printf("]");
    if (o->value)
        printf(":%s:", o->name);
    if (has_words(o)) {
        printf("(");
        print_words(o);
        printf(")");
    } else if (o->completed == MANUAL_DEVICE) {
        printf("_vkattn_devices");
    } else if (files && *files) {
        printf("_files -g \"*.%s\"", files);
    } else if (files) {
        printf("_files");
    } else if (o->value) {
        printf(" ");
    }
    printf("'\n");
}

static void zsh_names(bool behind_bench)
{
    for (const struct manual_command *c = manual_commands; c->name; c++) {
        const char *space = strchr(c->name, ' ');
        if (behind_bench != (space != NULL))
            continue;
        printf("        '%s:", space ? space + 1 : c->name);
        print_sentence(c->summary, "\\", "'\\''");
        printf("'\n");
    }
    if (!behind_bench)
        printf("        'bench:times a recorded operation'\n");
}

void manual_zsh(void)
{
    printf("#compdef vkattn\n# made by 'vkattn help zsh'\n\n_vkattn_devices() {\n"
           "    local -a found\n    found=(${(f)\"$(${words[1]} devices --json 2>/dev/null |\n"
           "        sed -n 's/.*\"index\": *\\([0-9]*\\).*/\\1/p')\"})\n"
           "    compadd -a found\n}\n\n"
           "_vkattn() {\n    local command i\n    local -a commands operations options device\n"
           "    commands=(\n");
    zsh_names(false);
    printf("    )\n    operations=(\n");
    zsh_names(true);
    printf("    )\n    device=(\n");
    for (const struct manual_option *o = manual_device_options; o->name; o++)
        zsh_option(o, NULL);
    printf(
        "        '--help[explains the command]'\n    )\n"
        "    for ((i = 2; i < CURRENT; i++)); do\n        case $command:${words[i]} in\n        ");
    each_name(false, ":", "|");
    printf(") command=${words[i]} ;;\n        ");
    each_name(true, "bench:", "|");
    printf(") command=\"bench ${words[i]}\" ;;\n        esac\n    done\n    case $command in\n"
           "    '') _arguments $device '*: :{_describe command commands}' ;;\n"
           "    bench) _arguments $device '*: :{_describe operation operations}' ;;\n"
           "    help) _describe command commands ;;\n");
    for (const struct manual_command *c = manual_commands; c->name; c++) {
        const char *files = extension(c->completed);
        if (!c->device)
            continue;
        printf("    '%s')\n        options=(\n", c->name);
        const struct manual_command own = {.options = c->options, .more = c->more};
        manual_each(&own, zsh_option, NULL);
        printf("        )\n        _arguments $device $options '*: :%s%s%s' ;;\n",
               files ? "_files -g \"*." : "", files ? files : " ", files ? "\"" : "");
    }
    printf("    esac\n}\n\n_vkattn \"$@\"\n");
}

static void fish_option(const struct manual_option *o, void *user)
{
    const char *name = user, *space = strchr(name, ' ');
    const char *files = extension(o->completed);
    printf("complete -c vkattn");
    if (space)
        printf(" -n '__fish_seen_subcommand_from bench; and __fish_seen_subcommand_from %s'",
               space + 1);
    else if (*name)
        printf(" -n '__fish_seen_subcommand_from %s'", name);
    printf(" -l %s", o->name);
    if (has_words(o)) {
        printf(" -x -a '");
        print_words(o);
        printf("'");
    } else if (o->completed == MANUAL_DEVICE) {
        printf(" -x -a '(__vkattn_devices)'");
    } else if (files) {
        printf(" -r -F");
    } else if (o->value) {
        printf(" -x");
    }
    printf(" -d '");
    print_sentence(o->text, "\\", "\\'");
    printf("'\n");
}

void manual_fish(void)
{
    printf("# fish completion for vkattn, made by 'vkattn help fish'\n\n"
           "function __vkattn_devices\n    vkattn devices --json 2>/dev/null |\n"
           "        string replace -rf '.*\"index\": *([0-9]+).*' '$1'\nend\n\n"
           "complete -c vkattn -f\n");
    for (const struct manual_command *c = manual_commands; c->name; c++) {
        const char *space = strchr(c->name, ' ');
        if (space)
            printf("complete -c vkattn -n '__fish_seen_subcommand_from bench' -a %s -d '",
                   space + 1);
        else
            printf("complete -c vkattn -n __fish_use_subcommand -a %s -d '", c->name);
        print_sentence(c->summary, "\\", "\\'");
        printf("'\n");
    }
    printf(
        "complete -c vkattn -n __fish_use_subcommand -a bench -d 'times a recorded operation'\n");
    for (const struct manual_command *c = manual_commands; c->name; c++) {
        const struct manual_command own = {.options = c->options, .more = c->more};
        manual_each(&own, fish_option, (void *)c->name);
        if (extension(c->completed))
            printf("complete -c vkattn -n '__fish_seen_subcommand_from %s' -F\n", c->name);
    }
    for (const struct manual_option *o = manual_device_options; o->name; o++)
        fish_option(o, "");
    printf("complete -c vkattn -l help -d 'explains the command'\n");
}
