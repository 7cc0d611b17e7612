/* The page of a training. SPDX-License-Identifier: MIT */
#ifndef MNIST_TRAIN_PAGE_H
#define MNIST_TRAIN_PAGE_H

#include "train_file.h"

struct train_page {
    const struct model *model;
    const struct train_progress *progress;
    const char *output, *device, *driver;
    uint32_t correct, count; /* digits that the trained model read */
    bool own;                /* those that it learnt from */
    double total_ms;
    uint32_t steps; /* of that time */
};

/* Writes the page with the loss curve, as page_write. */
enum vka_status train_page_write(const char *path, const struct train_page *page, char *error);

#endif
