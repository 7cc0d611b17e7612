#include "tiny_llama.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "reference/reference.h"
#include "problems/rng.h"

struct weight weights[TENSORS];

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
        assert_int_equal(vka_dtype_encode(w->dtype, x, n / 32, w->data), VKA_OK);
        assert_int_equal(vka_dtype_decode(w->dtype, w->data, n / 32, x), VKA_OK);
    }
    for (size_t i = 0; i < n; i++)
        w->values[i] = (double)x[i];
    free(x);
}

static enum vka_dtype type_of(bool mixed, int block, int kind)
{
    if (mixed && block == 0 && kind == WV)
        return VKA_F32;
    return mixed && block == 1 && (kind == WK || kind == UP) ? VKA_Q4_0 : VKA_Q8_0;
}

void draw_model(uint32_t ffn, bool mixed)
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

void write_model(const char *path, uint32_t ffn, const struct vka_gguf_value *key,
                 const struct vka_gguf_tensor *tensor)
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
        assert_int_equal(vka_dtype_block(w->dtype, &values, &bytes), VKA_OK);
        t[i] = (struct vka_gguf_tensor){.name = w->name,
                                        .dtype = w->dtype,
                                        .rank = vector ? 1 : 2,
                                        .shape = {vector ? w->width : w->rows, w->width},
                                        .data = w->data,
                                        .size = n / values * bytes};
    }
    size_t n = TENSORS, n_key = KEYS;
    if (tensor)
        t[n++] = *tensor;
    for (size_t i = 0; key && i < KEYS; i++)
        if (strcmp(keys[i].key, key->key) == 0)
            keys[i] = keys[--n_key];
    if (key)
        keys[n_key++] = *key;
    if (vka_gguf_write(path, t, n, keys, n_key, error) != VKA_OK)
        fail_msg("%s", error);
}

void free_model(void)
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
    assert_int_equal(ref_attention(&a), VKA_OK);
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

int32_t follow(const int32_t *ids, size_t n, double *gap)
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
