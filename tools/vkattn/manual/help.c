/* Help on a terminal. SPDX-License-Identifier: MIT */
#include "help.h"
#include "table.h"

#include <stdio.h>
#include <string.h>

#define WIDTH 80
#define COLUMN 26 /* where the texts of options begin */

/* Prints text from column `at` on, in lines that begin at column `indent`. */
static void print_wrapped(const char *text, int indent, int at)
{
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (at > indent && at + 1 + length > WIDTH) {
            printf("\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            putchar(' ');
            at++;
        }
        printf("%.*s", length, text);
        at += length;
        text += length;
        text += strspn(text, " ");
    }
    putchar('\n');
}

static void print_option(const struct manual_option *option)
{
    int at = printf("  --%s%s%s", option->name, option->value ? " " : "",
                    option->value ? option->value : "");
    if (at >= COLUMN)
        printf("\n%*s", COLUMN, "");
    else
        printf("%*s", COLUMN - at, "");
    print_wrapped(option->text, COLUMN, COLUMN);
}

static void print_list(const struct manual_option *options, const char *title)
{
    if (!options || !options->name)
        return;
    printf("\n%s\n", title);
    for (; options->name; options++)
        print_option(options);
}

/* Words of argv that are options of a device with their values, from `at` on. */
static int count_global(int argc, char **argv, int at)
{
    int n = 0;
    while (at + n < argc && !strncmp(argv[at + n], "--", 2)) {
        const char *name = argv[at + n] + 2;
        size_t length = strcspn(name, "=");
        const struct manual_option *o = manual_device_options;
        while (o->name && (strlen(o->name) != length || strncmp(o->name, name, length)))
            o++;
        if (!o->name)
            break;
        n += o->value && !name[length] ? 2 : 1;
    }
    return at + n < argc ? n : 0;
}

void global_options_behind(int argc, char **argv)
{
    int n = count_global(argc, argv, 1);
    char *word = argv[1 + n];
    memmove(argv + 2, argv + 1, (size_t)n * sizeof *argv);
    argv[1] = word;
}

void manual_help(void)
{
    printf("usage: vkattn COMMAND [OPTION]...\n\n");
    for (const struct manual_command *c = manual_commands; c->name; c++)
        printf("  %-16s %s\n", c->name, c->summary);
    printf("\n'vkattn COMMAND --help' lists the options of a command.\n");
    print_list(manual_device_options,
               "Every command that uses a device takes, before or behind its name:");
    printf("\nexit: 0 success, 1 a comparison failed, 2 bad usage or input,\n"
           "3 no usable device, 4 out of memory, 5 device lost or timed out\n");
}

struct comparison {
    const struct option_spec *specs;
    size_t n; /* options of the table */
    const char *missing;
};

static void find_spec(const struct manual_option *option, void *user)
{
    struct comparison *c = user;
    const struct option_spec *spec = c->specs;
    while (spec->name && strcmp(spec->name, option->name))
        spec++;
    c->n++;
    if (!spec->name || (spec->kind == OPTION_FLAG) != !option->value)
        c->missing = option->name;
}

bool manual_command_help(const char *name, const struct option_spec *specs)
{
    const struct manual_command *command = manual_find(name);
    struct comparison c = {.specs = specs};
    size_t n = 0;
    while (specs[n].name)
        n++;
    if (command)
        manual_each(command, find_spec, &c);
    if (!command || c.missing || c.n != n) {
        tool_error("the table of options and the command '%s' differ: %s", name,
                   c.missing ? c.missing : "their numbers");
        return false;
    }
    printf("usage: vkattn %s%s%s", name, *command->arguments ? " " : "", command->arguments);
    for (const struct manual_option *o = command->options; o->name; o++)
        if (o->needed)
            printf(" --%s %s", o->name, o->value);
    printf("%s\n\n%c%s.", n ? " [OPTION]..." : "", command->summary[0] - 'a' + 'A',
           command->summary + 1);
    print_wrapped(command->text, 0, (int)strlen(command->summary) + 1);
    print_list(command->options, "Options:");
    print_list(command->more, "Options of all that bench times but sweep:");
    if (command->device)
        print_list(manual_device_options, "Options of every command that uses a device:");
    return true;
}
