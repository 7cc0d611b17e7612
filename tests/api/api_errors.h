/* Calls that must fail: each returns its documented status, makes nothing, and leaves one sentence
 * that names the argument, both for vka_device_error and for the log. */
#ifndef TESTS_API_ERRORS_H
#define TESTS_API_ERRORS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "core/status.h"
#include "layers/layer_case.h"

#define MOST_TEMPORARIES 4096

struct world {
    struct vka_device *device; /* the largest binding is 65536 bytes, an allocation 1 MiB */
    struct vka_device *other;  /* for tensors of another device */
    struct vka_plan *plan;     /* unfinished, with one operation */
    struct vka_layer *layer;   /* 4 heads, of 2 key heads; widths 24, 20, 28 to 16 */
    struct vka_layer *foreign; /* a layer of the other device */
    struct vka_cache *cache;   /* for the attention of test_api_errors_attention.c */
    struct vka_tensor *temporary[MOST_TEMPORARIES];
    size_t n_temporary;
    char before[16384]; /* the plan, before a call */
    char heard[1024];   /* the log's last sentence */
    unsigned calls, heard_count, rows;
};

int world_create(void **state);
int world_destroy(void **state);

/* Tensors that live as long as the world. */
struct vka_tensor *world_tensor(struct world *w, struct vka_device *device, enum vka_dtype dtype,
                                uint32_t rank, const uint32_t *shape);
struct vka_tensor *world_keep(struct world *w, struct vka_tensor *tensor);

/* Rank-1 to rank-4 views with the given strides from an offset, in elements. */
struct vka_tensor *world_strided(struct world *w, struct vka_tensor *tensor, uint64_t offset,
                                 uint32_t rank, const uint32_t *shape, const uint64_t *strides);

#define RANK(...) (sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
/* T(VKA_F32, 2, 3): a tensor [2][3]. FOREIGN: the same on the other device. */
#define T(dtype, ...) \
    world_tensor(w, w->device, dtype, RANK(__VA_ARGS__), (uint32_t[]){__VA_ARGS__})
#define FOREIGN(dtype, ...) \
    world_tensor(w, w->other, dtype, RANK(__VA_ARGS__), (uint32_t[]){__VA_ARGS__})

/* An operation on the world's layer that is right: batch 2, 3 queries, 5 keys. */
struct vka_layer_op world_layer_op(struct world *w);

/* Attention that is right: batch 2, 4 heads on 2 key heads, 3 queries, 5 keys, widths 8 and 6. */
struct vka_attention_op world_attention_op(struct world *w);

/* A test, the last one: the device is as it was. */
void world_is_well(void **state);

/* Sizes of an info struct that this library does not know. */
#define WRONG_SIZES(type)                                             \
    {                                                                 \
        0, sizeof(struct type) - 1, sizeof(struct type) + 8, SIZE_MAX \
    }

/* Before a call that must fail, and after it: word is the argument's name; NULL where there was no
 * device to hold a sentence. line is the row's. */
void expect_begin(struct world *w);
void expect_end(struct world *w, enum vka_status got, enum vka_status want, const char *word,
                int line);

/* A call that must fail with a status and a word. */
#define FAILS(want, word, call)                    \
    do {                                           \
        expect_begin(w);                           \
        expect_end(w, call, want, word, __LINE__); \
    } while (0)

/* A call that must fail so, and whose last argument would receive a product. */
#define MAKES_NOTHING(type, want, word, call)                       \
    do {                                                            \
        struct type *made = (struct type *)w;                       \
        expect_begin(w);                                            \
        expect_end(w, call, want, word, __LINE__);                  \
        if (made)                                                   \
            fail_msg("line %d: the product is not NULL", __LINE__); \
    } while (0)

/* Whether text has word, not within a longer name. */
bool has_word(const char *text, const char *word);

#endif
