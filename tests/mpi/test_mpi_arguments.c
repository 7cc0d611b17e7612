/* Every mistake that all ranks make alike: the status and the sentence that the header promises. */
#include "test_program.h"
#include "ranks.h"

#include <vkattn/vkattn_io.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GIVES(mpi, wanted, words, call)                                                           \
    do {                                                                                          \
        enum vka_status got = (call);                                                             \
        REQUIRE(got == (wanted), "%s gave %s", #call, vka_status_name(got));                      \
        REQUIRE(strstr(vka_mpi_error(mpi), words), "no '%s' in '%s'", words, vka_mpi_error(mpi)); \
    } while (0)
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { HEADS = 4, DIM = 4, WIDTH = HEADS * DIM, BATCH = 2, N = 3 };

static float weights[2 * WIDTH * WIDTH];

/* ---- Objects --------------------------------------------------------------------------------- */

static char said[1024];

static void listen(void *user, enum vka_log_level level, const char *message)
{
    (void)user, (void)level;
    snprintf(said, sizeof said, "%s", message);
}

static void check_create(void)
{
    struct vka_mpi *mpi = NULL;
    struct vka_device_info device = {
        .struct_size = sizeof device, .device = "no such device", .log = listen};
    struct vka_mpi_info info = {.struct_size = sizeof info, .device = &device};
    REQUIRE(vka_mpi_create(MPI_COMM_WORLD, &info, NULL) == VKA_INVALID, "nowhere to put it");
    REQUIRE(vka_mpi_create(MPI_COMM_NULL, &info, &mpi) == VKA_INVALID && !mpi, "no communicator");
    REQUIRE(strstr(said, "MPI_COMM_NULL"), "'%s'", said);
    REQUIRE(vka_mpi_create(MPI_COMM_WORLD, &info, &mpi) == VKA_NO_DEVICE && !mpi, "no device");
    REQUIRE(strstr(said, "rank 0: vka_mpi_create: no device"), "'%s'", said);
    info.struct_size = 1;
    REQUIRE(vka_mpi_create(MPI_COMM_WORLD, &info, &mpi) == VKA_INVALID && !mpi, "struct_size");
}

static void check_null(void)
{
    struct vka_mpi *mpi = NULL;
    struct vka_mpi_layer *layer = (struct vka_mpi_layer *)weights;
    struct vka_mpi_plan *plan = (struct vka_mpi_plan *)weights;
    REQUIRE(vka_mpi_rank(NULL) == 0 && vka_mpi_size(NULL) == 0 && !vka_mpi_device(NULL) &&
                !*vka_mpi_error(NULL),
            "something of nothing");
    REQUIRE(vka_mpi_layer_create(NULL, NULL, &layer) == VKA_INVALID && !layer, "layer_create");
    REQUIRE(vka_mpi_layer_open(NULL, "", NULL, &layer) == VKA_INVALID, "layer_open");
    REQUIRE(vka_mpi_plan_layer(NULL, NULL, NULL, NULL, &plan) == VKA_INVALID && !plan, "layer");
    REQUIRE(vka_mpi_plan_attention(NULL, NULL, NULL, &plan) == VKA_INVALID, "attention");
    REQUIRE(vka_mpi_plan_run(NULL, 0) == VKA_INVALID, "plan_run");
    vka_mpi_plan_stats(NULL, NULL);
    vka_mpi_plan_destroy(&plan);
    vka_mpi_plan_destroy(NULL);
    vka_mpi_layer_destroy(&layer);
    vka_mpi_layer_destroy(NULL);
    vka_mpi_destroy(&mpi);
    vka_mpi_destroy(NULL);
}

/* ---- Layers ---------------------------------------------------------------------------------- */

static struct vka_mpi_layer_info layer_info(void)
{
    struct vka_linear_weights w = {weights, weights};
    return *VKA_INFO(vka_mpi_layer_info, .rounds = 1,
                     .layer = {.n_head = HEADS,
                               .head_dim = DIM,
                               .query_dim = WIDTH,
                               .output_dim = WIDTH,
                               .query = w,
                               .key = w,
                               .value = w,
                               .output = w});
}

static void check_layer(struct vka_mpi *mpi)
{
    struct vka_mpi_layer *layer = NULL;
    struct vka_mpi_layer_info info = layer_info();
    GIVES(mpi, VKA_INVALID, "layer is NULL", vka_mpi_layer_create(mpi, &info, NULL));
    GIVES(mpi, VKA_INVALID, "info is NULL", vka_mpi_layer_create(mpi, NULL, &layer));
    info.layer.keep_weights = true;
    GIVES(mpi, VKA_UNSUPPORTED, "keep_weights", vka_mpi_layer_create(mpi, &info, &layer));
    info.layer.keep_weights = false;
    const uint32_t shape[] = {WIDTH, WIDTH};
    struct vka_tensor *w = NULL;
    REQUIRE_OK(mpi, vka_tensor_create(vka_mpi_device(mpi), VKA_F32, 2, shape, &w));
    const struct vka_linear_weights none = {NULL, NULL};
    const struct vka_linear_tensors tensors = {w, NULL};
    info.layer.query = info.layer.key = info.layer.value = info.layer.output = none;
    info.layer.query_tensors = info.layer.key_tensors = info.layer.value_tensors = tensors;
    GIVES(mpi, VKA_UNSUPPORTED, "tensors", vka_mpi_layer_create(mpi, &info, &layer));
    vka_tensor_destroy(&w);
    info = layer_info();
    info.rounds = 1025;
    GIVES(mpi, VKA_INVALID, "rounds", vka_mpi_layer_create(mpi, &info, &layer));
    info.struct_size--;
    GIVES(mpi, VKA_INVALID, "struct_size", vka_mpi_layer_create(mpi, &info, &layer));
}

static struct vka_tensor *tensor(struct vka_mpi *mpi, uint32_t rank, const uint32_t *shape)
{
    struct vka_tensor *t;
    REQUIRE_OK(mpi, vka_tensor_create(vka_mpi_device(mpi), VKA_F32, rank, shape, &t));
    return t;
}

static void check_layer_plan(struct vka_mpi *mpi)
{
    struct vka_mpi_layer *layer, *by_batch;
    struct vka_mpi_plan *plan;
    struct vka_cache *cache;
    struct vka_mpi_layer_info info = layer_info();
    struct vka_tensor *x = tensor(mpi, 3, (uint32_t[]){BATCH, N, WIDTH});
    struct vka_tensor *y = tensor(mpi, 3, (uint32_t[]){BATCH, N, WIDTH});
    struct vka_tensor *other = tensor(mpi, 3, (uint32_t[]){BATCH, N + 1, WIDTH});
    struct vka_tensor *flat = tensor(mpi, 2, (uint32_t[]){N, WIDTH});
    REQUIRE_OK(mpi, vka_mpi_layer_create(mpi, &info, &layer));
    info.split = VKA_MPI_BATCH;
    REQUIRE_OK(mpi, vka_mpi_layer_create(mpi, &info, &by_batch));
    REQUIRE_OK(mpi, vka_cache_create(vka_mpi_device(mpi),
                                     VKA_INFO(vka_cache_info, .batch = BATCH, .n_kv_head = HEADS,
                                              .head_dim = DIM, .capacity = N),
                                     &cache));
    const struct vka_layer_op good = *VKA_INFO(vka_layer_op, .query = x, .output = y);
    struct {
        const char *words;
        struct vka_mpi_layer *layer;
        struct vka_layer_op op;
    } rows[] = {{"layer is NULL", NULL, good},   {"struct_size", layer, good},
                {"op->layer", layer, good},      {"layout", layer, good},
                {"query is NULL", layer, good},  {"query", layer, good},
                {"output is NULL", layer, good}, {"output", layer, good},
                {"output", layer, good},         {"cache", by_batch, good}};
    rows[1].op.struct_size = 0;
    rows[2].op.layer = (struct vka_layer *)weights;
    rows[3].op.layout = VKA_LAYOUT_COUNT;
    rows[4].op.query = NULL;
    rows[5].op.query = flat;
    rows[6].op.output = NULL;
    rows[7].op.output = flat;
    rows[8].op.output = other;
    rows[9].op.cache = cache;
    for (size_t i = 0; i < COUNT(rows); i++)
        GIVES(mpi, VKA_INVALID, rows[i].words,
              vka_mpi_plan_layer(mpi, rows[i].layer, &rows[i].op, NULL, &plan));
    GIVES(mpi, VKA_INVALID, "op is NULL", vka_mpi_plan_layer(mpi, layer, NULL, NULL, &plan));
    const struct vka_mpi_plan_info wrong[] = {{.struct_size = 1},
                                              {.struct_size = sizeof *wrong, .split = 7},
                                              {.struct_size = sizeof *wrong, .rounds = 1025}};
    const char *const words[] = {"struct_size", "split", "rounds"};
    for (size_t i = 0; i < COUNT(wrong); i++)
        GIVES(mpi, VKA_INVALID, words[i], vka_mpi_plan_layer(mpi, layer, &good, &wrong[i], &plan));
    REQUIRE(vka_mpi_plan_layer(mpi, layer, &good, NULL, NULL) == VKA_INVALID, "nowhere to put it");
    vka_cache_destroy(&cache);
    vka_mpi_layer_destroy(&layer);
    vka_mpi_layer_destroy(&by_batch);
    struct vka_tensor *all[] = {x, y, other, flat};
    for (size_t i = 0; i < COUNT(all); i++)
        vka_tensor_destroy(&all[i]);
}

/* ---- Attention ------------------------------------------------------------------------------- */

/* Every rank has two positions of each tensor: its slice of 2 * size. */
static void check_attention(struct vka_mpi *mpi, enum vka_mpi_split split)
{
    bool positions = split == VKA_MPI_SEQUENCE;
    struct vka_mpi_plan *plan;
    struct vka_tensor *q = tensor(mpi, 4, (uint32_t[]){BATCH, HEADS, 2, DIM});
    struct vka_tensor *kv = tensor(mpi, 4, (uint32_t[]){BATCH, 3, 2, DIM});
    struct vka_tensor *y = tensor(mpi, 4, (uint32_t[]){BATCH, HEADS, 2, DIM});
    struct vka_tensor *longer = tensor(mpi, 4, (uint32_t[]){BATCH, HEADS, 4, DIM});
    struct vka_tensor *flat = tensor(mpi, 2, (uint32_t[]){HEADS, DIM});
    struct vka_tensor *narrow = tensor(mpi, 4, (uint32_t[]){BATCH, 2, 2, DIM});
    const struct vka_attention_op good =
        *VKA_INFO(vka_attention_op, .q = q, .k = q, .v = q, .output = y);
    enum { SHAPES = 7, BOTH = 11, ALL = 19 };
    struct {
        const char *words;
        struct vka_attention_op op;
    } rows[ALL] = {{"struct_size", good}, {"q, k, v", good},       {"q, k, v", good},
                   {"q, k, v", good},     {"rank 4", good},        {"multiple of the 3 of k", good},
                   {"output", good},      {"cache", good},         {"ragged", good},
                   {"ragged", good},      {"key chunks", good},    {"past", good},
                   {"past", good},        {"past", good},          {"past", good},
                   {"log_sum_exp", good}, {"v has another", good}, {"output", good},
                   {"k has", good}};
    rows[0].op.struct_size = 0;
    rows[1].op.q = NULL;
    rows[2].op.v = NULL;
    rows[3].op.output = NULL;
    rows[4].op.k = flat;
    rows[5].op.k = rows[5].op.v = kv;
    rows[6].op.output = narrow;
    rows[7].op.cache = (struct vka_cache *)weights;
    rows[8].op.q_start = q;
    rows[9].op.kv_start = q;
    rows[10].op.n_key = 4;
    rows[11].op.past_value = q;
    rows[12].op.present_key = q;
    rows[13].op.present_value = q;
    rows[14].op.options.scores = q;
    rows[15].op.options.log_sum_exp = q;
    rows[16].op.v = narrow;
    rows[17].op.output = longer;
    rows[18].op.v = longer;
    for (size_t i = 0; i < (positions ? ALL : BOTH); i++) {
        bool unsupported = i >= SHAPES && i < 16;
        GIVES(mpi, unsupported ? VKA_UNSUPPORTED : VKA_INVALID, rows[i].words,
              vka_mpi_plan_attention(mpi, &rows[i].op, VKA_INFO(vka_mpi_plan_info, .split = split),
                                     &plan));
        REQUIRE(!plan, "a plan in spite of an error");
    }
    GIVES(mpi, VKA_INVALID, "op is NULL", vka_mpi_plan_attention(mpi, NULL, NULL, &plan));
    if (positions && vka_mpi_size(mpi) > 1) { /* the first rank has four of 2 * size + 2 */
        struct vka_attention_op op = good;
        op.k = op.v = vka_mpi_rank(mpi) ? q : longer;
        GIVES(mpi, VKA_INVALID, "positions, but should have",
              vka_mpi_plan_attention(mpi, &op, VKA_INFO(vka_mpi_plan_info, .split = split), &plan));
    }
    struct vka_tensor *all[] = {q, kv, y, longer, flat, narrow};
    for (size_t i = 0; i < COUNT(all); i++)
        vka_tensor_destroy(&all[i]);
}

/* ---- Files ----------------------------------------------------------------------------------- */

enum { Q = 0, K, V, O, Q_BIAS, ARRAYS };

static struct vka_io_array array(const char *name, uint64_t rows, uint64_t columns)
{
    return (struct vka_io_array){.name = name,
                                 .dtype = VKA_IO_F32,
                                 .rank = columns ? 2 : 1,
                                 .shape = {rows, columns},
                                 .data = weights,
                                 .size = rows * (columns ? columns : 1) * sizeof *weights};
}

static enum vka_status open_with(struct vka_mpi *mpi, const struct vka_io_array *arrays, size_t n)
{
    struct vka_mpi_layer *layer = NULL;
    char path[] = "/tmp/test_mpi_XXXXXX", error[VKA_IO_ERROR_SIZE];
    int fd = mkstemp(path);
    REQUIRE(fd >= 0, "no temporary file");
    close(fd);
    REQUIRE(!vka_safetensors_write(path, arrays, n, NULL, 0, error), "%s", error);
    enum vka_status status =
        vka_mpi_layer_open(mpi, path, VKA_INFO(vka_mpi_layer_info, .layer.n_head = HEADS), &layer);
    vka_mpi_layer_destroy(&layer);
    unlink(path);
    return status;
}

static void check_files(struct vka_mpi *mpi)
{
    const struct vka_io_array good[ARRAYS] = {
        array("q_proj.weight", WIDTH, WIDTH), array("k_proj.weight", WIDTH, WIDTH),
        array("v_proj.weight", WIDTH, WIDTH), array("o_proj.weight", WIDTH, WIDTH),
        array("q_proj.bias", WIDTH, 0)};
    struct vka_io_array integers = array("q_proj.weight", WIDTH, WIDTH);
    struct vka_io_array halves = array("k_proj.weight", WIDTH, 2 * WIDTH);
    struct vka_io_array bias_type = array("q_proj.bias", WIDTH / 2, 0);
    integers.dtype = VKA_IO_I32;
    halves.dtype = VKA_IO_F16, halves.shape[1] = 2 * WIDTH, halves.size /= 2;
    bias_type.dtype = VKA_IO_I64, bias_type.shape[0] = WIDTH, bias_type.size = WIDTH * 8;
    const struct {
        const char *words;
        int which;
        struct vka_io_array instead;
    } rows[] = {{"q_proj.weight is missing", Q, array("other.weight", WIDTH, WIDTH)},
                {"v_proj.weight is missing or", V, array("v_proj.weight", WIDTH, 0)},
                {"q_proj.bias does not fit", Q_BIAS, array("q_proj.bias", WIDTH + 1, 0)},
                {"q_proj.bias does not fit", Q_BIAS, array("q_proj.bias", WIDTH, 1)},
                {"q_proj.bias does not fit", Q_BIAS, bias_type},
                {"the tensor out_proj.weight", O, array("out_proj.weight", WIDTH, WIDTH)},
                {"the tensor q_norm.weight", Q_BIAS, array("q_norm.weight", WIDTH, 0)},
                {"the tensor q_proj.weight_s", Q_BIAS, array("q_proj.weight_scale", WIDTH, 0)},
                {"not F32, F16 or BF16", Q, integers},
                {"does not have the type of q_proj.weight", K, halves},
                {"not multiples of", V, array("v_proj.weight", WIDTH + 1, WIDTH)},
                {"k_proj or o_proj", K, array("k_proj.weight", WIDTH + 1, WIDTH)},
                {"k_proj or o_proj", O, array("o_proj.weight", WIDTH, WIDTH + 1)}};
    struct vka_mpi_layer *layer;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct vka_io_array arrays[ARRAYS];
        memcpy(arrays, good, sizeof good);
        arrays[rows[i].which] = rows[i].instead;
        size_t n = rows[i].which == Q && rows[i].instead.dtype == VKA_IO_I32 ? Q_BIAS : ARRAYS;
        GIVES(mpi, VKA_IO, rows[i].words, open_with(mpi, arrays, n));
    }
    REQUIRE_OK(mpi, open_with(mpi, good, ARRAYS));
    REQUIRE_OK(mpi, open_with(mpi, good, O)); /* no output projection */
    GIVES(mpi, VKA_INVALID, "path is NULL",
          vka_mpi_layer_open(mpi, NULL, VKA_INFO(vka_mpi_layer_info, .rounds = 0), &layer));
    GIVES(mpi, VKA_INVALID, "struct_size", vka_mpi_layer_open(mpi, "x", NULL, &layer));
}

TEST_PROGRAM_ARGUMENTS(mpi_arguments)
{
    struct vka_mpi *mpi = ranks_begin(&argc, &argv);
    check_create();
    check_null();
    check_layer(mpi);
    check_layer_plan(mpi);
    for (int split = 0; split < VKA_MPI_SPLIT_COUNT; split++)
        check_attention(mpi, (enum vka_mpi_split)split);
    check_files(mpi);
    return ranks_end(&mpi);
}
