/* The page of vkattn run: what each head attends to. SPDX-License-Identifier: MIT */
#include "page.h"

#include "html/html.h"
#include "html/texts.h"
#include "tokens.h"

#include <inttypes.h>
#include <math.h>

/* The weights that are shown: the first ones on each axis. */
struct shown {
    uint32_t batch, heads, queries, keys;
};

static uint32_t least(uint64_t a, uint64_t b)
{
    return (uint32_t)(a < b ? a : b);
}

static struct shown choose_shown(const struct case_file *c)
{
    struct shown s = {.queries = least(c->n_q, RUN_PAGE_SIDE),
                      .keys = least(c->n_kv, RUN_PAGE_SIDE)};
    const uint64_t maps = RUN_PAGE_WEIGHTS / ((uint64_t)s.queries * s.keys);
    s.heads = least(c->n_head, maps);
    s.batch = least(c->batch, maps / s.heads);
    return s;
}

/* "first 512 of 2048" if not all are shown, else "2048". */
static void put_count(FILE *out, uint32_t shown, uint32_t all, const char *one, const char *many)
{
    if (shown < all)
        fprintf(out, "the first %" PRIu32 " of ", shown);
    fprintf(out, "%" PRIu32 " %s", all, all == 1 ? one : many);
}

static void put_facts(FILE *out, const struct run_page *page)
{
    const struct case_file *c = page->problem;
    const struct case_config *config = &c->config;
    char value[128], more[256], window[64] = "";
    fputs("<dl class=\"facts\">\n", out);
    html_put_fact(out, "Device", page->device, page->driver);
    snprintf(value, sizeof value, "%" PRIu32 " heads of %" PRIu32 " features", c->n_head,
             c->head_dim);
    snprintf(more, sizeof more, "over %" PRIu32 " key heads, from width %" PRIu32 " to %" PRIu32,
             c->n_kv_head, c->query_dim, c->output_dim);
    html_put_fact(out, "Layer", value, more);
    snprintf(value, sizeof value, "%" PRIu32 " queries, %" PRIu32 " keys", c->n_q, c->n_kv);
    snprintf(more, sizeof more, "%s, batch of %" PRIu32, html_file_name(page->query), c->batch);
    html_put_fact(out, "Input", value, more);
    if (config->window)
        snprintf(window, sizeof window, ", window %" PRId64 ",%" PRId64, config->window_left,
                 config->window_right);
    snprintf(more, sizeof more, "%s%s%s", c->mask ? "with a mask" : "no mask",
             c->kv_length ? ", key lengths" : "", window);
    html_put_fact(out, "Visible", config->causal ? "keys up to the query" : "all keys", more);
    fputs("</dl>\n", out);
}

/* Writes the square roots of the weights, so that small ones can be told apart, as a string of
 * [heads][queries][keys]. */
static void put_map(FILE *out, const struct run_page *page, const struct shown *s, uint32_t b)
{
    const struct case_file *c = page->problem;
    putc('"', out);
    for (uint32_t h = 0; h < s->heads; h++) {
        for (uint32_t i = 0; i < s->queries; i++) {
            const double *row =
                page->weights + (((size_t)b * c->n_head + h) * c->n_q + i) * c->n_kv;
            for (uint32_t j = 0; j < s->keys; j++)
                html_put_share(out, sqrt(row[j]));
        }
    }
    putc('"', out);
}

static bool put_data(FILE *out, const struct run_page *page, const struct shown *s)
{
    const bool pairs = page->problem->key != NULL;
    fprintf(out,
            "<script type=\"application/json\" id=\"attention-data\">\n{\"heads\":%" PRIu32
            ",\"queries\":%" PRIu32 ",\"keys\":%" PRIu32 ",\"self\":%s,\"inputs\":[\n",
            s->heads, s->queries, s->keys, pairs ? "false" : "true");
    for (uint32_t b = 0; b < s->batch; b++) {
        fputs(b ? ",\n{" : "{", out);
        if (page->tokens) {
            fputs("\"queries\":", out);
            if (!html_put_json(out, tokens_of_queries(page->tokens, pairs, b)))
                return false;
            fputs(",\n\"keys\":", out);
            if (!html_put_json(out, tokens_of_keys(page->tokens, pairs, b)))
                return false;
            fputs(",\n", out);
        }
        fputs("\"roots\":", out);
        put_map(out, page, s, b);
        putc('}', out);
    }
    fputs("\n]}\n</script>\n", out);
    return true;
}

static bool put_page(FILE *out, const void *data)
{
    const struct run_page *page = data;
    const struct case_file *c = page->problem;
    const struct shown s = choose_shown(c);
    const char *name = html_file_name(page->layer);
    html_put_head(out, run_css);
    fputs("<title>", out);
    html_put_text(out, name);
    fputs(" &middot; vkattn run</title>\n</head>\n<body>\n<main>\n<header>\n"
          "<p class=\"over\">vkattn run</p>\n<h1>",
          out);
    html_put_text(out, name);
    fputs("</h1>\n", out);
    put_facts(out, page);
    fputs("</header>\n<section id=\"attention\">\n<h2>What each head looks at "
          "<span class=\"count\">",
          out);
    put_count(out, s.heads, c->n_head, "head", "heads");
    fputs(", ", out);
    put_count(out, s.queries, c->n_q, "query", "queries");
    fputs(", ", out);
    put_count(out, s.keys, c->n_kv, "key", "keys");
    if (c->batch > 1) {
        fputs(", ", out);
        put_count(out, s.batch, c->batch, "input", "inputs");
    }
    fputs(
        "</span></h2>\n<p class=\"hint\">A row of a map is a query, a column a key. Click a token, "
        "a row of the large map or a head; arrow keys move the row. Hover for values.</p>\n"
        "<noscript><p>The maps are drawn by this page's own script.</p></noscript>\n"
        "<div class=\"picker\" role=\"group\" aria-label=\"Inputs\"></div>\n"
        "<div class=\"words\"></div>\n<p class=\"caption\"></p>\n<div class=\"explorer\">\n"
        "<div class=\"large\"></div>\n"
        "<div class=\"heads\" role=\"group\" aria-label=\"Heads\"></div>\n</div>\n",
        out);
    if (!put_data(out, page, &s))
        return false;
    fputs("</section>\n</main>\n", out);
    html_put_script(out, run_js);
    fputs("</body>\n</html>\n", out);
    return true;
}

enum vka_status run_page_write(const char *path, const struct run_page *page, char *error)
{
    return html_write(path, put_page, page, error);
}
