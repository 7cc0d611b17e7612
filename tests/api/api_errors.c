#include "api_errors.h"

#include <ctype.h>
#include <stdlib.h>

static void listen(void *user, enum vka_log_level level, const char *message)
{
    struct world *w = user;
    if (level != VKA_LOG_ERROR)
        return;
    w->heard_count++;
    snprintf(w->heard, sizeof w->heard, "%s", message);
}

static struct vka_layer *create_layer(struct vka_device *device)
{
    static const float weights[4 * 8 * 28];
    struct vka_layer *layer = NULL;
    const struct vka_linear_weights zeros = {weights, weights};
    assert_int_equal(
        vka_layer_create(device,
                         VKA_INFO(vka_layer_info, .n_head = 4, .n_kv_head = 2, .head_dim = 8,
                                  .value_dim = 6, .query_dim = 24, .key_dim = 20,
                                  .value_input_dim = 28, .output_dim = 16, .query = zeros,
                                  .key = zeros, .value = zeros, .output = zeros),
                         &layer),
        VKA_OK);
    return layer;
}

int world_create(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    *state = w;
    assert_int_equal(
        vka_device_create(VKA_INFO(vka_device_info, .log = listen, .log_user = w,
                                   .max_buffer_range = 65536, .max_allocation = 1u << 20),
                          &w->device),
        VKA_OK);
    assert_int_equal(vka_device_create(NULL, &w->other), VKA_OK);
    w->layer = create_layer(w->device);
    w->foreign = create_layer(w->other);
    assert_int_equal(vka_cache_create(w->device,
                                      VKA_INFO(vka_cache_info, .batch = 2, .n_kv_head = 2,
                                               .head_dim = 8, .value_dim = 6, .capacity = 16),
                                      &w->cache),
                     VKA_OK);
    assert_int_equal(vka_plan_create(w->device, NULL, &w->plan), VKA_OK);
    assert_int_equal(vka_plan_add_linear(w->plan, VKA_INFO(vka_linear_op, .input = T(VKA_F32, 5, 3),
                                                           .weight = T(VKA_F32, 4, 3),
                                                           .output = T(VKA_F32, 5, 4))),
                     VKA_OK);
    return 0;
}

int world_destroy(void **state)
{
    struct world *w = *state;
    print_message("%u calls failed as they should\n", w->rows);
    for (size_t i = 0; i < w->n_temporary; i++)
        vka_tensor_destroy(&w->temporary[i]);
    vka_plan_destroy(&w->plan);
    vka_layer_destroy(&w->layer);
    vka_layer_destroy(&w->foreign);
    vka_cache_destroy(&w->cache);
    vka_device_destroy(&w->device);
    vka_device_destroy(&w->other);
    free(w);
    return 0;
}

struct vka_tensor *world_keep(struct world *w, struct vka_tensor *tensor)
{
    assert_non_null(tensor);
    assert_in_range(w->n_temporary, 0, MOST_TEMPORARIES - 1);
    w->temporary[w->n_temporary++] = tensor;
    return tensor;
}

struct vka_tensor *world_tensor(struct world *w, struct vka_device *device, enum vka_dtype dtype,
                                uint32_t rank, const uint32_t *shape)
{
    struct vka_tensor *tensor = NULL;
    assert_int_equal(vka_tensor_create(device, dtype, rank, shape, &tensor), VKA_OK);
    return world_keep(w, tensor);
}

struct vka_tensor *world_strided(struct world *w, struct vka_tensor *tensor, uint64_t offset,
                                 uint32_t rank, const uint32_t *shape, const uint64_t *strides)
{
    struct vka_tensor *view = NULL;
    assert_int_equal(vka_tensor_strided(tensor, offset, rank, shape, strides, &view), VKA_OK);
    return world_keep(w, view);
}

static bool in_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at++)
        if ((at == text || !in_name(at[-1])) && !in_name(at[length]))
            return true;
    return false;
}

void expect_begin(struct world *w)
{
    w->heard_count = 0;
    w->heard[0] = '\0';
    w->calls = (unsigned)vka_plan_describe(w->plan, w->before, sizeof w->before);
    assert_in_range(w->calls, 1, sizeof w->before - 1);
}

void expect_end(struct world *w, enum vka_status got, enum vka_status want, const char *word,
                int line)
{
    static char after[sizeof w->before];
    const char *said = vka_device_error(w->device);
    w->rows++;
    if (got != want)
        fail_msg("line %d: %s, not %s: %s", line, vka_status_name(got), vka_status_name(want),
                 said);
    vka_plan_describe(w->plan, after, sizeof after);
    if (strcmp(after, w->before) != 0)
        fail_msg("line %d: the plan's passes have changed", line);
    if (!word) {
        if (w->heard_count != 0)
            fail_msg("line %d: there is no device, but its log got: %s", line, w->heard);
        return;
    }
    if (w->heard_count != 1 || strcmp(w->heard, said) != 0)
        fail_msg("line %d: the log got %u sentences, the last \"%s\"; the error is \"%s\"", line,
                 w->heard_count, w->heard, said);
    size_t length = strlen(said);
    if (length < 10 || length > 300 || strchr(said, '\n') || said[length - 1] == '.')
        fail_msg("line %d: not a plain sentence: \"%s\"", line, said);
    if (!has_word(said, word))
        fail_msg("line %d: \"%s\" does not name %s", line, said, word);
}

struct vka_attention_op world_attention_op(struct world *w)
{
    return *VKA_INFO(vka_attention_op, .q = T(VKA_F32, 2, 4, 3, 8), .k = T(VKA_F32, 2, 2, 5, 8),
                     .v = T(VKA_F32, 2, 2, 5, 6), .output = T(VKA_F32, 2, 4, 3, 6));
}

void world_is_well(void **state)
{
    struct world *w = *state;
    assert_true(layer_check(w->device, &layer_plain, 9) <= LAYER_NMSE);
}

struct vka_layer_op world_layer_op(struct world *w)
{
    return *VKA_INFO(vka_layer_op, .layer = w->layer, .query = T(VKA_F32, 2, 3, 24),
                     .key = T(VKA_F32, 2, 5, 20), .value = T(VKA_F32, 2, 5, 28),
                     .output = T(VKA_F32, 2, 3, 16));
}
