/* Parts of the page, each of which writes one section. */
#ifndef MNIST_PAGE_PARTS_H
#define MNIST_PAGE_PARTS_H

#include "page.h"

#include <stdio.h>

/* page.css and page.js as the build embeds them, ended by a zero. */
extern const char page_css[], page_js[];

/* Text from outside, with <, >, &, " and ' as entities. */
void page_put_text(FILE *out, const char *text);

void page_put_confusion(FILE *out, const struct page *page);

/* The digits read wrongly, then the first of those read correctly. */
void page_put_digits(FILE *out, const struct page *page);

/* The frame that page.js fills, and its data. */
void page_put_attention(FILE *out, const struct page *page);

#endif
