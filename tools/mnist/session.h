/* The data of one call of vkattn-mnist, and its outputs. */
#ifndef MNIST_SESSION_H
#define MNIST_SESSION_H

#include "classifier.h"
#include "idx.h"

#include "../device.h"

struct options {
    const char *model, *images, *labels, *html, *logits;
    uint32_t count; /* 0: all */
    bool json, help;
    struct device_options device;
};

struct session {
    struct options options;
    struct idx_file images, labels;
    struct model *model;
    struct tool_device device;
    struct classifier *classifier;
    uint32_t count, batch, correct;
    float *patches;   /* [batch][n_patch][width] */
    float *logits;    /* [count][n_class] */
    float *attention; /* [PAGE_CHOSEN][n_head][units][units], with --html */
    uint8_t *read;    /* [count] */
    double first_ms, total_ms;
};

/* Write what the options ask for; each prints why it fails. */
enum tool_exit session_write_logits(const struct session *s);
enum tool_exit session_write_page(struct session *s);
bool session_print_json(const struct session *s);

/* Loads the patches of an image for place `at` of the next run. */
void session_load_patches(struct session *s, uint32_t at, uint32_t image);

#endif
