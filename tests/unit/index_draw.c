#include "index_draw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "core/dtype.h"
#include "plan/plan.h"
#include "tune_devices.h"

struct vka_plan *new_plan(struct vka_device *device, bool count)
{
    struct vka_plan *plan = NULL;
    assert_int_equal(vka_plan_create(device,
                                     VKA_INFO(vka_plan_info, .submit_budget = VKA_NO_BUDGET,
                                              .count_nonfinite = count),
                                     &plan),
                     VKA_OK);
    return plan;
}

bool is_made(struct vka_device *device, enum vka_status status)
{
    if (status == VKA_OK)
        return true;
    assert_true(status == VKA_UNSUPPORTED || status == VKA_OUT_OF_DEVICE_MEMORY);
    assert_true(*vka_device_error(device) != '\0');
    return false;
}

void add_made(struct made *made, const struct vka_tensor *t)
{
    const uint64_t n = shape_count(&t->shape);
    made->n++;
    made->largest = n > made->largest ? n : made->largest;
}

void check_made(const struct made *made)
{
    assert_true(made->n > 50);
    assert_true(made->largest > 1ull << 32);
}

void draw_shape(uint32_t size[4], unsigned low, unsigned high)
{
    unsigned bits = low + below(high - low);
    for (int i = 0; i < 4; i++)
        size[i] = 1;
    for (unsigned b = 0; b < bits; b++) {
        uint32_t axis = below(4);
        size[axis] *= size[axis] < 1u << 31 ? 2 : 1;
    }
    for (int i = 0; i < 4; i++) /* no power of two */
        size[i] -= size[i] > 4 ? below(size[i] / 4) : 0;
}

struct vka_tensor *draw_tensor(struct vka_device *device, enum vka_dtype dtype,
                               const uint32_t size[4], bool read)
{
    struct vka_tensor *base = NULL, *view = NULL;
    uint64_t stride[4], all = 1;
    uint32_t first = below(4);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t axis = (first + i) % 4;
        bool shared = read && below(6) == 0;
        stride[axis] = shared ? 0 : all;
        all *= shared ? 1 : size[axis];
        all += below(8) == 0 ? below(1u << 20) : 0;
    }
    const uint32_t flat[2] = {(uint32_t)((all >> 20) + 1), 1u << 20};
    if (all * vka_dtype_size(dtype) > 63 * GIB)
        return NULL;
    assert_int_equal(vka_tensor_create(device, dtype, 2, flat, &base), VKA_OK);
    assert_int_equal(vka_tensor_strided(base, 0, 4, size, stride, &view), VKA_OK);
    vka_tensor_destroy(&base);
    return view;
}

void draw_plans(unsigned n, bool count, draw_plan *draw)
{
    struct made made = {0};
    for (unsigned i = 0; i < n; i++) {
        struct vka_device *device = &huge_devices[below(HUGE_DEVICES)];
        struct vka_plan *plan = new_plan(device, count);
        struct vka_tensor *t[4] = {NULL};
        draw(device, plan, t, &made);
        vka_plan_destroy(&plan);
        for (int j = 0; j < 4; j++)
            vka_tensor_destroy(&t[j]);
    }
    check_made(&made);
}
