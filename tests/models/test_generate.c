/* A whole Llama with two recorded plans: tiny random ones, written as GGUF with quantised weights of
 * one type or of several, against the same model in double without a cache. The prompt is longer than
 * a slice. What a token costs is counted under the library. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "patience.h"
#include "tools/vkattn/generate/session.h"
#include "gpu/command.h"
#include "reference/reference.h"
#include "problems/rng.h"
#include "test_program.h"

enum { WIDTH = 64, BLOCKS = 2, HEADS = 4, KV_HEADS = 2, DIM = 16, FFN = 96, TOKENS = 80 };
enum { KV = KV_HEADS * DIM, PROMPT = 37, COUNT = 12, LENGTH = PROMPT + COUNT };
enum { WEIGHTS = 9, TENSORS = 3 + BLOCKS * WEIGHTS, KEYS = 9 };
enum { EMBEDDING, NORM, HEAD, FIRST_BLOCK };
enum { ATTN_NORM, FFN_NORM, WQ, WK, WV, WO, GATE, UP, DOWN };
/* One of gate and up, with rows of 68 bytes, fits in the least max_allocation; both do not. */
enum { LIMIT = 1 << 20, LONG_FFN = 8192 };

static struct vka_device *device;

/* A weight [rows][width], or vector where rows is 1, as the file has it and as double. */
struct weight {
    char name[40];
    uint32_t rows, width;
    enum vka_dtype dtype;
    void *data;
    double *values;
};

static struct weight weights[TENSORS];

static void check(enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s", vka_status_name(status), vka_device_error(device));
}

static void draw(struct rng *rng, const char *name, uint32_t rows, uint32_t width,
                 enum vka_dtype dtype, struct weight *w)
{
    size_t n = (size_t)rows * width;
    float *x = malloc(n * sizeof *x);
    *w = (struct weight){.rows = rows,
                         .width = width,
                         .dtype = rows > 1 ? dtype : VKA_F32,
                         .data = malloc(4 * n),
                         .values = malloc(n * sizeof *w->values)};
    assert_true(x && w->data && w->values);
    snprintf(w->name, sizeof w->name, "%s.weight", name);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(rows == 1 ? rng_uniform(rng, 0.5, 1.5) : rng_uniform(rng, -0.4, 0.4));
    memcpy(w->data, x, 4 * n);
    if (w->dtype != VKA_F32) {
        check(vka_dtype_encode(w->dtype, x, n / 32, w->data));
        check(vka_dtype_decode(w->dtype, w->data, n / 32, x));
    }
    for (size_t i = 0; i < n; i++)
        w->values[i] = (double)x[i];
    free(x);
}

/* mixed: block 0 has values of another type than queries and keys, block 1 also keys of another
 * type than queries, and up of another type than gate. */
static enum vka_dtype type_of(bool mixed, int block, int kind)
{
    if (mixed && block == 0 && kind == WV)
        return VKA_F32;
    return mixed && block == 1 && (kind == WK || kind == UP) ? VKA_Q4_0 : VKA_Q8_0;
}

static void draw_model(uint32_t ffn, bool mixed)
{
    const struct {
        const char *name;
        uint32_t rows, width;
    } kinds[WEIGHTS] = {
        {"attn_norm", 1, WIDTH},  {"ffn_norm", 1, WIDTH}, {"attn_q", WIDTH, WIDTH},
        {"attn_k", KV, WIDTH},    {"attn_v", KV, WIDTH},  {"attn_output", WIDTH, WIDTH},
        {"ffn_gate", ffn, WIDTH}, {"ffn_up", ffn, WIDTH}, {"ffn_down", WIDTH, ffn}};
    struct rng rng = {5};
    draw(&rng, "token_embd", TOKENS, WIDTH, VKA_Q8_0, &weights[EMBEDDING]);
    draw(&rng, "output_norm", 1, WIDTH, VKA_F32, &weights[NORM]);
    draw(&rng, "output", TOKENS, WIDTH, VKA_Q8_0, &weights[HEAD]);
    for (int b = 0; b < BLOCKS; b++)
        for (int p = 0; p < WEIGHTS; p++) {
            char name[32];
            snprintf(name, sizeof name, "blk.%d.%s", b, kinds[p].name);
            draw(&rng, name, kinds[p].rows, kinds[p].width, type_of(mixed, b, p),
                 &weights[FIRST_BLOCK + b * WEIGHTS + p]);
        }
}

