/* Devices: how they are chosen, what lowered limits and other ways to wait and copy change (nothing
 * in a result), pipeline caches, and two devices at once. SPDX-License-Identifier: MIT */
#include <ctype.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/status.h"
#include "gpu/kernel_set.h"
#include "layers/layer_case.h"
#include "test_program.h"
#include "problems/rng.h"

static struct vka_device *open_device(const struct vka_device_info *info)
{
    struct vka_device *device = NULL;
    assert_int_equal(vka_device_create(info, &device), VKA_OK);
    assert_non_null(device);
    return device;
}

struct heard {
    int errors;
    char last[1024];
};

static void listen(void *user, enum vka_log_level level, const char *message)
{
    struct heard *heard = user;
    if (level == VKA_LOG_ERROR)
        heard->errors++;
    snprintf(heard->last, sizeof heard->last, "%s", message);
}

/* ---- Choosing -------------------------------------------------------------------------------- */

static void refused(const char *name)
{
    struct heard heard = {0};
    struct vka_device *device = (struct vka_device *)&heard;
    assert_int_equal(
        vka_device_create(
            VKA_INFO(vka_device_info, .device = name, .log = listen, .log_user = &heard), &device),
        VKA_NO_DEVICE);
    assert_null(device);
    assert_int_equal(heard.errors, 1);
    assert_non_null(strstr(heard.last, name));
}

static void by_index_and_name(void **state)
{
    (void)state;
    struct vka_device_properties list[16];
    size_t n = 0, room = COUNTOF(list);
    assert_int_equal(vka_device_list(NULL, NULL, &n), VKA_OK);
    assert_int_equal(vka_device_list(NULL, list, &room), VKA_OK);
    assert_int_equal(room, n);
    for (size_t i = 0; i < n && i < COUNTOF(list); i++) {
        char text[sizeof list->name];
        snprintf(text, sizeof text, "%zu", i);
        assert_int_equal(list[i].index, i);
        assert_true(list[i].name[0] && list[i].type < VKA_DEVICE_TYPE_COUNT);
        struct vka_device *device = open_device(VKA_INFO(vka_device_info, .device = text));
        assert_string_equal(vka_device_properties(device)->name, list[i].name);
        assert_int_equal(vka_device_properties(device)->index, i);
        vka_device_destroy(&device);
        assert_null(device);

        /* The name without its ends, every letter in the other case. */
        size_t length = strlen(list[i].name);
        size_t cut = length > 2 ? 1 : 0;
        for (size_t c = cut; c + cut < length; c++) {
            int letter = (unsigned char)list[i].name[c];
            text[c - cut] = (char)(islower(letter) ? toupper(letter) : tolower(letter));
        }
        text[length - 2 * cut] = '\0';
        device = open_device(VKA_INFO(vka_device_info, .device = text));
        assert_string_equal(vka_device_properties(device)->name, list[i].name);
        vka_device_destroy(&device);
    }
    refused("no device has such a name");
    refused("4294967295");
    char past[32];
    snprintf(past, sizeof past, "%zu", n);
    refused(past);
}

static void list_takes_less(void **state)
{
    (void)state;
    struct vka_device_properties one[2];
    size_t n = 0, room = 1;
    assert_int_equal(vka_device_list(NULL, NULL, &n), VKA_OK);
    memset(one, 0x5a, sizeof one);
    assert_int_equal(vka_device_list(NULL, one, &room), VKA_OK);
    assert_int_equal(room, n); /* how many there are, whatever the room */
    assert_int_equal(one[0].index, 0);
    assert_int_equal((unsigned char)one[1].name[0], 0x5a);
}

static void log_and_error_agree(void **state)
{
    (void)state;
    struct heard heard = {0};
    struct vka_tensor *tensor = NULL;
    struct vka_device *device =
        open_device(VKA_INFO(vka_device_info, .log = listen, .log_user = &heard));
    assert_int_equal(heard.errors, 0);
    assert_string_equal(vka_device_error(device), "");
    assert_int_equal(vka_tensor_create(device, VKA_F32, 0, NULL, &tensor), VKA_INVALID);
    assert_int_equal(heard.errors, 1);
    assert_string_equal(heard.last, vka_device_error(device));
    const uint32_t shape = 1;
    assert_int_equal(vka_tensor_create(device, VKA_F32, 1, &shape, &tensor), VKA_OK);
    assert_int_equal(heard.errors, 1); /* success says nothing, and keeps the last sentence */
    assert_string_equal(heard.last, vka_device_error(device));
    vka_tensor_destroy(&tensor);
    vka_device_destroy(&device);
}

