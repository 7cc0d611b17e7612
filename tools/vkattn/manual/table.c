/* The table of commands and options. SPDX-License-Identifier: MIT */
#include "table.h"

#include <string.h>

const struct manual_option manual_device_options[] = {
    {"device", "INDEX|NAME",
     "The device by its index in 'vkattn devices', or by a part of its name in any case. Without "
     "it the "
     "most capable device is taken, and named on standard error.",
     MANUAL_DEVICE, false},
    {"validate", NULL, "Enables the Khronos validation layer. A message of it is a failure.", 0,
     false},
    {"limits", "RANGE,ALLOCATION",
     "The largest binding and the largest allocation in bytes. 0 is the driver's limit.", 0, false},
    {"timeout", "SECONDS", "The longest wait for the device, 120 if not given (tune: 600).", 0,
     false},
    {"submit-budget", "MS",
     "The predicted time that one submit may take on the device, 200 if not given. 0 is no limit.",
     0, false},
    {"no-cache", NULL, "Neither reads nor writes the file of compiled pipelines and findings.", 0,
     false},
    {"no-self-test", NULL,
     "Uses kernels without a self-test. Else each solves a small known problem before its first "
     "use on "
     "a device, and one that fails is not used.",
     0, false},
    {"tuning-profile", "FILE|none",
     "Measured choices of kernels, or none for the rules alone. Without it those are taken that "
     "'vkattn tune' left in the cache folder.",
     MANUAL_FILE, false},
    {0},
};

static const struct manual_option devices_options[] = {
    {"kernels", NULL, "Adds for each kernel whether it is usable, or what it lacks.", 0, false},
    {"json", NULL, "Prints an object a line, with all that is known, the kernels too.", 0, false},
    {"self-test", NULL, "Tests all kernels that the rules choose, and keeps the findings.", 0,
     false},
    {0},
};

static const struct manual_option run_options[] = {
    {"query", "X.npy", "The input.", MANUAL_NPY, true},
    {"output", "Y.npy",
     "The file for the output. No command writes to a file that it reads, or twice to one file.",
     MANUAL_NPY, true},
    {"key", "K.npy", "Keys are made of it. Without it the layer attends to its query.", MANUAL_NPY,
     false},
    {"value", "V.npy", "Values are made of it, else of the input of the keys.", MANUAL_NPY, false},
    {"mask", "M.npy", "Boolean (true: visible) or float (added to the scores).", MANUAL_NPY, false},
    {"kv-lengths", "L.npy", "The number of visible keys of each batch element.", MANUAL_NPY, false},
    {"heads", "N", "The number of query heads.", 0, false},
    {"kv-heads", "N", "The number of key and value heads.", 0, false},
    {"causal", NULL, "Hides the keys after the position of each query.", 0, false},
    {"window", "L,R", "Hides keys that are farther away to the left and right. -1 is no bound.", 0,
     false},
    {"layout", "bsd|sbd", "Batch or sequence first.", 0, false},
    {"dtype", "f32|f16|bf16", "The storage type on the device.", 0, false},
    {"weights", "q8_0|q4_0",
     "Quantises the weights on the host in blocks of 32. Widths of inputs must be whole blocks.", 0,
     false},
    {"scores", "S.npy", "Writes the softmax weights.", MANUAL_NPY, false},
    {"path", "auto|unfused|fused",
     "Computes scores, softmax and weighted sum in separate passes, or in one.", 0, false},
    {"html", "PAGE.html", "Draws what each head attends to.", MANUAL_FILE, false},
    {"tokens", "FILE",
     "Labels the page: a line a token, an empty line between the inputs of a batch, and with --key "
     "between queries and keys.",
     MANUAL_FILE, false},
    {"count-nonfinite", NULL,
     "Tells on standard error of NaN and infinite elements of each result.", 0, false},
    {0},
};

static const struct manual_option check_options[] = {
    {"path", "auto|unfused|fused", "The path of attention. The context then comes from it.", 0,
     false},
    {"json", NULL,
     "Prints objects instead, in UTF-8. A byte of a path that is not UTF-8 becomes U+FFFD.", 0,
     false},
    {0},
};

/* Sizes of what is timed. */
#define BATCH                               \
    {                                       \
        "batch", "B", "Sequences.", 0, true \
    }
#define HEADS                                 \
    {                                         \
        "heads", "H", "Query heads.", 0, true \
    }
#define KV_HEADS                                                                               \
    {                                                                                          \
        "kv-heads", "N", "Key and value heads, as many as query heads if not given.", 0, false \
    }
