/* One rank dies or stalls in the middle of its runs: the others get a status in time.
 *
 *     test_mpi mpi_failure die|stall layer|positions|ring
 *
 * Each survivor prints a line that begins with "survivor", which test_failure.sh counts. */
#include "../patience.h"
#include "layer_problem.h"
#include "test_program.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RUN_TIMEOUT 2000000000ull /* ns */
#define MOST_SECONDS 25.0         /* less than the library's own wait, which is 30 */
#define HEALTHY_RUNS 5

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The rank whose turn has come leaves while its alarm goes off inside a run. */
static void leave(int signal)
{
    (void)signal;
    raise(SIGKILL);
}

/* What a survivor sends to a victim that stalls; queued, so that each one counts. */
#define RELEASE SIGRTMIN

/* The last rank's process. Blocks RELEASE. */
static pid_t victim_process(struct vka_mpi *mpi)
{
    sigset_t set;
    int process = (int)getpid();
    sigemptyset(&set);
    sigaddset(&set, RELEASE);
    sigprocmask(SIG_BLOCK, &set, NULL);
    MPI_Bcast(&process, 1, MPI_INT, vka_mpi_size(mpi) - 1, MPI_COMM_WORLD);
    return (pid_t)process;
}

/* Does nothing until all survivors have their status. */
static void stall(struct vka_mpi *mpi)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, RELEASE);
    for (int i = 1; i < vka_mpi_size(mpi); i++)
        sigwaitinfo(&set, NULL);
    _exit(0);
}

static enum vka_status run_until_failure(struct vka_mpi *mpi, struct vka_mpi_plan *plan,
                                         bool victim, bool stalls, double *waited)
{
    enum vka_status status = VKA_OK;
    for (int i = 0; i < HEALTHY_RUNS; i++)
        REQUIRE_OK(mpi, vka_mpi_plan_run(plan, PATIENCE));
    MPI_Barrier(MPI_COMM_WORLD);
    if (victim && stalls)
        stall(mpi);
    if (victim) {
        signal(SIGALRM, leave);
        timer_t timer;
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
        const struct itimerspec soon = {.it_value.tv_nsec = 50000000};
        REQUIRE(!timer_create(CLOCK_MONOTONIC, &event, &timer) &&
                    !timer_settime(timer, 0, &soon, NULL),
                "no timer");
    }
    while (status == VKA_OK) {
        double start = seconds();
        status = vka_mpi_plan_run(plan, RUN_TIMEOUT);
        *waited = seconds() - start;
    }
    return status;
}

/* 64 positions a rank, of more heads than there are ranks, or of one head in blocks. */
static void make_attention(struct vka_mpi *mpi, bool ring, struct vka_tensor *tensors[2],
                           struct vka_mpi_plan **plan)
{
    const uint32_t shape[] = {1, ring ? 1 : 4, 64, 8};
    for (int i = 0; i < 2; i++)
        REQUIRE_OK(mpi, vka_tensor_create(vka_mpi_device(mpi), VKA_F32, 4, shape, &tensors[i]));
    struct vka_tensor *in = tensors[0];
    REQUIRE_OK(mpi,
               vka_mpi_plan_attention(
                   mpi, VKA_INFO(vka_attention_op, .q = in, .k = in, .v = in, .output = tensors[1]),
                   VKA_INFO(vka_mpi_plan_info, .split = VKA_MPI_SEQUENCE,
                            .path = ring ? VKA_PATH_FUSED : VKA_PATH_AUTO),
                   plan));
}

TEST_PROGRAM_ARGUMENTS(mpi_failure)
{
    struct vka_mpi *mpi = ranks_begin(&argc, &argv);
    struct vka_mpi_layer *layer = NULL;
    struct vka_mpi_plan *plan = NULL;
    struct layer_problem p = {0};
    struct vka_tensor *tensors[2] = {NULL, NULL};
    double waited = 0;
    REQUIRE(argc == 3, "usage: test_mpi mpi_failure die|stall layer|positions|ring");
    bool victim = vka_mpi_rank(mpi) == vka_mpi_size(mpi) - 1, stalls = !strcmp(argv[1], "stall");
    pid_t process = victim_process(mpi);
    if (!strcmp(argv[2], "layer")) {
        layer_problem_draw(mpi, 3, &p);
        REQUIRE_OK(
            mpi, vka_mpi_layer_create(mpi, VKA_INFO(vka_mpi_layer_info, .layer = p.info), &layer));
        REQUIRE_OK(mpi, vka_mpi_plan_layer(mpi, layer, &p.op, NULL, &plan));
    } else {
        make_attention(mpi, !strcmp(argv[2], "ring"), tensors, &plan);
    }
    enum vka_status status = run_until_failure(mpi, plan, victim, stalls, &waited);
    REQUIRE(status == VKA_TIMEOUT || status == VKA_IO, "%s", vka_status_name(status));
    REQUIRE(waited < MOST_SECONDS, "%.1f s for a status", waited);
    REQUIRE(*vka_mpi_error(mpi), "no sentence");
    /* Out of step: the same answer at once, and nothing that waits for the victim. */
    REQUIRE(vka_mpi_plan_run(plan, RUN_TIMEOUT) == status, "another status than before");
    vka_mpi_plan_destroy(&plan);
    vka_mpi_layer_destroy(&layer);
    layer_problem_destroy(&p);
    vka_tensor_destroy(&tensors[0]);
    vka_tensor_destroy(&tensors[1]);
    printf("survivor %d: %s after %.1f s: %s\n", vka_mpi_rank(mpi), vka_status_name(status), waited,
           vka_mpi_error(mpi));
    vka_mpi_destroy(&mpi);
    fflush(stdout);
    if (stalls)
        kill(process, RELEASE);
    _exit(0); /* MPI_Finalize would wait for the dead */
}