/* ---- Options that change how, not what ------------------------------------------------------- */

/* Queries in several tiles, scores of 1.5 MiB, and no weight of more than 65536 bytes, which no
 * plan could cut. */
static const struct layer_case moderate = {
    .name = "moderate",
    .batch = 2,
    .n_q = 155,
    .n_head = 8,
    .head_dim = 12,
    .query_dim = 96,
    .biases = BIAS_ALL,
    .causal = true,
};

/* Which kernels a plan uses. */
static struct kernel_set kernels_of(struct vka_device *device, struct vka_plan *plan)
{
    struct kernel_set used = NO_KERNELS;
    for (size_t i = 0; i < vka_plan_pass_count(plan); i++) {
        struct vka_pass_info pass;
        struct vka_kernel_info kernel;
        assert_int_equal(vka_plan_pass(plan, i, &pass), VKA_OK);
        for (size_t k = 0; k < vka_kernel_count(); k++) {
            assert_int_equal(vka_device_kernel(device, k, &kernel), VKA_OK);
            if (strcmp(kernel.name, pass.kernel) == 0)
                set_add(&used, k);
        }
    }
    assert_false(set_is_empty(used));
    return used;
}

#define MODERATE_FLOATS (2 * 155 * 96)

struct outcome {
    float output[MODERATE_FLOATS];
    struct kernel_set kernels;
    size_t n_pass;
};

static void compute(const struct vka_device_info *info, enum vka_path path, struct outcome *outcome)
{
    struct layer_rig rig;
    struct vka_device *device = open_device(info);
    const struct vka_device_properties *p = vka_device_properties(device);
    assert_true(!info || !info->no_mapped_memory || !p->mapped_memory);
    assert_true(!info || !info->no_timeline || !p->timeline);
    if (info && info->max_buffer_range)
        assert_in_range(p->max_buffer_range, 1, info->max_buffer_range);
    if (info && info->max_allocation)
        assert_in_range(p->max_allocation, 1, info->max_allocation);
    if (info && info->max_shared_memory)
        assert_in_range(p->max_shared_memory, 1, info->max_shared_memory);
    rig_create(&rig, device, &moderate, 5);
    assert_int_equal(rig_count(&rig), MODERATE_FLOATS);
    struct vka_plan *plan = rig_plan(&rig, VKA_INFO(vka_plan_info, .path = path));
    assert_true(rig_run(&rig, plan) <= LAYER_NMSE);
    rig_read(&rig, outcome->output);
    outcome->kernels = kernels_of(device, plan);
    outcome->n_pass = vka_plan_pass_count(plan);
    vka_plan_destroy(&plan);
    rig_destroy(&rig);
    vka_device_destroy(&device);
}

static void same_bits(void **state)
{
    (void)state;
    static struct outcome usual, lowered;
    static const struct vka_device_info rows[] = {
        {.struct_size = sizeof *rows},
        {.struct_size = sizeof *rows, .no_timeline = true},
        {.struct_size = sizeof *rows, .no_mapped_memory = true},
        {.struct_size = sizeof *rows, .labels = true},
        {.struct_size = sizeof *rows, .max_buffer_range = 65536},
        {.struct_size = sizeof *rows, .max_allocation = 1u << 20},
        {.struct_size = sizeof *rows, .max_shared_memory = 4096},
        {.struct_size = sizeof *rows,
         .no_timeline = true,
         .no_mapped_memory = true,
         .max_buffer_range = 65536,
         .max_allocation = 1u << 20,
         .max_shared_memory = 4096},
    };
    static const enum vka_path paths[] = {VKA_PATH_AUTO, VKA_PATH_UNFUSED};
    unsigned compared = 0;
    for (size_t path = 0; path < COUNTOF(paths); path++) {
        compute(NULL, paths[path], &usual);
        for (size_t i = 0; i < COUNTOF(rows); i++) {
            compute(&rows[i], paths[path], &lowered);
            if (rows[i].max_buffer_range)
                assert_true(lowered.n_pass > usual.n_pass); /* it was cut indeed */
            if (rows[i].max_shared_memory || !set_is_equal(lowered.kernels, usual.kernels))
                continue; /* other tiles, another order of sums */
            compared++;
            if (memcmp(lowered.output, usual.output, sizeof usual.output))
                fail_msg("options %zu, path %zu: other bits with the same kernels", i, path);
        }
    }
    assert_in_range(compared, 5, UINT32_MAX);
}

