/* Arguments that differ, failures of one rank, and what of the weights a rank reads. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "../patience.h"
#include "mpi/agree.h"
#include "test_program.h"
#include "ranks.h"

#include <vkattn/vkattn_io.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPECT(mpi, wanted, words, call)                                                          \
    do {                                                                                          \
        enum vka_status got = (call);                                                             \
        REQUIRE(got == (wanted), "%s gave %s", #call, vka_status_name(got));                      \
        REQUIRE(strstr(vka_mpi_error(mpi), words), "no '%s' in '%s'", words, vka_mpi_error(mpi)); \
    } while (0)

enum { WIDTH = 64, HEADS = 8, DIM = 8, BATCH = 2, N = 5 };

static float weights[WIDTH * WIDTH];

static struct vka_mpi_layer_info layer_info(void)
{
    struct vka_linear_weights w = {weights, weights};
    return *VKA_INFO(vka_mpi_layer_info, .layer = {.n_head = HEADS,
                                                   .head_dim = DIM,
                                                   .query_dim = WIDTH,
                                                   .output_dim = WIDTH,
                                                   .query = w,
                                                   .key = w,
                                                   .value = w,
                                                   .output = w});
}

/* Whoever differs, all ranks hear of it, and the next call is in step again. */
static void check_layer_arguments(struct vka_mpi *mpi)
{
    struct vka_mpi_layer *layer = (struct vka_mpi_layer *)weights;
    bool last = vka_mpi_rank(mpi) == vka_mpi_size(mpi) - 1;
    struct vka_mpi_layer_info info = layer_info();
    if (vka_mpi_size(mpi) > 1) {
        char words[64];
        snprintf(words, sizeof words, "rank %d has n_head: 4, rank 0 has n_head: 8",
                 vka_mpi_size(mpi) - 1);
        info.layer.n_head = last ? 4 : 8;
        EXPECT(mpi, VKA_INVALID, words, vka_mpi_layer_create(mpi, &info, &layer));
        REQUIRE(!layer, "a layer in spite of an error");
        info = layer_info();
        info.layer.key.bias = last ? NULL : weights;
        EXPECT(mpi, VKA_INVALID, "key 0", vka_mpi_layer_create(mpi, &info, &layer));
        info = layer_info();
        info.layer.value.weight = last ? NULL : weights;
        snprintf(words, sizeof words, "rank %d: ", vka_mpi_size(mpi) - 1);
        EXPECT(mpi, VKA_INVALID, words, vka_mpi_layer_create(mpi, &info, &layer));
    }
    info = layer_info();
    info.split = VKA_MPI_SEQUENCE;
    EXPECT(mpi, VKA_INVALID, "split", vka_mpi_layer_create(mpi, &info, &layer));
    info = layer_info();
    info.layer.n_kv_head = 3;
    EXPECT(mpi, VKA_INVALID, "n_kv_head 3", vka_mpi_layer_create(mpi, &info, &layer));
    info = layer_info();
    REQUIRE_OK(mpi, vka_mpi_layer_create(mpi, &info, &layer));
    vka_mpi_layer_destroy(&layer);
}

/* What is compared is compared to its last byte, and what there is no room for is an error. */
static void check_terms(struct vka_mpi *mpi)
{
    static const char caller[] = "check_terms";
    bool last = vka_mpi_rank(mpi) == vka_mpi_size(mpi) - 1;
    struct terms terms = {0};
    const int most = sizeof terms.text - 2; /* the line's end, and the text's */
    terms_add(&terms, "%*d", most, last);
    REQUIRE(!terms.cut, "a line of %d is cut", most);
    if (vka_mpi_size(mpi) > 1)
        EXPECT(mpi, VKA_INVALID, "check_terms: rank", comm_agree(mpi, caller, VKA_OK, &terms));
    terms = (struct terms){0};
    for (int i = 0; last && i < most; i++)
        terms_add(&terms, "%d", i);
    EXPECT(mpi, VKA_INTERNAL, "more than 3072 bytes", comm_agree(mpi, caller, VKA_OK, &terms));
    terms = (struct terms){0};
    terms_add(&terms, "%*d", most + 1, 0);
    EXPECT(mpi, VKA_INTERNAL, "rank 0: check_terms", comm_agree(mpi, caller, VKA_OK, &terms));
    REQUIRE_OK(mpi, comm_agree(mpi, caller, VKA_OK, &(struct terms){0}));
}