/* What a file has besides, where it is named; a key of the same name is replaced. */
static struct vka_gguf_value more_key;
static struct vka_gguf_tensor more_tensor;

static void write_model(const char *path, uint32_t ffn)
{
    struct vka_gguf_tensor t[TENSORS + 1];
    const uint32_t numbers[] = {WIDTH, BLOCKS, ffn, HEADS, KV_HEADS, DIM};
    static const float reals[] = {5000, 1e-4f};
    struct vka_gguf_value keys[KEYS + 1] = {
        {"general.architecture", VKA_GGUF_STRING, VKA_GGUF_STRING, 1, "llama", 5},
        {"llama.embedding_length", VKA_GGUF_U32, VKA_GGUF_U32, 1, &numbers[0], 4},
        {"llama.block_count", VKA_GGUF_U32, VKA_GGUF_U32, 1, &numbers[1], 4},
        {"llama.feed_forward_length", VKA_GGUF_U32, VKA_GGUF_U32, 1, &numbers[2], 4},
        {"llama.attention.head_count", VKA_GGUF_U32, VKA_GGUF_U32, 1, &numbers[3], 4},
        {"llama.attention.head_count_kv", VKA_GGUF_U32, VKA_GGUF_U32, 1, &numbers[4], 4},
        {"llama.attention.key_length", VKA_GGUF_U32, VKA_GGUF_U32, 1, &numbers[5], 4},
        {"llama.rope.freq_base", VKA_GGUF_F32, VKA_GGUF_F32, 1, &reals[0], 4},
        {"llama.attention.layer_norm_rms_epsilon", VKA_GGUF_F32, VKA_GGUF_F32, 1, &reals[1], 4},
    };
    char error[VKA_IO_ERROR_SIZE];
    for (int i = 0; i < TENSORS; i++) {
        const struct weight *w = &weights[i];
        bool vector = w->rows == 1;
        size_t n = (size_t)w->rows * w->width;
        uint32_t values, bytes;
        check(vka_dtype_block(w->dtype, &values, &bytes));
        t[i] = (struct vka_gguf_tensor){.name = w->name,
                                        .dtype = w->dtype,
                                        .rank = vector ? 1 : 2,
                                        .shape = {vector ? w->width : w->rows, w->width},
                                        .data = w->data,
                                        .size = n / values * bytes};
    }
    size_t n = TENSORS, n_key = KEYS;
    if (more_tensor.name)
        t[n++] = more_tensor;
    for (size_t i = 0; more_key.key && i < KEYS; i++)
        if (strcmp(keys[i].key, more_key.key) == 0)
            keys[i] = keys[--n_key];
    if (more_key.key)
        keys[n_key++] = more_key;
    if (vka_gguf_write(path, t, n, keys, n_key, error) != VKA_OK)
        fail_msg("%s", error);
}

static void free_model(void)
{
    for (int i = 0; i < TENSORS; i++) {
        free(weights[i].data);
        free(weights[i].values);
    }
}

/* y[n][rows of the weight] = x[n][width] W^T. */
static void linear(const double *x, int weight, size_t n, double *y)
{
    const struct weight *w = &weights[weight];
    ref_linear(x, w->values, NULL, n, w->width, w->rows, false, y);
}

/* [n][heads * DIM] to [heads][n][DIM], and back. */
static void turn(const double *from, size_t n, size_t heads, bool back, double *to)
{
    for (size_t i = 0; i < n; i++)
        for (size_t h = 0; h < heads; h++)
            for (size_t d = 0; d < DIM; d++) {
                size_t row = (i * heads + h) * DIM + d, head = (h * n + i) * DIM + d;
                to[back ? row : head] = from[back ? head : row];
            }
}

