/* A whole BERT in one recorded plan: a tiny random one against the same model in double, as a
 * folder of safetensors and as a GGUF file with quantised weights. Texts of several lengths share a
 * run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "patience.h"
#include "tools/vkattn/embed/program.h"
#include "reference/model.h"
#include "reference/reference.h"
#include "test_program.h"
#include "problems/rng.h"

enum { WIDTH = 64, BLOCKS = 2, HEADS = 4, DIM = WIDTH / HEADS, FFN = 96, TOKENS = 80 };
enum { POSITIONS = 40, TYPES = 2, BATCH = 3, KEYS = 7, FORMATS = 2 };
enum { WORDS, PLACES, KINDS, NORM_W, NORM_B, FIRST_BLOCK };
enum { QW, QB, KW, KB, VW, VB, OW, OB, ANW, ANB, UW, UB, DW, DB, NW, NB, WEIGHTS };
enum { TENSORS = FIRST_BLOCK + BLOCKS * WEIGHTS };

static const char FOLDER[] = "test_embed.model", GGUF[] = "test_embed.gguf";
static struct vka_device *device;

/* A weight [rows][width], or with rows 0 a vector of width. */
static struct weight {
    char json[80], gguf[40];
    uint32_t rows, width;
    size_t n;
    float *floats;
    void *blocks;            /* the floats as q8_0, where there are rows */
    double *values[FORMATS]; /* of the floats, of the blocks */
} weights[TENSORS];

static void check(enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s", vka_status_name(status), vka_device_error(device));
}

static void draw(struct rng *rng, const char *json, const char *gguf, uint32_t rows, uint32_t width,
                 struct weight *w)
{
    size_t n = (size_t)(rows ? rows : 1) * width;
    float *x = malloc(4 * n);
    *w = (struct weight){.rows = rows, .width = width, .n = n, .floats = malloc(4 * n)};
    w->blocks = malloc(4 * n);
    snprintf(w->json, sizeof w->json, "%s", json);
    snprintf(w->gguf, sizeof w->gguf, "%s", gguf);
    bool scale = !rows && strstr(gguf, "norm.weight");
    for (size_t i = 0; i < n; i++)
        x[i] = w->floats[i] =
            (float)(scale ? rng_uniform(rng, 0.5, 1.5) : rng_uniform(rng, -0.4, 0.4));
    for (int f = 0; f < FORMATS; f++) {
        if (f == 1 && rows) {
            check(vka_dtype_encode(VKA_Q8_0, w->floats, n / 32, w->blocks));
            check(vka_dtype_decode(VKA_Q8_0, w->blocks, n / 32, x));
        }
        w->values[f] = malloc(n * sizeof *w->values[f]);
        for (size_t i = 0; i < n; i++)
            w->values[f][i] = (double)x[i];
    }
    free(x);
}

