/* Reads IDX files, the format of MNIST's images and labels. */
#ifndef MNIST_IDX_H
#define MNIST_IDX_H

#include <vkattn/vkattn.h>

/* The most pixels on a side, so that an image is at most 65,025 bytes. */
#define IDX_MAX_SIDE 255

struct idx_file {
    uint32_t count;      /* images or labels, at least 1 */
    uint32_t rows, cols; /* 1 and 1 for labels */
    uint8_t *data;       /* [count][rows][cols] */
};

/* Read a whole file of unsigned bytes. VKA_IO if the header does not match the size of the file
 * exactly. error, of VKA_IO_ERROR_SIZE characters, receives the sentence. On failure *file is
 * empty. */
enum vka_status idx_read_images(const char *path, struct idx_file *file, char *error);
enum vka_status idx_read_labels(const char *path, struct idx_file *file, char *error);

/* Whether there is a label for each image, and each is below n_class; else prints an error line that
 * names the file of labels. */
bool idx_check_pair(const struct idx_file *images, const struct idx_file *labels, uint32_t n_class,
                    const char *path);
void idx_free(struct idx_file *file);

#endif