#define CAUSAL                                                       \
    {                                                                \
        "causal", NULL, "Hides the keys after each query.", 0, false \
    }
#define KV_SEQ                                                            \
    {                                                                     \
        "kv-seq", "S", "Keys, as many as queries if not given.", 0, false \
    }

static const struct manual_option layer_options[] = {
    BATCH,  {"seq", "S", "Queries.", 0, true},
    KV_SEQ, {"model-dim", "D", "Width of inputs and output.", 0, true},
    HEADS,  KV_HEADS,
    CAUSAL, {0},
};
static const struct manual_option attention_options[] = {
    BATCH,
    HEADS,
    KV_HEADS,
    {"seq", "S", "Queries.", 0, true},
    KV_SEQ,
    {"head-dim", "D", "Features of a query and a key.", 0, true},
    {"value-dim", "D", "Features of a value, as many as of a key if not given.", 0, false},
    CAUSAL,
    {0},
};
static const struct manual_option matmul_options[] = {
    {"m", "M", "Rows of A and C.", 0, true},
    {"n", "N", "Rows of B, columns of C.", 0, true},
    {"k", "K", "Columns of A and B.", 0, true},
    {0},
};
static const struct manual_option decode_options[] = {
    BATCH,
    HEADS,
    KV_HEADS,
    {"kv-seq", "S", "Keys of the cache.", 0, true},
    {"head-dim", "D", "Features of a query, key and value.", 0, true},
    {"kv", "K[,V]", "Types of keys and values: f32, f16, bf16, q8_0, q4_0, fp8.", 0, false},
    {0},
};
static const struct manual_option linear_options[] = {
    {"rows", "M", "Rows of X and Y.", 0, true},
    {"n", "N", "Rows of W, columns of Y.", 0, true},
    {"k", "K", "Columns of X and W.", 0, true},
    {"weights", "TYPE", "The type of W, such as q4_k.", MANUAL_WEIGHTS, false},
    {"activations", "input|i8", "Whether X is quantised to int8 first.", 0, false},
    {0},
};
static const struct manual_option bench_options[] = {
    {"dtype", "f32|f16|bf16", "The storage type on the device.", 0, false},
    {"path", "auto|unfused|fused", "The path of attention.", 0, false},
    {"repeat", "N", "How often it is timed.", 0, false},
    {"json", NULL, "Prints one object a line.", 0, false},
    {"passes", NULL, "Prints a line for each pass.", 0, false},
    {"explain", NULL, "Prints why each kernel was chosen.", 0, false},
    {"kernel", "NAME[,VARIANT]",
     "Forces a kernel of products or of attention, and by 1 to 7 other tiles of it.", 0, false},
    {"warm", NULL,
     "Uses the pipelines that earlier commands compiled, and keeps new ones. Without it the time "
     "to the "
     "first result includes self-tests and compilation by the driver.",
     0, false},
    {0},
};
static const struct manual_option sweep_options[] = {
    {"lengths", "FROM,TO", "Doubled from the first to the second, 512,16384 if not given.", 0,
     false},
    {"batch", "B", "Sequences.", 0, false},
    {"heads", "H", "Query heads.", 0, false},
    KV_HEADS,
    {"head-dim", "D", "Features of a query, key and value.", 0, false},
    CAUSAL,
    {"dtype", "f32|f16|bf16", "The storage type on the device.", 0, false},
    {"repeat", "N", "How often each is timed.", 0, false},
    {"csv", "FILE", "Receives the results.", MANUAL_FILE, false},
    {"svg", "FILE", "Receives a plot.", MANUAL_FILE, false},
    {0},
};

static const struct manual_option tune_options[] = {
    {"output", "FILE", "Receives the tuning profile, else the user's cache folder does.",
     MANUAL_FILE, false},
    {"dtype", "f32|f16|bf16", "Measures this storage type alone.", 0, false},
    {"quick", NULL, "Measures small problems only, to see that tuning works.", 0, false},
    {0},
};

static const struct manual_option generate_options[] = {
    {"ids", "ID,ID,...", "The ids of the tokens of the prompt, in place of a text.", 0, false},
    {"tokens", "N", "How many tokens follow, 64 if not given.", 0, false},
    {"temperature", "T", "Draws each token. Without it, or at 0, the most likely one is taken.", 0,
     false},
    {"seed", "N", "The seed of what is drawn, 0 if not given.", 0, false},
    {"kv", "f32|f16|q8_0|q4_0", "The type of the cached keys and values, f32 if not given.", 0,
     false},
    {0},
};

