/* Where an object can be made and where it ends: before MPI_Init and after MPI_Finalize, on every
 * kind of communicator, several at once; a healthy run logs nothing, and one without time says so.
 */
#include "../patience.h"
#include "test_program.h"
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 8, DIM = 16, WIDTH = HEADS * DIM, BATCH = 2, N = 192 };

static float weights[WIDTH * WIDTH];

static struct {
    unsigned errors;
    char last[1024];
} heard;

static void listen(void *user, enum vka_log_level level, const char *message)
{
    (void)user;
    if (level != VKA_LOG_ERROR)
        return;
    heard.errors++;
    snprintf(heard.last, sizeof heard.last, "%s", message);
}

static enum vka_status create(MPI_Comm comm, struct vka_mpi **mpi)
{
    const struct vka_device_info device = {
        .struct_size = sizeof device, .log = listen, .skip_self_test = true};
    return vka_mpi_create(comm, VKA_INFO(vka_mpi_info, .device = &device, .timeout = PATIENCE),
                          mpi);
}

/* A layer whose rounds travel while others are computed, for some time. */
struct problem {
    struct vka_mpi *mpi;
    struct vka_mpi_layer *layer;
    struct vka_mpi_plan *plan;
    struct vka_tensor *in, *out;
};

static void make_problem(struct vka_mpi *mpi, struct problem *p)
{
    const struct vka_linear_weights w = {weights, NULL};
    const uint32_t shape[] = {BATCH, N, WIDTH};
    *p = (struct problem){.mpi = mpi};
    REQUIRE_OK(mpi, vka_tensor_create(vka_mpi_device(mpi), VKA_F32, 3, shape, &p->in));
    REQUIRE_OK(mpi, vka_tensor_create(vka_mpi_device(mpi), VKA_F32, 3, shape, &p->out));
    REQUIRE_OK(mpi, vka_mpi_layer_create(mpi,
                                         VKA_INFO(vka_mpi_layer_info, .rounds = 2,
                                                  .layer = {.n_head = HEADS,
                                                            .head_dim = DIM,
                                                            .query_dim = WIDTH,
                                                            .output_dim = WIDTH,
                                                            .query = w,
                                                            .key = w,
                                                            .value = w,
                                                            .output = w}),
                                         &p->layer));
    REQUIRE_OK(mpi, vka_mpi_plan_layer(mpi, p->layer,
                                       VKA_INFO(vka_layer_op, .query = p->in, .output = p->out),
                                       NULL, &p->plan));
}

static void destroy_problem(struct problem *p)
{
    vka_mpi_plan_destroy(&p->plan);
    vka_mpi_layer_destroy(&p->layer);
    vka_tensor_destroy(&p->in);
    vka_tensor_destroy(&p->out);
    vka_mpi_destroy(&p->mpi);
}

/* Two groups of ranks that know each other. */
static void refuse_inter_communicator(void)
{
    int rank, size;
    MPI_Comm half, inter;
    struct vka_mpi *mpi = (struct vka_mpi *)weights;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size < 2)
        return;
    bool first = rank == 0;
    MPI_Comm_split(MPI_COMM_WORLD, first, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, first ? 1 : 0, 0, &inter);
    enum vka_status status = create(inter, &mpi);
    REQUIRE(status == VKA_INVALID && !mpi, "an inter-communicator: %s", vka_status_name(status));
    REQUIRE(strstr(heard.last, "inter-communicator"), "'%s'", heard.last);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

/* On a communicator that is freed at once, and on some of the ranks, which take turns with it. */
static void several_objects(void)
{
    int rank;
    MPI_Comm copy, some;
    struct problem whole, own;
    struct vka_mpi *mpi = NULL;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, -rank, &some);
    REQUIRE(create(copy, &mpi) == VKA_OK, "%s", heard.last);
    MPI_Comm_free(&copy);
    make_problem(mpi, &whole);
    REQUIRE(create(some, &mpi) == VKA_OK, "%s", heard.last);
    MPI_Comm_free(&some);
    make_problem(mpi, &own);
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(whole.mpi, vka_mpi_plan_run(whole.plan, PATIENCE));
        REQUIRE_OK(own.mpi, vka_mpi_plan_run(own.plan, PATIENCE));
    }
    destroy_problem(&whole);
    destroy_problem(&own);
}

/* A rank that asks its device whether it is done while rounds travel makes no error of it. */
static void run_in_silence(const struct problem *p)
{
    heard.errors = 0;
    for (int i = 0; i < 5; i++)
        REQUIRE_OK(p->mpi, vka_mpi_plan_run(p->plan, PATIENCE));
    REQUIRE(!heard.errors, "%u errors logged by healthy runs, the last: %s", heard.errors,
            heard.last);
}

/* All ranks have TIMEOUT, with a sentence, now and ever after. */
static void run_without_time(void)
{
    struct vka_mpi *mpi = NULL;
    struct problem p;
    REQUIRE(create(MPI_COMM_WORLD, &mpi) == VKA_OK, "%s", heard.last);
    make_problem(mpi, &p);
    REQUIRE_OK(mpi, vka_mpi_plan_run(p.plan, PATIENCE));
    heard.errors = 0;
    enum vka_status status = vka_mpi_plan_run(p.plan, 0);
    REQUIRE(status == VKA_TIMEOUT && heard.errors && strstr(vka_mpi_error(mpi), "vka_mpi_plan_run"),
            "%s: %s", vka_status_name(status), vka_mpi_error(mpi));
    REQUIRE(vka_mpi_plan_run(p.plan, PATIENCE) == VKA_TIMEOUT, "a run after one that had no time");
    destroy_problem(&p);
}

static void refuse_without_mpi(const char *when)
{
    struct vka_mpi *mpi = (struct vka_mpi *)weights;
    *heard.last = '\0';
    if (create(MPI_COMM_WORLD, &mpi) != VKA_INVALID || mpi || !strstr(heard.last, "MPI_Init")) {
        fprintf(stderr, "%s: no word, but '%s'\n", when, heard.last);
        exit(1);
    }
}

TEST_PROGRAM_ARGUMENTS(mpi_object)
{
    struct problem p;
    refuse_without_mpi("before MPI_Init");
    struct vka_mpi *mpi = ranks_begin(&argc, &argv); /* or skips */
    int rank = vka_mpi_rank(mpi);
    vka_mpi_destroy(&mpi);
    refuse_inter_communicator();
    several_objects();
    run_without_time();
    REQUIRE(create(MPI_COMM_WORLD, &mpi) == VKA_OK, "%s", heard.last);
    make_problem(mpi, &p);
    run_in_silence(&p);
    MPI_Finalize();
    refuse_without_mpi("after MPI_Finalize");
    struct vka_mpi_layer *layer;
    if (vka_mpi_plan_run(p.plan, PATIENCE) != VKA_INVALID ||
        vka_mpi_layer_create(mpi, NULL, &layer) != VKA_INVALID ||
        !strstr(vka_mpi_error(mpi), "MPI_Finalize")) {
        fprintf(stderr, "after MPI_Finalize: '%s'\n", vka_mpi_error(mpi));
        return 1;
    }
    destroy_problem(&p);
    if (rank == 0)
        printf("objects: passed\n");
    return 0;
}
