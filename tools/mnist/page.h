/* The HTML page: one file that needs nothing from elsewhere. */
#ifndef MNIST_PAGE_H
#define MNIST_PAGE_H

#include "idx.h"
#include "model.h"

/* Digits whose attention the page holds, at most. */
#define PAGE_CHOSEN 8

struct page {
    const struct model *model;
    const struct idx_file *images, *labels;
    uint32_t count, correct;  /* the first `count` images were classified */
    const uint8_t *read;      /* [count], the class read */
    const float *probability; /* [count][n_class] */
    uint32_t n_chosen;
    const uint32_t *chosen; /* [n_chosen], images whose attention follows */
    const float *attention; /* [n_chosen][n_head][units][units] */
    const char *model_path, *device, *driver;
    uint32_t batch;
    size_t n_pass;
    double total_ms;
};

/* Writes the page to a new file beside path, which then takes its place. VKA_IO with a sentence in
 * error (VKA_IO_ERROR_SIZE characters). */
enum vka_status page_write(const char *path, const struct page *page, char *error);

#endif
