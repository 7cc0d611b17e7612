/* What a module of SPIR-V asks of a device, judged as a driver may: capabilities when it is made;
 * with the specialization constants of a pipeline its workgroup's size, its subgroups and its shared
 * memory. Knows nothing of vkattn. */
#include "stub.h"

#include <stdlib.h>
#include <string.h>

enum {
    OP_ENTRY_POINT = 15,
    OP_EXECUTION_MODE = 16,
    OP_CAPABILITY = 17,
    OP_TYPE_BOOL = 20,
    OP_TYPE_INT = 21,
    OP_TYPE_FLOAT = 22,
    OP_TYPE_VECTOR = 23,
    OP_TYPE_MATRIX = 24,
    OP_TYPE_ARRAY = 28,
    OP_TYPE_STRUCT = 30,
    OP_TYPE_POINTER = 32,
    OP_CONSTANT_TRUE = 41,
    OP_CONSTANT_FALSE = 42,
    OP_CONSTANT = 43,
    OP_CONSTANT_COMPOSITE = 44,
    OP_CONSTANT_NULL = 46,
    OP_SPEC_TRUE = 48,
    OP_SPEC_FALSE = 49,
    OP_SPEC_CONSTANT = 50,
    OP_SPEC_COMPOSITE = 51,
    OP_SPEC_OP = 52,
    OP_FUNCTION = 54,
    OP_VARIABLE = 59,
    OP_DECORATE = 71,
    OP_EXECUTION_MODE_ID = 331,
    MODE_LOCAL_SIZE = 17,
    MODE_LOCAL_SIZE_ID = 38,
    DECORATION_SPEC_ID = 1,
    DECORATION_BUILTIN = 11,
    BUILTIN_WORKGROUP_SIZE = 25,
    STORAGE_WORKGROUP = 4
};

/* The place behind an instruction at i; 0: it is the first function, or nothing is left. */
static size_t next(const uint32_t *words, size_t n, size_t i)
{
    const uint32_t length = words[i] >> 16;
    if (!length || length > n - i)
        stub_mistake("vkCreateShaderModule", "an instruction of %u words at %zu", length, i);
    i += length;
    return i < n && (words[i] & 0xffff) != OP_FUNCTION ? i : 0;
}

/* ---- Capabilities ---------------------------------------------------------------------------- */

/* NULL: it is had. What the device must have enabled, or list among its subgroups' operations. */
static const char *missing_capability(const struct stub_device *device, uint32_t capability)
{
    const struct stub_enabled *on = &device->enabled;
    const VkSubgroupFeatureFlags operations = stub_operations(device->kind);
    const struct {
        uint32_t capability;
        bool had;
        const char *name;
    } rows[] = {
        {0, true, "Matrix"},
        {1, true, "Shader"},
        {46, true, "SampledBuffer"},
        {50, true, "ImageQuery"},
        {61, operations & VK_SUBGROUP_FEATURE_BASIC_BIT, "GroupNonUniform"},
        {62, operations & VK_SUBGROUP_FEATURE_VOTE_BIT, "GroupNonUniformVote"},
        {63, operations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT, "GroupNonUniformArithmetic"},
        {64, operations & VK_SUBGROUP_FEATURE_BALLOT_BIT, "GroupNonUniformBallot"},
        {65, operations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT, "GroupNonUniformShuffle"},
        {9, on->float16, "Float16"},
        {11, on->int64, "Int64"},
        {39, on->int8, "Int8"},
        {4433, on->storage16, "StorageBuffer16BitAccess"},
        {4448, on->storage8, "StorageBuffer8BitAccess"},
        {5347, on->address, "PhysicalStorageBufferAddresses"},
        {6016, on->dot, "DotProductInputAll"},
        {6017, on->dot, "DotProductInput4x8Bit"},
        {6018, on->dot, "DotProductInput4x8BitPacked"},
        {6019, on->dot, "DotProduct"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].capability == capability)
            return rows[i].had ? NULL : rows[i].name;
    return "one that no device here has";
}

