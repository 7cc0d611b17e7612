/* Continues token ids by a Llama of a GGUF file. Its weights keep their types; one plan, recorded once,
 * takes a token a run. `vkattn generate` also reads prompts in slices, and doubts the file.
 *
 *     cc llama.c -o llama -lvkattn_io $(pkg-config --cflags --libs vkattn) && ./llama FILE 16 1 5 9
 *
 * SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <vkattn/vkattn_io.h>
#include <vkattn/vkattn_model.h>
#define TRY(call) ((call) != VKA_OK ? (fprintf(stderr, "%s: %s\n", #call, why), exit(1)) : (void)0)
#define ADD(op, ...) TRY(vka_plan_add_##op(plan, VKA_INFO(vka_##op##_op, __VA_ARGS__)))

static char why[VKA_IO_ERROR_SIZE] = "usage: llama FILE COUNT ID...";
static struct vka_device *device;
static struct vka_plan *plan;
static struct vka_gguf *file;
static double epsilon = 1e-5;

/* A tensor of the file on the device. */
static struct vka_tensor *weight(const char *name, uint32_t block)
{
    char full[64];
    snprintf(full, sizeof full, name, block);
    const struct vka_gguf_tensor *w = vka_gguf_find(file, full);
    TRY(w ? VKA_OK : (snprintf(why, sizeof why, "the file lacks %s", full), VKA_IO));
    struct vka_tensor *t;
    uint32_t shape[] = {(uint32_t)w->shape[0], (uint32_t)w->shape[1]};
    TRY(vka_tensor_create(device, w->dtype, w->rank, shape, &t));
    TRY(vka_tensor_write(t, w->data, w->size));
    return t;
}

static struct vka_tensor *row(uint32_t width)
{
    struct vka_tensor *t;
    TRY(vka_tensor_create(device, VKA_F32, 2, (uint32_t[]){1, width}, &t));
    return t;
}

/* y = x weight^T, or y += x weight^T; the norm of x where the weight is a vector. */
static struct vka_tensor *apply(const char *name, uint32_t block, struct vka_tensor *x,
                                struct vka_tensor *sum)
{
    struct vka_tensor *w = weight(name, block), *y = sum ? sum : row(vka_tensor_shape(w, 0));
    if (vka_tensor_rank(w) == 1)
        ADD(norm, .input = x, .weight = w, .output = y, .epsilon = (float)epsilon);
    else
        ADD(linear, .input = x, .weight = w, .output = y, .accumulate = sum != NULL);
    return y;
}

static struct vka_tensor *heads(struct vka_tensor *t, uint32_t dim)
{
    struct vka_tensor *view;
    TRY(vka_tensor_reshape(t, 4, (uint32_t[]){1, vka_tensor_shape(t, 1) / dim, 1, dim}, &view));
    return view;
}

int main(int argc, char **argv)
{
    int64_t n_layer = 0, n_head = 1, n_kv_head = 0;
    double base = 10000;
    TRY(argc < 4 ? VKA_INVALID : vka_gguf_open(argv[1], why, &file));
    if (vka_device_create(NULL, &device) != VKA_OK)
        return 77;
    snprintf(why, sizeof why, "vka_device_error says why");
    vka_gguf_integer(vka_gguf_metadata(file, "llama.block_count"), 0, &n_layer);
    vka_gguf_integer(vka_gguf_metadata(file, "llama.attention.head_count"), 0, &n_head);
    n_kv_head = n_head;
    vka_gguf_integer(vka_gguf_metadata(file, "llama.attention.head_count_kv"), 0, &n_kv_head);
    vka_gguf_real(vka_gguf_metadata(file, "llama.rope.freq_base"), 0, &base);
    vka_gguf_real(vka_gguf_metadata(file, "llama.attention.layer_norm_rms_epsilon"), 0, &epsilon);
    struct vka_tensor *table = weight("token_embd.weight", 0), *x = row(vka_tensor_shape(table, 1)),
                      *id;
    uint32_t dim = vka_tensor_shape(table, 1) / (uint32_t)n_head, count = (uint32_t)atoi(argv[2]);
    struct vka_cache *cache;
    TRY(vka_cache_create(device,
                         VKA_INFO(vka_cache_info, .batch = 1, .n_layer = (uint32_t)n_layer,
                                  .n_kv_head = (uint32_t)n_kv_head, .head_dim = dim,
                                  .capacity = (uint32_t)argc + count),
                         &cache));
    TRY(vka_tensor_create(device, VKA_I32, 1, (uint32_t[]){1}, &id));
    TRY(vka_plan_create(device, NULL, &plan));
    ADD(gather, .table = table, .ids = id, .output = x);
    for (uint32_t i = 0; i < n_layer; i++) {
        struct vka_tensor *y = apply("blk.%u.attn_norm.weight", i, x, NULL);
        struct vka_tensor *q = heads(apply("blk.%u.attn_q.weight", i, y, NULL), dim);
        struct vka_tensor *k = heads(apply("blk.%u.attn_k.weight", i, y, NULL), dim);
        struct vka_tensor *v = heads(apply("blk.%u.attn_v.weight", i, y, NULL), dim);
        ADD(attention, .q = q, .k = k, .v = v, .output = heads(y, dim), .cache = cache,
            .cache_layer = i,
            .options = {.causal = true,
                        .rope = {.dim = dim, .base = (float)base, .interleaved = true}});
        apply("blk.%u.attn_output.weight", i, y, x);
        y = apply("blk.%u.ffn_norm.weight", i, x, NULL);
        struct vka_tensor *gate = apply("blk.%u.ffn_gate.weight", i, y, NULL);
        struct vka_tensor *up = apply("blk.%u.ffn_up.weight", i, y, NULL);
        ADD(activation, .kind = VKA_SILU, .input = gate, .multiplier = up, .output = gate);
        apply("blk.%u.ffn_down.weight", i, gate, x);
    }
    const char *head = vka_gguf_find(file, "output.weight") ? "output.weight" : "token_embd.weight";
    ADD(argmax, .input = apply(head, 0, apply("output_norm.weight", 0, x, NULL), NULL),
        .output = id);
    TRY(vka_plan_finish(plan));
    for (int n = 3; n < argc + (int)count - 1; n++) { /* the prompt, then what comes out goes in */
        int32_t token;
        if (n < argc)
            TRY(vka_tensor_write(id, (int32_t[]){atoi(argv[n])}, sizeof token));
        TRY(vka_plan_run(plan, VKA_TIMEOUT_DEFAULT));
        TRY(vka_tensor_read(id, &token, sizeof token));
        if (n >= argc - 1)
            printf("%d%c", token, n + 2 < argc + (int)count ? ' ' : '\n');
    }
    return 0; /* the system takes the memory back */
}
