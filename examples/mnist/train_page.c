/* The page of a training: a single file with the loss of each step. */
#include "train_page.h"

#include "html/html.h"

#include <math.h>
#include <stdio.h>

/* Sizes of the plot, in pixels. */
#define WIDTH 1100
#define HEIGHT 360
#define LEFT 56
#define BOTTOM 32
#define TOP 12
#define MOST_POINTS 1100 /* each the mean of as many steps */

static const char style[] =
    ".plot { width: 100%; height: auto; background: var(--card); border: 1px solid var(--line);\n"
    "  border-radius: 10px; margin-top: 32px; }\n"
    ".plot text { fill: var(--soft); font-size: 12px; }\n"
    ".plot .grid { stroke: var(--line); }\n"
    ".plot .steps { fill: none; stroke: var(--accent); stroke-width: 1; opacity: .45; }\n"
    ".plot .epochs { fill: none; stroke: var(--accent); stroke-width: 2.5; }\n"
    ".plot circle { fill: var(--accent); }\n";

struct plot {
    const float *losses;
    uint32_t n;
    double most; /* at the top */
};

static double x_of(const struct plot *p, double step)
{
    return LEFT + (WIDTH - LEFT - 16) * step / p->n;
}

static double y_of(const struct plot *p, double loss)
{
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - loss / p->most);
}

/* The mean of n losses. */
static double mean(const float *losses, uint32_t n)
{
    double sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += (double)losses[i];
    return sum / n;
}

/* Lines at round numbers, four to eight of them. */
static void put_grid(FILE *out, const struct plot *p)
{
    double step = pow(10, floor(log10(p->most)));

    while (p->most / step > 8)
        step *= 2;
    while (p->most / step < 4)
        step /= 2;
    for (int i = 0; i * step <= p->most; i++) {
        const double y = y_of(p, i * step);
        fprintf(out,
                "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
                LEFT, WIDTH - 16, y, y, LEFT - 8, y + 4, i * step);
    }
}

/* A line through the means of `each` steps. */
static void put_line(FILE *out, const struct plot *p, uint32_t each, const char *name)
{
    fprintf(out, "<polyline class=\"%s\" points=\"", name);
    for (uint32_t at = 0; at < p->n; at += each) {
        const uint32_t n = p->n - at < each ? p->n - at : each;
        fprintf(out, "%.1f,%.1f ", x_of(p, at + n / 2.0), y_of(p, mean(p->losses + at, n)));
    }
    fputs("\"/>\n", out);
}

static void put_epochs(FILE *out, const struct plot *p, uint32_t steps)
{
    if (p->n > steps)
        put_line(out, p, steps, "epochs");
    for (uint32_t at = 0; at < p->n; at += steps)
        fprintf(out,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>epoch %u: %.4f</title></circle>\n",
                x_of(p, at + steps / 2.0), y_of(p, mean(p->losses + at, steps)), at / steps + 1,
                mean(p->losses + at, steps));
}

static void put_plot(FILE *out, const struct train_progress *progress)
{
    struct plot p = {.losses = progress->losses, .n = (uint32_t)progress->state.step};
    const uint32_t steps = (uint32_t)train_steps_of_epoch(progress);

    for (uint32_t i = 0; i < p.n; i++)
        p.most = fmax(p.most, (double)p.losses[i]);
    p.most = p.most > 0 ? p.most * 1.04 : 1;
    fprintf(out,
            "<svg class=\"plot\" viewBox=\"0 0 %d %d\" role=\"img\" "
            "aria-label=\"the loss of each step\">\n",
            WIDTH, HEIGHT);
    put_grid(out, &p);
    put_line(out, &p, (p.n - 1) / MOST_POINTS + 1, "steps");
    put_epochs(out, &p, steps);
    fprintf(
        out,
        "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%u steps, %u epochs</text>\n</svg>\n"
        "<p class=\"hint\">The cross-entropy of each batch before its step, and the mean of each "
        "epoch.</p>\n",
        WIDTH - 16, HEIGHT - 10, (unsigned)p.n, (unsigned)progress->epochs);
}

static void put_facts(FILE *out, const struct train_page *page)
{
    const struct train_progress *p = page->progress;
    char value[96], more[160];

    fputs("<dl class=\"facts\">\n", out);
    html_put_fact(out, "Device", page->device, page->driver);
    snprintf(value, sizeof value, "%.1f ms a step", page->steps ? page->total_ms / page->steps : 0);
    snprintf(more, sizeof more, "%u steps in this run, recorded once", (unsigned)page->steps);
    html_put_fact(out, "Time", value, more);
    snprintf(more, sizeof more, "%u digits, seed %u", (unsigned)p->count, (unsigned)p->seed);
    html_put_fact(out, "Model", train_kinds[p->kind], more);
    snprintf(value, sizeof value, "Adam, %g", p->learning_rate);
    snprintf(more, sizeof more, "batches of %u", (unsigned)p->batch);
    html_put_fact(out, "Optimiser", value, more);
    html_put_fact(out, "File", html_file_name(page->output), "model, moments and losses");
    fputs("</dl>\n", out);
}

static bool put_page(FILE *out, const void *data)
{
    const struct train_page *page = data;
    const double accuracy = (double)page->correct / page->count;

    html_put_head(out, style);
    fprintf(out,
            "<title>%.4f (%u/%u) &middot; vkattn-mnist train</title>\n</head>\n<body>\n<main>\n"
            "<header>\n<p class=\"over\">vkattn-mnist train</p>\n"
            "<h1><b>%.1f<span>%%</span></b> <span class=\"lead\">%u of %u digits %s read "
            "correctly</span></h1>\n",
            accuracy, (unsigned)page->correct, (unsigned)page->count, 100 * accuracy,
            (unsigned)page->correct, (unsigned)page->count,
            page->own ? "that it learnt from" : "that it had not seen");
    put_facts(out, page);
    fputs("</header>\n", out);
    if (page->progress->state.step > 0)
        put_plot(out, page->progress);
    fputs("</main>\n</body>\n</html>\n", out);
    return true;
}

enum vka_status train_page_write(const char *path, const struct train_page *page, char *error)
{
    return html_write(path, put_page, page, error);
}