static void draw_model(void)
{
    static const struct {
        const char *json, *gguf;
        uint32_t rows, width;
    } kinds[WEIGHTS / 2] = {{"attention.self.query", "attn_q", WIDTH, WIDTH},
                            {"attention.self.key", "attn_k", WIDTH, WIDTH},
                            {"attention.self.value", "attn_v", WIDTH, WIDTH},
                            {"attention.output.dense", "attn_output", WIDTH, WIDTH},
                            {"attention.output.LayerNorm", "attn_output_norm", 0, WIDTH},
                            {"intermediate.dense", "ffn_up", FFN, WIDTH},
                            {"output.dense", "ffn_down", WIDTH, FFN},
                            {"output.LayerNorm", "layer_output_norm", 0, WIDTH}};
    struct rng rng = {11};
    char json[80], gguf[40];
    draw(&rng, "embeddings.word_embeddings.weight", "token_embd.weight", TOKENS, WIDTH,
         &weights[WORDS]);
    draw(&rng, "embeddings.position_embeddings.weight", "position_embd.weight", POSITIONS, WIDTH,
         &weights[PLACES]);
    draw(&rng, "embeddings.token_type_embeddings.weight", "token_types.weight", TYPES, WIDTH,
         &weights[KINDS]);
    draw(&rng, "embeddings.LayerNorm.weight", "token_embd_norm.weight", 0, WIDTH, &weights[NORM_W]);
    draw(&rng, "embeddings.LayerNorm.bias", "token_embd_norm.bias", 0, WIDTH, &weights[NORM_B]);
    for (int b = 0; b < BLOCKS; b++)
        for (int p = 0; p < WEIGHTS; p++) {
            const char *kind = p % 2 ? "bias" : "weight";
            uint32_t rows = kinds[p / 2].rows, width = kinds[p / 2].width;
            snprintf(json, sizeof json, "encoder.layer.%d.%s.%s", b, kinds[p / 2].json, kind);
            snprintf(gguf, sizeof gguf, "blk.%d.%s.%s", b, kinds[p / 2].gguf, kind);
            if (p % 2)
                width = rows ? rows : width;
            draw(&rng, json, gguf, p % 2 ? 0 : rows, width,
                 &weights[FIRST_BLOCK + b * WEIGHTS + p]);
        }
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* n tensors of the model; one more: a tensor that nobody knows. */
static void write_folder(const char *prefix, int n)
{
    static struct vka_io_array arrays[TENSORS + 1];
    static char names[TENSORS + 1][96];
    char path[64], error[VKA_IO_ERROR_SIZE];
    for (int i = 0; i < n; i++) {
        const struct weight *w = &weights[i % TENSORS];
        snprintf(names[i], sizeof names[i], "%s%s", i < TENSORS ? prefix : "odd.", w->json);
        arrays[i] = (struct vka_io_array){.name = names[i],
                                          .dtype = VKA_IO_F32,
                                          .rank = w->rows ? 2 : 1,
                                          .shape = {w->rows ? w->rows : w->width, w->width},
                                          .data = w->floats,
                                          .size = 4 * w->n};
    }
    mkdir(FOLDER, 0700);
    snprintf(path, sizeof path, "%s/model.safetensors", FOLDER);
    if (vka_safetensors_write(path, arrays, (size_t)n, NULL, 0, error) != VKA_OK)
        fail_msg("%s", error);
    snprintf(path, sizeof path, "%s/config.json", FOLDER);
    write_text(path, "{\"model_type\": \"bert\", \"hidden_size\": 64, \"num_hidden_layers\": 2,"
                     " \"num_attention_heads\": 4, \"intermediate_size\": 96, \"vocab_size\": 80,"
                     " \"max_position_embeddings\": 40, \"layer_norm_eps\": 1e-4,"
                     " \"architectures\": [\"BertModel\"], \"is_decoder\": false, \"odd\": null}");
}

static bool first_row_told; /* by the modules of the folder */

/* What sentence-transformers writes beside a model; NULL: nothing. */
static void write_modules(const char *modules, const char *pooling)
{
    char path[64];
    snprintf(path, sizeof path, "%s/1_Pooling", FOLDER);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/1_Pooling/config.json", FOLDER);
    if (pooling)
        write_text(path, pooling);
    else
        remove(path);
    snprintf(path, sizeof path, "%s/modules.json", FOLDER);
    if (modules)
        write_text(path, modules);
    else
        remove(path);
}

static const char *more_key; /* a key that a GGUF file has besides */

static void write_gguf(uint32_t pooling)
{
    static struct vka_gguf_tensor t[TENSORS];
    static const uint32_t numbers[] = {WIDTH, BLOCKS, FFN, HEADS, POSITIONS};
    static const float epsilon = 1e-4f;
    struct vka_gguf_value values[KEYS + 2] = {
        {"general.architecture", VKA_GGUF_STRING, VKA_GGUF_STRING, 1, "bert", 4},
        {"bert.embedding_length", VKA_GGUF_U32, VKA_GGUF_U32, 1, &numbers[0], 4},
        {"bert.block_count", VKA_GGUF_U32, VKA_GGUF_U32, 1, &numbers[1], 4},
        {"bert.feed_forward_length", VKA_GGUF_U32, VKA_GGUF_U32, 1, &numbers[2], 4},
        {"bert.attention.head_count", VKA_GGUF_U32, VKA_GGUF_U32, 1, &numbers[3], 4},
        {"bert.context_length", VKA_GGUF_U32, VKA_GGUF_U32, 1, &numbers[4], 4},
        {"bert.attention.layer_norm_epsilon", VKA_GGUF_F32, VKA_GGUF_F32, 1, &epsilon, 4},
        {"bert.pooling_type", VKA_GGUF_U32, VKA_GGUF_U32, 1, &pooling, 4},
    };
    char error[VKA_IO_ERROR_SIZE];
    for (int i = 0; i < TENSORS; i++) {
        const struct weight *w = &weights[i];
        t[i] = (struct vka_gguf_tensor){.name = w->gguf,
                                        .dtype = w->rows ? VKA_Q8_0 : VKA_F32,
                                        .rank = w->rows ? 2 : 1,
                                        .shape = {w->rows ? w->rows : w->width, w->width},
                                        .data = w->rows ? w->blocks : (const void *)w->floats,
                                        .size = w->rows ? w->n / 32 * 34 : 4 * w->n};
    }
    size_t n = KEYS + 1;
    for (size_t i = 0; more_key && i < n; i++) /* a text where it was a number */
        if (strcmp(values[i].key, more_key) == 0)
            values[i] = values[--n];
    if (more_key)
        values[n++] =
            (struct vka_gguf_value){more_key, VKA_GGUF_STRING, VKA_GGUF_STRING, 1, "1", 1};
    if (vka_gguf_write(GGUF, t, TENSORS, values, n, error) != VKA_OK)
        fail_msg("%s", error);
}

static void linear(int format, const double *x, int weight, size_t n, double *y)
{
    const struct weight *w = &weights[weight];
    ref_linear(x, w->values[format], w[1].values[format], n, w->width, w->rows, false, y);
}

static void norm(int format, const double *x, int weight, size_t n, double *y)
{
    const struct weight *w = &weights[weight];
    ref_norm(x, n, WIDTH, VKA_LAYER_NORM, w->values[format], w[1].values[format], (double)1e-4f, y);
}

/* [n][HEADS * DIM] to [HEADS][n][DIM], and back. */
static void turn(const double *from, size_t n, bool back, double *to)
{
    for (size_t i = 0; i < n; i++)
        for (size_t h = 0; h < HEADS; h++)
            for (size_t d = 0; d < DIM; d++) {
                size_t row = (i * HEADS + h) * DIM + d, head = (h * n + i) * DIM + d;
                to[back ? row : head] = from[back ? head : row];
            }
}

static void block(int format, int b, size_t n, double *x)
{
    static double q[POSITIONS * WIDTH], k[POSITIONS * WIDTH], v[POSITIONS * WIDTH],
        y[POSITIONS * WIDTH], h[3][POSITIONS * WIDTH], inner[POSITIONS * FFN];
    const int w = FIRST_BLOCK + b * WEIGHTS;
    linear(format, x, w + QW, n, q);
    linear(format, x, w + KW, n, k);
    linear(format, x, w + VW, n, v);
    turn(q, n, false, h[0]);
    turn(k, n, false, h[1]);
    turn(v, n, false, h[2]);
    const struct ref_attention a = {.batch = 1,
                                    .n_head = HEADS,
                                    .n_kv_head = HEADS,
                                    .n_q = n,
                                    .n_kv = n,
                                    .head_dim = DIM,
                                    .value_dim = DIM,
                                    .q = h[0],
                                    .k = h[1],
                                    .v = h[2],
                                    .context = q};
    check(ref_attention(&a));
    turn(q, n, true, k);
    linear(format, k, w + OW, n, y);
    for (size_t i = 0; i < n * WIDTH; i++)
        y[i] += x[i];
    norm(format, y, w + ANW, n, x);
    linear(format, x, w + UW, n, inner);
    for (size_t i = 0; i < n * FFN; i++)
        inner[i] = ref_activation(VKA_GELU, 1, inner[i]);
    linear(format, inner, w + DW, n, y);
    for (size_t i = 0; i < n * WIDTH; i++)
        y[i] += x[i];
    norm(format, y, w + NW, n, x);
}

static void embed_in_double(int format, const int32_t *ids, size_t n, bool first_row, bool plain,
                            double vector[WIDTH])
{
    static double x[POSITIONS * WIDTH], y[POSITIONS * WIDTH];
    double squares = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < WIDTH; c++)
            y[i * WIDTH + c] = weights[WORDS].values[format][(size_t)ids[i] * WIDTH + c] +
                               weights[PLACES].values[format][i * WIDTH + c] +
                               weights[KINDS].values[format][c];
    norm(format, y, NORM_W, n, x);
    for (int b = 0; b < BLOCKS; b++)
        block(format, b, n, x);
    for (size_t c = 0; c < WIDTH; c++) {
        vector[c] = 0;
        for (size_t i = 0; i < (first_row ? 1 : n); i++)
            vector[c] += x[i * WIDTH + c] / (double)(first_row ? 1 : n);
        squares += vector[c] * vector[c];
    }
    for (size_t c = 0; c < WIDTH && !plain; c++)
        vector[c] /= sqrt(squares);
}

