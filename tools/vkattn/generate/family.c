#include "family.h"

#include <stdio.h>
#include <string.h>

#define FAMILY(NAME, ...) {.name = NAME, __VA_ARGS__},
static const struct family families[] = {
#include "families.def"
};
#undef FAMILY

const struct family *family_of(const struct vka_gguf *file, char why[VKA_IO_ERROR_SIZE])
{
    const char *text = "";
    size_t at = 0, size = 0;
    vka_gguf_string(vka_gguf_metadata(file, "general.architecture"), &at, &text, &size);
    int used = snprintf(why, VKA_IO_ERROR_SIZE, "general.architecture: expected one of");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const char *name = families[i].name;
        if (strlen(name) == size && memcmp(name, text, size) == 0) {
            why[0] = '\0';
            return &families[i];
        }
        used += snprintf(why + used, VKA_IO_ERROR_SIZE - (size_t)used, "%s %s", i ? "," : "", name);
    }
    return NULL;
}
