#include "page_elements.h"

#include "html/html.h"
#include "png.h"

#include <assert.h>

/* The most digits that are shown, of those read wrongly and of those read correctly. */
#define SHOWN_WRONG 120
#define SHOWN_RIGHT 64

static_assert(PNG_MAX_SIDE >= IDX_MAX_SIDE, "every image that is read can be shown");

static bool is_right(const struct page *page, uint32_t i)
{
    return page->read[i] == page->labels->data[i];
}

static const uint8_t *pixels_of(const struct page *page, uint32_t i)
{
    return page->images->data + (size_t)i * page->images->rows * page->images->cols;
}

/* ---- Confusion matrix ------------------------------------------------------------------------ */

/* Writes a row: the digits that are `label`, by what they were read as. Errors are tinted relative
 * to the most frequent one. */
static void put_confusion_row(FILE *out, const struct page *page, uint32_t label,
                              const uint32_t *row, uint32_t worst)
{
    fprintf(out, "<tr><th scope=\"row\">%u</th>", (unsigned)label);
    for (uint32_t read = 0; read < page->model->n_class; read++) {
        if (row[read] == 0)
            fputs("<td class=\"none\">&middot;</td>", out);
        else if (read == label)
            fprintf(out, "<td class=\"hit\">%u</td>", (unsigned)row[read]);
        else
            fprintf(out,
                    "<td class=\"miss\" style=\"--share:%.2f\" title=\"%u x a %u read as %u\">"
                    "%u</td>",
                    (double)row[read] / worst, (unsigned)row[read], (unsigned)label, (unsigned)read,
                    (unsigned)row[read]);
    }
    fputs("</tr>\n", out);
}

static void put_confusion_table(FILE *out, const struct page *page,
                                uint32_t seen[][MODEL_MAX_CLASSES])
{
    const uint32_t n = page->model->n_class;
    uint32_t worst = 1;

    for (uint32_t label = 0; label < n; label++) {
        for (uint32_t read = 0; read < n; read++) {
            if (read != label && seen[label][read] > worst)
                worst = seen[label][read];
        }
    }
    fputs("<div class=\"wide\"><table class=\"confusion\">\n<thead><tr><td class=\"corner\">"
          "is \\ read</td>",
          out);
    for (uint32_t read = 0; read < n; read++)
        fprintf(out, "<th scope=\"col\">%u</th>", (unsigned)read);
    fputs("</tr></thead>\n<tbody>\n", out);
    for (uint32_t label = 0; label < n; label++)
        put_confusion_row(out, page, label, seen[label], worst);
    fputs("</tbody>\n</table></div>\n", out);
}

/* Writes how many of each digit were read correctly. */
static void put_recall(FILE *out, const struct page *page, uint32_t seen[][MODEL_MAX_CLASSES])
{
    const uint32_t n = page->model->n_class;

    fputs("<div class=\"recall\">\n<h3>Correct, digit by digit</h3>\n", out);
    for (uint32_t label = 0; label < n; label++) {
        uint32_t total = 0;

        for (uint32_t read = 0; read < n; read++)
            total += seen[label][read];
        if (total > 0)
            fprintf(out,
                    "<div><b>%u</b><i style=\"--p:%.4f\"></i><span>%.1f&thinsp;%% "
                    "(%u of %u)</span></div>\n",
                    (unsigned)label, (double)seen[label][label] / total,
                    100.0 * seen[label][label] / total, (unsigned)seen[label][label],
                    (unsigned)total);
    }
    fputs("</div>\n", out);
}

void page_put_confusion(FILE *out, const struct page *page)
{
    uint32_t seen[MODEL_MAX_CLASSES][MODEL_MAX_CLASSES] = {{0}}; /* [label][read] */

    for (uint32_t i = 0; i < page->count; i++)
        seen[page->labels->data[i]][page->read[i]]++;
    fputs("<section>\n<h2>Where it goes wrong</h2>\n<p class=\"hint\">Rows are what the digit is, "
          "columns what it was read as. The framed diagonal is correct.</p>\n"
          "<div class=\"errors\">\n",
          out);
    put_confusion_table(out, page, seen);
    put_recall(out, page, seen);
    fputs("</div>\n</section>\n", out);
}

/* ---- Digits ---------------------------------------------------------------------------------- */

static void put_image(FILE *out, const struct page *page, uint32_t i)
{
    fprintf(out, "<img alt=\"a %u read as %u\" width=\"%u\" height=\"%u\" src=\"",
            (unsigned)page->labels->data[i], (unsigned)page->read[i], (unsigned)page->images->cols,
            (unsigned)page->images->rows);
    png_write_address(out, pixels_of(page, i), page->images->rows, page->images->cols);
    fputs("\">", out);
}

