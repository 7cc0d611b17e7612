/* On one rank each allocation and each call of Vulkan fails in turn: all ranks get that status and
 * a sentence that names the rank, nothing is leaked, and the same again gives the right bits. And
 * each call of MPI fails in turn on all ranks: VKA_IO with MPI's words, and nothing waits. And one
 * rank loses its device, and recovers it.
 *
 *     test_mpi_faults [--staging]      3 ranks or more: the kinds below are made for that */
#include "../patience.h"
#include "calls.h"
#include "faults/driver.h"
#include "faults/heap.h"
#include "ranks.h"

#include "mpi/agree.h"

#include <vkattn/vkattn_io.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_CALLS 4000 /* of one kind: a loop that does not end is a failure */

enum kind {
    FILE_BY_HEADS = 0, /* a layer out of a file, interleaved heads in two rounds */
    LAYER_BY_BATCH,
    HEADS, /* of attention, with all options that have heads or batch elements */
    ELEMENTS,
    POSITIONS_FOR_HEADS,
    POSITIONS_BY_ROWS, /* all keys to every rank */
    POSITIONS_IN_RING,
    KIND_COUNT
};

static const char *const kind_names[KIND_COUNT] = {
    "a file by heads",     "a layer by batch",  "attention by heads", "attention by batch",
    "positions for heads", "positions by rows", "positions in a ring"};

enum { KV_HEADS = 8, DIM = 4, WIDTH = 2 * KV_HEADS * DIM, BATCH = 3, N = 5 };

/* Made once, and run again and again. */
static struct {
    struct vka_mpi *mpi;
    int victim; /* the rank that fails */
    char path[32];
    float weights[WIDTH * WIDTH];
    struct vka_tensor *in, *out;                /* [BATCH][N][WIDTH] */
    struct vka_tensor *many, *few, *results[2]; /* [1][8 or 1][2][DIM]: two positions a rank */
    struct vka_tensor *offset;
    struct vka_tensor *all, *result;                /* [BATCH][8][2][DIM], on every rank */
    struct vka_tensor *mask, *scores;               /* [BATCH][8][2][2] */
    struct vka_tensor *lengths, *offsets;           /* [BATCH] */
    struct vka_tensor *sink, *slopes, *more_slopes; /* [8], [8], [16] */
    struct vka_tensor *made[16];                    /* all of them */
    size_t n_made;
    void *want[KIND_COUNT];
} world;

static struct vka_tensor *output_of(enum kind kind)
{
    if (kind <= LAYER_BY_BATCH)
        return world.out;
    return kind <= ELEMENTS ? world.result : world.results[kind != POSITIONS_FOR_HEADS];
}

static enum vka_status make_layer(enum kind kind, struct vka_mpi_layer **layer)
{
    const struct vka_linear_weights w = {world.weights, world.weights};
    struct vka_mpi_layer_info info = *VKA_INFO(vka_mpi_layer_info, .split = VKA_MPI_BATCH);
    if (kind == FILE_BY_HEADS) {
        info = *VKA_INFO(
            vka_mpi_layer_info, .rounds = 2,
            .layer = {.n_head = 2 * KV_HEADS, .n_kv_head = KV_HEADS, .interleaved = true});
        return vka_mpi_layer_open(world.mpi, world.path, &info, layer);
    }
    info.layer = (struct vka_layer_info){.n_head = KV_HEADS,
                                         .head_dim = DIM,
                                         .query_dim = WIDTH,
                                         .output_dim = WIDTH,
                                         .keep_weights = true,
                                         .query = w,
                                         .key = w,
                                         .value = w,
                                         .output = w};
    return vka_mpi_layer_create(world.mpi, &info, layer);
}

