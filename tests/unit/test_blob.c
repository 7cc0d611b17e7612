/* Files of pipeline caches: results of self-tests come back, and no changed byte is taken for one.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "gpu/blob.h"
#include "mutated.h"
#include "test_program.h"

#define DRIVER_BYTES 100

static struct vka_device device;

static void VKAPI_CALL get_properties(VkPhysicalDevice physical, VkPhysicalDeviceProperties *p)
{
    (void)physical;
    *p = (VkPhysicalDeviceProperties){.vendorID = 0x1002, .deviceID = 7};
    memset(p->pipelineCacheUUID, 0x5a, VK_UUID_SIZE);
}

/* A device of this driver that has tested no kernel. */
static void open_device(void)
{
    memset(&device, 0, sizeof device);
    device.instance.vkGetPhysicalDeviceProperties = get_properties;
}

/* A file of a device whose last kernel failed its self-test, and whose first one passed. */
static void write_blob(unsigned char blob[DRIVER_BYTES + BLOB_TAIL])
{
    VkPipelineCacheHeaderVersionOne header = {
        .headerSize = sizeof header,
        .headerVersion = VK_PIPELINE_CACHE_HEADER_VERSION_ONE,
        .vendorID = 0x1002,
        .deviceID = 7,
    };
    memset(header.pipelineCacheUUID, 0x5a, VK_UUID_SIZE);
    for (size_t i = 0; i < DRIVER_BYTES; i++)
        blob[i] = (unsigned char)(7 * i);
    memcpy(blob, &header, sizeof header);
    open_device();
    device.caps.kernels[0] = KERNEL_RIGHT;
    device.caps.kernels[KERNEL_COUNT - 1] = KERNEL_WRONG;
    blob_write_tail(&device, blob, DRIVER_BYTES);
}

/* What is refused leaves all kernels untested. */
static bool read_mutated(const unsigned char *bytes, size_t size)
{
    open_device();
    const size_t of_driver = blob_read(&device, bytes, size);
    for (int k = 0; k < KERNEL_COUNT; k++) {
        const enum kernel_state tested = k == 0                  ? KERNEL_RIGHT
                                         : k == KERNEL_COUNT - 1 ? KERNEL_WRONG
                                                                 : KERNEL_UNTESTED;
        assert_int_equal(device.caps.kernels[k], of_driver ? tested : KERNEL_UNTESTED);
    }
    assert_true(of_driver == 0 || of_driver == DRIVER_BYTES);
    return of_driver != 0;
}

static void mutated(void **state)
{
    unsigned char blob[DRIVER_BYTES + BLOB_TAIL];
    (void)state;
    write_blob(blob);
    check_cuts(blob, sizeof blob, read_mutated);
    check_mutants(blob, sizeof blob, &(struct mutants){.least_refused = 255 * sizeof blob},
                  read_mutated);
}

/* Another version of a driver takes the bytes of the cache, which it checks itself, and no results. */
static void another_device(void **state)
{
    unsigned char blob[DRIVER_BYTES + BLOB_TAIL];
    (void)state;
    write_blob(blob);
    open_device();
    device.caps.properties.driver_version = 1;
    assert_int_equal(blob_read(&device, blob, sizeof blob), DRIVER_BYTES);
    for (int k = 0; k < KERNEL_COUNT; k++)
        assert_int_equal(device.caps.kernels[k], KERNEL_UNTESTED);
}

TEST_PROGRAM(blob)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(mutated), cmocka_unit_test(another_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
