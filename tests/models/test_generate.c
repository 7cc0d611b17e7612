/* A whole Llama with two recorded plans: tiny random ones, written as GGUF with quantised weights of
 * one type or of several, against the same model in double without a cache. The prompt is longer than
 * a slice. What a token costs is counted under the library. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "patience.h"
#include "tools/vkattn/generate/session.h"
#include "gpu/command.h"
#include "test_program.h"
#include "tiny_llama.h"

/* One of gate and up, with rows of 68 bytes, fits in the least max_allocation; both do not. */
enum { LIMIT = 1 << 20, LONG_FFN = 8192 };

static struct vka_device *device;

static void check(enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s", vka_status_name(status), vka_device_error(device));
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
    write_model(path, FFN, NULL, NULL);
    generate(path, VKA_F32, 4 * BLOCKS + 1);
    generate(path, VKA_Q8_0, 4 * BLOCKS + 1);
    free_model();
}

/* What differs in type has a product of its own. */
static void test_mixed(void **state)
{
    const char *path = *state;
    draw_model(FFN, true);
    write_model(path, FFN, NULL, NULL);
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
    write_model(path, LONG_FFN, NULL, NULL);
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

/* Loads the model with a key and a tensor more. `named` NULL: it has to work; else to be refused by a
 * sentence with that name. */
static void load_with(const char *path, const struct vka_gguf_value *key,
                      const struct vka_gguf_tensor *tensor, const char *named)
{
    struct decoder decoder;
    char why[VKA_IO_ERROR_SIZE];
    write_model(path, FFN, key, tensor);
    enum vka_status status = decoder_load(device, path, &decoder, why);
    if (named ? status == VKA_OK || !strstr(why, named) : status != VKA_OK)
        fail_msg("%s: \"%s\"", named ? named : "to be loaded", status == VKA_OK ? "" : why);
    decoder_free(&decoder);
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
        const struct vka_gguf_value key = {
            keys[i].key, keys[i].count ? VKA_GGUF_ARRAY : type, type, n, data, (size_t)n * 4};
        load_with(path, &key, NULL, keys[i].fine ? NULL : keys[i].key);
    }
    static const char *const names[] = {
        "blk.0.attn_q_norm.weight",  "blk.1.attn_q.bias",    "blk.2.attn_q.weight",
        "blk.0.ffn_gate_inp.weight", "output.bias",          "rope_factors_long.weight",
        "output_norm.bias",          "blk.0.attn_norm.bias", "blk.0.attn_sinks.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct vka_gguf_tensor tensor = {
            .name = names[i], .dtype = VKA_F32, .rank = 1, .shape = {2}, .data = reals, .size = 8};
        load_with(path, NULL, &tensor, names[i]);
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
    write_model(path, FFN, NULL, NULL);
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
