/* A healthy run logs nothing. */
#include "ranks.h"

#include <stdio.h>

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
    return vka_mpi_create(
        comm, VKA_INFO(vka_mpi_info, .device = &device, .timeout = 10 * VKA_TIMEOUT_DEFAULT), mpi);
}

/* A layer whose pieces travel while others are computed, for some time. */
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
                                         VKA_INFO(vka_mpi_layer_info, .pieces = 2,
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

/* A rank that asks its device whether it is done while pieces travel makes no error of it. */
static void run_in_silence(const struct problem *p)
{
    heard.errors = 0;
    for (int i = 0; i < 5; i++)
        REQUIRE_OK(p->mpi, vka_mpi_plan_run(p->plan, 10 * VKA_TIMEOUT_DEFAULT));
    REQUIRE(!heard.errors, "%u errors logged by healthy runs, the last: %s", heard.errors,
            heard.last);
}

int main(int argc, char **argv)
{
    struct problem p;
    struct vka_mpi *mpi = ranks_begin(&argc, &argv); /* or skips */
    vka_mpi_destroy(&mpi);
    REQUIRE(create(MPI_COMM_WORLD, &mpi) == VKA_OK, "%s", heard.last);
    make_problem(mpi, &p);
    run_in_silence(&p);
    destroy_problem(&p);
    MPI_Finalize();
    return 0;
}