/* The largest difference from a vector in double; infinite where one is NaN. */
static double difference(const float *found, const double *want)
{
    double worst = 0;
    for (int c = 0; c < WIDTH; c++) {
        const double d = fabs((double)found[c] - want[c]);
        if (!(d <= worst))
            worst = isnan(d) ? INFINITY : d;
    }
    return worst;
}

/* Two runs of one plan: texts of other lengths, one of them missing in the second. */
static void compare(int format, bool first_row, bool plain)
{
    struct bert bert;
    struct embed embed;
    char why[VKA_IO_ERROR_SIZE];
    static const int32_t lengths[2][BATCH] = {{POSITIONS, 1, 17}, {5, 0, 33}};
    int32_t ids[BATCH * POSITIONS];
    float found[BATCH * WIDTH];
    double worst = 0;
    if (bert_load(device, format ? GGUF : FOLDER, &bert, why) != VKA_OK)
        fail_msg("%s %s", why, vka_device_error(device));
    assert_int_equal(bert.first_row, format == 1 || first_row_told);
    check(
        embed_create(device, &bert,
                     &(struct embed_info){
                         .batch = BATCH, .rows = POSITIONS, .first_row = first_row, .plain = plain},
                     &embed));
    for (int run = 0; run < 2; run++) {
        for (int i = 0; i < BATCH * POSITIONS; i++)
            ids[i] = i % POSITIONS < lengths[run][i / POSITIONS] ? (i * 7 + run) % TOKENS : -1;
        check(vka_tensor_write(embed.ids, ids, sizeof ids));
        check(vka_tensor_write(embed.lengths, lengths[run], sizeof lengths[run]));
        check(vka_plan_run(embed.graph.plan, PATIENCE));
        check(vka_tensor_read(embed.output, found, sizeof found));
        for (int b = 0; b < BATCH; b++) {
            double want[WIDTH];
            if (!lengths[run][b])
                continue;
            embed_in_double(format, ids + b * POSITIONS, (size_t)lengths[run][b], first_row, plain,
                            want);
            worst = fmax(worst, difference(found + b * WIDTH, want));
        }
    }
    print_message("%s, %s, %s: within %.2g\n", format ? "GGUF" : "folder",
                  first_row ? "first row" : "mean", plain ? "plain" : "length 1", worst);
    assert_true(worst < (plain ? 1e-5 : 2e-6));
    embed_free(&embed);
    bert_free(&bert);
}