/* ---- The pipeline cache ---------------------------------------------------------------------- */

static void *get_cache(struct vka_device *device, size_t *size)
{
    *size = 0;
    assert_int_equal(vka_device_pipeline_cache(device, NULL, size), VKA_OK);
    assert_true(*size > 0);
    void *blob = malloc(*size);
    assert_non_null(blob);
    assert_int_equal(vka_device_pipeline_cache(device, blob, size), VKA_OK);
    return blob;
}

/* A device must work with the blob, whatever it is. */
static void works_with(const void *blob, size_t size)
{
    struct heard heard = {0};
    struct vka_device *device =
        open_device(VKA_INFO(vka_device_info, .pipeline_cache = blob, .pipeline_cache_size = size,
                             .log = listen, .log_user = &heard));
    assert_true(layer_check(device, &layer_plain, 3) <= LAYER_NMSE);
    assert_int_equal(heard.errors, 0);
    vka_device_destroy(&device);
}

static void pipeline_cache(void **state)
{
    (void)state;
    struct vka_device *device = open_device(NULL);
    assert_true(layer_check(device, &layer_plain, 3) <= LAYER_NMSE);
    size_t size, less;
    uint8_t *blob = get_cache(device, &size);
    less = size - 1;
    assert_int_equal(vka_device_pipeline_cache(device, blob, &less), VKA_INVALID);
    vka_device_destroy(&device);

    works_with(blob, size);
    const size_t cuts[] = {1, 4, 16, 31, 32, size / 2, size - 1};
    for (size_t i = 0; i < COUNTOF(cuts); i++)
        if (cuts[i] <= size)
            works_with(blob, cuts[i]);
    for (size_t byte = 0; byte < 32; byte += 3) { /* another driver, device or version */
        blob[byte] ^= 0x40;
        works_with(blob, size);
        blob[byte] ^= 0x40;
    }
    struct rng rng = {11};
    uint8_t garbage[4096];
    for (size_t i = 0; i < sizeof garbage; i++)
        garbage[i] = (uint8_t)rng_next(&rng);
    works_with(garbage, sizeof garbage);
    memset(garbage, 0, sizeof garbage);
    works_with(garbage, sizeof garbage);
    works_with(garbage, 0);
    free(blob);
}

/* ---- Two devices, two threads ---------------------------------------------------------------- */

struct worker {
    uint64_t seed;
    double worst; /* NMSE */
};

/* A cmocka assertion that fails on such a thread ends the program, which fails the test. */
static void *work(void *argument)
{
    struct worker *worker = argument;
    struct layer_rig rig;
    struct vka_device *device = open_device(NULL);
    rig_create(&rig, device, &layer_plain, worker->seed);
    for (int i = 0; i < 5; i++) {
        struct vka_plan *plan = rig_plan(&rig, NULL);
        for (int run = 0; run < 5; run++) {
            double error = rig_run(&rig, plan);
            worker->worst = error > worker->worst ? error : worker->worst;
        }
        vka_plan_destroy(&plan);
    }
    rig_destroy(&rig);
    vka_device_destroy(&device);
    return argument;
}

static void two_threads(void **state)
{
    (void)state;
    pthread_t threads[2];
    struct worker workers[2] = {{.seed = 61}, {.seed = 62}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (int i = 0; i < 2; i++) {
        void *done = NULL;
        assert_int_equal(pthread_join(threads[i], &done), 0);
        assert_ptr_equal(done, &workers[i]);
        assert_true(workers[i].worst > 0 && workers[i].worst <= LAYER_NMSE);
    }
}

TEST_PROGRAM(runtime)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_index_and_name),   cmocka_unit_test(list_takes_less),
        cmocka_unit_test(log_and_error_agree), cmocka_unit_test(same_bits),
        cmocka_unit_test(pipeline_cache),      cmocka_unit_test(two_threads),
    };
    if (!have_device("making devices"))
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
