/* A verdict: which kernels were measured to be the fastest for which problems, and which failed
 * their check, on one device with one driver and one build of this library. Text:
 *
 *     vkattn-verdict 1
 *     device VENDOR:DEVICE:DRIVER FINGERPRINT
 *     kernel PROBLEM KERNEL VARIANT
 *     path PROBLEM fused|unfused
 *     demote KERNEL
 *
 * one space between words, every line ended by a newline. It is never trusted: it only picks among
 * what the rules of tune.c would give on devices without the other kernels. */
#ifndef VKA_GPU_VERDICT_H
#define VKA_GPU_VERDICT_H

#include "gpu/kernels.h"

struct log;

#define VERDICT_PROBLEM 64      /* bytes of a problem's name, with its end */
#define VERDICT_VARIANTS 8      /* variants are 0 .. 7 */
#define VERDICT_SIZE (1u << 20) /* bytes of a text at most */
#define VERDICT_ENTRIES (1u << 12)

struct verdict_entry {
    char problem[VERDICT_PROBLEM]; /* ends in '*': all that begin like this */
    bool is_path;
    bool fused;         /* a path */
    enum kernel kernel; /* or a kernel and */
    uint32_t variant;
};

struct verdict {
    size_t n;
    struct verdict_entry *entries;
};

/* FNV-1a, 64 bits: of what h is of, then data. */
#define VERDICT_HASH_START UINT64_C(0xcbf29ce484222325)
uint64_t verdict_hash(uint64_t h, const void *data, size_t size);

/* Of the device's and driver's names, as drivers do not count every change in their version, and of
 * all kernels. */
uint64_t verdict_fingerprint(const struct vka_device_properties *properties);

/* The first two lines for a device, NUL-terminated and cut to size; the length of the whole. */
size_t verdict_identity(const struct vka_device_properties *properties, char *text, size_t size);

/* Fills the verdict and caps->failed_kernels from text. One of another device, driver or build, or
 * one that is malformed, is left aside with a warning; OUT_OF_HOST_MEMORY alone is a failure. */
enum vka_status verdict_read(struct log *log, const char *text, size_t size, struct caps *caps,
                             struct verdict *verdict);
void verdict_free(struct verdict *verdict);

/* The entry for a problem, or NULL. verdict may be NULL. */
const struct verdict_entry *verdict_find(const struct verdict *verdict, const char *problem,
                                         bool is_path);

#endif
