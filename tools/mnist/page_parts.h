/* Parts of the page, each of which writes one section. */
#ifndef MNIST_PAGE_PARTS_H
#define MNIST_PAGE_PARTS_H

#include "page.h"

#include <stdio.h>

void page_put_confusion(FILE *out, const struct page *page);

/* The digits read wrongly, then the first of those read correctly. */
void page_put_digits(FILE *out, const struct page *page);

/* The frame that page.js fills, and its data. */
void page_put_attention(FILE *out, const struct page *page);

#endif