void stub_check_code(const struct stub_device *device, const uint32_t *words, size_t n)
{
    for (size_t i = 5; i && i < n; i = next(words, n, i)) {
        const char *missing = NULL;
        if ((words[i] & 0xffff) == OP_CAPABILITY)
            missing = missing_capability(device, words[i + 1]);
        if (missing)
            stub_mistake("vkCreateShaderModule", "capability %u (%s) on %s", words[i + 1], missing,
                         device->kind->name);
    }
}

/* ---- Constants and types --------------------------------------------------------------------- */

/* What is known of an id. */
struct id {
    size_t at;        /* of its instruction */
    uint32_t value;   /* of a constant of up to 32 bits */
    uint32_t spec_id; /* UINT32_MAX: none */
    bool known;       /* value is right */
};

struct reader {
    const uint32_t *words;
    size_t n;
    struct id *ids; /* [bound] */
    uint32_t bound;
    const VkSpecializationInfo *given;
};

static struct id *id_of(const struct reader *r, uint32_t id)
{
    if (id >= r->bound)
        stub_mistake("vkCreateShaderModule", "id %u beyond the bound", id);
    return &r->ids[id];
}

/* A constant that has to be known. */
static uint32_t value_of(const struct reader *r, uint32_t id)
{
    const struct id *one = id_of(r, id);
    if (!one->known)
        stub_mistake("vkCreateComputePipelines", "the stub cannot tell constant %u", id);
    return one->value;
}

/* The value that the host gives to a specialization constant, else the module's own. */
static uint32_t specialized(const struct reader *r, uint32_t spec_id, uint32_t own)
{
    uint32_t value = own;
    for (uint32_t i = 0; r->given && i < r->given->mapEntryCount; i++) {
        const VkSpecializationMapEntry *e = &r->given->pMapEntries[i];
        if (e->constantID == spec_id && e->size == sizeof value)
            memcpy(&value, (const char *)r->given->pData + e->offset, sizeof value);
    }
    return value;
}

/* An operation of two numbers or truths; false where it is none of those. */
static bool compute(uint32_t op, uint32_t a, uint32_t b, uint32_t *result)
{
    const int32_t x = (int32_t)a, y = (int32_t)b;
    switch (op) {
#define CASE(number, expression)          \
    case number:                          \
        *result = (uint32_t)(expression); \
        return true;
        CASE(128, a + b)
        CASE(130, a - b)
        CASE(132, a * b)
        CASE(134, b ? a / b : 0)
        CASE(135, y > 0 ? x / y : 0)
        CASE(137, b ? a % b : 0)
        CASE(138, y > 0 ? x % y : 0)
        CASE(139, y > 0 ? (x % y + y) % y : 0)
        CASE(164, a == b)
        CASE(165, a != b)
        CASE(166, a || b)
        CASE(167, a && b)
        CASE(170, a == b)
        CASE(171, a != b)
        CASE(172, a > b)
        CASE(173, x > y)
        CASE(174, a >= b)
        CASE(175, x >= y)
        CASE(176, a < b)
        CASE(177, x < y)
        CASE(178, a <= b)
        CASE(179, x <= y)
        CASE(194, a >> (b & 31))
        CASE(195, x >= 0 ? a >> (b & 31) : ~(~a >> (b & 31)))
        CASE(196, a << (b & 31))
        CASE(197, a | b)
        CASE(198, a ^ b)
        CASE(199, a & b)
#undef CASE
    default:
        return false;
    }
}

/* An OpSpecConstantOp, whose operands were read before it. */
static void read_operation(const struct reader *r, size_t at, struct id *one)
{
    const uint32_t length = r->words[at] >> 16, op = r->words[at + 3];
    const struct id *a = id_of(r, r->words[at + 4]);
    const bool two = length == 6 && op != 81; /* 81: OpCompositeExtract, of an id and a number */
    if (op == 169 && length == 7) {           /* OpSelect */
        const struct id *either = id_of(r, r->words[at + (a->value ? 5 : 6)]);
        one->known = a->known && either->known;
        one->value = either->value;
    } else if (two) {
        const struct id *b = id_of(r, r->words[at + 5]);
        one->known = compute(op, a->value, b->value, &one->value) && a->known && b->known;
    } else if (length == 5) {
        one->known = a->known;
        switch (op) {
        case 113: /* OpUConvert */
        case 114: /* OpSConvert */
        case 124: /* OpBitcast */
            one->value = a->value;
            break;
        case 126: /* OpSNegate */
            one->value = 0u - a->value;
            break;
        case 168: /* OpLogicalNot */
            one->value = !a->value;
            break;
        case 200: /* OpNot */
            one->value = ~a->value;
            break;
        default:
            one->known = false;
        }
    }
}