static void check_plan_arguments(struct vka_mpi *mpi)
{
    struct vka_mpi_layer *layer;
    struct vka_mpi_plan *plan;
    struct vka_tensor *in, *out, *narrow;
    struct vka_device *device = vka_mpi_device(mpi);
    bool last = vka_mpi_rank(mpi) == vka_mpi_size(mpi) - 1, alone = vka_mpi_size(mpi) == 1;
    struct vka_mpi_layer_info info = layer_info();
    REQUIRE_OK(mpi, vka_mpi_layer_create(mpi, &info, &layer));
    REQUIRE_OK(mpi, vka_tensor_create(device, VKA_F32, 3, (uint32_t[]){BATCH, N, WIDTH}, &in));
    REQUIRE_OK(mpi, vka_tensor_create(device, VKA_F32, 3, (uint32_t[]){BATCH, N, WIDTH}, &out));
    REQUIRE_OK(mpi, vka_tensor_create(device, VKA_F32, 3, (uint32_t[]){BATCH, N, 9}, &narrow));
    struct vka_layer_op op = *VKA_INFO(vka_layer_op, .query = in, .output = out);
    if (!alone) {
        struct vka_layer_op other = op;
        other.attention.causal = last;
        EXPECT(mpi, VKA_INVALID, "has causal: 1, rank 0 has causal: 0",
               vka_mpi_plan_layer(mpi, layer, &other, NULL, &plan));
        other = op;
        const double frequencies[] = {1, last ? 0.5 : 0.25};
        other.attention.rope = (struct vka_rope){.dim = 4, .frequencies = frequencies};
        EXPECT(mpi, VKA_INVALID, "has rope: dim 4",
               vka_mpi_plan_layer(mpi, layer, &other, NULL, &plan));
        other = op;
        other.output = last ? narrow : out;
        EXPECT(mpi, VKA_INVALID, "output", vka_mpi_plan_layer(mpi, layer, &other, NULL, &plan));
        other = op;
        other.attention.dropout_head = last;
        EXPECT(mpi, VKA_INVALID, "from: 0, 1, 0, rank 0 has dropout",
               vka_mpi_plan_layer(mpi, layer, &other, NULL, &plan));
    }
    struct vka_layer_op wrong = op;
    wrong.query = narrow;
    EXPECT(mpi, VKA_INVALID, "query", vka_mpi_plan_layer(mpi, layer, &wrong, NULL, &plan));
    EXPECT(mpi, VKA_INVALID, "layer", vka_mpi_plan_layer(mpi, NULL, &op, NULL, &plan));
    REQUIRE_OK(mpi, vka_mpi_plan_layer(mpi, layer, &op, NULL, &plan));
    REQUIRE_OK(mpi, vka_mpi_plan_run(plan, PATIENCE));
    struct vka_mpi_stats stats;
    vka_mpi_plan_stats(plan, &stats);
    REQUIRE(stats.compute_ms > 0 && stats.total_ms >= stats.compute_ms, "no time was counted");
    /* The contexts and the output, gathered: all but its own slice comes in. */
    uint64_t whole = 2ull * BATCH * N * WIDTH * sizeof(float);
    REQUIRE(stats.received <= whole && (stats.received > 0) == !alone,
            "%llu bytes received, %llu in the tensors", (unsigned long long)stats.received,
            (unsigned long long)whole);
    vka_mpi_plan_destroy(&plan);
    vka_mpi_layer_destroy(&layer);
    vka_tensor_destroy(&in);
    vka_tensor_destroy(&out);
    vka_tensor_destroy(&narrow);
}

/* A rank that has nowhere to put the plan, and one without a cache. */
static void check_one_rank_alone(struct vka_mpi *mpi)
{
    struct vka_mpi_layer *layer;
    struct vka_mpi_plan *plan;
    struct vka_cache *cache;
    struct vka_tensor *in, *out;
    struct vka_device *device = vka_mpi_device(mpi);
    bool last = vka_mpi_rank(mpi) == vka_mpi_size(mpi) - 1;
    struct vka_mpi_layer_info info = layer_info();
    struct vka_mpi_range query, key;
    char words[64];
    info.rounds = 1;
    vka_mpi_heads(HEADS, HEADS, vka_mpi_size(mpi), vka_mpi_rank(mpi), &query, &key);
    REQUIRE_OK(mpi, vka_mpi_layer_create(mpi, &info, &layer));
    REQUIRE_OK(mpi, vka_tensor_create(device, VKA_F32, 3, (uint32_t[]){BATCH, N, WIDTH}, &in));
    REQUIRE_OK(mpi, vka_tensor_create(device, VKA_F32, 3, (uint32_t[]){BATCH, N, WIDTH}, &out));
    REQUIRE_OK(mpi,
               vka_cache_create(device,
                                VKA_INFO(vka_cache_info, .batch = BATCH, .n_kv_head = key.count,
                                         .head_dim = DIM, .capacity = N),
                                &cache));
    struct vka_layer_op op = *VKA_INFO(vka_layer_op, .query = in, .output = out);
    EXPECT(mpi, VKA_INVALID, "plan is NULL",
           vka_mpi_plan_layer(mpi, layer, &op, NULL, last ? NULL : &plan));
    op.cache = last ? NULL : cache;
    snprintf(words, sizeof words, "rank 0 has a cache, rank %d has none", vka_mpi_size(mpi) - 1);
    EXPECT(mpi, VKA_INVALID, words, vka_mpi_plan_layer(mpi, layer, &op, NULL, &plan));
    vka_cache_destroy(&cache);
    vka_mpi_layer_destroy(&layer);
    vka_tensor_destroy(&in);
    vka_tensor_destroy(&out);
}

