/* Help on a terminal, and options before a command. SPDX-License-Identifier: MIT */
#ifndef MANUAL_HELP_H
#define MANUAL_HELP_H

#include "common/options.h"

/* Moves the options of a device that stand before the word of a command, argv[1] and on, behind it. */
void global_options_behind(int argc, char **argv);

/* Prints all commands; one with its options. False, and prints why, where the options that the command
 * parses are not those of the table. */
void manual_help(void);
bool manual_command_help(const char *name, const struct option_spec *specs);

#endif
