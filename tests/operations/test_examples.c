/* Each operation's example gives its answer. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "example.h"
#include "layers/layer_case.h"
#include "test_program.h"

static void answers(void **state)
{
    struct vka_device *device = *state;
    size_t n_wrong = 0;
    for (size_t i = 0; i < N_EXAMPLE; i++) {
        const struct field *wrong = NULL;
        enum vka_status status = example_run(device, &examples[i], &wrong);
        if (status != VKA_OK)
            print_error("%s: %s\n", examples[i].name, vka_device_error(device));
        else if (wrong)
            print_error("%s: %s is wrong\n", examples[i].name, wrong->name);
        n_wrong += status != VKA_OK || wrong;
    }
    assert_int_equal(n_wrong, 0);
}

static int open_device(void **state)
{
    return vka_device_create(NULL, (struct vka_device **)state) != VKA_OK;
}

static int close_device(void **state)
{
    vka_device_destroy((struct vka_device **)state);
    return 0;
}

TEST_PROGRAM(examples)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers)};
    if (!have_device("the examples of operations"))
        return 77;
    return cmocka_run_group_tests(tests, open_device, close_device);
}
