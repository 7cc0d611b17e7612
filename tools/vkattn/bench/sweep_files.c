/* vkattn bench sweep: the CSV file, and the plot as an SVG file that loads nothing else.
 * SPDX-License-Identifier: MIT */
#include "sweep_files.h"

#include "core/os.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *sweep_csv(const struct sweep *sweep)
{
    const struct bench_options *o = sweep->options;
    struct os_memory memory;
    if (!os_memory_open(&memory))
        return NULL;
    FILE *out = memory.stream;
    fputs("series,batch,n_head,n_kv_head,head_dim,causal,dtype,n_q,n_kv,repeat,median_ms,min_ms,"
          "gpu_ms,gflops,gbps,workspace_bytes\n",
          out);
    for (size_t i = 0; i < SWEEP_SERIES; i++) {
        const struct sweep_series *s = &sweep->series[i];
        for (size_t j = 0; j < s->n; j++) {
            const struct sweep_point *p = &s->points[j];
            bool decode = s->op == BENCH_DECODE;
            fprintf(out,
                    "%s,%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%d,%s,%" PRIu32 ",%" PRIu32
                    ",%" PRIu32 ",%.9g,%.9g,",
                    s->name, o->batch, o->n_head, o->n_kv_head, o->head_dim, o->causal && !decode,
                    vka_dtype_name((enum vka_dtype)o->dtype), decode ? 1 : p->length, p->length,
                    p->times.repeat, p->times.median, p->times.min);
            if (p->times.gpu >= 0)
                fprintf(out, "%.9g", p->times.gpu);
            fprintf(out, ",%.9g,%.9g,%" PRIu64 "\n", p->gflops, p->gbps, p->workspace);
        }
    }
    return os_memory_close(&memory) ? memory.text : NULL;
}

/* ---- Two plots with logarithmic axes, time and rate against length ---------------- */

#define WIDTH 980
#define HEIGHT 470
#define PLOT_WIDTH 330
#define PLOT_TOP 96
#define PLOT_HEIGHT 310
#define LABEL_GAP 17 /* the least pixels between the names at the ends of the lines */

struct plot {
    const char *title, *measure;
    double (*value)(const struct sweep_point *point);
    double left;       /* of the frame, pixels */
    double x[2], y[2]; /* log10 of the values at the left and right, the bottom and top */
};

static double time_of(const struct sweep_point *p)
{
    return p->times.median;
}

static double rate_of(const struct sweep_point *p)
{
    return p->gflops;
}

static double place_x(const struct plot *plot, double length)
{
    double share = (log10(length) - plot->x[0]) / (plot->x[1] - plot->x[0]);
    return plot->left + share * PLOT_WIDTH;
}

static double place_y(const struct plot *plot, double value)
{
    double share = (log10(value) - plot->y[0]) / (plot->y[1] - plot->y[0]);
    return PLOT_TOP + (1 - share) * PLOT_HEIGHT;
}

/* Sets the axes so that all points are inside: x from the first length to the last, y with a
 * margin. False if there are no points. */
static bool fit_plot(const struct sweep *sweep, struct plot *plot)
{
    double low = INFINITY, high = 0, last = 0;
    for (size_t i = 0; i < SWEEP_SERIES; i++)
        for (size_t j = 0; j < sweep->series[i].n; j++) {
            const struct sweep_point *p = &sweep->series[i].points[j];
            low = fmin(low, plot->value(p));
            high = fmax(high, plot->value(p));
            last = fmax(last, p->length);
        }
    plot->x[0] = log10(sweep->from) - 0.05;
    plot->x[1] = log10(last) + 0.05;
    plot->y[0] = floor(log10(low) * 4 - 0.4) / 4;
    plot->y[1] = ceil(log10(high) * 4 + 0.4) / 4;
    return high > 0 && isfinite(low);
}

static void put_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("<>&\"", *text))
            fprintf(out, "&#%d;", *text);
        else if ((unsigned char)*text >= 0x20 && (unsigned char)*text < 0x7f)
            putc(*text, out);
    }
}