static void attend(const double *q, const double *k, const double *v, size_t n, double *context)
{
    static double qh[LENGTH * WIDTH], kh[LENGTH * KV], vh[LENGTH * KV], ch[LENGTH * WIDTH];
    turn(q, n, HEADS, false, qh);
    turn(k, n, KV_HEADS, false, kh);
    turn(v, n, KV_HEADS, false, vh);
    const struct ref_attention a = {.batch = 1,
                                    .n_head = HEADS,
                                    .n_kv_head = KV_HEADS,
                                    .n_q = n,
                                    .n_kv = n,
                                    .head_dim = DIM,
                                    .value_dim = DIM,
                                    .q = qh,
                                    .k = kh,
                                    .v = vh,
                                    .causal = true,
                                    .rope = {.dim = DIM, .base = 5000, .interleaved = true},
                                    .context = ch};
    check(ref_attention(&a));
    turn(ch, n, HEADS, true, context);
}

static void add(double *x, const double *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}

/* The logits after n ids. */
static void forward(const int32_t *ids, size_t n, double logits[TOKENS])
{
    static double x[LENGTH * WIDTH], h[LENGTH * WIDTH], q[LENGTH * WIDTH], k[LENGTH * KV],
        v[LENGTH * KV], y[LENGTH * WIDTH], gate[LENGTH * FFN], up[LENGTH * FFN];
    for (size_t i = 0; i < n; i++)
        memcpy(x + i * WIDTH, weights[EMBEDDING].values + (size_t)ids[i] * WIDTH,
               WIDTH * sizeof *x);
    for (int b = 0; b < BLOCKS; b++) {
        const int w = FIRST_BLOCK + b * WEIGHTS;
        memcpy(h, x, n * WIDTH * sizeof *h);
        ref_rms_norm(h, n, WIDTH, weights[w + ATTN_NORM].values, (double)1e-4f);
        linear(h, w + WQ, n, q);
        linear(h, w + WK, n, k);
        linear(h, w + WV, n, v);
        attend(q, k, v, n, y);
        linear(y, w + WO, n, h);
        add(x, h, n * WIDTH);
        memcpy(h, x, n * WIDTH * sizeof *h);
        ref_rms_norm(h, n, WIDTH, weights[w + FFN_NORM].values, (double)1e-4f);
        linear(h, w + GATE, n, gate);
        linear(h, w + UP, n, up);
        for (size_t i = 0; i < n * FFN; i++)
            gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
        linear(gate, w + DOWN, n, h);
        add(x, h, n * WIDTH);
    }
    memcpy(h, x + (n - 1) * WIDTH, WIDTH * sizeof *h);
    ref_rms_norm(h, 1, WIDTH, weights[NORM].values, (double)1e-4f);
    linear(h, HEAD, 1, logits);
}

/* The id that follows; *gap: how far the second best logit is. */
static int32_t follow(const int32_t *ids, size_t n, double *gap)
{
    double logits[TOKENS];
    int32_t best = 0;
    forward(ids, n, logits);
    for (int32_t i = 1; i < TOKENS; i++)
        best = logits[i] > logits[best] ? i : best;
    *gap = INFINITY;
    for (int32_t i = 0; i < TOKENS; i++)
        if (i != best && logits[best] - logits[i] < *gap)
            *gap = logits[best] - logits[i];
    return best;
}

/* ---- What a token costs ---------------------------------------------------------------------- */

static struct counts {
    int runs, submits, recordings, finished, writes, linears;
    size_t bytes_read;
} counts;

