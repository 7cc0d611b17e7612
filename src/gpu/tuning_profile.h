/* Tuning profiles: which kernel was measured to be the fastest for which problem, and which kernels
 * failed their check, on one device with one driver and one build of this library. The text:
 *
 *     vkattn-tuning-profile 1
 *     device VENDOR:DEVICE:DRIVER FINGERPRINT
 *     kernel PROBLEM KERNEL VARIANT
 *     path PROBLEM fused|unfused
 *     demote KERNEL
 *
 * with one space between words and a newline after every line. The text is never trusted: it only
 * selects among what the rules of kernel/ would choose on devices without the other kernels. */
#ifndef VKA_GPU_TUNING_PROFILE_H
#define VKA_GPU_TUNING_PROFILE_H

#include "gpu/kernels.h"

struct caps;
struct log;

#define PROFILE_PROBLEM 64      /* bytes of the name of a problem, with its NUL */
#define PROFILE_VARIANTS 8      /* variants are 0 .. 7 */
#define PROFILE_SIZE (1u << 20) /* the most bytes of a text */
#define PROFILE_ENTRIES (1u << 12)

struct tuning_profile_entry {
    char problem[PROFILE_PROBLEM]; /* with a '*' at the end: all that begin like this */
    bool is_path;
    bool fused;         /* a path */
    enum kernel kernel; /* or a kernel and its variant */
    uint32_t variant;
};

struct tuning_profile {
    size_t n;
    struct tuning_profile_entry *entries;
};

/* FNV-1a with 64 bits: continues the hash h with data. */
#define HASH_START UINT64_C(0xcbf29ce484222325)
uint64_t hash_bytes(uint64_t h, const void *data, size_t size);

/* Hashes all kernels and the names of device and driver; drivers do not count every change in their
 * version number. */
uint64_t tuning_profile_fingerprint(const struct vka_device_properties *properties);

/* Writes the first two lines for a device, cut to size and NUL-terminated; returns their length in
 * full. */
size_t tuning_profile_identity(const struct vka_device_properties *properties, char *text,
                               size_t size);

/* Fills *profile and caps->kernels from text. A profile that is malformed or of another device,
 * driver or build is ignored with a warning; only OUT_OF_HOST_MEMORY is a failure. */
enum vka_status tuning_profile_read(struct log *log, const char *text, size_t size,
                                    struct caps *caps, struct tuning_profile *profile);
void tuning_profile_free(struct tuning_profile *profile);

/* The entry for a problem, or NULL. profile may be NULL. */
const struct tuning_profile_entry *tuning_profile_find(const struct tuning_profile *profile,
                                                       const char *problem, bool is_path);

#endif
