/* The file of a training: what it has to keep to go on. SPDX-License-Identifier: MIT */
#ifndef MNIST_TRAIN_FILE_H
#define MNIST_TRAIN_FILE_H

#include "trainer.h"

/* The most of --batch and --epochs. */
#define TRAIN_MAX_BATCH 4096
#define TRAIN_MAX_EPOCHS 100000

enum train_kind {
    TRAIN_DOCUMENTED = 0, /* heads over the patches */
    TRAIN_EXECUTED,       /* heads over the channels */
    TRAIN_MLP,
    TRAIN_KIND_COUNT
};

/* What a training has to keep to go on. */
struct train_progress {
    int kind; /* enum train_kind */
    uint32_t batch, seed;
    double learning_rate;
    uint32_t count;  /* images of an epoch */
    uint32_t epochs; /* done */
    struct trainer_state state;
    float *losses; /* [state.step], the mean of each batch before its step */
};

/* The last step of an epoch may have fewer images. */
uint64_t train_steps_of_epoch(const struct train_progress *progress);

/* The names of --model, which end with NULL. */
extern const char *const train_kinds[];

/* Writes model and progress to one file, which is also a model for vkattn-mnist. VKA_IO, with a
 * sentence in error (VKA_IO_ERROR_SIZE characters). */
enum vka_status train_write(const char *path, const struct model *model,
                            const struct train_progress *progress, char *error);

/* Reads them; images of rows x cols pixels. As model_read. */
enum vka_status train_read(const char *path, uint32_t rows, uint32_t cols, struct model **model,
                           struct train_progress *progress, char *error);
void train_progress_free(struct train_progress *progress);

#endif