#define COUNTED(TYPE, FUNCTION, PARAMETERS, ARGUMENTS, COUNT)          \
    TYPE __real_##FUNCTION PARAMETERS; /* NOLINT: the linker's name */ \
    TYPE __wrap_##FUNCTION PARAMETERS;                                 \
    TYPE __wrap_##FUNCTION PARAMETERS                                  \
    {                                                                  \
        COUNT;                                                         \
        return __real_##FUNCTION ARGUMENTS;                            \
    }

COUNTED(enum vka_status, vka_plan_run, (struct vka_plan * plan, uint64_t timeout), (plan, timeout),
        counts.runs++)
COUNTED(enum vka_status, vka_plan_finish, (struct vka_plan * plan), (plan), counts.finished++)
COUNTED(enum vka_status, vka_plan_add_linear,
        (struct vka_plan * plan, const struct vka_linear_op *op), (plan, op), counts.linears++)
COUNTED(enum vka_status, plan_record, (struct vka_plan * plan), (plan), counts.recordings++)
COUNTED(enum vka_status, vka_tensor_write,
        (struct vka_tensor * tensor, const void *data, size_t size), (tensor, data, size),
        counts.writes++)
COUNTED(enum vka_status, vka_tensor_read, (struct vka_tensor * tensor, void *data, size_t size),
        (tensor, data, size), counts.bytes_read += size)
COUNTED(enum vka_status, queue_submit,
        (struct vka_device * on, const VkCommandBuffer *commands, size_t n, bool told,
         const struct vka_submit_info *info, uint64_t *ticket),
        (on, commands, n, told, info, ticket), counts.submits += (int)n)

static void expect(const char *what, int found, int wanted)
{
    if (found != wanted)
        fail_msg("%s: %d, expected %d", what, found, wanted);
}

/* Each id takes one run, one submit and a read of 4 bytes; nothing is written. */
static void check_counts(int runs, int writes)
{
    expect("runs", counts.runs, runs);
    expect("submits", counts.submits, runs);
    expect("writes", counts.writes, writes);
    expect("bytes read", (int)counts.bytes_read, 4);
    expect("recordings", counts.recordings, 0);
    counts = (struct counts){0};
}

/* With keys and values of a type; quantised ones only have to give ids that exist. The budget lets a
 * run be one submit however slow the machine is. linears: how many a plan has. */
static void generate(const char *path, enum vka_dtype kv, int linears)
{
    struct decoder decoder;
    struct session session;
    char why[VKA_IO_ERROR_SIZE];
    int32_t ids[LENGTH];
    for (int i = 0; i < PROMPT; i++)
        ids[i] = i * 7 % TOKENS;
    if (decoder_load(device, path, &decoder, why) != VKA_OK)
        fail_msg("%s %s", why, vka_device_error(device));
    const struct session_info info = {
        .n_prompt = PROMPT, .count = COUNT, .kv = kv, .budget = UINT64_MAX, .timeout = PATIENCE};
    check(
        session_create(device, &decoder, &info, &session)); /* self-tests have plans of their own */
    session_free(&session);
    counts = (struct counts){0};
    check(session_create(device, &decoder, &info, &session));
    expect("plans", counts.finished, 2);
    expect("recordings", counts.recordings, 2);
    expect("products", counts.linears, 2 * linears);
    counts = (struct counts){0};
    for (int n = PROMPT; n < LENGTH; n++) {
        double gap;
        int32_t want = follow(ids, (size_t)n, &gap);
        if (n == PROMPT) {
            int slices = (PROMPT + SESSION_SLICE - 1) / SESSION_SLICE;
            check(session_begin(&session, ids, &ids[n]));
            check_counts(slices, 3 * slices);
        } else {
            check(session_next(&session, &ids[n]));
            check_counts(1, 0);
        }
        print_message("%s: id %d, in double %d, gap %.2g\n", vka_dtype_name(kv), (int)ids[n],
                      (int)want, gap);
        assert_in_range(ids[n], 0, TOKENS - 1);
        if (kv == VKA_F32 && gap > 1e-3)
            assert_int_equal(ids[n], want);
    }
    session_free(&session);
    decoder_free(&decoder);
}

