/* The HTML page: a single file that loads nothing else. */
#ifndef MNIST_PAGE_H
#define MNIST_PAGE_H

#include "page_data.h"

/* Writes the page to a new file beside path, which is then renamed. VKA_IO, with a sentence in
 * error (VKA_IO_ERROR_SIZE characters). */
enum vka_status page_write(const char *path, const struct page *page, char *error);

#endif
