#include "page.h"

#include "html/html.h"
#include "html/texts.h"
#include "page_elements.h"

#include <string.h>

/* Formats milliseconds with about three digits. */
static void format_time(double ms, char *text, size_t size)
{
    if (ms >= 10000)
        snprintf(text, size, "%.1f s", ms / 1000);
    else
        snprintf(text, size, "%.*f ms", ms >= 100 ? 0 : ms >= 1 ? 1 : 3, ms);
}

static void put_facts(FILE *out, const struct page *page)
{
    const struct model *m = page->model;
    char value[96], more[160];
    size_t used;

    fputs("<dl class=\"facts\">\n", out);
    html_put_fact(out, "Device", page->device, page->driver);
    format_time(page->total_ms, value, sizeof value);
    format_time(page->total_ms / page->count, more, sizeof more);
    used = strlen(more);
    snprintf(more + used, sizeof more - used, " a digit, in batches of %u", (unsigned)page->batch);
    html_put_fact(out, "Time", value, more);
    if (m->n_hidden) {
        snprintf(value, sizeof value, "%u hidden units", (unsigned)m->n_hidden);
        snprintf(more, sizeof more, "%zu passes recorded once", page->n_pass);
    } else {
        snprintf(value, sizeof value, "%u heads over %u %s", (unsigned)m->n_head,
                 (unsigned)model_positions(m), m->channels ? "channels" : "patches");
        snprintf(more, sizeof more, "%u x %u pixels a patch, %zu passes recorded once",
                 (unsigned)m->side, (unsigned)m->side, page->n_pass);
    }
    html_put_fact(out, "Layer", value, more);
    snprintf(more, sizeof more, "%u classes", (unsigned)m->n_class);
    html_put_fact(out, "Model", html_file_name(page->model_path), more);
    fputs("</dl>\n", out);
}

static bool put_page(FILE *out, const void *data)
{
    const struct page *page = data;
    const double accuracy = (double)page->correct / page->count;

    html_put_head(out, page_css);
    fprintf(out, "<title>%.4f (%u/%u) &middot; vkattn-mnist</title>\n</head>\n", accuracy,
            (unsigned)page->correct, (unsigned)page->count);
    fprintf(out,
            "<body>\n<main>\n<header>\n<p class=\"over\">vkattn-mnist</p>\n"
            "<h1><b>%.1f<span>%%</span></b> <span class=\"lead\">%u of %u handwritten digits read "
            "correctly by %s</span></h1>\n",
            100 * accuracy, (unsigned)page->correct, (unsigned)page->count,
            page->model->n_hidden ? "an MLP" : "one attention layer");
    put_facts(out, page);
    fputs("</header>\n", out);
    if (page->n_chosen > 0)
        page_put_attention(out, page);
    page_put_confusion(out, page);
    page_put_digits(out, page);
    fputs("</main>\n", out);
    if (page->n_chosen > 0)
        html_put_script(out, page_js);
    fputs("</body>\n</html>\n", out);
    return true;
}

enum vka_status page_write(const char *path, const struct page *page, char *error)
{
    return html_write(path, put_page, page, error);
}
