/* A mistake that one rank makes alone: every rank has INVALID (or what the mistake is) long before
 * its timeout, the others with a sentence that says which rank and why, and all are in step
 * again. */
#include "../patience.h"
#include "test_program.h"
#include "ranks.h"

#include <vkattn/vkattn_io.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE (PATIENCE / 2e9) /* seconds: a rank that waits for another does so for PATIENCE */
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { HEADS = 8, DIM = 4, WIDTH = HEADS * DIM, BATCH = 2, N = 3 };

static float weights[WIDTH * WIDTH];

static struct {
    struct vka_mpi *mpi;
    struct vka_mpi_layer *layer, *twin; /* alike */
    struct vka_mpi_plan *plan, *other;  /* of both */
    struct vka_mpi_plan *attention;     /* by positions */
    struct vka_tensor *in, *out;        /* [BATCH][N][WIDTH] */
    struct vka_tensor *q, *y;           /* [BATCH][HEADS][2][DIM] */
    struct vka_tensor *flat;            /* [N] */
    struct vka_device *device;          /* another one of this rank's */
    struct vka_tensor *foreign;         /* in on that one */
    char path[32];
} world;

static char heard[1024];

static void listen(void *user, enum vka_log_level level, const char *message)
{
    (void)user;
    if (level == VKA_LOG_ERROR)
        snprintf(heard, sizeof heard, "%s", message);
}

/* What the mistake is; the call with it (wrong) or without. */
struct mistake {
    const char *words; /* in the sentence, on the other ranks */
    enum vka_status (*call)(int which, bool wrong);
    int which;
    enum vka_status status; /* OK: INVALID */
};

/* ---- The object ------------------------------------------------------------------------------ */

enum { NO_OUT = 0, SIZE, NO_INFO, DEVICE_SIZE, DEVICE_NAME };

