/* The example that opens vkattn.h, taken from its comment by the build, on small arrays: a causal
 * layer of 8 heads must give what the oracle gives. */
#include <stdio.h>
#include <stdint.h>

#include <vkattn/vkattn.h>

#include "reference/reference.h"

enum { batch = 2, n_q = 5, width = 512, n_head = 8, head_dim = width / n_head };

/* The names that the example uses. */
static float x[batch][n_q][width], y[batch][n_q][width];
static float wq[width][width], wk[width][width], wv[width][width], wo[width][width];
static float bq[width], bk[width], bv[width], bo[width];

static void run_example(void)
{
#include "header_example.inc"
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&out);
    vka_tensor_destroy(&in);
    vka_layer_destroy(&layer);
    vka_device_destroy(&device);
}

/* Uniform in -scale .. scale, the same on every machine. */
static void fill(float *data, size_t count, float scale)
{
    static uint32_t state = 1;

    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        data[i] = scale * ((float)(state >> 8) / 8388608.0f - 1.0f);
    }
}

static void widen(const float *from, size_t count, double *to)
{
    for (size_t i = 0; i < count; i++)
        to[i] = from[i];
}

/* heads[batch][n_head][n_q][head_dim] = x W^T + b, W [width][width]. */
static void project(const float *weight, const float *bias, double *heads)
{
    static double input[batch * n_q * width], w[width * width], b[width];
    static double rows[batch][n_q][n_head][head_dim];

    widen(&x[0][0][0], batch * n_q * width, input);
    widen(weight, width * width, w);
    widen(bias, width, b);
    ref_linear(input, w, b, batch * n_q, width, width, false, &rows[0][0][0][0]);
    for (size_t n = 0; n < batch; n++)
        for (size_t h = 0; h < n_head; h++)
            for (size_t i = 0; i < n_q; i++)
                for (size_t d = 0; d < head_dim; d++)
                    *heads++ = rows[n][i][h][d];
}

/* want[batch][n_q][width]: the layer by the oracle. */
static enum vka_status expect(double *want)
{
    static double q[batch * n_q * width], k[batch * n_q * width], v[batch * n_q * width];
    static double context[batch][n_head][n_q][head_dim], joined[batch][n_q][n_head][head_dim];
    static double w[width * width], b[width];

    project(&wq[0][0], bq, q);
    project(&wk[0][0], bk, k);
    project(&wv[0][0], bv, v);
    enum vka_status status = ref_attention(&(struct ref_attention){
        .batch = batch,
        .n_head = n_head,
        .n_kv_head = n_head,
        .n_q = n_q,
        .n_kv = n_q,
        .head_dim = head_dim,
        .value_dim = head_dim,
        .q = q,
        .k = k,
        .v = v,
        .causal = true,
        .context = &context[0][0][0][0],
    });
    for (size_t n = 0; n < batch; n++)
        for (size_t i = 0; i < n_q; i++)
            for (size_t h = 0; h < n_head; h++)
                for (size_t d = 0; d < head_dim; d++)
                    joined[n][i][h][d] = context[n][h][i][d];
    widen(&wo[0][0], width * width, w);
    widen(bo, width, b);
    ref_linear(&joined[0][0][0][0], w, b, batch * n_q, width, width, false, want);
    return status;
}

int main(void)
{
    static double got[batch * n_q * width], want[batch * n_q * width];
    size_t devices = 0, worst = 0;

    if (vka_device_list(NULL, NULL, &devices) || devices == 0) {
        fprintf(stderr, "SKIPPED: no Vulkan device: the example of vkattn.h was not run\n");
        return 77;
    }
    fill(&x[0][0][0], batch * n_q * width, 1.0f);
    float *const weights[] = {&wq[0][0], &wk[0][0], &wv[0][0], &wo[0][0]};
    float *const biases[] = {bq, bk, bv, bo};
    for (size_t i = 0; i < 4; i++) {
        fill(weights[i], width * width, 0.1f);
        fill(biases[i], width, 0.1f);
    }
    run_example();
    if (expect(want))
        return 1;
    widen(&y[0][0][0], batch * n_q * width, got);
    double nmse = ref_row_nmse(got, want, batch * n_q, width, &worst);
    printf("worst row %zu: normalised squared error %.3g\n", worst, nmse);
    return nmse <= 1e-10 ? 0 : 1;
}