static void test_folder(void **state)
{
    (void)state;
    write_folder("bert.", TENSORS);
    compare(0, false, false);
    write_folder("", TENSORS);
    compare(0, true, true);
}

static void test_gguf(void **state)
{
    (void)state;
    write_gguf(2);
    compare(1, true, false);
    compare(1, false, true);
}

/* What is missing, not known or of another kind is named. */
static void refuse(const char *path, const char *sentence)
{
    struct bert bert;
    char why[VKA_IO_ERROR_SIZE];
    assert_int_not_equal(bert_load(device, path, &bert, why), VKA_OK);
    if (!strstr(why, sentence))
        fail_msg("'%s', expected '%s'", why, sentence);
    bert_free(&bert);
}

#define MODULE(path, type) "{\"path\": \"" path "\", \"type\": \"sentence_transformers." type "\"}"
#define TEXTS MODULE("", "models.Transformer")
#define POOLING MODULE("1_Pooling", "sentence_transformer.modules.pooling.Pooling")

/* Folders of sentence-transformers say which rows count. */
static void test_modules(void **state)
{
    (void)state;
    static const char both[] = "[" TEXTS "," POOLING "," MODULE("2", "models.Normalize") "]";
    static const char *const firsts[] = {
        "{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": false}",
        "{\"word_embedding_dimension\": 64, \"pooling_mode\": \"cls\", \"include_prompt\": true}"};
    static const char *const wrong[] = {
        "{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": true}",
        "{\"pooling_mode_max_tokens\": true}", "{\"pooling_mode\": \"lasttoken\"}",
        "{\"pooling_mode_cls_token\": 1}", "{}"};
    static const char *const modules[] = {
        "[" TEXTS "," POOLING "," MODULE("2_Dense", "models.Dense") "]",
        "[" TEXTS "," MODULE("2", "models.Normalize") "]",
        "[" POOLING "," TEXTS "]",
        "[" MODULE("0", "models.Transformer") "," POOLING "]",
        "[" TEXTS ", {\"path\": \"1_Pooling\", \"type\": \"other.Pooling\"}]",
        "{}"};
    write_folder("", TENSORS);
    for (size_t i = 0; i < 2; i++) {
        write_modules(both, firsts[i]);
        first_row_told = true;
        compare(0, true, false);
        first_row_told = false;
    }
    write_modules(both, "{\"pooling_mode_mean_tokens\": true}");
    compare(0, false, false);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_modules(both, wrong[i]);
        refuse(FOLDER, "pooling_mode");
    }
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        write_modules(modules[i], firsts[0]);
        refuse(FOLDER, "modules.json");
    }
    write_modules(both, NULL);
    refuse(FOLDER, "1_Pooling/config.json");
    write_modules(NULL, NULL);
}

