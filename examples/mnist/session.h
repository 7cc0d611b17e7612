/* The data of one call of vkattn-mnist, and its outputs. */
#ifndef MNIST_SESSION_H
#define MNIST_SESSION_H

#include "classifier.h"
#include "idx.h"

#include "common/device.h"

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
    struct tool_device *device;
    struct classifier *classifier;
    uint32_t count, batch, correct;
    float *input;     /* [batch][n_patch][width], or [batch][rows][cols] of an MLP */
    float *logits;    /* [count][n_class] */
    float *attention; /* [PAGE_CHOSEN][n_head][positions][positions], with --html */
    uint8_t *read;    /* [count] */
    double first_ms, total_ms;
};

/* Classifies the first `count` images on the open device: sets the rest of the session. Prints why it
 * fails. */
enum tool_exit session_classify(struct session *s);

/* Frees what that made. */
void session_free(struct session *s);

/* The class with the largest logit, the first of those. */
uint8_t session_best_class(const float *logits, uint32_t n_class);

/* Write what the options ask for; each prints why it fails. */
enum tool_exit session_write_logits(const struct session *s);
enum tool_exit session_write_page(struct session *s);
bool session_print_json(const struct session *s);

#endif
