/* Tiles of attention's gradients, on devices and sizes drawn at random. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "gpu/pipeline.h"
#include "kernel/attention_backward.h"
#include "params.h"
#include "model.h"
#include "train.h"
#include "tune_devices.h"

/* What the shader takes for granted, and that all features of both results have a workgroup. */
static void check_tile(const struct caps *caps, const struct backward_choice *c, uint32_t stage)
{
    const struct backward_tile *t = &c->tiles[stage];
    const uint32_t own = backward_own(t), others = backward_others(t);
    assert_true(t->lanes_x * t->lanes_y <= caps->properties.max_workgroup);
    assert_true(tune_backward_shared(t, stage) <= caps->properties.max_shared_memory);
    assert_true(own > 0 && BACKWARD_UNIT % others == 0);
    assert_true(t->part % 4 == 0 && others % t->part == 0 && t->depth4 > 0);
    assert_true(t->n_chunk > 0);
    if (stage == BACKWARD_SUMS)
        assert_true(t->a4 == 0 && t->b4 == 0 && t->n_chunk == 1);
    else
        assert_true(t->a4 * t->n_chunk >= c->head4);
    if (stage == BACKWARD_KEYS)
        assert_true(t->b4 * t->n_chunk >= c->value4);
    /* Sums that no register file holds would lie in memory. */
    const uint32_t sums =
        (t->a4 + t->lanes_x - 1) / t->lanes_x + (t->b4 + t->lanes_x - 1) / t->lanes_x;
    assert_true(sums * t->rows <= 16);
    assert_true(!caps->max_loops || tune_backward_loops(c, stage) <= caps->max_loops);
}

static void tiles(void **state)
{
    (void)state;
    struct caps devices[TUNE_DEVICES];
    unsigned usable = 0, chunked = 0;
    tune_devices(devices);
    for (size_t d = 0; d < TUNE_DEVICES; d++)
        for (int i = 0; i < 3000; i++) {
            const struct caps caps = vary(&devices[d]);
            struct backward_choice c;
            tune_attention_backward(&caps, any_size(11), any_size(11), &c);
            assert_non_null(c.reason);
            for (uint32_t stage = 0; stage < BACKWARD_STAGES && c.usable; stage++) {
                check_tile(&caps, &c, stage);
                chunked += c.tiles[stage].n_chunk > 1;
            }
            usable += c.usable;
        }
    assert_true(usable > 3000 && chunked > 1000);
}

/* GPUs take the kernel where they can; CPU drivers, which pay for barriers, take products. */
static void preferred(void **state)
{
    (void)state;
    struct backward_choice c;
    struct caps caps = discrete;
    tune_attention_backward(&caps, 64, 64, &c);
    assert_true(c.usable && c.preferred);
    caps.without = UINT64_C(1) << KERNEL_attention_backward;
    tune_attention_backward(&caps, 64, 64, &c);
    assert_false(c.usable);
    caps = cpu(8);
    tune_attention_backward(&caps, 64, 64, &c);
    assert_false(c.preferred);
    caps = discrete;
    tune_attention_backward(&caps, TUNE_CHAIN + 1, 64, &c);
    assert_false(c.usable);
    caps.max_bindings = 8;
    tune_attention_backward(&caps, 64, 64, &c);
    assert_false(c.usable);
    assert_string_equal(c.reason, "needs more storage buffers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiles), cmocka_unit_test(preferred)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