static enum vka_status create(int which, bool wrong)
{
    struct vka_device_info device = {
        .struct_size = sizeof device, .log = listen, .skip_self_test = true};
    struct vka_mpi_info info = {.struct_size = sizeof info, .device = &device, .timeout = PATIENCE};
    struct vka_mpi *mpi = NULL;
    if (wrong && which == SIZE)
        info.struct_size = 1;
    if (wrong && which == DEVICE_SIZE)
        device.struct_size = 1;
    if (wrong && which == DEVICE_NAME)
        device.device = "no such device";
    enum vka_status status =
        vka_mpi_create(MPI_COMM_WORLD, &info, wrong && which == NO_OUT ? NULL : &mpi);
    REQUIRE(!mpi, "an object in spite of an error");
    return status;
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

enum { SPLIT = DEVICE_NAME + 1, ROUNDS, ZERO_HEADS, MANY_KV, ZERO_WIDTH, DTYPE, NO_WEIGHT, FEWER };

static enum vka_status create_layer(int which, bool wrong)
{
    struct vka_mpi_layer_info info = layer_info(), *given = &info;
    struct vka_mpi_layer *layer = NULL, **out = &layer;
    if (wrong && which == NO_OUT)
        out = NULL;
    if (wrong && which == NO_INFO)
        given = NULL;
    if (wrong && which == SIZE)
        info.struct_size--;
    if (wrong && which == SPLIT)
        info.split = VKA_MPI_SPLIT_COUNT;
    if (wrong && which == ROUNDS)
        info.rounds = 1025;
    if (wrong && which == ZERO_HEADS)
        info.layer.n_head = 0;
    if (wrong && which == MANY_KV)
        info.layer.n_kv_head = 3;
    if (wrong && which == ZERO_WIDTH)
        info.layer.query_dim = 0;
    if (wrong && which == DTYPE)
        info.layer.dtype = VKA_DTYPE_COUNT;
    if (wrong && which == NO_WEIGHT)
        info.layer.key.weight = NULL;
    if (wrong && which == FEWER)
        info.layer.n_head = HEADS / 2;
    enum vka_status status = vka_mpi_layer_create(world.mpi, given, out);
    REQUIRE(!layer, "a layer in spite of an error");
    return status;
}

enum { NO_PATH = FEWER + 1, NOWHERE };

/* A layer without an output projection. */
static void make_file(void)
{
    static const char *const names[] = {"q_proj.weight", "k_proj.weight", "v_proj.weight"};
    struct vka_io_array arrays[COUNT(names)];
    char error[VKA_IO_ERROR_SIZE];
    for (size_t i = 0; i < COUNT(names); i++)
        arrays[i] = (struct vka_io_array){.name = names[i],
                                          .dtype = VKA_IO_F32,
                                          .rank = 2,
                                          .shape = {WIDTH, WIDTH},
                                          .data = weights,
                                          .size = sizeof weights};
    int fd = mkstemp(world.path);
    REQUIRE(fd >= 0, "no temporary file");
    close(fd);
    REQUIRE(!vka_safetensors_write(world.path, arrays, COUNT(arrays), NULL, 0, error), "%s", error);
}

static enum vka_status open_layer(int which, bool wrong)
{
    struct vka_mpi_layer_info info = *VKA_INFO(vka_mpi_layer_info, .layer.n_head = HEADS);
    struct vka_mpi_layer *layer = NULL;
    const char *path = world.path;
    if (wrong && which == SIZE)
        info.struct_size = 0;
    if (wrong && (which == NO_PATH || which == NOWHERE))
        path = which == NO_PATH ? NULL : "/nowhere";
    enum vka_status status =
        vka_mpi_layer_open(world.mpi, path, wrong && which == NO_INFO ? NULL : &info,
                           wrong && which == NO_OUT ? NULL : &layer);
    REQUIRE(!layer, "a layer in spite of an error");
    return status;
}

/* The file says whether there is an output projection, whatever else info holds. */
static void open_with_output(void)
{
    struct vka_mpi_layer_info info = *VKA_INFO(vka_mpi_layer_info, .layer.n_head = HEADS);
    struct vka_mpi_layer *layer = NULL;
    info.layer.output.weight = vka_mpi_rank(world.mpi) ? NULL : weights;
    REQUIRE_OK(world.mpi, vka_mpi_layer_open(world.mpi, world.path, &info, &layer));
    vka_mpi_layer_destroy(&layer);
}

/* ---- Plans ----------------------------------------------------------------------------------- */

enum {
    NO_OP = NOWHERE + 1,
    OP_SIZE,
    NO_LAYER,
    OTHER_LAYER,
    OP_LAYER,
    LAYOUT,
    FLAT,
    NO_OUTPUT,
    CAUSAL,
    FOREIGN,
    SINK,
    OFFSETS,
    CACHED
};

static enum vka_status plan_layer(int which, bool wrong)
{
    struct vka_layer_op op = *VKA_INFO(vka_layer_op, .query = world.in, .output = world.out);
    struct vka_mpi_plan_info info = *VKA_INFO(vka_mpi_plan_info, .rounds = 1);
    struct vka_mpi_layer *layer = world.layer;
    struct vka_mpi_plan *plan = NULL;
    if (wrong && which == SIZE)
        info.struct_size = 2;
    if (wrong && which == SPLIT)
        info.split = VKA_MPI_SPLIT_COUNT;
    if (wrong && which == ROUNDS)
        info.rounds = 1025;
    if (wrong && which == OP_SIZE)
        op.struct_size = 0;
    if (wrong && (which == NO_LAYER || which == OTHER_LAYER))
        layer = which == NO_LAYER ? NULL : world.twin;
    if (wrong && which == OP_LAYER)
        op.layer = (struct vka_layer *)weights;
    if (wrong && which == LAYOUT)
        op.layout = VKA_LAYOUT_COUNT;
    if (wrong && which == FLAT)
        op.query = world.flat;
    if (wrong && which == NO_OUTPUT)
        op.output = NULL;
    op.attention.causal = wrong && which == CAUSAL;
    op.attention.sink = wrong && which == SINK ? world.flat : NULL;
    if (wrong && which == FOREIGN) /* what only the device's own plan can tell */
        op.query = world.foreign;
    enum vka_status status =
        vka_mpi_plan_layer(world.mpi, layer, wrong && which == NO_OP ? NULL : &op, &info,
                           wrong && which == NO_OUT ? NULL : &plan);
    REQUIRE(!plan, "a plan in spite of an error");
    return status;
}

/* Split `which % 16`, mistake `which / 16`. */
static enum vka_status plan_attention(int which, bool wrong)
{
    struct vka_attention_op op =
        *VKA_INFO(vka_attention_op, .q = world.q, .k = world.q, .v = world.q, .output = world.y);
    struct vka_mpi_plan_info info =
        *VKA_INFO(vka_mpi_plan_info, .split = (enum vka_mpi_split)(which % 16));
    struct vka_mpi_plan *plan = NULL;
    which /= 16;
    if (wrong && which == SIZE)
        info.struct_size = 2;
    if (wrong && which == SPLIT)
        info.split = (enum vka_mpi_split) - 1;
    if (wrong && which == OP_SIZE)
        op.struct_size = 0;
    if (wrong && which == FLAT)
        op.k = world.flat;
    if (wrong && which == NO_OUTPUT)
        op.output = NULL;
    op.options.causal = wrong && which == CAUSAL;
    op.options.sink = wrong && which == SINK ? world.flat : NULL;
    op.options.query_offset = wrong && which == OFFSETS ? world.q : NULL;
    if (wrong && which == CACHED)
        op.n_key = 4;
    enum vka_status status = vka_mpi_plan_attention(world.mpi, wrong && which == NO_OP ? NULL : &op,
                                                    &info, wrong && which == NO_OUT ? NULL : &plan);
    REQUIRE(!plan, "a plan in spite of an error");
    return status;
}

enum { TWIN = 0, ATTENTION, MAKER, OTHERS };

/* Plans that exchange as much as the right one, or other sizes, and calls of another kind. */
static enum vka_status run_other(int which, bool wrong)
{
    struct vka_mpi_plan *others[OTHERS] = {world.other, world.attention, NULL};
    if (wrong && which == MAKER)
        return create_layer(which, false);
    return vka_mpi_plan_run(wrong ? others[which] : world.plan, PATIENCE);
}

static enum vka_status make_other(int which, bool wrong)
{
    return wrong ? vka_mpi_plan_run(world.plan, PATIENCE) : create_layer(which, false);
}

/* ---- All of them ----------------------------------------------------------------------------- */

#define IN(which, split) (16 * (which) + VKA_MPI_##split)
#define IN_ALL(words, which)                                                                    \
    {words, plan_attention, IN(which, HEADS), 0}, {words, plan_attention, IN(which, BATCH), 0}, \
    {                                                                                           \
        words, plan_attention, IN(which, SEQUENCE), 0                                           \
    }

static const struct mistake mistakes[] = {
    {"mpi is NULL", create, NO_OUT, 0},
    {"struct_size is 1", create, SIZE, 0},
    {"device's struct_size is 1", create, DEVICE_SIZE, 0},
    {"no device", create, DEVICE_NAME, VKA_NO_DEVICE},
    {"layer is NULL", create_layer, NO_OUT, 0},
    {"info is NULL", create_layer, NO_INFO, 0},
    {"struct_size", create_layer, SIZE, 0},
    {"split", create_layer, SPLIT, 0},
    {"rounds", create_layer, ROUNDS, 0},
    {"n_head", create_layer, ZERO_HEADS, 0},
    {"n_kv_head 3", create_layer, MANY_KV, 0},
    {"query_dim is 0", create_layer, ZERO_WIDTH, 0},
    {"dtype", create_layer, DTYPE, 0},
    {"key.weight", create_layer, NO_WEIGHT, 0},
    {"has n_head: 4", create_layer, FEWER, 0},
    {"layer is NULL", open_layer, NO_OUT, 0},
    {"info is NULL", open_layer, NO_INFO, 0},
    {"struct_size", open_layer, SIZE, 0},
    {"path is NULL", open_layer, NO_PATH, 0},
    {"/nowhere", open_layer, NOWHERE, VKA_IO},
    {"plan is NULL", plan_layer, NO_OUT, 0},
    {"struct_size is 2", plan_layer, SIZE, 0},
    {"split 3", plan_layer, SPLIT, 0},
    {"rounds is 1025", plan_layer, ROUNDS, 0},
    {"op is NULL", plan_layer, NO_OP, 0},
    {"struct_size", plan_layer, OP_SIZE, 0},
    {"layer is NULL", plan_layer, NO_LAYER, 0},
    {"has layer: ", plan_layer, OTHER_LAYER, 0},
    {"op->layer", plan_layer, OP_LAYER, 0},
    {"layout", plan_layer, LAYOUT, 0},
    {"query", plan_layer, FLAT, 0},
    {"output is NULL", plan_layer, NO_OUTPUT, 0},
    {"has causal", plan_layer, CAUSAL, 0},
    {"another device", plan_layer, FOREIGN, 0},
    {"sink is 3, not 8", plan_layer, SINK, 0},
    IN_ALL("plan is NULL", NO_OUT),
    IN_ALL("struct_size is 2", SIZE),
    IN_ALL("split -1", SPLIT),
    IN_ALL("op is NULL", NO_OP),
    IN_ALL("struct_size", OP_SIZE),
    IN_ALL("rank 4", FLAT),
    IN_ALL("output is NULL", NO_OUTPUT),
    IN_ALL("has causal", CAUSAL),
    IN_ALL("sink is 3, not 8", SINK),
    IN_ALL("query_offset", OFFSETS),
    {"key chunks", plan_attention, IN(CACHED, SEQUENCE), VKA_UNSUPPORTED},
    {"runs plan 2", run_other, TWIN, 0},
    {"runs plan 3", run_other, ATTENTION, 0},
    {"makes something", run_other, MAKER, 0},
    {"runs plan 1", make_other, 0, 0},
};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void make(const struct mistake *m, int victim)
{
    bool wrong = vka_mpi_rank(world.mpi) == victim;
    enum vka_status want = m->status ? m->status : VKA_INVALID;
    char rank[16];
    snprintf(rank, sizeof rank, "rank %d", victim);
    *heard = '\0';
    double start = seconds();
    enum vka_status status = m->call(m->which, wrong);
    double waited = seconds() - start;
    const char *error = m->call == create ? heard : vka_mpi_error(world.mpi);
    REQUIRE(status == want, "%s, wrong on rank %d: %s: %s", m->words, victim,
            vka_status_name(status), error);
    REQUIRE(waited < AT_ONCE, "%s, wrong on rank %d: %.1f s", m->words, victim, waited);
    REQUIRE(wrong || (strstr(error, rank) && strstr(error, m->words)), "no '%s' of %s in '%s'",
            m->words, rank, error);
}

static struct vka_tensor *tensor(uint32_t rank, const uint32_t *shape)
{
    struct vka_tensor *t;
    REQUIRE_OK(world.mpi, vka_tensor_create(vka_mpi_device(world.mpi), VKA_F32, rank, shape, &t));
    return t;
}

static void make_world(int *argc, char ***argv)
{
    struct vka_mpi_layer_info info = layer_info();
    struct vka_mpi *mpi = world.mpi = ranks_begin(argc, argv);
    world.in = tensor(3, (uint32_t[]){BATCH, N, WIDTH});
    world.out = tensor(3, (uint32_t[]){BATCH, N, WIDTH});
    world.q = tensor(4, (uint32_t[]){BATCH, HEADS, 2, DIM});
    world.y = tensor(4, (uint32_t[]){BATCH, HEADS, 2, DIM});
    world.flat = tensor(1, (uint32_t[]){N});
    REQUIRE_OK(mpi,
               vka_device_create(VKA_INFO(vka_device_info, .skip_self_test = true), &world.device));
    REQUIRE_OK(mpi, vka_tensor_create(world.device, VKA_F32, 3, (uint32_t[]){BATCH, N, WIDTH},
                                      &world.foreign));
    snprintf(world.path, sizeof world.path, "/tmp/test_mpi_XXXXXX");
    make_file();
    const struct vka_layer_op op = *VKA_INFO(vka_layer_op, .query = world.in, .output = world.out);
    REQUIRE_OK(mpi, vka_mpi_layer_create(mpi, &info, &world.layer));
    REQUIRE_OK(mpi, vka_mpi_layer_create(mpi, &info, &world.twin));
    REQUIRE_OK(mpi, vka_mpi_plan_layer(mpi, world.layer, &op, NULL, &world.plan));
    REQUIRE_OK(mpi, vka_mpi_plan_layer(mpi, world.twin, &op, NULL, &world.other));
    REQUIRE_OK(mpi, vka_mpi_plan_attention(mpi,
                                           VKA_INFO(vka_attention_op, .q = world.q, .k = world.q,
                                                    .v = world.q, .output = world.y),
                                           VKA_INFO(vka_mpi_plan_info, .split = VKA_MPI_SEQUENCE),
                                           &world.attention));
}

TEST_PROGRAM_ARGUMENTS(mpi_one_rank)
{
    make_world(&argc, &argv);
    int last = vka_mpi_size(world.mpi) - 1;
    for (size_t i = 0; i < COUNT(mistakes); i++)
        for (int victim = 0; victim <= last; victim += last ? last : 1) {
            make(&mistakes[i], victim);
            REQUIRE_OK(world.mpi, vka_mpi_plan_run(world.plan, PATIENCE)); /* in step */
        }
    open_with_output();
    unlink(world.path);
    vka_mpi_plan_destroy(&world.attention);
    vka_mpi_plan_destroy(&world.other);
    vka_mpi_plan_destroy(&world.plan);
    vka_mpi_layer_destroy(&world.twin);
    vka_mpi_layer_destroy(&world.layer);
    struct vka_tensor *all[] = {world.in, world.out, world.q, world.y, world.flat, world.foreign};
    for (size_t i = 0; i < COUNT(all); i++)
        vka_tensor_destroy(&all[i]);
    vka_device_destroy(&world.device);
    return ranks_end(&world.mpi);
}
