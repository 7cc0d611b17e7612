/* Names of statuses, and the log: one sentence, kept, cut and handed on. SPDX-License-Identifier:
 * MIT
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "core/status.h"
#include "test_program.h"

static void names(void **state)
{
    (void)state;
    for (int a = 0; a < VKA_STATUS_COUNT; a++) {
        const char *name = vka_status_name((enum vka_status)a);
        assert_memory_equal(name, "VKA_", 4);
        assert_ptr_equal(name, vka_status_name((enum vka_status)a));
        for (int b = 0; b < a; b++)
            assert_string_not_equal(name, vka_status_name((enum vka_status)b));
    }
    assert_string_equal(vka_status_name(VKA_OK), "VKA_OK");
    assert_string_equal(vka_status_name(VKA_TIMEOUT), "VKA_TIMEOUT");
    assert_string_equal(vka_status_name(VKA_INTERNAL), "VKA_INTERNAL");
    assert_string_equal(vka_status_name(VKA_STATUS_COUNT), "unknown status");
    assert_string_equal(vka_status_name((enum vka_status) - 1), "unknown status");
}

struct heard {
    int calls;
    enum vka_log_level level;
    char text[1024];
};

static void listen(void *user, enum vka_log_level level, const char *message)
{
    struct heard *heard = user;
    heard->calls++;
    heard->level = level;
    snprintf(heard->text, sizeof heard->text, "%s", message);
}

static void error_is_kept_and_logged(void **state)
{
    (void)state;
    struct heard heard = {0};
    struct log log = {.callback = listen, .user = &heard};
    assert_int_equal(log_error(&log, VKA_TIMEOUT, "waited %d s for %s", 3, "this"), VKA_TIMEOUT);
    assert_string_equal(log.error, "waited 3 s for this");
    assert_string_equal(heard.text, log.error);
    assert_int_equal(heard.level, VKA_LOG_ERROR);
    assert_int_equal(heard.calls, 1);
    log_message(&log, VKA_LOG_WARNING, "half of %u", 8u);
    assert_string_equal(heard.text, "half of 8");
    assert_int_equal(heard.level, VKA_LOG_WARNING);
    assert_int_equal(heard.calls, 2);
    assert_string_equal(log.error, "waited 3 s for this");
}

static void error_may_quote_the_last_one(void **state)
{
    (void)state;
    struct log log = {0};
    log_error(&log, VKA_INVALID, "rank is 0");
    assert_int_equal(log_error(&log, VKA_INVALID, "layer: %s (again: %s)", log.error, log.error),
                     VKA_INVALID);
    assert_string_equal(log.error, "layer: rank is 0 (again: rank is 0)");
}

static void long_sentences_are_cut(void **state)
{
    (void)state;
    struct heard heard = {0};
    struct log log = {.callback = listen, .user = &heard};
    char line[700];
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    log_error(&log, VKA_IO, "%s", line);
    assert_int_equal(strlen(log.error), sizeof log.error - 1);
    assert_int_equal(strspn(log.error, "x"), sizeof log.error - 1);
    assert_string_equal(heard.text, log.error);
    log_message(&log, VKA_LOG_INFO, "%s", line);
    assert_int_equal(strlen(heard.text), sizeof log.error - 1);
}

static void silence_without_a_callback(void **state)
{
    (void)state;
    struct log log = {0};
    log_message(&log, VKA_LOG_INFO, "nobody hears this");
    assert_string_equal(log.error, "");
    log_error(&log, VKA_INVALID, "but this is kept");
    assert_string_equal(log.error, "but this is kept");
}

/* The macros leave through the label with the status of what failed first. */
static enum vka_status step(struct log *log, int argument, enum vka_status inner, void *pointer,
                            int *reached)
{
    enum vka_status status = VKA_OK;
    CHECK_ARG(argument > 0, "%s: argument is %d", __func__, argument);
    *reached = 1;
    TRY(inner);
    *reached = 2;
    CHECK_ALLOC(pointer);
    *reached = 3;
fail:
    return status;
}

static void macros(void **state)
{
    (void)state;
    struct log log = {0};
    int reached = 0;
    assert_int_equal(step(&log, 0, VKA_OK, &log, &reached), VKA_INVALID);
    assert_int_equal(reached, 0);
    assert_string_equal(log.error, "step: argument is 0");
    assert_int_equal(step(&log, 1, VKA_UNSUPPORTED, &log, &reached), VKA_UNSUPPORTED);
    assert_int_equal(reached, 1);
    assert_string_equal(log.error, "step: argument is 0");
    assert_int_equal(step(&log, 1, VKA_OK, NULL, &reached), VKA_OUT_OF_HOST_MEMORY);
    assert_int_equal(reached, 2);
    assert_string_equal(log.error, "step: out of host memory");
    assert_int_equal(step(&log, 1, VKA_OK, &log, &reached), VKA_OK);
    assert_int_equal(reached, 3);
}

TEST_PROGRAM(status)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(error_is_kept_and_logged),
        cmocka_unit_test(error_may_quote_the_last_one),
        cmocka_unit_test(long_sentences_are_cut),
        cmocka_unit_test(silence_without_a_callback),
        cmocka_unit_test(macros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
