/* vkattn generate: continues a text of token ids by a decoder from a GGUF file. Two recorded plans: one
 * takes the prompt in slices, the other a token a run and needs nothing from the host.
 * SPDX-License-Identifier: MIT */
#include "session.h"

#include "common/device.h"
#include "common/files.h"
#include "common/output.h"
#include "vkattn/commands.h"
#include "vkattn/text/text.h"

#include "core/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_TOKENS 64

struct options {
    const char *model, *ids, *prompt_text; /* ids or a text */
    uint32_t count, seed;
    double temperature; /* 0: the most likely id each time */
    int kv;
    struct device_options device;
    int32_t *prompt;
    uint32_t n_prompt;
};

static const char *const kv_names[] = {"f32", "f16", "q8_0", "q4_0", NULL};
static const enum vka_dtype kv_types[] = {VKA_F32, VKA_F16, VKA_Q8_0, VKA_Q4_0};

static bool parse_ids(struct options *o)
{
    const char *at = o->ids;
    o->prompt = malloc((strlen(at) + 1) * sizeof *o->prompt);
    while (o->prompt) {
        char *end;
        unsigned long id = strtoul(at, &end, 10);
        if (end == at || *at < '0' || *at > '9' || id > INT32_MAX ||
            (*end != ',' && *end != '\0')) {
            tool_error("--ids: expected numbers with commas between, got '%s'", o->ids);
            return false;
        }
        o->prompt[o->n_prompt++] = (int32_t)id;
        if (*end == '\0')
            return true;
        at = end + 1;
    }
    tool_error("out of memory");
    return false;
}

static bool read_options(int argc, char **argv, struct options *o)
{
    const struct option_spec specs[] = {
        {"ids", OPTION_TEXT, &o->ids, 0, 0, NULL},
        {"tokens", OPTION_U32, &o->count, 1, 1 << 20, NULL},
        {"temperature", OPTION_NUMBER, &o->temperature, 0, 0, NULL},
        {"seed", OPTION_U32, &o->seed, 0, UINT32_MAX, NULL},
        {"kv", OPTION_CHOICE, &o->kv, 0, 0, kv_names},
        DEVICE_OPTION_SPECS(&o->device),
        {0},
    };
    int first;
    if (!options_parse(argc, argv, specs, &first))
        return false;
    if (argc - first != (o->ids ? 1 : 2)) {
        const char *plural = argc - first == 1 ? "" : "s";
        tool_error("expected a GGUF file %s, got %d argument%s%s",
                   o->ids ? "alone, as --ids are given" : "and a text, or --ids", argc - first,
                   plural, !o->ids && argc - first > 2 ? ": put the text in quotes" : "");
        return false;
    }
    o->model = argv[first];
    o->prompt_text = o->ids ? NULL : argv[first + 1];
    return !o->ids || parse_ids(o);
}

static void print_token(const struct text *text, int32_t id)
{
    const size_t room = text_longest(text);
    char *bytes = malloc(room);
    if (bytes)
        fwrite(bytes, 1, text_decode(text, id, bytes, room), stdout);
    free(bytes);
}

/* text NULL: prints ids. */
static enum vka_status generate(struct session *s, const struct options *o, const struct text *text,
                                char *why)
{
    int32_t id;
    uint32_t made = 0;
    double begin = 1e-3 * os_now_ms();
    enum vka_status status = session_begin(s, o->prompt, &id);
    double prompt = 1e-3 * os_now_ms();
    for (uint32_t i = 0; status == VKA_OK && i < o->count; i++) {
        if (i > 0)
            status = session_next(s, &id);
        if (status == VKA_OK && id < 0) {
            snprintf(why, VKA_IO_ERROR_SIZE,
                     "the logits of id %u are all NaN or -inf: there is none to take", i);
            status = VKA_INVALID;
        }
        if (status == VKA_OK && text && text_ends(text, id))
            break;
        made++;
        if (status == VKA_OK && text)
            print_token(text, id);
        else if (status == VKA_OK)
            printf("%s%d", i ? " " : "", (int)id);
        fflush(stdout);
    }
    printf("\n");
    double end = 1e-3 * os_now_ms();
    if (status == VKA_OK && made > 1)
        fprintf(stderr, "prompt of %u: %.1f tokens/s; then %.1f tokens/s\n", o->n_prompt,
                o->n_prompt / (prompt - begin), (made - 1) / (end - prompt));
    return status;
}

/* The tokenizer of the model, where a text is given, and the ids of it. */
static enum vka_status read_text(struct options *o, struct vka_gguf **file, struct text **text,
                                 char *why)
{
    if (!o->prompt_text)
        return VKA_OK;
    enum vka_status status = vka_gguf_open(o->model, why, file);
    if (status == VKA_OK)
        status = text_open(*file, o->model, text, why);
    if (status == VKA_OK)
        status = text_encode(*text, o->prompt_text, &o->prompt, &o->n_prompt, why);
    if (status == VKA_OK && !o->n_prompt) {
        snprintf(why, VKA_IO_ERROR_SIZE, "expected a text of one or more tokens");
        status = VKA_INVALID;
    }
    return status;
}

static enum tool_exit run(struct options *o)
{
    struct tool_device d = {0};
    struct decoder decoder = {0};
    struct session s = {0};
    struct vka_gguf *file = NULL;
    struct text *text = NULL;
    char why[VKA_IO_ERROR_SIZE] = "";
    enum tool_exit code = tool_device_open(&o->device, &d);
    if (code != TOOL_OK)
        return tool_device_close(&d, code);
    enum vka_status status = read_text(o, &file, &text, why);
    if (status == VKA_OK)
        status = decoder_load(d.device, o->model, &decoder, why);
    for (uint32_t i = 0; status == VKA_OK && i < o->n_prompt; i++)
        if ((uint32_t)o->prompt[i] >= decoder.n_token) {
            snprintf(why, sizeof why, "--ids: %d is not below %u, the tokens of the model",
                     (int)o->prompt[i], decoder.n_token);
            status = VKA_INVALID;
        }
    uint32_t fed = o->n_prompt + o->count - 1; /* the last id is not fed again */
    if (status == VKA_OK && decoder.n_position && fed > decoder.n_position) {
        snprintf(
            why, sizeof why,
            "--tokens: the model has %u positions, but %u are asked for: %u of the prompt and %u",
            decoder.n_position, fed, o->n_prompt, o->count - 1);
        status = VKA_INVALID;
    }
    if (status == VKA_OK)
        status = session_create(d.device, &decoder,
                                &(struct session_info){.n_prompt = o->n_prompt,
                                                       .count = o->count,
                                                       .kv = kv_types[o->kv],
                                                       .budget = d.budget,
                                                       .timeout = d.timeout,
                                                       .temperature = (float)o->temperature,
                                                       .seed = o->seed},
                                &s);
    if (status == VKA_OK)
        status = generate(&s, o, text, why);
    code = tool_device_result(&d, status, why);
    text_close(&text);
    vka_gguf_close(&file);
    session_free(&s);
    decoder_free(&decoder);
    return tool_device_close(&d, code);
}

int cmd_generate(int argc, char **argv)
{
    struct options o = {.count = DEFAULT_TOKENS, .device = DEVICE_OPTIONS_DEFAULT};
    tool_set_command("generate");
    enum tool_exit code = read_options(argc, argv, &o) ? run(&o) : TOOL_USAGE;
    free(o.prompt);
    return code;
}
