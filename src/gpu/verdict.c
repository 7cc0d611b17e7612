#include "gpu/verdict.h"
#include "gpu/caps.h"
#include "core/status.h"
#include "gpu/kernels_spv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_WORDS 4

uint64_t verdict_hash(uint64_t h, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h;
}

uint64_t verdict_fingerprint(const struct vka_device_properties *p)
{
    uint64_t h = VERDICT_HASH_START;
    h = verdict_hash(h, p->name, strlen(p->name));
    h = verdict_hash(h, p->driver, strlen(p->driver));
    return verdict_hash(h, kernels_hash, strlen(kernels_hash));
}

size_t verdict_identity(const struct vka_device_properties *p, char *text, size_t size)
{
    int n = snprintf(text, size, "vkattn-verdict 1\ndevice %08x:%08x:%08x %016llx\n", p->vendor_id,
                     p->device_id, p->driver_version, (unsigned long long)verdict_fingerprint(p));
    return n > 0 ? (size_t)n : 0;
}

/* The words of a line, each copied to a buffer of its own. */
struct words {
    size_t n;
    char word[MOST_WORDS][VERDICT_PROBLEM];
};

/* Splits a line. False unless it is words of 1 to 63 characters from ! to ~ with single spaces. */
static bool split(const char *line, size_t length, struct words *words)
{
    size_t at = 0;
    words->n = 0;
    for (size_t i = 0; i <= length; i++) {
        bool end = i == length || line[i] == ' ';
        if (words->n == MOST_WORDS || (end && at == 0) ||
            (!end && (line[i] < '!' || line[i] > '~' || at == VERDICT_PROBLEM - 1)))
            return false;
        words->word[words->n][at++] = end ? '\0' : line[i];
        if (end) {
            words->n++;
            at = 0;
        }
    }
    return true;
}

static bool read_kernel(const char *name, enum kernel *kernel)
{
    for (int k = 0; k < KERNEL_COUNT; k++) {
        *kernel = (enum kernel)k;
        if (strcmp(kernel_table[k].name, name) == 0)
            return true;
    }
    return false;
}

/* Reads one line after the first two. */
static bool read_line(const struct words *w, struct verdict *verdict, uint64_t *failed)
{
    enum kernel kernel;
    if (w->n == 2 && strcmp(w->word[0], "demote") == 0 && read_kernel(w->word[1], &kernel)) {
        *failed |= 1ull << kernel;
        return true;
    }
    struct verdict_entry e = {.is_path = w->n == 3 && strcmp(w->word[0], "path") == 0};
    if (w->n < 3 || verdict->n == VERDICT_ENTRIES)
        return false;
    memcpy(e.problem, w->word[1], sizeof e.problem);
    if (e.is_path) {
        e.fused = strcmp(w->word[2], "fused") == 0;
        if (!e.fused && strcmp(w->word[2], "unfused") != 0)
            return false;
    } else {
        const char *variant = w->word[3];
        if (w->n != 4 || strcmp(w->word[0], "kernel") != 0 || !read_kernel(w->word[2], &e.kernel) ||
            variant[0] < '0' || variant[0] >= '0' + VERDICT_VARIANTS || variant[1] != '\0')
            return false;
        e.variant = (uint32_t)(variant[0] - '0');
    }
    verdict->entries[verdict->n++] = e;
    return true;
}

static bool read_lines(const char *text, size_t size, struct verdict *verdict, uint64_t *failed)
{
    while (size) {
        const char *end = memchr(text, '\n', size);
        struct words words;
        if (!end || !split(text, (size_t)(end - text), &words) ||
            !read_line(&words, verdict, failed))
            return false;
        size -= (size_t)(end - text) + 1;
        text = end + 1;
    }
    return true;
}

enum vka_status verdict_read(struct log *log, const char *text, size_t size, struct caps *caps,
                             struct verdict *verdict)
{
    char identity[128];
    size_t length = verdict_identity(&caps->properties, identity, sizeof identity);
    uint64_t failed = 0;
    *verdict = (struct verdict){0};
    if (size < length || memcmp(text, identity, length) != 0) {
        log_message(log, VKA_LOG_WARNING,
                    "the tuning profile is for another device, driver or build and is ignored");
        return VKA_OK;
    }
    verdict->entries = calloc(VERDICT_ENTRIES, sizeof *verdict->entries);
    ENSURE_ALLOC(verdict->entries);
    if (size <= VERDICT_SIZE && read_lines(text + length, size - length, verdict, &failed)) {
        for (int k = 0; k < KERNEL_COUNT; k++)
            if (failed >> k & 1)
                caps->kernels[k] = KERNEL_DEMOTED;
        return VKA_OK;
    }
    log_message(log, VKA_LOG_WARNING, "the tuning profile is malformed and is ignored");
    verdict_free(verdict);
    return VKA_OK;
}

void verdict_free(struct verdict *verdict)
{
    free(verdict->entries);
    *verdict = (struct verdict){0};
}

static bool matches(const char *pattern, const char *problem)
{
    while (*pattern && strcmp(pattern, "*") != 0 && *pattern == *problem) {
        pattern++;
        problem++;
    }
    return *pattern == *problem || (pattern[0] == '*' && pattern[1] == '\0');
}

const struct verdict_entry *verdict_find(const struct verdict *verdict, const char *problem,
                                         bool is_path)
{
    for (size_t i = 0; verdict && i < verdict->n; i++)
        if (verdict->entries[i].is_path == is_path && matches(verdict->entries[i].problem, problem))
            return &verdict->entries[i];
    return NULL;
}
