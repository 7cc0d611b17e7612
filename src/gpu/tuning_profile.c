#include "gpu/tuning_profile.h"
#include "gpu/caps.h"
#include "core/status.h"
#include "gpu/kernels_spv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_WORDS 4

uint64_t hash_bytes(uint64_t h, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h;
}

uint64_t tuning_profile_fingerprint(const struct vka_device_properties *p)
{
    uint64_t h = HASH_START;
    h = hash_bytes(h, p->name, strlen(p->name));
    h = hash_bytes(h, p->driver, strlen(p->driver));
    return hash_bytes(h, kernels_hash, strlen(kernels_hash));
}

size_t tuning_profile_identity(const struct vka_device_properties *p, char *text, size_t size)
{
    int n = snprintf(text, size, "vkattn-tuning-profile 1\ndevice %08x:%08x:%08x %016llx\n",
                     p->vendor_id, p->device_id, p->driver_version,
                     (unsigned long long)tuning_profile_fingerprint(p));
    return n > 0 ? (size_t)n : 0;
}

/* The words of a line, each copied to a buffer of its own. */
struct words {
    size_t n;
    char word[MOST_WORDS][PROFILE_PROBLEM];
};

/* Splits a line. False unless it is words of 1 to 63 characters from ! to ~ with single spaces. */
static bool split(const char *line, size_t length, struct words *words)
{
    size_t at = 0;
    words->n = 0;
    for (size_t i = 0; i <= length; i++) {
        bool end = i == length || line[i] == ' ';
        if (words->n == MOST_WORDS || (end && at == 0) ||
            (!end && (line[i] < '!' || line[i] > '~' || at == PROFILE_PROBLEM - 1)))
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
static bool read_line(const struct words *w, struct tuning_profile *profile,
                      struct kernel_set *failed)
{
    enum kernel kernel;
    if (w->n == 2 && strcmp(w->word[0], "demote") == 0 && read_kernel(w->word[1], &kernel)) {
        set_add(failed, kernel);
        return true;
    }
    struct tuning_profile_entry e = {.is_path = w->n == 3 && strcmp(w->word[0], "path") == 0};
    if (w->n < 3 || profile->n == PROFILE_ENTRIES)
        return false;
    memcpy(e.problem, w->word[1], sizeof e.problem);
    if (e.is_path) {
        e.fused = strcmp(w->word[2], "fused") == 0;
        if (!e.fused && strcmp(w->word[2], "unfused") != 0)
            return false;
    } else {
        const char *variant = w->word[3];
        if (w->n != 4 || strcmp(w->word[0], "kernel") != 0 || !read_kernel(w->word[2], &e.kernel) ||
            variant[0] < '0' || variant[0] >= '0' + PROFILE_VARIANTS || variant[1] != '\0')
            return false;
        e.variant = (uint32_t)(variant[0] - '0');
    }
    profile->entries[profile->n++] = e;
    return true;
}

static bool read_lines(const char *text, size_t size, struct tuning_profile *profile,
                       struct kernel_set *failed)
{
    while (size) {
        const char *end = memchr(text, '\n', size);
        struct words words;
        if (!end || !split(text, (size_t)(end - text), &words) ||
            !read_line(&words, profile, failed))
            return false;
        size -= (size_t)(end - text) + 1;
        text = end + 1;
    }
    return true;
}

static bool begins(const char *text, size_t size, const char *word)
{
    return size >= strlen(word) && memcmp(text, word, strlen(word)) == 0;
}

enum vka_status tuning_profile_read(struct log *log, const char *text, size_t size,
                                    struct caps *caps, struct tuning_profile *profile)
{
    static const char verdicts[] = "vkattn-verdict ", begin[] = "vkattn-tuning-profile ";
    char identity[128];
    size_t length = tuning_profile_identity(&caps->properties, identity, sizeof identity);
    struct kernel_set failed = NO_KERNELS;
    *profile = (struct tuning_profile){0};
    if (size < length || memcmp(text, identity, length) != 0) {
        log_message(log, VKA_LOG_WARNING,
                    "the tuning profile %s and is not used; 'vkattn tune' makes a new one",
                    begins(text, size, verdicts)
                        ? "is a file of verdicts, which this version does not read,"
                    : begins(text, size, begin) ? "is for another device, driver or build"
                                                : "does not begin with 'vkattn-tuning-profile'");
        return VKA_OK;
    }
    profile->entries = calloc(PROFILE_ENTRIES, sizeof *profile->entries);
    ENSURE_ALLOC(profile->entries);
    if (size <= PROFILE_SIZE && read_lines(text + length, size - length, profile, &failed)) {
        for (int k = 0; k < KERNEL_COUNT; k++)
            if (set_has(failed, k))
                caps->kernels[k] = KERNEL_DEMOTED;
        return VKA_OK;
    }
    log_message(log, VKA_LOG_WARNING,
                "the tuning profile is malformed and is not used; 'vkattn tune' makes a new one");
    tuning_profile_free(profile);
    return VKA_OK;
}

void tuning_profile_free(struct tuning_profile *profile)
{
    free(profile->entries);
    *profile = (struct tuning_profile){0};
}

static bool matches(const char *pattern, const char *problem)
{
    while (*pattern && strcmp(pattern, "*") != 0 && *pattern == *problem) {
        pattern++;
        problem++;
    }
    return *pattern == *problem || (pattern[0] == '*' && pattern[1] == '\0');
}

const struct tuning_profile_entry *tuning_profile_find(const struct tuning_profile *profile,
                                                       const char *problem, bool is_path)
{
    for (size_t i = 0; profile && i < profile->n; i++)
        if (profile->entries[i].is_path == is_path && matches(profile->entries[i].problem, problem))
            return &profile->entries[i];
    return NULL;
}
