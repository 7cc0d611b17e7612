/* The example that opens vkattn_mpi.h, taken from its comment by the build. On rows that are all
 * the same attention passes its values through: with weights of 1 where row and column meet, y is
 * x. */
#include <vkattn/vkattn_io.h>
#include <vkattn/vkattn_mpi.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { batch = 2, n_q = 5, width = 512 };

static float x[batch][n_q][width], y[batch][n_q][width], identity[width][width];

static void run_example(void)
{
#include "mpi_header_example.inc"
    vka_mpi_plan_destroy(&plan);
    vka_mpi_layer_destroy(&layer);
    vka_tensor_destroy(&in);
    vka_tensor_destroy(&out);
    vka_mpi_destroy(&mpi);
}

/* "layer.safetensors" in a folder of its own, which becomes the current one. */
static bool write_layer(char folder[])
{
    static const char *const names[] = {"q_proj.weight", "k_proj.weight", "v_proj.weight",
                                        "o_proj.weight"};
    struct vka_io_array arrays[4];
    for (int i = 0; i < 4; i++)
        arrays[i] = (struct vka_io_array){.name = names[i],
                                          .dtype = VKA_IO_F32,
                                          .rank = 2,
                                          .shape = {width, width},
                                          .data = identity,
                                          .size = sizeof identity};
    return mkdtemp(folder) && !chdir(folder) &&
           vka_safetensors_write("layer.safetensors", arrays, 4, NULL, 0, NULL) == VKA_OK;
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/vkattn_mpi_XXXXXX";
    size_t devices = 0;
    double worst = 0;
    MPI_Init(&argc, &argv);
    if (vka_device_list(NULL, NULL, &devices) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device: the example was not run\n");
        MPI_Finalize();
        return 77;
    }
    for (int i = 0; i < width; i++)
        identity[i][i] = 1;
    for (int b = 0; b < batch; b++)
        for (int i = 0; i < n_q; i++)
            for (int d = 0; d < width; d++)
                x[b][i][d] = (float)((b * 31 + d * 7) % 19) / 19;
    if (!write_layer(folder)) {
        fprintf(stderr, "%s: cannot write a layer there\n", folder);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    run_example();
    unlink("layer.safetensors");
    rmdir(folder);
    for (int i = 0; i < batch * n_q * width; i++)
        worst = fmax(worst, fabs((double)(&y[0][0][0])[i] - (double)(&x[0][0][0])[i]));
    printf("worst difference %g\n", worst);
    MPI_Finalize();
    return worst < 1e-5 ? 0 : 1;
}
