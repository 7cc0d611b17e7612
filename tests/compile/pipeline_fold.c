#include "pipeline_fold.h"

#include <gpu/fold.h>
#include <gpu/kernels_spv.h>

#include <stdio.h>
#include <stdlib.h>

static bool write_words(const struct folded *folded, const char *path)
{
    FILE *file = fopen(path, "wb");
    const bool ok =
        file && fwrite(folded->words, sizeof(uint32_t), folded->n_word, file) == folded->n_word;
    return (!file || fclose(file) == 0) && ok;
}

static bool fold_one(const struct pipeline_key *key, const char *folder, size_t index)
{
    const char *name = kernel_table[key->kernel].name;
    const struct kernel_spv *spv = kernel_spv_table[key->kernel];
    char path[4096];
    struct folded folded;
    bool ok = fold_module(spv->words, spv->size / sizeof *spv->words, key->spec, key->n_spec,
                          &folded) == VKA_OK;
    if (!ok)
        printf("FAIL: the kernel %s %s\n", name, folded.why);
    if (ok && !fold_is_plain(folded.words, folded.n_word)) {
        printf("FAIL: the kernel %s keeps a specialization constant\n", name);
        ok = false;
    }
    snprintf(path, sizeof path, "%s/%s-%zu.spv", folder, name, index);
    if (ok && !write_words(&folded, path)) {
        printf("FAIL: cannot write %s\n", path);
        ok = false;
    }
    free(folded.words);
    return ok;
}

long pipeline_fold(const struct pipeline_list *list, const char *folder)
{
    long n = 0;
    for (size_t i = 0; i < list->n; i++) {
        bool again = false; /* the same for another type of the problem's operands */
        for (size_t j = 0; j < i; j++)
            again |= pipeline_same_key(&list->rows[j].key, &list->rows[i].key);
        if (again)
            continue;
        if (!fold_one(&list->rows[i].key, folder, i))
            return -1;
        n++;
    }
    return n;
}
