/* An example: vkattn in an application that has its own Vulkan device. SPDX-License-Identifier: MIT
 *
 *     interop [--validate] [--without-barrier]
 *
 * In one submit the application's shader computes h = 0.5 x, then vkattn computes c, causal
 * attention of h over itself, then the application's shader computes x += c. All three are in the
 * application's buffers. The result is compared with the same in double. --validate enables the
 * Khronos validation layer; any message of it is a failure. --without-barrier leaves out a barrier,
 * which the layer must report. */
#include "app.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N_HEAD = 4, N_TOKEN = 50, HEAD_DIM = 16, COUNT = N_HEAD * N_TOKEN * HEAD_DIM };

/* [N_HEAD][N_TOKEN][HEAD_DIM] each */
struct data {
    struct buffer x, h, c;
    struct vka_tensor *h_tensor, *c_tensor;
    struct vka_plan *plan;
    VkFence fence;
};

static bool create_data(struct app *app, struct data *d)
{
    const uint32_t shape[] = {1, N_HEAD, N_TOKEN, HEAD_DIM};
    if (!buffer_create(app, COUNT, &d->x) || !buffer_create(app, COUNT, &d->h) ||
        !buffer_create(app, COUNT, &d->c))
        return false;
    for (int i = 0; i < COUNT; i++)
        d->x.mapped[i] = sinf((float)i * 0.37f) + cosf((float)i * 0.011f);

    const struct vka_buffer h = {d->h.handle, 0, d->h.size, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT};
    const struct vka_buffer c = {d->c.handle, 0, d->c.size, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT};
    TRY(vka_tensor_wrap(app->vkattn, &h, VKA_F32, 4, shape, &d->h_tensor));
    TRY(vka_tensor_wrap(app->vkattn, &c, VKA_F32, 4, shape, &d->c_tensor));
    TRY(vka_plan_create(app->vkattn, NULL, &d->plan));
    TRY(vka_plan_add_attention(d->plan, VKA_INFO(vka_attention_op, .q = d->h_tensor,
                                                 .k = d->h_tensor, .v = d->h_tensor,
                                                 .output = d->c_tensor, .options.causal = true)));
    TRY(vka_plan_finish(d->plan));
    TRY(vkCreateFence(app->device,
                      &(VkFenceCreateInfo){.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO}, NULL,
                      &d->fence));
    return true;
fail:
    fprintf(stderr, "interop: %s\n", vka_device_error(app->vkattn));
    return false;
}

static void destroy_data(struct app *app, struct data *d)
{
    vka_plan_destroy(&d->plan);
    vka_tensor_destroy(&d->h_tensor);
    vka_tensor_destroy(&d->c_tensor);
    buffer_destroy(app, &d->x);
    buffer_destroy(app, &d->h);
    buffer_destroy(app, &d->c);
    if (d->fence)
        vkDestroyFence(app->device, d->fence, NULL);
}

static void barrier(VkCommandBuffer commands, VkPipelineStageFlags to, VkAccessFlags after)
{
    const VkMemoryBarrier memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                    .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
                                    .dstAccessMask = after};
    vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, to, 0, 1, &memory, 0, NULL,
                         0, NULL);
}

static bool record(struct app *app, struct data *d, bool with_barrier, VkCommandBuffer commands)
{
    TRY(vkBeginCommandBuffer(commands, &(VkCommandBufferBeginInfo){
                                           .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO}));
    if (!axpy_record(app, commands, &d->x, &d->h, COUNT, 0.5f))
        return false;
    /* The plan begins with a barrier that makes writes of compute shaders visible to it. */
    TRY(vka_plan_record(d->plan, commands));
    if (with_barrier) /* the application orders what follows the plan */
        barrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
    if (!axpy_record(app, commands, &d->c, &d->x, COUNT, 1))
        return false;
    barrier(commands, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
    TRY(vkEndCommandBuffer(commands));
    return true;
fail:
    return false;
}

static bool run(struct app *app, struct data *d, bool with_barrier)
{
    VkCommandBuffer commands;
    TRY(vkAllocateCommandBuffers(
        app->device,
        &(VkCommandBufferAllocateInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                       .commandPool = app->commands,
                                       .commandBufferCount = 1},
        &commands));
    if (!record(app, d, with_barrier, commands))
        return false;
    TRY(vkQueueSubmit(app->queue, 1,
                      &(VkSubmitInfo){.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                      .commandBufferCount = 1,
                                      .pCommandBuffers = &commands},
                      d->fence));
    TRY(vkWaitForFences(app->device, 1, &d->fence, VK_TRUE, VKA_TIMEOUT_DEFAULT));
    return true;
fail:
    return false;
}

/* One row of x + causal attention of h = 0.5 x over itself; x is [N_TOKEN][HEAD_DIM]. */
static void expect_row(const float *x, int row, double want[HEAD_DIM])
{
    double weight[N_TOKEN], sum = 0;
    for (int j = 0; j <= row; j++) {
        double score = 0;
        for (int d = 0; d < HEAD_DIM; d++)
            score += 0.25 * (double)x[row * HEAD_DIM + d] * (double)x[j * HEAD_DIM + d];
        weight[j] = exp(score / sqrt(HEAD_DIM));
        sum += weight[j];
    }
    for (int d = 0; d < HEAD_DIM; d++) {
        want[d] = (double)x[row * HEAD_DIM + d];
        for (int j = 0; j <= row; j++)
            want[d] += weight[j] / sum * 0.5 * (double)x[j * HEAD_DIM + d];
    }
}

/* The largest difference from the expected result for the old x. */
static double error(const float *x, const float *got)
{
    double worst = 0, want[HEAD_DIM];
    for (int row = 0; row < N_HEAD * N_TOKEN; row++) {
        expect_row(x + row / N_TOKEN * N_TOKEN * HEAD_DIM, row % N_TOKEN, want);
        for (int d = 0; d < HEAD_DIM; d++) {
            double difference = fabs((double)got[row * HEAD_DIM + d] - want[d]);
            if (!(difference <= worst)) /* keeps NaN */
                worst = isnan(worst) ? worst : difference;
        }
    }
    return worst;
}

int main(int argc, char **argv)
{
    static float x[COUNT];
    struct app app = {0};
    struct data data = {.plan = NULL};
    bool validate = false, with_barrier = true, done = false;
    for (int i = 1; i < argc; i++) {
        validate |= !strcmp(argv[i], "--validate");
        with_barrier &= strcmp(argv[i], "--without-barrier") != 0;
    }
    double worst = INFINITY;
    if (app_create(&app, validate) && create_data(&app, &data)) {
        memcpy(x, data.x.mapped, sizeof x);
        done = run(&app, &data, with_barrier);
    }
    if (done) {
        worst = error(x, data.x.mapped);
        printf("interop: %s, largest difference %.3g, %u messages\n",
               vka_device_properties(app.vkattn)->name, worst, app.messages);
    }
    destroy_data(&app, &data);
    app_destroy(&app);
    if (!app.physical)
        return 3; /* no device, or no validation layer */
    return done && worst < 1e-5 && app.messages == 0 ? 0 : 1;
}
