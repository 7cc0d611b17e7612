/* Each operation's example gives its answer, whole and cut as far as it can be, on the device as it
 * is and with the least that an application may leave it. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "example.h"
#include "layers/layer_case.h"
#include "test_program.h"

/* Runs all examples; *n_pass: passes of their plans together. */
static void run_all(struct vka_device *device, const struct vka_plan_info *info, size_t *n_pass)
{
    size_t n_wrong = 0;
    *n_pass = 0;
    for (size_t i = 0; i < N_EXAMPLE; i++) {
        const struct field *wrong = NULL;
        size_t n;
        enum vka_status status = example_run(device, &examples[i], info, &wrong, &n);
        if (status != VKA_OK)
            print_error("%s: %s\n", examples[i].name, vka_device_error(device));
        else if (wrong)
            print_error("%s: %s is wrong\n", examples[i].name, wrong->name);
        n_wrong += status != VKA_OK || wrong;
        *n_pass += n;
    }
    assert_int_equal(n_wrong, 0);
}

/* Whole, and with the least budget of a submit and workspace, which cut each operation into more
 * passes than it has. */
static void run_both(const struct vka_device_info *info)
{
    struct vka_device *device = NULL;
    size_t whole, cut;
    assert_int_equal(vka_device_create(info, &device), VKA_OK);
    run_all(device, NULL, &whole);
    run_all(device, VKA_INFO(vka_plan_info, .submit_budget = 1, .workspace_limit = 1), &cut);
    print_message("%zu passes, cut into %zu\n", whole, cut);
    assert_true(whole >= N_EXAMPLE && cut > 2 * whole);
    vka_device_destroy(&device);
}

static void answers(void **state)
{
    (void)state;
    run_both(NULL);
}

static void least_limits(void **state)
{
    (void)state;
    run_both(VKA_INFO(vka_device_info, .max_buffer_range = 65536, .max_allocation = 1 << 20,
                      .max_shared_memory = 4096, .no_mapped_memory = true, .no_timeline = true));
}

TEST_PROGRAM(examples)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers), cmocka_unit_test(least_limits)};
    if (!have_device("the examples of operations"))
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
