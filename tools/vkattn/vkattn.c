/* vkattn: the command line. SPDX-License-Identifier: MIT */
#include "commands.h"
#include "common/nearest.h"
#include "common/options.h"
#include "manual/completion.h"
#include "manual/help.h"
#include "manual/man.h"
#include "manual/table.h"

#include "core/os.h"

#include <stdio.h>
#include <string.h>

#define COUNTOF(array) (sizeof(array) / sizeof(array)[0])

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"devices", cmd_devices}, {"run", cmd_run},       {"check", cmd_check},
    {"bench", cmd_bench},     {"tune", cmd_tune},     {"generate", cmd_generate},
    {"embed", cmd_embed},     {"tokens", cmd_tokens},
};

static int show_version(void)
{
    printf("vkattn %d.%d.%d\n", VKA_VERSION_MAJOR, VKA_VERSION_MINOR, VKA_VERSION_PATCH);
    return TOOL_OK;
}

/* A page that is made of the table. False: none has this name. */
static bool print_page(const char *word)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } pages[] = {
        {"man", manual_man}, {"bash", manual_bash}, {"zsh", manual_zsh}, {"fish", manual_fish}};
    for (size_t i = 0; i < COUNTOF(pages); i++)
        if (!strcmp(pages[i].name, word)) {
            pages[i].print();
            return true;
        }
    return false;
}

/* vkattn help WORD...: a command of one or two words, or a page. */
static int show_help(int n, char **words)
{
    static const struct option_spec nothing[] = {{0}};
    static char help[] = "--help", *arguments[2];
    if (n == 0) {
        manual_help();
        return TOOL_OK;
    }
    if (n == 1 && print_page(words[0]))
        return TOOL_OK;
    const struct manual_command *command = n == 1 ? manual_find(words[0]) : NULL;
    if (command && !command->device)
        return manual_command_help(words[0], nothing) ? TOOL_OK : TOOL_FAILED;
    for (size_t i = 0; n <= 2 && i < COUNTOF(commands); i++)
        if (!strcmp(words[0], commands[i].name)) {
            arguments[0] = words[n - 1];
            arguments[1] = help;
            char *both[3] = {words[0], words[n - 1], help};
            return n == 2 ? commands[i].run(3, both) : commands[i].run(2, arguments);
        }
    tool_error("help: expected a command, man, bash, zsh or fish, got '%s'", words[0]);
    return TOOL_USAGE;
}

static int refuse_command(const char *word)
{
    struct nearest nearest = {.word = word};
    if (*word == '-') {
        tool_error("expected a command, got '%s'; 'vkattn help' lists them", word);
        return TOOL_USAGE;
    }
    for (size_t i = 0; i < COUNTOF(commands); i++)
        nearest_offer(&nearest, commands[i].name);
    nearest_offer(&nearest, "version");
    nearest_offer(&nearest, "help");
    tool_error("unknown command '%s'%s%s%s 'vkattn help' lists them", word,
               nearest.best ? ": did you mean '" : ";", nearest.best ? nearest.best : "",
               nearest.best ? "'?" : "");
    return TOOL_USAGE;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        tool_error("expected a command; 'vkattn help' lists them");
        return TOOL_USAGE;
    }
    const char *word = argv[1];
    if (!strcmp(word, "help") || !strcmp(word, "--help") || !strcmp(word, "-h"))
        return show_help(argc - 2, argv + 2);
    if (!strcmp(word, "--version"))
        return show_version();
    global_options_behind(argc, argv);
    for (size_t i = 0; i < COUNTOF(commands); i++) {
        if (!strcmp(argv[1], commands[i].name))
            return commands[i].run(argc - 1, argv + 1);
    }
    if (!strcmp(argv[1], "version"))
        return show_version();
    return refuse_command(argv[1]);
}

int main(int argc, char **argv)
{
    os_program_begin(&argc, &argv);
    tool_set_help(manual_command_help);
    int code = dispatch(argc, argv);
    return tool_end(tool_helped() ? TOOL_OK : (enum tool_exit)code);
}
