/* The subcommands of vkattn. argv[0] is the subcommand's own name; the result is the exit code.
 * SPDX-License-Identifier: MIT */
#ifndef TOOLS_COMMANDS_H
#define TOOLS_COMMANDS_H

int cmd_devices(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_tune(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_tokens(int argc, char **argv);
int cmd_embed(int argc, char **argv);

#endif
