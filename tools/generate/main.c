/* vkattn-generate: continues a text of token ids by a Llama from a GGUF file, greedily. Two recorded
 * plans: one takes the prompt in chunks, the other a token a run and needs nothing from the host.
 * SPDX-License-Identifier: MIT */
#include "program.h"

#include "../device.h"
#include "../files.h"
#include "../output.h"

#include "core/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 32 /* ids of the prompt that a run takes */

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

/* All that is on the device. */
struct session {
    struct tool_device d;
    struct llama llama;
    struct vka_cache *cache;
    struct vka_tensor *next; /* I32 [1] */
    struct program prompt, step;
};

static enum vka_status create(struct session *s, const struct options *o)
{
    const struct llama *m = &s->llama;
    enum vka_dtype kv = kv_types[o->kv];
    enum vka_status status = vka_cache_create(
        s->d.device,
        VKA_INFO(vka_cache_info, .batch = 1, .n_layer = m->n_block, .n_kv_head = m->n_kv_head,
                 .head_dim = m->head_dim, .capacity = o->n_prompt + o->count, .key_dtype = kv,
                 .value_dtype = kv),
        &s->cache);
    if (status == VKA_OK)
        status = vka_tensor_create(s->d.device, VKA_I32, 1, (const uint32_t[]){1}, &s->next);
    uint32_t chunk = o->n_prompt + o->count < CHUNK ? o->n_prompt + o->count : CHUNK;
    if (status == VKA_OK)
        status = program_create(s->d.device, m, s->cache, s->next, chunk > 1 ? chunk : 2,
                                s->d.budget, &s->prompt);
    if (status == VKA_OK)
        status = program_create(s->d.device, m, s->cache, s->next, 1, s->d.budget, &s->step);
    return status;
}

/* Takes the prompt in chunks; the last one leaves the first new id in `next`. */
static enum vka_status take_prompt(struct session *s, const struct options *o)
{
    const struct program *p = &s->prompt;
    int32_t *ids = calloc(p->rows, sizeof *ids);
    enum vka_status status = ids ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    for (uint32_t at = 0; status == VKA_OK && at < o->n_prompt; at += p->rows) {
        uint32_t n = o->n_prompt - at < p->rows ? o->n_prompt - at : p->rows;
        memcpy(ids, o->prompt + at, n * sizeof *ids);
        status = vka_tensor_write(p->ids, ids, p->rows * sizeof *ids);
        if (status == VKA_OK)
            status = vka_tensor_write(p->n_append, (const int32_t[]){(int32_t)n}, 4);
        if (status == VKA_OK)
            status = vka_tensor_write(p->last, (const int32_t[]){(int32_t)n - 1}, 4);
        if (status == VKA_OK)
            status = vka_plan_run(p->plan, s->d.timeout);
    }
    free(ids);
    return status;
}

static enum vka_status generate(struct session *s, const struct options *o)
{
    double begin = 1e-3 * os_now_ms(), prompt;
    enum vka_status status = take_prompt(s, o);
    prompt = 1e-3 * os_now_ms();
    for (uint32_t i = 0; status == VKA_OK && i < o->count; i++) {
        int32_t id;
        if (i > 0)
            status = vka_plan_run(s->step.plan, s->d.timeout);
        if (status == VKA_OK)
            status = vka_tensor_read(s->next, &id, sizeof id);
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
    struct session s = {0};
    char why[VKA_IO_ERROR_SIZE] = "";
    enum tool_exit code = tool_device_open(&o->device, &s.d);
    if (code != TOOL_OK)
        return tool_device_close(&s.d, code);
    enum vka_status status = llama_load(s.d.device, o->model, &s.llama, why);
    for (uint32_t i = 0; status == VKA_OK && i < o->n_prompt; i++)
        if ((uint32_t)o->prompt[i] >= s.llama.n_token) {
            snprintf(why, sizeof why, "--ids: %d is not below %u, the tokens of the model",
                     (int)o->prompt[i], s.llama.n_token);
            status = VKA_INVALID;
        }
    if (status == VKA_OK)
        status = create(&s, o);
    if (status == VKA_OK)
        status = generate(&s, o);
    if (why[0] != '\0') {
        tool_error("%s", why);
        code = tool_exit_of(status);
    } else if (status != VKA_OK) {
        code = tool_device_fail(&s.d, status);
    }
    program_free(&s.prompt);
    program_free(&s.step);
    vka_tensor_destroy(&s.next);
    vka_cache_destroy(&s.cache);
    llama_free(&s.llama);
    return tool_device_close(&s.d, code);
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