/* Reads what defines an id; of other instructions, the ids of specialization constants. */
static void read_one(struct reader *r, size_t at)
{
    const uint32_t *w = r->words + at, op = w[0] & 0xffff, length = w[0] >> 16;
    if (op == OP_DECORATE && w[2] == DECORATION_SPEC_ID)
        id_of(r, w[1])->spec_id = w[3];
    if (op >= OP_TYPE_BOOL && op <= OP_TYPE_POINTER)
        id_of(r, w[1])->at = at;
    if ((op < OP_CONSTANT_TRUE || op > OP_SPEC_OP) && op != OP_VARIABLE)
        return;
    struct id *one = id_of(r, w[2]);
    one->at = at;
    if (op == OP_CONSTANT_TRUE || op == OP_CONSTANT_FALSE || op == OP_CONSTANT_NULL) {
        one->value = op == OP_CONSTANT_TRUE;
        one->known = true;
    } else if (op == OP_SPEC_TRUE || op == OP_SPEC_FALSE) {
        one->value = specialized(r, one->spec_id, op == OP_SPEC_TRUE) != 0;
        one->known = true;
    } else if (op == OP_CONSTANT || op == OP_SPEC_CONSTANT) {
        one->known = length == 4;
        one->value = op == OP_CONSTANT ? w[3] : specialized(r, one->spec_id, w[3]);
    } else if (op == OP_SPEC_OP) {
        read_operation(r, at, one);
    }
}

/* Bytes of a type as std430 lays it out, and its alignment. */
static uint64_t size_of(const struct reader *r, uint32_t type, uint64_t *alignment)
{
    const uint32_t *w = r->words + id_of(r, type)->at;
    const uint32_t length = w[0] >> 16;
    uint64_t size = 0, inner = 0, most = 4;
    switch (w[0] & 0xffff) {
    case OP_TYPE_BOOL:
        *alignment = 4;
        return 4;
    case OP_TYPE_INT:
    case OP_TYPE_FLOAT:
        return *alignment = w[2] / 8;
    case OP_TYPE_VECTOR:
        size = size_of(r, w[2], &inner);
        *alignment = size * (w[3] == 3 ? 4 : w[3]);
        return size * w[3];
    case OP_TYPE_MATRIX:
    case OP_TYPE_ARRAY:
        size = size_of(r, w[2], alignment);
        size = (size + *alignment - 1) / *alignment * *alignment;
        return size * ((w[0] & 0xffff) == OP_TYPE_ARRAY ? value_of(r, w[3]) : w[3]);
    case OP_TYPE_STRUCT:
        for (uint32_t i = 2; i < length; i++) {
            const uint64_t bytes = size_of(r, w[i], &inner);
            size = (size + inner - 1) / inner * inner + bytes;
            most = inner > most ? inner : most;
        }
        *alignment = most;
        return (size + most - 1) / most * most;
    default:
        stub_mistake("vkCreateComputePipelines", "shared memory of a type of opcode %u",
                     w[0] & 0xffff);
    }
}

/* ---- The stage of a pipeline ----------------------------------------------------------------- */

struct stage {
    uint32_t size[3]; /* of the workgroup; 0: not told */
    uint64_t shared;  /* bytes */
};