static enum vka_status make_plan(enum kind kind, struct vka_mpi_layer *layer,
                                 struct vka_mpi_plan **plan)
{
    if (kind == FILE_BY_HEADS)
        return vka_mpi_plan_layer(world.mpi, layer,
                                  VKA_INFO(vka_layer_op, .query = world.in, .output = world.out,
                                           .attention.alibi = world.more_slopes),
                                  VKA_INFO(vka_mpi_plan_info, .rounds = 2), plan);
    if (kind == LAYER_BY_BATCH)
        return vka_mpi_plan_layer(world.mpi, layer,
                                  VKA_INFO(vka_layer_op, .query = world.in, .key = world.in,
                                           .value = world.in, .output = world.out,
                                           .attention.causal = true,
                                           .attention.kv_length = world.lengths),
                                  VKA_INFO(vka_mpi_plan_info, .rounds = 2), plan);
    if (kind <= ELEMENTS)
        return vka_mpi_plan_attention(
            world.mpi,
            VKA_INFO(vka_attention_op, .q = world.all, .k = world.all, .v = world.all,
                     .output = world.result,
                     .options = {.mask = world.mask,
                                 .kv_length = world.lengths,
                                 .query_offset = world.offsets,
                                 .scores_kind = VKA_SCORES_BIAS,
                                 .scores = world.scores,
                                 .sink = world.sink,
                                 .alibi = world.slopes}),
            VKA_INFO(vka_mpi_plan_info, .split = kind == HEADS ? VKA_MPI_HEADS : VKA_MPI_BATCH),
            plan);
    bool heads = kind == POSITIONS_FOR_HEADS, ring = kind == POSITIONS_IN_RING;
    struct vka_tensor *in = heads ? world.many : world.few;
    return vka_mpi_plan_attention(world.mpi,
                                  VKA_INFO(vka_attention_op, .q = in, .k = in, .v = in,
                                           .output = output_of(kind), .options.causal = true,
                                           .options.query_offset = world.offset),
                                  VKA_INFO(vka_mpi_plan_info, .split = VKA_MPI_SEQUENCE,
                                           .path = ring ? VKA_PATH_FUSED : VKA_PATH_UNFUSED),
                                  plan);
}

static enum vka_status make_and_run(enum kind kind)
{
    struct vka_mpi_layer *layer = NULL;
    struct vka_mpi_plan *plan = NULL;
    enum vka_status status = kind <= LAYER_BY_BATCH ? make_layer(kind, &layer) : VKA_OK;
    if (status == VKA_OK)
        status = make_plan(kind, layer, &plan);
    if (status == VKA_OK)
        status = vka_mpi_plan_run(plan, PATIENCE);
    vka_mpi_plan_destroy(&plan);
    vka_mpi_layer_destroy(&layer);
    return status;
}

static void check_bits(enum kind kind, const char *what, size_t index)
{
    size_t at;
    ranks_poison(output_of(kind));
    REQUIRE_OK(world.mpi, make_and_run(kind));
    REQUIRE(ranks_same(output_of(kind), world.want[kind], &at),
            "%s: element %zu differs after %s %zu failed", kind_names[kind], at, what, index);
}

/* ---- Allocations and calls of Vulkan on one rank --------------------------------------------- */

