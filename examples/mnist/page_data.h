/* What the HTML page shows. */
#ifndef MNIST_PAGE_DATA_H
#define MNIST_PAGE_DATA_H

#include "idx.h"
#include "model.h"

/* The most digits whose attention the page shows. */
#define PAGE_CHOSEN 8

struct page {
    const struct model *model;
    const struct idx_file *images, *labels;
    uint32_t count, correct;  /* the first `count` images were classified */
    const uint8_t *read;      /* [count], the class read */
    const float *probability; /* [count][n_class] */
    uint32_t n_chosen;
    const uint32_t *chosen; /* [n_chosen], the images that attention belongs to */
    const float *attention; /* [n_chosen][n_head][positions][positions] */
    const char *model_path, *device, *driver;
    uint32_t batch;
    size_t n_pass;
    double total_ms;
};

#endif