static const struct manual_option embed_options[] = {
    {"ids", "ID,.../ID,...",
     "The ids of the tokens of each text, those that begin and end it included, in place of texts.",
     0, false},
    {"pooling", "file|mean|first",
     "Whether the vector is the mean of the last rows, or the first of them. Else as a GGUF file "
     "or "
     "modules.json says, or the mean.",
     0, false},
    {"plain", NULL, "Leaves the length of the vectors as it is. Else it becomes 1.", 0, false},
    {"output", "FILE.npy", "Receives [texts][width], instead of standard output.", MANUAL_NPY,
     false},
    {0},
};

static const struct manual_option none[] = {{0}};

const struct manual_command manual_commands[] = {
    {"devices", "", "lists every Vulkan device and what it can do", "Takes six lines a device.", 0,
     true, devices_options, NULL},
    {"run", "LAYER.safetensors", "runs a whole layer on one input",
     "The file has q_proj.weight [out, in], q_proj.bias, and the same tensors of k_proj, v_proj "
     "and "
     "o_proj. Options override the file's metadata.",
     MANUAL_SAFETENSORS, true, run_options, NULL},
    {"check", "PATH...", "runs case files and compares with the expected results",
     "A folder means every *.safetensors under it. Prints one line for each case, then the numbers "
     "of "
     "cases that passed, failed and were skipped.",
     MANUAL_SAFETENSORS, true, check_options, NULL},
    {"bench layer", "", "times a whole layer", "", 0, true, layer_options, bench_options},
    {"bench attention", "", "times attention alone", "", 0, true, attention_options, bench_options},
    {"bench matmul", "", "times C = A B^T", "", 0, true, matmul_options, bench_options},
    {"bench decode", "", "times one new token against a cache", "", 0, true, decode_options,
     bench_options},
    {"bench linear", "", "times Y = X W^T with weights of any type", "", 0, true, linear_options,
     bench_options},
    {"bench sweep", "", "times attention and decoding at doubling lengths",
     "Attention is timed fused and unfused. Fits how time grows.", 0, true, sweep_options, NULL},
    {"tune", "", "measures which kernels are the fastest on this device",
     "Checks the kernels on this device first. All commands read the tuning profile that it leaves "
     "in "
     "the user's cache folder.",
     0, true, tune_options, NULL},
    {"generate", "MODEL.gguf [TEXT]", "continues a prompt by a language model",
     "Prints the text that follows, up to its end, or after --ids the ids of the tokens. The "
     "weights stay "
     "as they are in the file. Its tokenizer has to be byte-level BPE or SentencePiece.",
     MANUAL_MODEL, true, generate_options, NULL},
    {"embed", "MODEL [TEXT...]", "makes vectors of texts by a BERT",
     "MODEL is a folder with config.json and model.safetensors, or a GGUF file, whose weights stay "
     "as "
     "they are. Prints a line of numbers for each text. The folder's vocab.txt or the file's "
     "vocabulary has to be WordPiece for texts.",
     MANUAL_MODEL, true, embed_options, NULL},
    {"tokens", "MODEL.gguf TEXT...", "prints the ids of the tokens of texts",
     "A line for each text. The tokenizer has to be byte-level BPE, SentencePiece or WordPiece.",
     MANUAL_MODEL, false, none, NULL},
    {"version", "", "prints the version", "", 0, false, none, NULL},
    {"help", "[COMMAND | man | bash | zsh | fish]", "explains a command",
     "Without a word it lists the commands. man prints the manual page, bash, zsh and fish the "
     "completion of that shell.",
     0, false, none, NULL},
    {0},
};

const struct manual_command *manual_find(const char *name)
{
    for (const struct manual_command *c = manual_commands; c->name; c++)
        if (!strcmp(c->name, name))
            return c;
    return NULL;
}

void manual_each(const struct manual_command *command,
                 void (*visit)(const struct manual_option *option, void *user), void *user)
{
    const struct manual_option *lists[] = {command->options, command->more,
                                           command->device ? manual_device_options : NULL};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const struct manual_option *o = lists[i]; o && o->name; o++)
            visit(o, user);
}

void manual_words(const struct manual_option *option,
                  void (*visit)(const char *word, int length, void *user), void *user)
{
    for (int i = 0; option->completed == MANUAL_WEIGHTS && option_weights[i]; i++)
        visit(option_weights[i], (int)strlen(option_weights[i]), user);
    const char *at = option->value;
    if (!at || option->completed != MANUAL_OTHER || !strchr(at, '|'))
        return;
    for (size_t length; length = strcspn(at, "|"), *at; at += length + (at[length] == '|'))
        visit(at, (int)length, user);
}