/* A block has one product for queries, keys and values, one for gate and up, and two others. */
static void test_generate(void **state)
{
    const char *path = *state;
    draw_model(FFN, false);
    write_model(path, FFN);
    generate(path, VKA_F32, 4 * BLOCKS + 1);
    generate(path, VKA_Q8_0, 4 * BLOCKS + 1);
    free_model();
}

/* What differs in type has a product of its own. */
static void test_mixed(void **state)
{
    const char *path = *state;
    draw_model(FFN, true);
    write_model(path, FFN);
    generate(path, VKA_F32, 5 + 7 + 1);
    free_model();
}

/* What would be too large for one tensor stays apart. */
static void test_limit(void **state)
{
    const char *path = *state;
    struct vka_device *small;
    struct decoder decoder;
    char why[VKA_IO_ERROR_SIZE];
    draw_model(LONG_FFN, false);
    write_model(path, LONG_FFN);
    check(vka_device_create(VKA_INFO(vka_device_info, .max_allocation = LIMIT), &small));
    if (decoder_load(small, path, &decoder, why) != VKA_OK)
        fail_msg("%s %s", why, vka_device_error(small));
    for (int b = 0; b < BLOCKS; b++) {
        const struct decoder_block *block = &decoder.blocks[b];
        assert_non_null(block->gate_up[1].weight);
        assert_int_equal(vka_tensor_shape(block->gate_up[0].weight, 0), LONG_FFN);
        assert_int_equal(vka_tensor_shape(block->qkv[0].weight, 0), WIDTH + 2 * KV);
    }
    decoder_free(&decoder);
    vka_device_destroy(&small);
    free_model();
}

/* Loads the model with more_key and more_tensor. `named` NULL: it has to work; else to be refused by a
 * sentence with that name. */
static void load_with_more(const char *path, const char *named)
{
    struct decoder decoder;
    char why[VKA_IO_ERROR_SIZE];
    write_model(path, FFN);
    enum vka_status status = decoder_load(device, path, &decoder, why);
    if (named ? status == VKA_OK || !strstr(why, named) : status != VKA_OK)
        fail_msg("%s: \"%s\"", named ? named : "to be loaded", status == VKA_OK ? "" : why);
    decoder_free(&decoder);
    more_key = (struct vka_gguf_value){0};
    more_tensor = (struct vka_gguf_tensor){0};
}

