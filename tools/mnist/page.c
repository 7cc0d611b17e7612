#include "page_parts.h"

#include <vkattn/vkattn_io.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void page_put_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        const char *at = strchr("<>&\"'", *text);

        if (at)
            fprintf(out, "&#%d;", *at);
        else
            putc(*text, out);
    }
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static void put_fact(FILE *out, const char *name, const char *value, const char *more)
{
    fprintf(out, "<div><dt>%s</dt><dd>", name);
    page_put_text(out, value);
    fputs("<small>", out);
    page_put_text(out, more);
    fputs("</small></dd></div>\n", out);
}

/* Milliseconds to about three digits. */
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
    put_fact(out, "Device", page->device, page->driver);
    format_time(page->total_ms, value, sizeof value);
    format_time(page->total_ms / page->count, more, sizeof more);
    used = strlen(more);
    snprintf(more + used, sizeof more - used, " a digit, in batches of %u", (unsigned)page->batch);
    put_fact(out, "Time", value, more);
    snprintf(value, sizeof value, "%u heads over %u %s", (unsigned)m->n_head,
             (unsigned)model_units(m), m->channels ? "channels" : "patches");
    snprintf(more, sizeof more, "%u x %u pixels a patch, %zu passes recorded once",
             (unsigned)m->side, (unsigned)m->side, page->n_pass);
    put_fact(out, "Layer", value, more);
    snprintf(more, sizeof more, "%u classes", (unsigned)m->n_class);
    put_fact(out, "Model", file_name(page->model_path), more);
    fputs("</dl>\n", out);
}

static void put_page(FILE *out, const struct page *page)
{
    const double accuracy = (double)page->correct / page->count;

    fputs(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
        "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n",
        out);
    fprintf(out,
            "<title>%.4f (%u/%u) &middot; vkattn-mnist</title>\n<style>\n%s</style>\n</head>\n",
            accuracy, (unsigned)page->correct, (unsigned)page->count, page_css);
    fprintf(out,
            "<body>\n<main>\n<header>\n<p class=\"over\">vkattn-mnist</p>\n"
            "<h1><b>%.1f<span>%%</span></b> <span class=\"lead\">%u of %u handwritten digits read "
            "correctly by one attention layer</span></h1>\n",
            100 * accuracy, (unsigned)page->correct, (unsigned)page->count);
    put_facts(out, page);
    fputs("</header>\n", out);
    if (page->n_chosen > 0)
        page_put_attention(out, page);
    page_put_confusion(out, page);
    page_put_digits(out, page);
    fprintf(out, "</main>\n");
    if (page->n_chosen > 0)
        fprintf(out, "<script>\n%s</script>\n", page_js);
    fputs("</body>\n</html>\n", out);
}

static enum vka_status refuse(const char *path, const char *verb, char *error)
{
    snprintf(error, VKA_IO_ERROR_SIZE, "%s: cannot be %s: %s", path, verb, strerror(errno));
    return VKA_IO;
}

enum vka_status page_write(const char *path, const struct page *page, char *error)
{
    const size_t size = strlen(path) + 32;
    char *beside = malloc(size);
    enum vka_status status = VKA_OK;
    struct stat info;
    FILE *out = NULL;
    bool made = false;
    int fd;

    if (!beside) {
        snprintf(error, VKA_IO_ERROR_SIZE, "%s: out of memory", path);
        return VKA_OUT_OF_HOST_MEMORY;
    }
    /* A rename would put a file in the place of a device. */
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        snprintf(error, VKA_IO_ERROR_SIZE, "%s: expected a regular file", path);
        status = VKA_IO;
        goto fail;
    }
    snprintf(beside, size, "%s.%ld.tmp", path, (long)getpid());
    fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    made = fd >= 0;
    out = made ? fdopen(fd, "w") : NULL;
    if (!out) {
        status = refuse(path, "created", error);
        if (made)
            close(fd);
        goto fail;
    }
    put_page(out, page);
    if (fflush(out) != 0 || ferror(out) || fsync(fd) != 0 || rename(beside, path) != 0)
        status = refuse(path, "written", error);
fail:
    if (out)
        fclose(out);
    if (made && status != VKA_OK)
        unlink(beside);
    free(beside);
    return status;
}
