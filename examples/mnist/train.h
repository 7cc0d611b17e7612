/* vkattn-mnist train. SPDX-License-Identifier: MIT */
#ifndef MNIST_TRAIN_H
#define MNIST_TRAIN_H

#include "common/device.h"

/* The command; argv[0] is its name. */
enum tool_exit train(int argc, char **argv);

#endif
