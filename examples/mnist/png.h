/* Writes small grey images as PNG files inside an HTML page. */
#ifndef MNIST_PNG_H
#define MNIST_PNG_H

#include <stdint.h>
#include <stdio.h>

/* The most pixels on a side: the image then fits one stored block of the zlib stream. */
#define PNG_MAX_SIDE 255

/* Writes pixels[rows][cols] as a "data:image/png;base64,..." address. */
void png_write_address(FILE *out, const uint8_t *pixels, uint32_t rows, uint32_t cols);

#endif