/* Layers that hold a state stand beside one of keys and values, and are refused in its place, on all
 * ranks where the last one alone names it. */
static void check_states(struct vka_mpi *mpi)
{
    struct vka_mpi_layer *layer;
    struct vka_mpi_plan *plan = NULL;
    struct vka_cache *cache;
    struct vka_tensor *in, *out;
    struct vka_device *device = vka_mpi_device(mpi);
    const bool last = vka_mpi_rank(mpi) == vka_mpi_size(mpi) - 1;
    struct vka_mpi_layer_info info = layer_info();
    struct vka_mpi_range query, key;
    info.rounds = 1;
    vka_mpi_heads(HEADS, HEADS, vka_mpi_size(mpi), vka_mpi_rank(mpi), &query, &key);
    const struct vka_cache_layer_info layers[] = {
        {.struct_size = sizeof *layers, .n_kv_head = key.count, .head_dim = DIM},
        {.struct_size = sizeof *layers, .n_state = key.count, .head_dim = DIM, .value_dim = DIM}};
    REQUIRE_OK(mpi, vka_mpi_layer_create(mpi, &info, &layer));
    REQUIRE_OK(mpi, vka_tensor_create(device, VKA_F32, 3, (uint32_t[]){BATCH, N, WIDTH}, &in));
    REQUIRE_OK(mpi, vka_tensor_create(device, VKA_F32, 3, (uint32_t[]){BATCH, N, WIDTH}, &out));
    REQUIRE_OK(mpi, vka_cache_create(device,
                                     VKA_INFO(vka_cache_info, .batch = BATCH, .n_layer = 2,
                                              .capacity = N, .layers = layers),
                                     &cache));
    struct vka_layer_op op =
        *VKA_INFO(vka_layer_op, .query = in, .output = out, .cache = cache, .cache_layer = last);
    EXPECT(mpi, VKA_INVALID, "cache_layer is 1, which holds a state, not keys and values",
           vka_mpi_plan_layer(mpi, layer, &op, NULL, &plan));
    op.cache_layer = 0;
    REQUIRE_OK(mpi, vka_mpi_plan_layer(mpi, layer, &op, NULL, &plan));
    vka_mpi_plan_destroy(&plan);
    vka_cache_destroy(&cache);
    vka_mpi_layer_destroy(&layer);
    vka_tensor_destroy(&in);
    vka_tensor_destroy(&out);
}

/* Seven positions of one head on three ranks, whose shares are 2, 2 and 3: that of the first is
 * right, and it hears all the same. */
static void check_positions(struct vka_mpi *mpi)
{
    const uint32_t has[] = {2, 3, 2};
    const uint32_t shape[] = {1, 1, has[vka_mpi_rank(mpi)], DIM};
    struct vka_tensor *t;
    struct vka_mpi_plan *plan;
    REQUIRE_OK(mpi, vka_tensor_create(vka_mpi_device(mpi), VKA_F32, 4, shape, &t));
    EXPECT(mpi, VKA_INVALID, "q of rank 1 has 3 of 7 positions, but should have 2",
           vka_mpi_plan_attention(mpi,
                                  VKA_INFO(vka_attention_op, .q = t, .k = t, .v = t, .output = t),
                                  VKA_INFO(vka_mpi_plan_info, .split = VKA_MPI_SEQUENCE), &plan));
    vka_tensor_destroy(&t);
}

