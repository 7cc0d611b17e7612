#include "log_sum.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "patience.h"

void log_sum_check(struct vka_device *device, enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s", vka_status_name(status), vka_device_error(device));
}

void log_sum_run(struct vka_device *device, struct vka_plan **plan)
{
    log_sum_check(device, vka_plan_finish(*plan));
    log_sum_check(device, vka_plan_run(*plan, PATIENCE));
    vka_plan_destroy(plan);
}

struct vka_plan *log_sum_plan(struct vka_device *device, enum vka_path path)
{
    struct vka_plan *plan = NULL;
    log_sum_check(device, vka_plan_create(device, VKA_INFO(vka_plan_info, .path = path), &plan));
    return plan;
}

void log_sum_operand(struct vka_device *device, struct operand *o, enum vka_dtype dtype,
                     uint32_t rank, const uint32_t *size)
{
    const struct layout layout = layout_dense();
    log_sum_check(device, operand_create(device, dtype, rank, size, &layout, o));
}