/* What the file says and this program does not compute is refused by name. */
static void test_strict(void **state)
{
    const char *path = *state;
    static const uint32_t numbers[] = {HEADS, KV_HEADS, KV_HEADS, 1, DIM, TOKENS, 8, 0};
    static const float reals[] = {0, NAN, 2, -1};
    static const struct {
        const char *key;
        const uint32_t *numbers; /* or reals where it is NULL */
        const float *reals;
        uint32_t count; /* 0: no array */
        bool fine;
    } keys[] = {
        {"llama.rope.dimension_count", &numbers[4], NULL, 0, true},
        {"llama.rope.dimension_count", &numbers[6], NULL, 0, true}, /* of the first features */
        {"llama.rope.dimension_count", &numbers[3], NULL, 0, false},
        {"llama.rope.dimension_count", &numbers[5], NULL, 0, false},
        {"llama.vocab_size", &numbers[5], NULL, 0, true},
        {"llama.vocab_size", &numbers[4], NULL, 0, false},
        {"llama.context_length", &numbers[4], NULL, 0, true},
        {"llama.expert_count", &numbers[6], NULL, 0, false},
        {"llama.expert_count", &numbers[7], NULL, 0, true},
        {"llama.expert_used_count", &numbers[3], NULL, 0, false},
        {"llama.expert_used_count", &numbers[7], NULL, 0, true},
        {"llama.rope.scaling.original_context_length", &numbers[6], NULL, 0, true},
        {"llama.attention.sliding_window", &numbers[6], NULL, 0, false},
        {"llama.attention.scale", NULL, &reals[2], 0, false},
        {"llama.logit_scale", NULL, &reals[2], 0, false},
        {"llama.rope.scale_linear", NULL, &reals[2], 0, false},
        {"llama.attention.head_count_kv", &numbers[1], NULL, 2, true},
        {"llama.attention.head_count_kv", &numbers[2], NULL, 2, false},
        {"llama.attention.head_count_kv", NULL, &reals[2], 0, false},
        {"llama.attention.head_count_kv", &numbers[7], NULL, 0, false},
        {"llama.attention.layer_norm_rms_epsilon", NULL, &reals[0], 0, false},
        {"llama.attention.layer_norm_rms_epsilon", NULL, &reals[1], 0, false},
        {"llama.attention.layer_norm_rms_epsilon", &numbers[3], NULL, 0, false},
        {"llama.rope.freq_base", NULL, &reals[3], 0, false},
        {"llama.rope.freq_base", &numbers[6], NULL, 0, false},
        {"adapter.type", &numbers[3], NULL, 0, false},
        {"split.count", &numbers[1], NULL, 0, false},
        {"split.count", &numbers[3], NULL, 0, true},
        {"split.tensors.count", &numbers[3], NULL, 0, true},
        {"tokenizer.ggml.eos_token_id", &numbers[1], NULL, 0, true},
        {"general.quantization_version", &numbers[1], NULL, 0, true},
    };
    draw_model(FFN, false);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const void *data = keys[i].numbers ? (const void *)keys[i].numbers : keys[i].reals;
        const enum vka_gguf_type type = keys[i].numbers ? VKA_GGUF_U32 : VKA_GGUF_F32;
        const uint32_t n = keys[i].count ? keys[i].count : 1;
        more_key = (struct vka_gguf_value){
            keys[i].key, keys[i].count ? VKA_GGUF_ARRAY : type, type, n, data, (size_t)n * 4};
        load_with_more(path, keys[i].fine ? NULL : keys[i].key);
    }
    static const char *const names[] = {
        "blk.0.attn_q_norm.weight",  "blk.1.attn_q.bias",    "blk.2.attn_q.weight",
        "blk.0.ffn_gate_inp.weight", "output.bias",          "rope_factors_long.weight",
        "output_norm.bias",          "blk.0.attn_norm.bias", "blk.0.attn_sinks.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        more_tensor = (struct vka_gguf_tensor){
            .name = names[i], .dtype = VKA_F32, .rank = 1, .shape = {2}, .data = reals, .size = 8};
        load_with_more(path, names[i]);
    }
    free_model();
}

/* Logits of NaN: there is no id, which the program says. */
static void test_no_number(void **state)
{
    const char *path = *state;
    struct decoder decoder;
    struct session session;
    char why[VKA_IO_ERROR_SIZE];
    int32_t ids[] = {3, 4, 5}, id = 0;
    draw_model(FFN, false);
    *(float *)weights[NORM].data = NAN;
    write_model(path, FFN);
    if (decoder_load(device, path, &decoder, why) != VKA_OK)
        fail_msg("%s %s", why, vka_device_error(device));
    const struct session_info info = {
        .n_prompt = 3, .count = 2, .kv = VKA_F32, .budget = UINT64_MAX, .timeout = PATIENCE};
    check(session_create(device, &decoder, &info, &session));
    check(session_begin(&session, ids, &id));
    assert_int_equal(id, -1);
    session_free(&session);
    decoder_free(&decoder);
    free_model();
}

TEST_PROGRAM_ARGUMENTS(generate)
{
    char *path = argc > 1 ? argv[1] : "test_generate.gguf";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_generate, path), cmocka_unit_test_prestate(test_mixed, path),
        cmocka_unit_test_prestate(test_limit, path), cmocka_unit_test_prestate(test_strict, path),
        cmocka_unit_test_prestate(test_no_number, path)};
    if (vka_device_create(NULL, &device) != VKA_OK)
        return 77;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(path);
    vka_device_destroy(&device);
    return failed;
}