/* 512, 4k, 1M */
static void put_length(FILE *out, uint32_t length)
{
    if (length >= 1048576 && length % 1048576 == 0)
        fprintf(out, "%" PRIu32 "M", length / 1048576);
    else if (length >= 1024 && length % 1024 == 0)
        fprintf(out, "%" PRIu32 "k", length / 1024);
    else
        fprintf(out, "%" PRIu32, length);
}

static void put_value(FILE *out, double value, const char *measure)
{
    bool time = !strcmp(measure, "ms");
    if (time && value >= 1000)
        fprintf(out, "%g s", value / 1000);
    else if (time && value < 1)
        fprintf(out, "%g us", value * 1000);
    else if (!time && value >= 1000)
        fprintf(out, "%g T", value / 1000);
    else
        fprintf(out, time ? "%g ms" : "%g", value);
}

static void put_axes(FILE *out, const struct sweep *sweep, const struct plot *plot)
{
    const double bottom = PLOT_TOP + PLOT_HEIGHT, right = plot->left + PLOT_WIDTH;
    fprintf(out, "<text class=\"plot\" x=\"%.1f\" y=\"%d\">%s</text>\n", plot->left, PLOT_TOP - 12,
            plot->title);
    for (int decade = (int)floor(plot->y[0]); decade <= (int)ceil(plot->y[1]); decade++) {
        for (int digit = 1; digit <= 5; digit = digit == 1 ? 2 : digit + 3) {
            double value = digit * pow(10, decade), y = place_y(plot, value);
            if (y < PLOT_TOP - 0.5 || y > bottom + 0.5)
                continue;
            fprintf(out,
                    "<path class=\"%s\" d=\"M%.1f %.1fH%.1f\"/><text class=\"tick\" x=\"%.1f\" "
                    "y=\"%.1f\" text-anchor=\"end\">",
                    digit == 1 ? "grid" : "grid fine", plot->left, y, right, plot->left - 8, y + 4);
            put_value(out, value, plot->measure);
            fputs("</text>\n", out);
        }
    }
    for (uint64_t length = sweep->from; log10((double)length) <= plot->x[1]; length *= 2) {
        double x = place_x(plot, (double)length);
        fprintf(out,
                "<path class=\"grid fine\" d=\"M%.1f %dV%.1f\"/><text class=\"tick\" x=\"%.1f\" "
                "y=\"%.1f\" text-anchor=\"middle\">",
                x, PLOT_TOP, bottom, x, bottom + 18);
        put_length(out, (uint32_t)length);
        fputs("</text>\n", out);
    }
    fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">keys</text>\n",
            plot->left + PLOT_WIDTH / 2.0, bottom + 40);
}

static void put_line(FILE *out, const struct plot *plot, const struct sweep_series *s, size_t i)
{
    fprintf(out, "<polyline class=\"line s%zu\" points=\"", i);
    for (size_t j = 0; j < s->n; j++)
        fprintf(out, "%s%.1f,%.1f", j ? " " : "", place_x(plot, s->points[j].length),
                place_y(plot, plot->value(&s->points[j])));
    fputs("\"/>\n", out);
    for (size_t j = 0; j < s->n; j++) {
        const struct sweep_point *p = &s->points[j];
        fprintf(out,
                "<circle class=\"dot s%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>%s, %" PRIu32
                " keys: %.3f ms, %.2f GFLOP/s, %.2f GB/s</title></circle>\n",
                i, place_x(plot, p->length), place_y(plot, plot->value(p)), s->name, p->length,
                p->times.median, p->gflops, p->gbps);
    }
}

/* Writes the names at the ends of the lines, from the top down, moved apart if they would touch. */
static void put_names(FILE *out, const struct sweep *sweep, const struct plot *plot)
{
    double y[SWEEP_SERIES], above = -INFINITY;
    bool done[SWEEP_SERIES] = {false};
    for (size_t i = 0; i < SWEEP_SERIES; i++) {
        const struct sweep_series *s = &sweep->series[i];
        done[i] = s->n == 0;
        y[i] = s->n ? place_y(plot, plot->value(&s->points[s->n - 1])) : 0;
    }
    for (;;) {
        size_t next = SWEEP_SERIES;
        for (size_t i = 0; i < SWEEP_SERIES; i++)
            if (!done[i] && (next == SWEEP_SERIES || y[i] < y[next]))
                next = i;
        if (next == SWEEP_SERIES)
            return;
        const struct sweep_series *s = &sweep->series[next];
        double at = fmax(y[next], above + LABEL_GAP);
        fprintf(out, "<text class=\"name n%zu\" x=\"%.1f\" y=\"%.1f\">%s", next,
                place_x(plot, s->points[s->n - 1].length) + 10, at + 4, s->name);
        if (s->n > 1 && plot->value == time_of)
            fprintf(out, "<tspan class=\"fit\"> n<tspan dy=\"-4\">%.2f</tspan></tspan>",
                    s->exponent);
        fputs("</text>\n", out);
        done[next] = true;
        above = at;
    }
}

