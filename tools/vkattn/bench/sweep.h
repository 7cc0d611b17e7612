/* vkattn bench sweep: attention and decoding at growing lengths. SPDX-License-Identifier: MIT */
#ifndef BENCH_SWEEP_H
#define BENCH_SWEEP_H

/* Runs vkattn bench sweep; argv[0] is its name. */
int sweep_command(int argc, char **argv);

#endif
