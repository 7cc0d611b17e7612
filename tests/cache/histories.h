/* Tests of random histories of caches, or of other random problems, each by a seed. */
#ifndef TESTS_HISTORIES_H
#define TESTS_HISTORIES_H

#include <stdint.h>

#include <vkattn/vkattn.h>

/* What a history's worst error is of its limit; ends the process where it failed. Seeds of one multiple of
 * `each` have the layers of the first, for which kernels are compiled. */
typedef double (*history_function)(struct vka_device *device, uint64_t seed, uint64_t each);

/* Runs `count` histories, or what the arguments [--seed S] [--count N] [--each N] [--gpu 1] say, and
 * prints the worst; --gpu 1: with the kernels that the rules choose on GPUs. Returns the exit status. */
int histories_run(int argc, char **argv, uint64_t count, history_function history);

#endif
