/* vkattn-generate: continues a text of token ids by a Llama from a GGUF file, greedily. Two recorded
 * plans: one takes the prompt in chunks, the other a token a run and needs nothing from the host.
 * SPDX-License-Identifier: MIT */
#include "session.h"

#include "common/device.h"
#include "common/files.h"
#include "common/output.h"

#include "core/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: vkattn-generate --model MODEL.gguf --ids ID,ID,... --count N [--kv f32|f16|q8_0|q4_0]\n"
    "                       [--device INDEX|NAME] [--validate] [--no-cache] [--timeout SECONDS]\n"
    "\n"
    "Prints the N token ids that continue the prompt, each the most likely one. The model is a "
    "Llama\n"
    "with any types of weights that vkattn has; they stay as they are in the file.\n"
    "  --kv TYPE   of the cached keys and values; f32\n";

struct options {
    const char *model, *ids;
    uint32_t count;
    int kv;
    bool help;
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
        {"model", OPTION_TEXT, &o->model, 0, 0, NULL},
        {"ids", OPTION_TEXT, &o->ids, 0, 0, NULL},
        {"count", OPTION_U32, &o->count, 1, 1 << 20, NULL},
        {"kv", OPTION_CHOICE, &o->kv, 0, 0, kv_names},
        {"help", OPTION_FLAG, &o->help, 0, 0, NULL},
        DEVICE_OPTION_SPECS(&o->device),
        {NULL, OPTION_FLAG, NULL, 0, 0, NULL},
    };
    o->device = DEVICE_OPTIONS_DEFAULT;
    if (!options_parse_only(argc, argv, specs))
        return false;
    const char *missing = !o->model ? "--model" : !o->ids ? "--ids" : !o->count ? "--count" : NULL;
    if (missing && !o->help)
        tool_error("%s: missing; see --help", missing);
    return o->help || (!missing && parse_ids(o));
}

static enum vka_status generate(struct session *s, const struct options *o, char *why)
{
    int32_t id;
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
        if (status == VKA_OK)
            printf("%s%d", i ? " " : "", (int)id);
        fflush(stdout);
    }
    printf("\n");
    double end = 1e-3 * os_now_ms();
    if (status == VKA_OK && o->count > 1)
        fprintf(stderr, "prompt of %u: %.1f tokens/s; then %.1f tokens/s\n", o->n_prompt,
                o->n_prompt / (prompt - begin), (o->count - 1) / (end - prompt));
    return status;
}

static enum tool_exit run(const struct options *o)
{
    struct tool_device d = {0};
    struct llama llama = {0};
    struct session s = {0};
    char why[VKA_IO_ERROR_SIZE] = "";
    enum tool_exit code = tool_device_open(&o->device, &d);
    if (code != TOOL_OK)
        return tool_device_close(&d, code);
    enum vka_status status = llama_load(d.device, o->model, &llama, why);
    for (uint32_t i = 0; status == VKA_OK && i < o->n_prompt; i++)
        if ((uint32_t)o->prompt[i] >= llama.n_token) {
            snprintf(why, sizeof why, "--ids: %d is not below %u, the tokens of the model",
                     (int)o->prompt[i], llama.n_token);
            status = VKA_INVALID;
        }
    if (status == VKA_OK)
        status = session_create(d.device, &llama,
                                &(struct session_info){.n_prompt = o->n_prompt,
                                                       .count = o->count,
                                                       .kv = kv_types[o->kv],
                                                       .budget = d.budget,
                                                       .timeout = d.timeout},
                                &s);
    if (status == VKA_OK)
        status = generate(&s, o, why);
    code = tool_device_result(&d, status, why);
    session_free(&s);
    llama_free(&llama);
    return tool_device_close(&d, code);
}

int main(int argc, char **argv)
{
    struct options o = {0};
    enum tool_exit code;
    os_program_begin(&argc, &argv);
    tool_set_command("generate");
    if (!read_options(argc, argv, &o))
        code = TOOL_USAGE;
    else if (o.help)
        code = fputs(usage, stdout) >= 0 ? TOOL_OK : TOOL_FAILED;
    else
        code = run(&o);
    free(o.prompt);
    return code;
}
