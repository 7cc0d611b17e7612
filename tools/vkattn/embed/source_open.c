#include "source_open.h"

#include "keys.h"
#include "pooling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum vka_status open_folder(const char *path, struct source *s)
{
    char file[4096];
    if ((size_t)snprintf(file, sizeof file, "%s/config.json", path) >= 2048)
        return source_refuse(s, "--model", "the path is too long");
    enum vka_status status = source_read_json(s, file, &s->config);
    if (status == VKA_OK)
        status = pooling_read(s, path);
    if (status != VKA_OK)
        return status;
    snprintf(file, sizeof file, "%s/model.safetensors", path);
    status = vka_safetensors_open(file, s->why, &s->safetensors);
    if (status != VKA_OK)
        return status;
    bool below = vka_safetensors_find(s->safetensors, "bert.embeddings.word_embeddings.weight");
    s->prefix = below ? "bert." : "";
    s->room = vka_safetensors_count(s->safetensors);
    return VKA_OK;
}

/* What the metadata has to say, so that the model is the one that is computed. */
static enum vka_status check_kind(struct source *s)
{
    static const char *const wanted[][2] = {
        {"model_type", "bert"}, {"hidden_act", "gelu"}, {"position_embedding_type", "absolute"}};
    const char *text = "";
    size_t at = 0, size = 0;
    for (int i = 0; s->config && i < 3; i++) {
        const json_t *value = json_object_get(s->config, wanted[i][0]);
        const char *word = json_string_value(value);
        if ((value && !word) || (i == 0 && !value) || (word && strcmp(word, wanted[i][1]) != 0))
            return source_refuse(s, wanted[i][0], "a value that is not supported here");
    }
    static const char *const decoders[] = {"is_decoder", "add_cross_attention"};
    for (int i = 0; s->config && i < 2; i++) {
        const json_t *value = json_object_get(s->config, decoders[i]);
        if (value && !json_is_false(value) && !json_is_null(value))
            return source_refuse(s, decoders[i], "only encoders are supported");
    }
    if (s->config)
        return keys_check_config(s);
    int64_t causal = 0;
    static const char *const kinds[] = {"bert", "nomic-bert", "t5encoder"};
    vka_gguf_string(vka_gguf_metadata(s->gguf, "general.architecture"), &at, &text, &size);
    for (int i = 0; i < 3; i++)
        if (size == strlen(kinds[i]) && memcmp(text, kinds[i], size) == 0)
            s->kind = kinds[i];
    if (!s->kind)
        return source_refuse(s, "general.architecture",
                             "is not \"bert\", \"nomic-bert\" or \"t5encoder\"; vkattn generate "
                             "continues texts, and "
                             "Python's vkattn.models takes more families");
    char key[64];
    snprintf(key, sizeof key, "%s.attention.causal", s->kind);
    const struct vka_gguf_value *told = vka_gguf_metadata(s->gguf, key);
    if (told && !vka_gguf_integer(told, 0, &causal))
        return source_refuse(s, key, "is no bool");
    return causal ? source_refuse(s, key, "is not supported") : keys_check_gguf(s);
}

enum vka_status source_open(struct vka_device *device, const char *path, char *why,
                            struct source *s)
{
    size_t length = strlen(path);
    bool gguf = length > 5 && strcmp(path + length - 5, ".gguf") == 0;
    *s = (struct source){.device = device, .why = why, .prefix = ""};
    enum vka_status status = gguf ? vka_gguf_open(path, why, &s->gguf) : open_folder(path, s);
    if (gguf && status == VKA_OK) {
        s->room = vka_gguf_count(s->gguf);
        status = vka_gguf_check_types(s->gguf, path, why);
    }
    if (status == VKA_OK)
        status = check_kind(s);
    s->taken = status == VKA_OK ? calloc(s->room + 1, sizeof *s->taken) : NULL;
    return status == VKA_OK && !s->taken ? VKA_OUT_OF_HOST_MEMORY : status;
}
