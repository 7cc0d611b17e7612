/* The sections of the page; each function writes one. */
#ifndef MNIST_PAGE_ELEMENTS_H
#define MNIST_PAGE_ELEMENTS_H

#include "page_data.h"

#include <stdio.h>

void page_put_confusion(FILE *out, const struct page *page);

/* The digits that were read wrongly, then the first of those read correctly. */
void page_put_digits(FILE *out, const struct page *page);

/* The elements that page.js fills in, and the data for it. */
void page_put_attention(FILE *out, const struct page *page);

#endif
