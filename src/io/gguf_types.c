/* Types of GGUF files. SPDX-License-Identifier: MIT */
#include "io/gguf_types.h"
#include "types.def"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* By their numbers in files. Those without a row were removed from the format. */
static const struct vka_gguf_layout layouts[] = {
    [0] = {"f32", 1, 4},         [1] = {"f16", 1, 2},         [2] = {"q4_0", 32, 18},
    [3] = {"q4_1", 32, 20},      [6] = {"q5_0", 32, 22},      [7] = {"q5_1", 32, 24},
    [8] = {"q8_0", 32, 34},      [9] = {"q8_1", 32, 0}, /* 36 bytes in ggml, 40 in Python's gguf */
    [10] = {"q2_K", 256, 84},    [11] = {"q3_K", 256, 110},   [12] = {"q4_K", 256, 144},
    [13] = {"q5_K", 256, 176},   [14] = {"q6_K", 256, 210},   [15] = {"q8_K", 256, 292},
    [16] = {"iq2_xxs", 256, 66}, [17] = {"iq2_xs", 256, 74},  [18] = {"iq3_xxs", 256, 98},
    [19] = {"iq1_s", 256, 50},   [20] = {"iq4_nl", 32, 18},   [21] = {"iq3_s", 256, 110},
    [22] = {"iq2_s", 256, 82},   [23] = {"iq4_xs", 256, 136}, [24] = {"i8", 1, 1},
    [25] = {"i16", 1, 2},        [26] = {"i32", 1, 4},        [27] = {"i64", 1, 8},
    [28] = {"f64", 1, 8},        [29] = {"iq1_m", 256, 56},   [30] = {"bf16", 1, 2},
    [34] = {"tq1_0", 256, 54},   [35] = {"tq2_0", 256, 66},   [39] = {"mxfp4", 32, 17},
    [40] = {"nvfp4", 64, 36},    [41] = {"q1_0", 128, 18},
};
#define LAYOUT_COUNT (sizeof(layouts) / sizeof(layouts[0]))

static const struct {
    const char *name;
    size_t size; /* bytes */
} types[] = {
    [VKA_GGUF_U8] = {"u8", 1},         [VKA_GGUF_I8] = {"i8", 1},
    [VKA_GGUF_U16] = {"u16", 2},       [VKA_GGUF_I16] = {"i16", 2},
    [VKA_GGUF_U32] = {"u32", 4},       [VKA_GGUF_I32] = {"i32", 4},
    [VKA_GGUF_F32] = {"f32", 4},       [VKA_GGUF_BOOL] = {"bool", 1},
    [VKA_GGUF_STRING] = {"string", 0}, [VKA_GGUF_ARRAY] = {"array", 0},
    [VKA_GGUF_U64] = {"u64", 8},       [VKA_GGUF_I64] = {"i64", 8},
    [VKA_GGUF_F64] = {"f64", 8},
};
static_assert(sizeof(types) / sizeof(types[0]) == VKA_GGUF_TYPE_COUNT, "a row for every type");

enum vka_dtype vka_gguf_layout_dtype(const struct vka_gguf_layout *layout)
{
#define NAME_OF(a, id, NAME, name, ...) [id] = #name,
    static const char *const names[VKA_DTYPE_COUNT] = {TYPES(NAME_OF, NAME_OF, )};
    int dtype = 0;
    while (dtype < VKA_DTYPE_COUNT && strcmp(names[dtype], layout->name) != 0)
        dtype++;
    return (enum vka_dtype)dtype;
}

void vka_gguf_print_weight_types(char *text, size_t size)
{
    enum { FLOAT = 1, INTEGER = 0, WEIGHT = 0, BLOCK = 1, BUNDLES = 1, CACHED = 0 };
#define IS_TAKEN(a, id, NAME, name, kind, ...) [id] = kind,
    static const bool is_taken[VKA_DTYPE_COUNT] = {TYPES(IS_TAKEN, IS_TAKEN, )};
    size_t used = 0;

    *text = '\0';
    for (size_t i = 0; i < LAYOUT_COUNT; i++) {
        const enum vka_dtype dtype =
            layouts[i].name ? vka_gguf_layout_dtype(&layouts[i]) : VKA_DTYPE_COUNT;

        if (dtype != VKA_DTYPE_COUNT && is_taken[dtype] && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                                     layouts[i].name);
    }
}

const struct vka_gguf_layout *vka_gguf_layout(uint64_t number)
{
    return number < LAYOUT_COUNT && layouts[number].name ? &layouts[number] : NULL;
}

uint32_t vka_gguf_layout_number(const struct vka_gguf_tensor *tensor)
{
    for (uint32_t i = 0; i < LAYOUT_COUNT; i++) {
        if (layouts[i].name &&
            (tensor->type ? strcmp(layouts[i].name, tensor->type) == 0
                          : tensor->dtype != VKA_DTYPE_COUNT &&
                                vka_gguf_layout_dtype(&layouts[i]) == tensor->dtype))
            return i;
    }
    return UINT32_MAX;
}

size_t vka_gguf_type_size(enum vka_gguf_type type)
{
    return (unsigned)type < VKA_GGUF_TYPE_COUNT ? types[type].size : 0;
}

const char *vka_gguf_type_name(enum vka_gguf_type type)
{
    return (unsigned)type < VKA_GGUF_TYPE_COUNT ? types[type].name : "?";
}
