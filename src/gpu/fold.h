/* Builds specialization constants into a module before the driver sees it: for devices whose
 * compiler takes no length of an array from them, as Metal under VK_KHR_portability_subset. */
#ifndef VKA_GPU_FOLD_H
#define VKA_GPU_FOLD_H

#include <vkattn/vkattn.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct folded {
    uint32_t *words; /* [n_word], for free(); NULL on failure */
    size_t n_word;
    const char *why; /* VKA_UNSUPPORTED: the end of a sentence that begins with "the kernel" */
};

/* Builds values[n_value] into a module as the constants whose SpecId is 0 to n_value - 1; others
 * keep their defaults. The result has no specialization constant left, and workgroups of the
 * size that its constant for it has. Returns VKA_UNSUPPORTED where an operation is not known or
 * the words are no module (nothing outside words[n_word] is read), or VKA_OUT_OF_HOST_MEMORY. */
enum vka_status fold_module(const uint32_t *words, size_t n_word, const uint32_t *values,
                            uint32_t n_value, struct folded *result);

/* Whether no instruction of the module declares or names a specialization constant. */
bool fold_is_plain(const uint32_t *words, size_t n_word);

#endif