static void test_refused(void **state)
{
    (void)state;
    char path[64];
    static const char *const changes[][2] = {
        {"\"model_type\": \"roberta\"", "model_type: a value that is not supported"},
        {"\"model_type\": \"bert\", \"hidden_act\": \"relu\"", "hidden_act: a value"},
        {"\"model_type\": \"bert\", \"is_decoder\": true", "is_decoder: only encoders"},
        {"\"model_type\": \"bert\", \"is_decoder\": \"true\"", "is_decoder: only encoders"},
        {"\"model_type\": \"bert\", \"add_cross_attention\": 1", "add_cross_attention: only"},
        {"\"model_type\": \"bert\", \"rope_theta\": 1e4", "rope_theta: it is not known"},
        {"\"model_type\": \"bert\", \"quantization_config\": {}",
         "quantization_config: it is not known"},
        {"\"model_type\": \"bert\"", "hidden_size: is missing"},
        {"\"model_type\": \"bert\", \"model_type\": \"bert\"", "uplicate"}};
    write_folder("", TENSORS - 1);
    refuse(FOLDER, "output.LayerNorm.bias: the file has no such tensor");
    write_folder("", TENSORS + 1);
    refuse(FOLDER, "odd.embeddings.word_embeddings.weight: it is not known");
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char text[128];
        snprintf(path, sizeof path, "%s/config.json", FOLDER);
        snprintf(text, sizeof text, "{%s}", changes[i][0]);
        write_text(path, text);
        refuse(FOLDER, changes[i][1]);
    }
    write_gguf(3);
    refuse(GGUF, "bert.pooling_type: is not none, mean or first");
    static const char *const keys[] = {"split.count",           "adapter.type",
                                       "bert.rope.freq_base",   "bert.expert_count",
                                       "bert.pooling_type",     "bert.attention.layer_norm_epsilon",
                                       "bert.attention.causal", "bert.block_count"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        more_key = keys[i];
        write_gguf(1);
        refuse(GGUF, keys[i]);
    }
    more_key = NULL;
    refuse("no_such_folder", "no_such_folder/config.json");
    refuse("no_such.gguf", "no_such.gguf");
}

TEST_PROGRAM(embed)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_folder), cmocka_unit_test(test_gguf),
                                       cmocka_unit_test(test_modules),
                                       cmocka_unit_test(test_refused)};
    char path[64];
    if (vka_device_create(NULL, &device) != VKA_OK)
        return 77;
    draw_model();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < TENSORS; i++) {
        free(weights[i].floats);
        free(weights[i].blocks);
        free(weights[i].values[0]);
        free(weights[i].values[1]);
    }
    remove(GGUF);
    snprintf(path, sizeof path, "%s/config.json", FOLDER);
    remove(path);
    snprintf(path, sizeof path, "%s/model.safetensors", FOLDER);
    remove(path);
    write_modules(NULL, NULL);
    snprintf(path, sizeof path, "%s/1_Pooling", FOLDER);
    rmdir(path);
    rmdir(FOLDER);
    vka_device_destroy(&device);
    return failed;
}