static void put_digit(FILE *out, const struct page *page, uint32_t i)
{
    const uint32_t n = page->model->n_class;
    const float *p = page->probability + (size_t)i * n;

    fprintf(out, "<figure class=\"%s\" title=\"image %u: read as %u at %.1f %%\">",
            is_right(page, i) ? "right" : "wrong", (unsigned)i, (unsigned)page->read[i],
            100.0 * (double)p[page->read[i]]);
    put_image(out, page, i);
    if (is_right(page, i))
        fprintf(out, "<figcaption><b>%u</b></figcaption>", (unsigned)page->read[i]);
    else
        fprintf(out, "<figcaption>read <b>%u</b>, is <b>%u</b></figcaption>",
                (unsigned)page->read[i], (unsigned)page->labels->data[i]);
    fputs("</figure>\n", out);
}

static void put_group(FILE *out, const struct page *page, bool right, uint32_t total, uint32_t most)
{
    const uint32_t shown = total < most ? total : most;
    uint32_t done = 0;

    fprintf(out, "<section>\n<h2>%s <span class=\"count\">%u", right ? "Read correctly" : "Misread",
            (unsigned)total);
    if (shown < total)
        fprintf(out, ", the first %u", (unsigned)shown);
    fprintf(out, "</span></h2>\n<div class=\"digits %s\">\n", right ? "small" : "large");
    for (uint32_t i = 0; i < page->count && done < shown; i++) {
        if (is_right(page, i) == right) {
            put_digit(out, page, i);
            done++;
        }
    }
    fputs("</div>\n</section>\n", out);
}

void page_put_digits(FILE *out, const struct page *page)
{
    const uint32_t wrong = page->count - page->correct;

    if (wrong > 0)
        put_group(out, page, false, wrong, SHOWN_WRONG);
    if (page->correct > 0)
        put_group(out, page, true, page->correct, SHOWN_RIGHT);
}

/* ---- Attention ------------------------------------------------------------------------------- */

static void put_chosen(FILE *out, const struct page *page, uint32_t chosen)
{
    const uint32_t i = page->chosen[chosen], positions = model_positions(page->model);
    const size_t n_pixel = (size_t)page->images->rows * page->images->cols;
    const size_t n_weight = (size_t)page->model->n_head * positions * positions;
    const uint32_t n_class = page->model->n_class;

    fprintf(out, "{\"index\":%u,\"label\":%u,\"read\":%u,\"probability\":\"", (unsigned)i,
            (unsigned)page->labels->data[i], (unsigned)page->read[i]);
    for (uint32_t k = 0; k < n_class; k++)
        html_put_share(out, page->probability[(size_t)i * n_class + k]);
    fputs("\",\n\"pixels\":\"", out);
    for (size_t k = 0; k < n_pixel; k++)
        html_put_share(out, (float)pixels_of(page, i)[k] / 255.0f);
    fputs("\",\n\"attention\":\"", out);
    for (size_t k = 0; k < n_weight; k++)
        html_put_share(out, page->attention[chosen * n_weight + k]);
    fputs("\"}", out);
}

static void put_data(FILE *out, const struct page *page)
{
    const struct model *m = page->model;

    fprintf(out,
            "<script type=\"application/json\" id=\"attention-data\">\n{\"rows\":%u,\"cols\":%u,"
            "\"side\":%u,\"heads\":%u,\"units\":%u,\"channels\":%s,\n\"digits\":[\n",
            (unsigned)m->rows, (unsigned)m->cols, (unsigned)m->side, (unsigned)m->n_head,
            (unsigned)model_positions(m), m->channels ? "true" : "false");
    for (uint32_t i = 0; i < page->n_chosen; i++) {
        if (i > 0)
            fputs(",\n", out);
        put_chosen(out, page, i);
    }
    fputs("\n]}\n</script>\n", out);
}

void page_put_attention(FILE *out, const struct page *page)
{
    const char *position = page->model->channels ? "channel" : "patch";

    fprintf(out,
            "<section id=\"attention\">\n<h2>What each head looks at</h2>\n<p class=\"hint\">Click "
            "a %s of the digit, or move with the arrow keys, to see where its attention goes. "
            "Click a head to see it alone. Hover for values.%s</p>\n",
            position,
            page->model->channels
                ? " A channel is one place inside a patch, the same in every patch."
                : "");
    fprintf(out,
            "<noscript><p>The maps below are drawn by this page's own script.</p></noscript>\n"
            "<div class=\"picker\" role=\"group\" aria-label=\"Digits\"></div>\n"
            "<div class=\"explorer\">\n<div class=\"subject\">\n"
            "<canvas class=\"big\" tabindex=\"0\" role=\"img\" aria-label=\"The digit and where "
            "the chosen %s attends\"></canvas>\n<p class=\"caption\"></p>\n"
            "<div class=\"bars\"></div>\n</div>\n"
            "<div class=\"heads\" role=\"group\" aria-label=\"Heads\"></div>\n</div>\n",
            position);
    put_data(out, page);
    fputs("</section>\n", out);
}
