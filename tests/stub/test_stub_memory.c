/* Memory on the stub's devices whose heaps and allocations are soon at their end: what there is, is
 * found. The tensors are only touched at one end, so that they cost the machine nothing.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <vkattn/vkattn.h>

#define MIB (1u << 20)
#define MOST 6000 /* tensors */

static struct vka_device *device;
static struct vka_tensor *tensors[MOST];
static size_t n_tensor, n_error;

static void count_errors(void *user, enum vka_log_level level, const char *message)
{
    (void)user, (void)message;
    n_error += level == VKA_LOG_ERROR;
}

static void open_device(const char *name)
{
    n_tensor = n_error = 0;
    assert_int_equal(vka_device_create(VKA_INFO(vka_device_info, .device = name,
                                                .skip_self_test = true, .log = count_errors),
                                       &device),
                     VKA_OK);
}

/* A tensor of so many MiB in rows of 256 bytes. */
static enum vka_status add(uint32_t mib)
{
    const uint32_t shape[] = {mib * (MIB / 256), 256 / sizeof(float)};
    assert_in_range(n_tensor, 0, MOST - 1);
    return vka_tensor_create(device, VKA_F32, 2, shape, &tensors[n_tensor++]);
}

static void drop(size_t i)
{
    vka_tensor_destroy(&tensors[i]);
}

static void close_device(void)
{
    for (size_t i = 0; i < n_tensor; i++)
        drop(i);
    vka_device_destroy(&device);
}

/* The last row of a tensor keeps what is written there. */
static void check_row(struct vka_tensor *tensor)
{
    float written[64], read[64] = {0};
    struct vka_tensor *row = NULL;
    const uint32_t last = vka_tensor_shape(tensor, 0) - 1;
    for (int i = 0; i < 64; i++)
        written[i] = (float)i;
    assert_int_equal(vka_tensor_slice(tensor, 0, last, 1, &row), VKA_OK);
    assert_int_equal(vka_tensor_write(row, written, sizeof written), VKA_OK);
    assert_int_equal(vka_tensor_read(row, read, sizeof read), VKA_OK);
    assert_memory_equal(written, read, sizeof read);
    vka_tensor_destroy(&row);
}

/* The stub takes 4,096 allocations, as most drivers do, and ends the process at one more. */
static void many_tensors(void **state)
{
    (void)state;
    open_device("stub large");
    for (int i = 0; i < MOST; i++)
        assert_int_equal(add(17), VKA_OK);
    check_row(tensors[MOST - 1]);
    assert_int_equal(n_error, 0);
    close_device();
}

/* An integrated GPU with 512 MiB of its own goes on in the machine's memory. */
static void little_memory_of_its_own(void **state)
{
    (void)state;
    open_device("stub carved");
    for (int i = 0; i < 4; i++) {
        assert_int_equal(add(400), VKA_OK);
        check_row(tensors[i]);
    }
    assert_int_equal(add(2047), VKA_OK);
    assert_int_equal(n_error, 0);
    assert_int_equal(add(2049), VKA_UNSUPPORTED); /* maxBufferSize */
    close_device();
}

/* A tensor of 1 MiB usually begins a block of 64. The heap has 261,120 MiB, and first 3,135 are left
 * with that block, then 32: an empty block is given back, and a smaller one is made. */
static void last_bytes(void **state)
{
    (void)state;
    open_device("stub varying");
    assert_int_equal(add(1), VKA_OK);
    drop(0); /* its block is kept */
    for (int i = 0; i < 63; i++)
        assert_int_equal(add(4095), VKA_OK);
    assert_int_equal(add(3103), VKA_OK);
    assert_int_equal(add(1), VKA_OK);
    check_row(tensors[n_tensor - 1]);
    assert_int_equal(n_error, 0); /* nothing is told of what was made good */
    assert_int_equal(add(100), VKA_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(n_error, 1);
    assert_non_null(strstr(vka_device_error(device), "vkAllocateMemory"));
    drop(5);
    assert_int_equal(add(100), VKA_OK);
    check_row(tensors[n_tensor - 1]);
    close_device();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_tensors),
        cmocka_unit_test(little_memory_of_its_own),
        cmocka_unit_test(last_bytes),
    };
    setenv("VKATTN_STUB", "large,varying,carved", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