static void read_stage(struct reader *r, struct stage *stage)
{
    for (size_t i = 5; i && i < r->n; i = next(r->words, r->n, i)) {
        const uint32_t *w = r->words + i, op = w[0] & 0xffff;
        read_one(r, i);
        if (op == OP_EXECUTION_MODE && w[2] == MODE_LOCAL_SIZE && !stage->size[0])
            memcpy(stage->size, w + 3, sizeof stage->size);
    }
    for (size_t i = 5; i && i < r->n; i = next(r->words, r->n, i)) {
        const uint32_t *w = r->words + i, op = w[0] & 0xffff;
        const uint32_t *from = NULL;
        if (op == OP_EXECUTION_MODE_ID && w[2] == MODE_LOCAL_SIZE_ID)
            from = w + 3;
        if (op == OP_DECORATE && w[2] == DECORATION_BUILTIN && w[3] == BUILTIN_WORKGROUP_SIZE)
            from = r->words + id_of(r, w[1])->at + 3;
        for (int axis = 0; from && axis < 3; axis++)
            stage->size[axis] = value_of(r, from[axis]);
        if (op == OP_VARIABLE && w[3] == STORAGE_WORKGROUP) {
            uint64_t alignment = 0;
            const uint64_t bytes = size_of(r, r->words[id_of(r, w[1])->at + 3], &alignment);
            stage->shared = (stage->shared + alignment - 1) / alignment * alignment + bytes;
        }
    }
}

/* The subgroups that a stage demands. */
static void check_subgroups(const struct stub_device *device,
                            const VkPipelineShaderStageCreateInfo *info, const struct stage *stage)
{
    static const char *const function = "vkCreateComputePipelines";
    const struct stub_kind *kind = device->kind;
    const bool full = info->flags & VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
    const bool any = info->flags & VK_PIPELINE_SHADER_STAGE_CREATE_ALLOW_VARYING_SUBGROUP_SIZE_BIT;
    const uint64_t threads = (uint64_t)stage->size[0] * stage->size[1] * stage->size[2];
    uint32_t size = any ? stub_most_subgroup(kind) : kind->subgroup;
    if (info->flags && !device->enabled.size_control)
        stub_mistake(function, "full subgroups, which the device cannot demand");
    for (const VkBaseInStructure *s = info->pNext; s; s = s->pNext) {
        if (s->sType != VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO)
            continue;
        size =
            ((const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo *)s)->requiredSubgroupSize;
        if (!device->enabled.size_control || any)
            stub_mistake(function, "a size of subgroups, which the stage cannot demand");
        if (size < stub_least_subgroup(kind) || size > stub_most_subgroup(kind) ||
            size & (size - 1))
            stub_mistake(function, "subgroups of %u, which the device has not", size);
        if (threads > (uint64_t)size * stub_most_subgroups(kind))
            stub_mistake(function, "%llu invocations exceed maxComputeWorkgroupSubgroups",
                         (unsigned long long)threads);
    }
    if (full && stage->size[0] % size)
        stub_mistake(function, "full subgroups of %u in a workgroup that is %u wide", size,
                     stage->size[0]);
}

void stub_check_stage(const struct stub_device *device, const struct stub_shader_module *module,
                      const VkPipelineShaderStageCreateInfo *info)
{
    static const char *const function = "vkCreateComputePipelines";
    const struct stub_kind *kind = device->kind;
    struct stage stage = {.shared = 0};
    struct reader r = {.words = module->words,
                       .n = module->n,
                       .bound = module->words[3],
                       .given = info->pSpecializationInfo};
    r.ids = calloc(r.bound, sizeof *r.ids);
    if (!r.ids)
        abort();
    for (uint32_t i = 0; i < r.bound; i++)
        r.ids[i].spec_id = UINT32_MAX;
    read_stage(&r, &stage);
    free(r.ids);
    const uint64_t threads = (uint64_t)stage.size[0] * stage.size[1] * stage.size[2];
    if (!threads || threads > kind->invocations)
        stub_mistake(function, "%llu invocations exceed maxComputeWorkGroupInvocations",
                     (unsigned long long)threads);
    if (stage.size[0] > kind->invocations || stage.size[1] > kind->invocations ||
        stage.size[2] > STUB_DEEP)
        stub_mistake(function, "%u x %u x %u invocations exceed maxComputeWorkGroupSize",
                     stage.size[0], stage.size[1], stage.size[2]);
    if (stage.shared > kind->shared)
        stub_mistake(function, "%llu bytes of shared memory exceed maxComputeSharedMemorySize",
                     (unsigned long long)stage.shared);
    check_subgroups(device, info, &stage);
}