static void check_files(struct vka_mpi *mpi)
{
    struct vka_mpi_layer *layer;
    struct vka_mpi_layer_info info = *VKA_INFO(vka_mpi_layer_info, .layer.n_head = HEADS);
    const uint64_t shape[2] = {WIDTH, WIDTH};
    struct vka_io_array arrays[4];
    const char *const names[] = {"q_proj.weight", "k_proj.weight", "v_proj.weight",
                                 "o_proj.weight"};
    char path[] = "/tmp/test_mpi_XXXXXX", error[VKA_IO_ERROR_SIZE];
    for (int i = 0; i < 4; i++)
        arrays[i] = (struct vka_io_array){.name = names[i],
                                          .dtype = VKA_IO_F32,
                                          .rank = 2,
                                          .shape = {shape[0], shape[1]},
                                          .data = weights,
                                          .size = sizeof weights};
    int fd = mkstemp(path);
    REQUIRE(fd >= 0, "no temporary file");
    close(fd);
    REQUIRE(!vka_safetensors_write(path, arrays, 4, NULL, 0, error), "%s", error);
    REQUIRE_OK(mpi, vka_mpi_layer_open(mpi, path, &info, &layer));
    vka_mpi_layer_destroy(&layer);
    /* The last rank has none: all of them hear which. */
    bool last = vka_mpi_rank(mpi) == vka_mpi_size(mpi) - 1;
    EXPECT(mpi, VKA_IO, "/nowhere",
           vka_mpi_layer_open(mpi, last ? "/nowhere" : path, &info, &layer));
    info.layer.n_head = 7;
    EXPECT(mpi, VKA_IO, "7 heads and 7 key heads", vka_mpi_layer_open(mpi, path, &info, &layer));
    MPI_Barrier(MPI_COMM_WORLD);
    unlink(path);
}

/* Rows of a weight in pages of their own: those that a rank has no business with cannot be read. */
static float *guarded(size_t rows, size_t row_bytes, struct vka_mpi_range readable)
{
    char *all =
        mmap(NULL, rows * row_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(all != MAP_FAILED, "no memory");
    size_t end = readable.first + readable.count;
    mprotect(all, readable.first * row_bytes, PROT_NONE);
    mprotect(all + end * row_bytes, (rows - end) * row_bytes, PROT_NONE);
    return (float *)all;
}

/* Reading another rank's share would end this one by SIGSEGV. */
static void check_shares(struct vka_mpi *mpi)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uint32_t width = (uint32_t)(page / sizeof(float)), rows = 2 * HEADS;
    int size = vka_mpi_size(mpi), rank = vka_mpi_rank(mpi);
    struct vka_mpi_layer *layer;
    struct vka_mpi_range query, key, out = vka_mpi_batch(width, size, rank);
    vka_mpi_heads(HEADS, HEADS / 2, size, rank, &query, &key);
    struct vka_mpi_range q = {2 * query.first, 2 * query.count};
    struct vka_mpi_range k = {2 * key.first, 2 * key.count};
    /* [16][width] and [8][width]; the output's [width][16 * page's worth] rows are pages too. */
    float *wq = guarded(rows, page, q), *wk = guarded(rows / 2, page, k);
    float *wv =
        guarded((size_t)HEADS / 2 * width / HEADS, page,
                (struct vka_mpi_range){key.first * width / HEADS, key.count * width / HEADS});
    float *wo = guarded(width, page, out);
    struct vka_mpi_layer_info info =
        *VKA_INFO(vka_mpi_layer_info, .layer = {.n_head = HEADS,
                                                .n_kv_head = HEADS / 2,
                                                .head_dim = 2,
                                                .value_dim = width / HEADS,
                                                .query_dim = width,
                                                .output_dim = width,
                                                .query.weight = wq,
                                                .key.weight = wk,
                                                .value.weight = wv,
                                                .output.weight = wo});
    REQUIRE_OK(mpi, vka_mpi_layer_create(mpi, &info, &layer));
    vka_mpi_layer_destroy(&layer);
    munmap(wq, rows * page);
    munmap(wk, rows / 2 * page);
    munmap(wv, (size_t)HEADS / 2 * width / HEADS * page);
    munmap(wo, width * page);
}

TEST_PROGRAM_ARGUMENTS(mpi_errors)
{
    struct vka_mpi *mpi = ranks_begin(&argc, &argv);
    for (int i = 0; i < WIDTH * WIDTH; i++)
        weights[i] = (float)(i % 13) / 13 - 0.4f;
    check_terms(mpi);
    check_layer_arguments(mpi);
    check_plan_arguments(mpi);
    if (vka_mpi_size(mpi) > 1)
        check_one_rank_alone(mpi);
    check_states(mpi);
    if (vka_mpi_size(mpi) == 3)
        check_positions(mpi);
    check_files(mpi);
    check_shares(mpi);
    return ranks_end(&mpi);
}
