/* The tokenizer of a folder of a BERT: vocab.txt. SPDX-License-Identifier: MIT */
#include "text.h"
#include "kinds.h"
#include "common/json_file.h"
#include "core/os.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (64u << 20) /* of vocab.txt */

static enum vka_status refuse(const char *path, const char *what, enum vka_status status, char *why)
{
    snprintf(why, VKA_IO_ERROR_SIZE, "%.400s: %s", path, what);
    return status;
}

static enum vka_status read_lines(const char *path, char **lines, size_t *size, char *why)
{
    if (os_look(path) == OS_NOTHING)
        return refuse(path, "there is none: texts need it; give --ids", VKA_IO, why);
    return file_read_whole(path, MOST_BYTES, lines, size, why);
}

/* An object of a file of the folder; *object NULL: there is no such file. */
static enum vka_status read_json(const char *folder, const char *name, json_t **object, char *why)
{
    char path[4096];
    snprintf(path, sizeof path, "%.4000s/%s", folder, name);
    enum vka_status status = json_file_read_if_there(path, object, why);
    if (status != VKA_OK || !*object || json_is_object(*object))
        return status;
    return refuse(path, "expected an object of JSON", VKA_IO, why);
}

/* What would make other ids of a text is read, or refused. */
static enum vka_status check_config(struct text *t, const char *folder, const json_t *config,
                                    char *why)
{
    const json_t *strip = json_object_get(config, "strip_accents");
    const json_t *lower = json_object_get(config, "do_lower_case");
    t->lowercase = !json_is_false(lower);
    if (lower && !json_is_boolean(lower))
        return refuse(folder, "do_lower_case: expected true or false", VKA_INVALID, why);
    if (strip && !json_is_null(strip) && json_is_true(strip) != t->lowercase)
        return refuse(folder, "strip_accents other than do_lower_case is not supported; give --ids",
                      VKA_UNSUPPORTED, why);
    if (json_is_false(json_object_get(config, "tokenize_chinese_chars")))
        return refuse(folder, "tokenize_chinese_chars false is not supported; give --ids",
                      VKA_UNSUPPORTED, why);
    return VKA_OK;
}

/* Reads what sentence-transformers has beside it. */
static enum vka_status check_sentences(struct text *t, const char *folder, const json_t *sentences,
                                       const json_t *prompts, char *why)
{
    const json_t *most = json_object_get(sentences, "max_seq_length");
    const json_t *prompt = json_object_get(prompts, "default_prompt_name");
    if (json_is_true(json_object_get(sentences, "do_lower_case")) && !t->lowercase)
        return refuse(folder,
                      "sentence_bert_config.json: do_lower_case is not supported; give --ids",
                      VKA_UNSUPPORTED, why);
    if (prompt && !json_is_null(prompt))
        return refuse(folder, "default_prompt_name is not supported; give --ids", VKA_UNSUPPORTED,
                      why);
    t->most = json_is_integer(most) ? (size_t)json_integer_value(most) : 0;
    return VKA_OK;
}

static enum vka_status read_config(struct text *t, const char *folder, char *why)
{
    json_t *config = NULL, *sentences = NULL, *prompts = NULL;
    enum vka_status status = read_json(folder, "tokenizer_config.json", &config, why);
    if (status == VKA_OK)
        status = read_json(folder, "sentence_bert_config.json", &sentences, why);
    if (status == VKA_OK)
        status = read_json(folder, "config_sentence_transformers.json", &prompts, why);
    if (status == VKA_OK)
        status = check_config(t, folder, config, why);
    if (status == VKA_OK)
        status = check_sentences(t, folder, sentences, prompts, why);
    json_decref(config);
    json_decref(sentences);
    json_decref(prompts);
    return status;
}

/* Tokens in brackets, which are one id wherever they stand. Three have to be there. */
static enum vka_status find_brackets(struct text *t, const char *path, char *why)
{
    static const char *const names[] = {"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"};
    t->whole = calloc(sizeof names / sizeof *names, sizeof *t->whole);
    if (!t->whole)
        return VKA_OUT_OF_HOST_MEMORY;
    int32_t *const ids[] = {&t->unknown, &t->bos, &t->eos};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int32_t id = vocabulary_find(&t->vocabulary, names[i], strlen(names[i]));
        if (id < 0 && i < 3)
            return refuse(path, "expected [UNK], [CLS] and [SEP] among the tokens", VKA_INVALID,
                          why);
        if (i < 3)
            *ids[i] = id;
        if (id >= 0) {
            t->vocabulary.tokens[id].type = TOKEN_CONTROL;
            t->whole[t->n_whole++] = &t->vocabulary.tokens[id];
        }
    }
    vocabulary_sort(t->whole, t->n_whole);
    return VKA_OK;
}

enum vka_status text_open_folder(const char *folder, struct text **text,
                                 char why[VKA_IO_ERROR_SIZE])
{
    char path[4096];
    size_t size = 0;
    struct text *t = *text = calloc(1, sizeof *t);
    if (!t)
        return VKA_OUT_OF_HOST_MEMORY;
    t->kind = TEXT_WORDS;
    t->begins = "";
    t->goes_on = "##";
    t->adds_bos = t->adds_eos = true;
    enum vka_status status = read_config(t, folder, why);
    snprintf(path, sizeof path, "%.4000s/vocab.txt", folder);
    if (status == VKA_OK)
        status = read_lines(path, &t->lines, &size, why);
    if (status == VKA_OK)
        status = vocabulary_lines(t->lines, size, path, &t->vocabulary, why);
    if (status == VKA_OK)
        status = find_brackets(t, path, why);
    if (status != VKA_OK)
        text_close(text);
    return status;
}