static const char style[] =
    "text{font:13px system-ui,sans-serif;fill:#1d2430}\n"
    ".back{fill:#fff}.title{font-size:18px;font-weight:600}.plot{font-weight:600}\n"
    ".sub,.tick{fill:#5b6472}.tick{font-size:11px}.fit{font-weight:400;font-size:11px}\n"
    ".grid{stroke:#c9ced6;fill:none}.fine{stroke:#e8ebef}.line{fill:none;stroke-width:2}\n"
    ".dot{stroke:#fff;stroke-width:1.5}.name{font-weight:600}\n"
    ".line.s0{stroke:#2563c9}.dot.s0,.name.n0,.n0 .fit{fill:#2563c9}\n"
    ".line.s1{stroke:#c2570c}.dot.s1,.name.n1,.n1 .fit{fill:#c2570c}\n"
    ".line.s2{stroke:#0f7f5f}.dot.s2,.name.n2,.n2 .fit{fill:#0f7f5f}\n"
    "@media(prefers-color-scheme:dark){text{fill:#e6e9ee}.back{fill:#14181f}\n"
    ".sub,.tick{fill:#9aa4b2}.grid{stroke:#3a424e}.fine{stroke:#252b34}.dot{stroke:#14181f}\n"
    ".line.s0{stroke:#7db0ff}.dot.s0,.name.n0,.n0 .fit{fill:#7db0ff}\n"
    ".line.s1{stroke:#ff9d5c}.dot.s1,.name.n1,.n1 .fit{fill:#ff9d5c}\n"
    ".line.s2{stroke:#4fd1a5}.dot.s2,.name.n2,.n2 .fit{fill:#4fd1a5}}\n";

static void put_head(FILE *out, const struct sweep *sweep)
{
    const struct bench_options *o = sweep->options;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\" role=\"img\" aria-label=\"Time and rate of attention by length\">\n"
            "<style>\n%s</style>\n<rect class=\"back\" width=\"100%%\" height=\"100%%\"/>\n"
            "<text class=\"title\" x=\"24\" y=\"34\">Attention and decoding by length</text>\n"
            "<text class=\"sub\" x=\"24\" y=\"56\">",
            WIDTH, HEIGHT, WIDTH, HEIGHT, style);
    put_escaped(out, sweep->device->name);
    fprintf(out,
            " &#183; batch %" PRIu32 ", %" PRIu32 " heads (%" PRIu32 " for keys) of %" PRIu32
            ", %s%s</text>\n",
            o->batch, o->n_head, o->n_kv_head, o->head_dim,
            vka_dtype_name((enum vka_dtype)o->dtype), o->causal ? ", causal" : "");
}

char *sweep_svg(const struct sweep *sweep)
{
    struct plot plots[] = {
        {"median time of a run", "ms", time_of, 72, {0}, {0}},
        {"GFLOP/s", "GFLOP/s", rate_of, 560, {0}, {0}},
    };
    struct os_memory memory;
    if (!os_memory_open(&memory))
        return NULL;
    FILE *out = memory.stream;
    put_head(out, sweep);
    for (size_t i = 0; i < sizeof plots / sizeof plots[0]; i++) {
        if (!fit_plot(sweep, &plots[i]))
            continue;
        put_axes(out, sweep, &plots[i]);
        for (size_t j = 0; j < SWEEP_SERIES; j++)
            put_line(out, &plots[i], &sweep->series[j], j);
        put_names(out, sweep, &plots[i]);
    }
    fputs("</svg>\n", out);
    return os_memory_close(&memory) ? memory.text : NULL;
}
