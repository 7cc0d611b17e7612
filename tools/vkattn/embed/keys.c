#include "keys.h"

#include <string.h>

#define COUNTOF(x) (sizeof(x) / sizeof *(x))

/* Keys of config.json that are read. */
static const char *const read_keys[] = {"model_type",
                                        "hidden_act",
                                        "position_embedding_type",
                                        "is_decoder",
                                        "add_cross_attention",
                                        "hidden_size",
                                        "num_hidden_layers",
                                        "intermediate_size",
                                        "num_attention_heads",
                                        "max_position_embeddings",
                                        "layer_norm_eps",
                                        "vocab_size",
                                        "type_vocab_size"};

/* Those without effect on a vector: of training, of texts, of heads behind the encoder, of how it was
 * stored. */
static const char *const inert_keys[] = {"architectures",
                                         "transformers_version",
                                         "torch_dtype",
                                         "dtype",
                                         "_name_or_path",
                                         "name_or_path",
                                         "use_cache",
                                         "auto_map",
                                         "transformers.js_config",
                                         "torchscript",
                                         "attention_dropout",
                                         "hidden_dropout_prob",
                                         "hidden_dropout",
                                         "attention_probs_dropout_prob",
                                         "initializer_range",
                                         "classifier_dropout",
                                         "gradient_checkpointing",
                                         "problem_type",
                                         "bos_token_id",
                                         "eos_token_id",
                                         "pad_token_id",
                                         "sep_token_id",
                                         "cls_token_id",
                                         "unk_token_id",
                                         "tokenizer_class",
                                         "task_specific_params",
                                         "finetuning_task",
                                         "directionality",
                                         "output_attentions",
                                         "output_hidden_states",
                                         "output_past",
                                         "return_dict",
                                         "tie_word_embeddings",
                                         "num_labels",
                                         "id2label",
                                         "label2id",
                                         "chunk_size_feed_forward",
                                         "pooler_fc_size",
                                         "pooler_num_attention_heads",
                                         "pooler_num_fc_layers",
                                         "pooler_size_per_head",
                                         "pooler_type"};

static bool has(const char *const *list, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], key) == 0)
            return true;
    return false;
}

enum vka_status keys_check_config(const struct source *s)
{
    const char *key;
    json_t *value;
    json_object_foreach(s->config, key, value)
    {
        if (json_is_null(value) || has(read_keys, COUNTOF(read_keys), key) ||
            has(inert_keys, COUNTOF(inert_keys), key))
            continue;
        return source_refuse(s, key, "it is not known what this key would change");
    }
    return VKA_OK;
}

enum vka_status keys_check_gguf(const struct source *s)
{
    static const char *const known[] = {
        "embedding_length",     "block_count",    "feed_forward_length",
        "attention.head_count", "context_length", "attention.layer_norm_epsilon",
        "attention.causal",     "pooling_type",   "vocab_size"};
    static const char *const of_t5[] = {"attention.key_length",
                                        "attention.value_length",
                                        "attention.relative_buckets_count",
                                        "attention.layer_norm_rms_epsilon",
                                        "decoder_start_token_id",
                                        "decoder_block_count"};
    const bool nomic = strcmp(s->kind, "nomic-bert") == 0, t5 = strcmp(s->kind, "t5encoder") == 0;
    static const char *const inert[] = {"general.", "tokenizer.", "quantize.", "mradermacher.",
                                        "split."};
    size_t length = strlen(s->kind);
    for (size_t i = 0; i < vka_gguf_metadata_count(s->gguf); i++) {
        const struct vka_gguf_value *value = vka_gguf_metadata_at(s->gguf, i);
        const char *key = value->key;
        const char *own = key + length + 1;
        bool fine =
            strncmp(key, s->kind, length) == 0 && key[length] == '.' &&
            (has(known, COUNTOF(known), own) || (nomic && strcmp(own, "rope.freq_base") == 0) ||
             (t5 && has(of_t5, COUNTOF(of_t5), own)));
        for (size_t k = 0; k < COUNTOF(inert); k++)
            fine |= strncmp(key, inert[k], strlen(inert[k])) == 0;
        if (!fine)
            return source_refuse(s, key, "it is not known what this key would change");
    }
    return VKA_OK;
}
