#include "gpu/fold_op.h"

#include <stddef.h>

/* name, opcode, class, operands */
#define OPERATIONS(X)                               \
    X(AccessChain, 65, UNKNOWN, 0)                  \
    X(InBoundsAccessChain, 66, UNKNOWN, 0)          \
    X(PtrAccessChain, 67, UNKNOWN, 0)               \
    X(InBoundsPtrAccessChain, 70, UNKNOWN, 0)       \
    X(VectorShuffle, 79, SHUFFLE, 2)                \
    X(CompositeExtract, 81, EXTRACT, 1)             \
    X(CompositeInsert, 82, INSERT, 2)               \
    X(ConvertFToU, 109, UNKNOWN, 1)                 \
    X(ConvertFToS, 110, UNKNOWN, 1)                 \
    X(ConvertSToF, 111, UNKNOWN, 1)                 \
    X(ConvertUToF, 112, UNKNOWN, 1)                 \
    X(UConvert, 113, CONVERT, 1)                    \
    X(SConvert, 114, CONVERT, 1)                    \
    X(FConvert, 115, UNKNOWN, 1)                    \
    X(QuantizeToF16, 116, UNKNOWN, 1)               \
    X(ConvertPtrToU, 117, UNKNOWN, 1)               \
    X(ConvertUToPtr, 120, UNKNOWN, 1)               \
    X(PtrCastToGeneric, 121, UNKNOWN, 1)            \
    X(GenericCastToPtr, 122, UNKNOWN, 1)            \
    X(Bitcast, 124, UNKNOWN, 1)                     \
    X(SNegate, 126, INTEGER, 1)                     \
    X(FNegate, 127, UNKNOWN, 1)                     \
    X(IAdd, 128, INTEGER, 2)                        \
    X(FAdd, 129, UNKNOWN, 2)                        \
    X(ISub, 130, INTEGER, 2)                        \
    X(FSub, 131, UNKNOWN, 2)                        \
    X(IMul, 132, INTEGER, 2)                        \
    X(FMul, 133, UNKNOWN, 2)                        \
    X(UDiv, 134, INTEGER, 2)                        \
    X(SDiv, 135, INTEGER, 2)                        \
    X(FDiv, 136, UNKNOWN, 2)                        \
    X(UMod, 137, INTEGER, 2)                        \
    X(SRem, 138, INTEGER, 2)                        \
    X(SMod, 139, INTEGER, 2)                        \
    X(FRem, 140, UNKNOWN, 2)                        \
    X(FMod, 141, UNKNOWN, 2)                        \
    X(LogicalEqual, 164, LOGICAL, 2)                \
    X(LogicalNotEqual, 165, LOGICAL, 2)             \
    X(LogicalOr, 166, LOGICAL, 2)                   \
    X(LogicalAnd, 167, LOGICAL, 2)                  \
    X(LogicalNot, 168, LOGICAL, 1)                  \
    X(Select, 169, SELECT, 3)                       \
    X(IEqual, 170, COMPARE, 2)                      \
    X(INotEqual, 171, COMPARE, 2)                   \
    X(UGreaterThan, 172, COMPARE, 2)                \
    X(SGreaterThan, 173, COMPARE, 2)                \
    X(UGreaterThanEqual, 174, COMPARE, 2)           \
    X(SGreaterThanEqual, 175, COMPARE, 2)           \
    X(ULessThan, 176, COMPARE, 2)                   \
    X(SLessThan, 177, COMPARE, 2)                   \
    X(ULessThanEqual, 178, COMPARE, 2)              \
    X(SLessThanEqual, 179, COMPARE, 2)              \
    X(ShiftRightLogical, 194, SHIFT, 2)             \
    X(ShiftRightArithmetic, 195, SHIFT, 2)          \
    X(ShiftLeftLogical, 196, SHIFT, 2)              \
    X(BitwiseOr, 197, INTEGER, 2)                   \
    X(BitwiseXor, 198, INTEGER, 2)                  \
    X(BitwiseAnd, 199, INTEGER, 2)                  \
    X(Not, 200, INTEGER, 1)                         \
    X(CooperativeMatrixLengthKHR, 4460, UNKNOWN, 1) \
    X(CooperativeMatrixLengthNV, 5362, UNKNOWN, 1)

#define NUMBER(name, opcode, kind, n) OP_##name = opcode,
enum { OPERATIONS(NUMBER) };

#define ROW(name, opcode, kind, n) \
    {opcode, FOLD_##kind, n, "has Op" #name " of specialization constants, which is not built in"},
static const struct fold_op operations[] = {OPERATIONS(ROW)};

const struct fold_op *fold_op_find(uint32_t opcode)
{
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++)
        if (operations[i].opcode == opcode)
            return &operations[i];
    return NULL;
}

