/* vkattn tokens: the ids of texts. SPDX-License-Identifier: MIT */
#include "text.h"

#include "common/options.h"
#include "vkattn/commands.h"

#include <stdio.h>
#include <stdlib.h>

static enum vka_status print_ids(const struct text *text, const char *utf8, char *why)
{
    int32_t *ids;
    uint32_t n;
    enum vka_status status = text_encode(text, utf8, &ids, &n, why);
    for (uint32_t i = 0; i < n; i++)
        printf("%s%d", i ? " " : "", (int)ids[i]);
    if (status == VKA_OK)
        putchar('\n');
    free(ids);
    return status;
}

int cmd_tokens(int argc, char **argv)
{
    const struct option_spec specs[] = {{0}};
    char why[VKA_IO_ERROR_SIZE] = "";
    struct vka_gguf *file = NULL;
    struct text *text = NULL;
    int first;

    tool_set_command("tokens");
    if (!options_parse(argc, argv, specs, &first))
        return TOOL_USAGE;
    if (argc - first < 2) {
        tool_error("expected a GGUF file and texts, got %d argument%s", argc - first,
                   argc - first == 1 ? "" : "s");
        return TOOL_USAGE;
    }
    enum vka_status status = vka_gguf_open(argv[first], why, &file);
    if (status == VKA_OK)
        status = text_open(file, argv[first], &text, why);
    for (int i = first + 1; status == VKA_OK && i < argc; i++)
        status = print_ids(text, argv[i], why);
    text_close(&text);
    vka_gguf_close(&file);
    if (status != VKA_OK)
        tool_error("%s", *why ? why : vka_status_name(status));
    return tool_exit_of(status);
}