/* What every rank got, and the victim's count of what can fail. */
static void compare_ranks(const char *where, size_t index, enum vka_status got,
                          enum vka_status want, const char *error, size_t *count)
{
    int own[2] = {(int)got, -(int)got}, all[2];
    char rank[16];
    unsigned long long n = *count;
    MPI_Allreduce(own, all, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Bcast(&n, 1, MPI_UNSIGNED_LONG_LONG, world.victim, MPI_COMM_WORLD);
    *count = (size_t)n;
    REQUIRE(all[0] == -all[1], "%s %zu: %s here, another status elsewhere", where, index,
            vka_status_name(got));
    if (got == VKA_OK)
        return;
    snprintf(rank, sizeof rank, "rank %d", world.victim);
    bool own_sentence = vka_mpi_rank(world.mpi) == world.victim;
    REQUIRE(got == want && (own_sentence || strstr(error, rank)), "%s %zu: %s: %s", where, index,
            vka_status_name(got), error);
}

/* *count: the allocations of this rank; *left: blocks that some rank has not given back. */
static enum vka_status fail_allocation(enum kind kind, size_t index, size_t *count, int *left)
{
    heap_fail(vka_mpi_rank(world.mpi) == world.victim ? index : HEAP_NEVER);
    enum vka_status status = make_and_run(kind);
    *count = heap_count();
    int own = (int)heap_alive();
    heap_fail(HEAP_NEVER);
    compare_ranks(kind_names[kind], index, status, VKA_OUT_OF_HOST_MEMORY, vka_mpi_error(world.mpi),
                  count);
    MPI_Allreduce(&own, left, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return status;
}

static void fail_allocations(enum kind kind)
{
    size_t noticed = 0, i = 0;
    for (bool reached = true; reached; i++) {
        size_t count;
        int left;
        enum vka_status status = fail_allocation(kind, i, &count, &left);
        REQUIRE(!left, "%s: %d blocks are left after allocation %zu failed", kind_names[kind], left,
                i);
        noticed += status != VKA_OK;
        reached = count > i;
        REQUIRE(i < MOST_CALLS, "%s: no end of allocations", kind_names[kind]);
    }
    REQUIRE(noticed >= 10, "%s: %zu failed allocations noticed", kind_names[kind], noticed);
    check_bits(kind, "allocations to", i);
    if (vka_mpi_rank(world.mpi) == world.victim)
        printf("%s: %zu of %zu allocations failed in turn were noticed on all ranks\n",
               kind_names[kind], noticed, i);
}

static void fail_vulkan(enum kind kind)
{
    bool victim = vka_mpi_rank(world.mpi) == world.victim;
    size_t noticed = 0, i = 0;
    for (bool reached = true; reached; i++) {
        driver_reset();
        if (victim)
            driver_fail(i, VK_ERROR_OUT_OF_DEVICE_MEMORY);
        enum vka_status status = make_and_run(kind);
        size_t count = driver_calls();
        driver_reset();
        compare_ranks(kind_names[kind], i, status, VKA_OUT_OF_DEVICE_MEMORY,
                      vka_mpi_error(world.mpi), &count);
        noticed += status != VKA_OK;
        reached = count > i;
        REQUIRE(i < MOST_CALLS, "%s: no end of calls", kind_names[kind]);
    }
    REQUIRE(noticed >= 10, "%s: %zu failed calls noticed", kind_names[kind], noticed);
    check_bits(kind, "calls of Vulkan to", i);
    if (victim)
        printf("%s: %zu of %zu calls of Vulkan failed in turn were noticed on all ranks\n",
               kind_names[kind], noticed, i);
}

/* ---- A device that is lost ------------------------------------------------------------------- */

/* Contents of tensors are undefined after a recovery. */
static void fill_tensors(void)
{
    static const int32_t ones[BATCH] = {1, 1, 1};
    for (size_t i = 0; i < world.n_made; i++) {
        bool whole = vka_tensor_dtype(world.made[i]) == VKA_I32;
        REQUIRE_OK(world.mpi,
                   vka_tensor_write(world.made[i], whole ? (void *)ones : (void *)world.weights,
                                    vka_tensor_size(world.made[i])));
    }
}

/* The call of a run that submits; only the victim is sure to have one. */
static size_t find_submit(struct vka_mpi_plan *plan)
{
    size_t call = 0;
    driver_reset();
    REQUIRE_OK(world.mpi, vka_mpi_plan_run(plan, PATIENCE));
    while (call < driver_calls() && strcmp(driver_call_name(call), "vkQueueSubmit") != 0)
        call++;
    REQUIRE(call < driver_calls() || vka_mpi_rank(world.mpi) != world.victim, "no submit");
    return call;
}

/* The last rank's is: all hear of it, and once it is recovered the same plan gives the same
 * bits. */
static void lose_device(enum kind kind)
{
    struct vka_mpi_layer *layer = NULL;
    struct vka_mpi_plan *plan;
    size_t at, count = 0;
    if (kind <= LAYER_BY_BATCH)
        REQUIRE_OK(world.mpi, make_layer(kind, &layer));
    REQUIRE_OK(world.mpi, make_plan(kind, layer, &plan));
    size_t submit = find_submit(plan);
    driver_reset();
    if (vka_mpi_rank(world.mpi) == world.victim)
        driver_fail(submit, VK_ERROR_DEVICE_LOST);
    enum vka_status status = vka_mpi_plan_run(plan, PATIENCE);
    driver_reset();
    REQUIRE(status != VKA_OK, "%s: nobody heard of the loss", kind_names[kind]);
    compare_ranks(kind_names[kind], submit, status, VKA_DEVICE_LOST, vka_mpi_error(world.mpi),
                  &count);
    REQUIRE(vka_mpi_plan_run(plan, PATIENCE) == VKA_DEVICE_LOST, "a lost device is not lost");
    if (vka_mpi_rank(world.mpi) == world.victim)
        REQUIRE_OK(world.mpi, vka_device_recover(vka_mpi_device(world.mpi)));
    fill_tensors();
    ranks_poison(output_of(kind));
    REQUIRE_OK(world.mpi, vka_mpi_plan_run(plan, PATIENCE));
    REQUIRE(ranks_same(output_of(kind), world.want[kind], &at),
            "%s: element %zu differs after a recovery", kind_names[kind], at);
    vka_mpi_plan_destroy(&plan);
    vka_mpi_layer_destroy(&layer);
    if (vka_mpi_rank(world.mpi) == world.victim)
        printf("%s: a lost device was heard of on all ranks, and recovered\n", kind_names[kind]);
}

/* ---- Calls of MPI ---------------------------------------------------------------------------- */

/* Makes the object again on a communicator of its own, as MPI may still write to the broken one. */
static void renew_object(void)
{
    struct vka_mpi *mpi = malloc(sizeof *mpi);
    REQUIRE(mpi, "out of memory");
    *mpi = *world.mpi;
    mpi->broken = VKA_OK;
    mpi->messages = calloc((size_t)mpi->size + 1, sizeof *mpi->messages);
    REQUIRE(mpi->messages, "out of memory");
    MPI_Comm_dup(MPI_COMM_WORLD, &mpi->comm);
    MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN);
    world.mpi = mpi;
}

/* All ranks fail alike, so that none waits. */
static void fail_mpi(enum kind kind, bool at_end)
{
    size_t i = 0;
    for (bool failed = true; failed; i++) {
        calls.n = 0;
        calls.fail_at = i;
        calls.at_end = at_end;
        calls.failed = NULL;
        enum vka_status status = make_and_run(kind);
        calls.fail_at = SIZE_MAX;
        calls.at_end = false;
        failed = calls.failed;
        REQUIRE(status == (failed ? VKA_IO : VKA_OK) &&
                    (!failed || strstr(vka_mpi_error(world.mpi), calls.failed)),
                "%s, call %zu of MPI, %s: %s: %s", kind_names[kind], i,
                failed ? calls.failed : "none", vka_status_name(status), vka_mpi_error(world.mpi));
        REQUIRE(i < MOST_CALLS, "%s: no end of calls", kind_names[kind]);
        if (failed)
            renew_object();
    }
    REQUIRE(i > 4, "%s: only %zu calls of MPI", kind_names[kind], i);
    check_bits(kind, "calls of MPI to", i);
    if (vka_mpi_rank(world.mpi) == 0)
        printf("%s: %zu calls of MPI failed in turn%s\n", kind_names[kind], i - 1,
               at_end ? ", at their end" : "");
}

/* ---- Making the object ----------------------------------------------------------------------- */

static char said[1024];

static void listen(void *user, enum vka_log_level level, const char *message)
{
    (void)user, (void)level;
    snprintf(said, sizeof said, "%s", message);
}

static enum vka_status create_once(void)
{
    const struct vka_device_info device = {
        .struct_size = sizeof device, .skip_self_test = true, .log = listen};
    struct vka_mpi *mpi = NULL;
    enum vka_status status = vka_mpi_create(
        MPI_COMM_WORLD, VKA_INFO(vka_mpi_info, .device = &device, .timeout = PATIENCE), &mpi);
    REQUIRE((status == VKA_OK) == (mpi != NULL), "%s", vka_status_name(status));
    vka_mpi_destroy(&mpi);
    return status;
}

static void fail_create(void)
{
    bool victim = vka_mpi_rank(world.mpi) == world.victim;
    size_t i = 0;
    for (bool failed = true; failed; i++) { /* on all ranks */
        calls.n = 0;
        calls.fail_at = i;
        calls.failed = NULL;
        enum vka_status status = create_once();
        failed = calls.failed;
        REQUIRE(status == (failed ? VKA_IO : VKA_OK), "create, call %zu of MPI: %s", i,
                vka_status_name(status));
    }
    calls.fail_at = SIZE_MAX;
    REQUIRE(i >= 6, "%zu calls of MPI to make the object", i);
    /* All of the rank's allocations fail but the object itself, before which there is none to tell,
     * and a few of the device's own, which have a test. */
    for (i = 1; i < 60; i += i < 8 ? 1 : 9) {
        size_t count = 0;
        heap_fail(victim ? i : HEAP_NEVER);
        enum vka_status status = create_once();
        heap_fail(HEAP_NEVER);
        compare_ranks("making the object", i, status, VKA_OUT_OF_HOST_MEMORY, said, &count);
    }
}

/* Between the two listings of the object, behind whose list there is rubbish: the device is one of
 * those of the first. */
static void add_devices(void)
{
    enum { RUBBISH = 64 * (int)sizeof(struct vka_device_properties) };
    for (size_t listing = 0; listing <= 2; listing++) {
        void *rubbish[8];
        for (int i = 0; i < 8; i++) {
            rubbish[i] = malloc(RUBBISH);
            REQUIRE(rubbish[i], "out of memory");
            memset(rubbish[i], 0x7f, RUBBISH);
        }
        for (int i = 0; i < 8; i++)
            free(rubbish[i]);
        driver_reset();
        driver_multiply_devices(listing);
        enum vka_status status = create_once();
        driver_reset();
        REQUIRE(status == VKA_OK, "devices added before listing %zu: %s: %s", listing,
                vka_status_name(status), said);
    }
}

/* ---- The world ------------------------------------------------------------------------------- */

static void make_file(void)
{
    static const char *const names[] = {"q_proj.weight", "k_proj.weight", "v_proj.weight",
                                        "o_proj.weight", "q_proj.bias",   "o_proj.bias"};
    struct vka_io_array arrays[6];
    char error[VKA_IO_ERROR_SIZE];
    for (int i = 0; i < 6; i++) {
        bool grouped = i == 1 || i == 2, bias = i > 3;
        uint64_t rows = grouped ? WIDTH / 2 : WIDTH;
        arrays[i] = (struct vka_io_array){.name = names[i],
                                          .dtype = VKA_IO_F32,
                                          .rank = bias ? 1 : 2,
                                          .shape = {rows, bias ? 0 : WIDTH},
                                          .data = world.weights,
                                          .size = rows * (bias ? 1 : WIDTH) * sizeof(float)};
    }
    snprintf(world.path, sizeof world.path, "/tmp/test_mpi_XXXXXX");
    int fd = mkstemp(world.path);
    REQUIRE(fd >= 0, "no temporary file");
    close(fd);
    REQUIRE(!vka_safetensors_write(world.path, arrays, 6, NULL, 0, error), "%s", error);
}

static struct vka_tensor *make_tensor(enum vka_dtype dtype, uint32_t rank, const uint32_t *shape)
{
    struct vka_tensor **made = &world.made[world.n_made++];
    REQUIRE_OK(world.mpi, vka_tensor_create(vka_mpi_device(world.mpi), dtype, rank, shape, made));
    return *made;
}

static void make_world(int *argc, char ***argv)
{
    world.mpi = ranks_begin(argc, argv);
    world.victim = vka_mpi_size(world.mpi) - 1;
    for (int i = 0; i < WIDTH * WIDTH; i++)
        world.weights[i] = (float)(i % 13) / 13 - 0.4f;
    make_file();
    world.in = make_tensor(VKA_F32, 3, (uint32_t[]){BATCH, N, WIDTH});
    world.out = make_tensor(VKA_F32, 3, (uint32_t[]){BATCH, N, WIDTH});
    world.many = make_tensor(VKA_F32, 4, (uint32_t[]){1, KV_HEADS, 2, DIM});
    world.few = make_tensor(VKA_F32, 4, (uint32_t[]){1, 1, 2, DIM});
    world.results[0] = make_tensor(VKA_F32, 4, (uint32_t[]){1, KV_HEADS, 2, DIM});
    world.results[1] = make_tensor(VKA_F32, 4, (uint32_t[]){1, 1, 2, DIM});
    world.offset = make_tensor(VKA_I32, 1, (uint32_t[]){1});
    world.all = make_tensor(VKA_F32, 4, (uint32_t[]){BATCH, KV_HEADS, 2, DIM});
    world.result = make_tensor(VKA_F32, 4, (uint32_t[]){BATCH, KV_HEADS, 2, DIM});
    world.mask = make_tensor(VKA_F32, 4, (uint32_t[]){BATCH, KV_HEADS, 2, 2});
    world.scores = make_tensor(VKA_F32, 4, (uint32_t[]){BATCH, KV_HEADS, 2, 2});
    world.lengths = make_tensor(VKA_I32, 1, (uint32_t[]){BATCH});
    world.offsets = make_tensor(VKA_I32, 1, (uint32_t[]){BATCH});
    world.sink = make_tensor(VKA_F32, 1, (uint32_t[]){KV_HEADS});
    world.slopes = make_tensor(VKA_F32, 1, (uint32_t[]){KV_HEADS});
    world.more_slopes = make_tensor(VKA_F32, 1, (uint32_t[]){2 * KV_HEADS});
    fill_tensors();
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        REQUIRE_OK(world.mpi, make_and_run((enum kind)kind));
        world.want[kind] = ranks_read(output_of((enum kind)kind));
    }
}

int main(int argc, char **argv)
{
    if (!driver_open()) {
        fprintf(stderr, "SKIPPED: no Vulkan: no failures over ranks\n");
        return SKIPPED;
    }
    make_world(&argc, &argv);
    REQUIRE(vka_mpi_size(world.mpi) > 2, "3 ranks or more are needed");
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        fail_allocations((enum kind)kind);
        fail_vulkan((enum kind)kind);
        fail_mpi((enum kind)kind, false);
        fail_mpi((enum kind)kind, true);
    }
    /* A layer by heads does not outlive its device. */
    for (int kind = LAYER_BY_BATCH; kind < KIND_COUNT; kind++)
        lose_device((enum kind)kind);
    fail_create();
    add_devices();
    while (world.n_made > 0)
        vka_tensor_destroy(&world.made[--world.n_made]);
    for (int kind = 0; kind < KIND_COUNT; kind++)
        free(world.want[kind]);
    unlink(world.path);
    return ranks_end(&world.mpi);
}