static int64_t extend(struct fold_scalar x)
{
    const uint64_t sign = UINT64_C(1) << (x.width - 1);
    return (int64_t)((x.bits ^ sign) - sign);
}

/* Divides with a sign: SDiv rounds to zero, SRem has the sign of a, SMod that of b. */
static uint64_t divide(uint32_t opcode, struct fold_scalar a, struct fold_scalar b)
{
    const int64_t x = extend(a), y = extend(b);
    if (y == 0)
        return 0;
    if (y == -1) /* the least number has no opposite: it stays */
        return opcode == OP_SDiv ? 0 - a.bits : 0;
    if (opcode == OP_SDiv)
        return (uint64_t)(x / y);
    const int64_t rest = x % y;
    return (uint64_t)(opcode == OP_SMod && rest && (rest < 0) != (y < 0) ? rest + y : rest);
}

static uint64_t shift(uint32_t opcode, struct fold_scalar a, uint64_t amount)
{
    if (amount >= a.width)
        return 0;
    if (opcode == OP_ShiftLeftLogical)
        return a.bits << amount;
    if (opcode == OP_ShiftRightLogical || extend(a) >= 0)
        return a.bits >> amount;
    return ~(~(uint64_t)extend(a) >> amount);
}

static bool compare(uint32_t opcode, struct fold_scalar a, struct fold_scalar b)
{
    switch (opcode) {
    case OP_IEqual:
        return a.bits == b.bits;
    case OP_INotEqual:
        return a.bits != b.bits;
    case OP_UGreaterThan:
        return a.bits > b.bits;
    case OP_UGreaterThanEqual:
        return a.bits >= b.bits;
    case OP_ULessThan:
        return a.bits < b.bits;
    case OP_ULessThanEqual:
        return a.bits <= b.bits;
    case OP_SGreaterThan:
        return extend(a) > extend(b);
    case OP_SGreaterThanEqual:
        return extend(a) >= extend(b);
    case OP_SLessThan:
        return extend(a) < extend(b);
    default:
        return extend(a) <= extend(b);
    }
}

static bool logical(uint32_t opcode, bool a, bool b)
{
    switch (opcode) {
    case OP_LogicalEqual:
        return a == b;
    case OP_LogicalNotEqual:
        return a != b;
    case OP_LogicalOr:
        return a || b;
    case OP_LogicalAnd:
        return a && b;
    default:
        return !a;
    }
}

static uint64_t integer(uint32_t opcode, struct fold_scalar a, struct fold_scalar b)
{
    switch (opcode) {
    case OP_SNegate:
        return 0 - a.bits;
    case OP_Not:
        return ~a.bits;
    case OP_IAdd:
        return a.bits + b.bits;
    case OP_ISub:
        return a.bits - b.bits;
    case OP_IMul:
        return a.bits * b.bits;
    case OP_UDiv:
        return b.bits ? a.bits / b.bits : 0;
    case OP_UMod:
        return b.bits ? a.bits % b.bits : 0;
    case OP_BitwiseOr:
        return a.bits | b.bits;
    case OP_BitwiseXor:
        return a.bits ^ b.bits;
    case OP_BitwiseAnd:
        return a.bits & b.bits;
    default:
        return divide(opcode, a, b);
    }
}

bool fold_op_evaluate(const struct fold_op *op, const struct fold_scalar *x, uint32_t width,
                      uint64_t *result)
{
    const struct fold_scalar a = x[0], b = op->n_operand > 1 ? x[1] : a;
    const bool numbers = a.width > 1 && b.width > 1;
    const uint64_t mask = ~UINT64_C(0) >> (64 - width);
    switch (op->kind) {
    case FOLD_CONVERT:
        *result = (op->opcode == OP_SConvert ? (uint64_t)extend(a) : a.bits) & mask;
        return numbers && width > 1;
    case FOLD_INTEGER:
        *result = integer(op->opcode, a, b) & mask;
        return numbers && a.width == width && b.width == width;
    case FOLD_SHIFT:
        *result = shift(op->opcode, a, b.bits) & mask;
        return numbers && a.width == width;
    case FOLD_COMPARE:
        *result = compare(op->opcode, a, b);
        return numbers && a.width == b.width && width == 1;
    case FOLD_LOGICAL:
        *result = logical(op->opcode, a.bits, b.bits);
        return a.width == 1 && b.width == 1 && width == 1;
    case FOLD_UNKNOWN:
    case FOLD_SELECT:
    case FOLD_SHUFFLE:
    case FOLD_EXTRACT:
    case FOLD_INSERT:
        break;
    }
    return false;
}
