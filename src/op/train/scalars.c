/* Numbers that training needs once a step: means, corrections, factors. */
#include "op/train/scalars.h"
#include "plan/settle.h"

#include <stdio.h>

enum vka_status plan_scalar_scratch(struct vka_plan *plan, uint32_t n, struct vka_tensor *tensor)
{
    return plan_scratch(plan, VKA_F32, (const uint32_t[]){1, 1, 1, n}, tensor);
}

enum vka_status plan_scalars(struct vka_plan *plan, const struct scalars *op)
{
    struct scalars_params p = op->params;
    struct pass pass = {.name = op->name, .reason = "one invocation"};
    ENSURE(plan_settle_kernel(plan, KERNEL_scalars));
    pass.key = (struct pipeline_key){.kernel = KERNEL_scalars, .n_spec = SCALARS_SPECS};
    pass.key.spec[SCALARS_KIND] = op->kind;
    pass.key.spec[SCALARS_FACTOR] = op->factor;
    plan_bind(plan, &pass, 0, op->x ? op->x : op->y ? op->y : op->z, false, &p.x_offset);
    /* What is absent is what is written: the kernel declares both as written. */
    plan_bind(plan, &pass, 1, op->y ? op->y : op->z, true, &p.y_offset);
    plan_bind(plan, &pass, 2, op->z ? op->z : op->y, true, &p.z_offset);
    pass_set_push(&pass, &p, sizeof p);
    pass.groups[0] = pass.groups[1] = pass.groups[2] = 1;
    pass.work = (struct work){1, 1, 16};
    snprintf(pass.detail, sizeof pass.detail, "kind %u", op->kind);
    return plan_add_pass(plan, &pass);
}
