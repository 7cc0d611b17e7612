/* Gradients of causal convolutions: shapes x with all options or without any, with types drawn; each
 * gradient alone. */
#include "check_model.h"

#include "problems/conv_backward.h"

static enum vka_status add(struct vka_plan *plan, const void *op)
{
    return vka_plan_add_causal_conv_backward(plan, op);
}

/* A gradient of those that the kernel under test makes, alone. */
static void run_gradient(struct check *c, enum vka_status status, const struct conv_problem *p,
                         int gradient, struct operand *made)
{
    const bool of_rows = gradient == CONV_DX || gradient == CONV_DPAST;
    struct vka_causal_conv_backward_op op = p->op;
    struct vka_gradient *all[CONV_GRADIENTS] = {&op.input_gradient, &op.weight_gradient,
                                                &op.bias_gradient, &op.past_gradient};
    if (!made->view || of_rows != (c->kernel == KERNEL_conv_backward))
        return;
    for (int i = 0; i < CONV_GRADIENTS; i++)
        if (i != gradient)
            all[i]->tensor = NULL;
    model_check(c, status, add, &op, made, p->want[gradient], p->text);
}

static void run_case(struct check *c, const struct conv_sizes *sizes, uint32_t width, bool all)
{
    struct conv_kind kind = conv_kind_draw(&c->rng);
    struct conv_problem p = {.forward = {0}};
    kind.width = width;
    kind.bias = all || c->kernel == KERNEL_conv_backward_sums;
    kind.past = kind.present = all && width > 1;
    kind.lengths = all;
    const enum vka_status status = conv_problem_create(c->device, &c->rng, &kind, sizes, &p);
    for (int i = 0; i < CONV_GRADIENTS; i++)
        run_gradient(c, status, &p, i, &p.made[i]);
    conv_problem_destroy(&p);
}

void check_conv_backward(struct check *c)
{
    static const struct {
        struct conv_sizes sizes;
        uint32_t width;
    } cases[] = {
        {{1, 1, 1, 0}, 1},    {{2, 1, 130, 0}, 4},  {{3, 7, 5, 1}, 3},
        {{2, 130, 66, 0}, 4}, {{4, 33, 9, 1}, 16},  {{1, 300, 12, 7}, 4},
        {{3, 20, 33, 40}, 2}, {{2, 1100, 2, 1}, 4}, {{300, 3, 40, 0}, 4},
    };
    c->of_mean = true;
    for (size_t i = 0; i < COUNTOF(cases); i++)
        for (int all = 0; all < 2; all++)
            if (check_case(c))
                run_case(c, &cases[i].sizes, cases[i].width, all);
}

void bench_conv_backward(struct check *c)
{
    const uint32_t x_size[3] = {1, 512, 8192}, w_size[2] = {8192, 4};
    struct operand x = {0}, w = {0}, dw = {0}, y = {0}, dx = {0};
    enum vka_status status = model_halves(c, 3, x_size, 3, (struct operand *[]){&x, &y, &dx});
    if (status == VKA_OK)
        status = model_halves(c, 2, w_size, 2, (struct operand *[]){&w, &dw});
    const struct vka_causal_conv_op forward =
        *VKA_INFO(vka_causal_conv_op, .input = x.view, .weight = w.view, .output = dx.view);
    model_time(c, status, add,
               VKA_INFO(vka_causal_conv_backward_op, .forward = &forward, .output_gradient = y.view,
                        .input_gradient.tensor = dx.view, .weight_gradient.tensor = dw.view),
               4.0 * (double)x.count, "512x8192 f16, width 4");
    operand_destroy(&x);
    operand_destroy(&w);
    operand_destroy(&y);
    operand_destroy(&dx);
    operand_destroy(&dw);
}
