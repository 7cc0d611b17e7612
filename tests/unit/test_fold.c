/* Specialization constants built into modules: each operation against values by hand, composites,
 * workgroup sizes, refusals, and modules with words changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "gpu/fold.h"
#include "gpu/kernels_spv.h"
#include "test_program.h"

#define I(opcode, length) ((uint32_t)(length) << 16 | (opcode))
#define MOST 256u

/* Ids of types, of operands A, B, C with the SpecIds 0, 1, 2, and of the result. */
enum { UINT = 1, INT, BOOL, FLOAT, PAIR, ULONG, SHORT, TRIPLE, BOOLS, A, B, C, R, N, BOUND = 64 };

struct module {
    uint32_t words[MOST];
    uint32_t n;
};

static void add(struct module *m, uint32_t n, const uint32_t *words)
{
    assert_true(m->n + n <= MOST);
    memcpy(m->words + m->n, words, n * sizeof *words);
    m->n += n;
}
#define ADD(m, ...)                                                    \
    add(m, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), \
        (const uint32_t[]){__VA_ARGS__})

/* A module with three constants of these types, each 77 or false where no value is given. */
static struct module begin(uint32_t a, uint32_t b, uint32_t c)
{
    const uint32_t types[] = {a, b, c};
    struct module m = {.n = 0};
    ADD(&m, 0x07230203, 0x00010300, 0, BOUND, 0);
    ADD(&m, I(16, 6), 60, 17, 1, 1, 1); /* LocalSize */
    for (uint32_t i = 0; i < 3; i++)
        ADD(&m, I(71, 4), A + i, 1, i); /* SpecId */
    ADD(&m, I(21, 4), UINT, 32, 0, I(21, 4), INT, 32, 1, I(20, 2), BOOL, I(22, 3), FLOAT, 32);
    ADD(&m, I(23, 4), PAIR, UINT, 2, I(21, 4), ULONG, 64, 0, I(21, 4), SHORT, 16, 1);
    ADD(&m, I(23, 4), TRIPLE, UINT, 3, I(23, 4), BOOLS, BOOL, 2);
    for (uint32_t i = 0; i < 3; i++)
        if (types[i] == BOOL)
            ADD(&m, I(49, 3), BOOL, A + i);
        else
            ADD(&m, I(50, 4), types[i], A + i, 77);
    return m;
}

/* The instruction that defines an id; NULL: there is none. */
static const uint32_t *defined(const struct folded *f, uint32_t id)
{
    for (size_t at = 5; at < f->n_word; at += f->words[at] >> 16) {
        const uint32_t opcode = f->words[at] & 0xffff;
        if (opcode >= 41 && opcode <= 52 && f->words[at + 2] == id)
            return f->words + at;
    }
    return NULL;
}

static const uint32_t *result_of(const struct module *m, const uint32_t values[3], uint32_t id,
                                 struct folded *f)
{
    /* Exact, so that a sanitizer sees one word too many. */
    uint32_t *exact = malloc(m->n * sizeof *exact);
    assert_non_null(exact);
    memcpy(exact, m->words, m->n * sizeof *exact);
    enum vka_status status = fold_module(exact, m->n, values, values ? 3 : 0, f);
    free(exact);
    if (status != VKA_OK)
        fail_msg("it %s", f->why);
    assert_true(fold_is_plain(f->words, f->n_word));
    const uint32_t *w = defined(f, id);
    assert_non_null(w);
    return w;
}

/* A constant's value, a boolean's too. */
static uint32_t value(const uint32_t *w)
{
    const uint32_t opcode = w[0] & 0xffff;
    assert_in_range(opcode, 41, 43);
    return opcode == 43 ? w[3] : opcode == 41;
}

static const struct row {
    const char *name;
    uint32_t opcode, n, result, of, a, b, c, expected;
} rows[] = {
    {"SNegate", 126, 1, INT, INT, 5, 0, 0, 0xfffffffb},
    {"SNegate of the least", 126, 1, INT, INT, 0x80000000, 0, 0, 0x80000000},
    {"IAdd wraps", 128, 2, UINT, UINT, 0xffffffff, 3, 0, 2},
    {"ISub wraps", 130, 2, UINT, UINT, 2, 3, 0, 0xffffffff},
    {"IMul wraps", 132, 2, UINT, UINT, 0x10001, 0x10001, 0, 0x20001},
    {"UDiv", 134, 2, UINT, UINT, 0xffffffff, 2, 0, 0x7fffffff},
    {"UDiv by zero", 134, 2, UINT, UINT, 9, 0, 0, 0},
    {"SDiv rounds to zero", 135, 2, INT, INT, (uint32_t)-7, 2, 0, (uint32_t)-3},
    {"SDiv of the least", 135, 2, INT, INT, 0x80000000, 0xffffffff, 0, 0x80000000},
    {"SDiv by zero", 135, 2, INT, INT, 9, 0, 0, 0},
    {"UMod", 137, 2, UINT, UINT, 0xffffffff, 10, 0, 5},
    {"UMod by zero", 137, 2, UINT, UINT, 9, 0, 0, 0},
    {"SRem -7 3", 138, 2, INT, INT, (uint32_t)-7, 3, 0, (uint32_t)-1},
    {"SRem 7 -3", 138, 2, INT, INT, 7, (uint32_t)-3, 0, 1},
    {"SRem of the least", 138, 2, INT, INT, 0x80000000, 0xffffffff, 0, 0},
    {"SMod -7 3", 139, 2, INT, INT, (uint32_t)-7, 3, 0, 2},
    {"SMod 7 -3", 139, 2, INT, INT, 7, (uint32_t)-3, 0, (uint32_t)-2},
    {"SMod -6 3", 139, 2, INT, INT, (uint32_t)-6, 3, 0, 0},
    {"LogicalEqual", 164, 2, BOOL, BOOL, 0, 1, 0, 0},
    {"LogicalNotEqual", 165, 2, BOOL, BOOL, 0, 1, 0, 1},
    {"LogicalOr", 166, 2, BOOL, BOOL, 0, 1, 0, 1},
    {"LogicalAnd", 167, 2, BOOL, BOOL, 0, 1, 0, 0},
    {"LogicalAnd of true, which 7 is", 167, 2, BOOL, BOOL, 7, 1, 0, 1},
    {"LogicalNot", 168, 1, BOOL, BOOL, 1, 0, 0, 0},
    {"IEqual", 170, 2, BOOL, UINT, 3, 3, 0, 1},
    {"INotEqual", 171, 2, BOOL, UINT, 3, 3, 0, 0},
    {"UGreaterThan", 172, 2, BOOL, UINT, 0xffffffff, 1, 0, 1},
    {"SGreaterThan", 173, 2, BOOL, INT, 0xffffffff, 1, 0, 0},
    {"UGreaterThanEqual", 174, 2, BOOL, UINT, 1, 0xffffffff, 0, 0},
    {"UGreaterThanEqual, equal", 174, 2, BOOL, UINT, 4, 4, 0, 1},
    {"SGreaterThanEqual", 175, 2, BOOL, INT, 1, 0xffffffff, 0, 1},
    {"ULessThan", 176, 2, BOOL, UINT, 0xffffffff, 1, 0, 0},
    {"SLessThan", 177, 2, BOOL, INT, 0xffffffff, 1, 0, 1},
    {"ULessThanEqual", 178, 2, BOOL, UINT, 0xffffffff, 1, 0, 0},
    {"SLessThanEqual", 179, 2, BOOL, INT, 0xffffffff, 1, 0, 1},
    {"SLessThanEqual, equal", 179, 2, BOOL, INT, 4, 4, 0, 1},
    {"ShiftRightLogical by 31", 194, 2, UINT, UINT, 0x80000000, 31, 0, 1},
    {"ShiftRightArithmetic by 31", 195, 2, INT, INT, 0x80000000, 31, 0, 0xffffffff},
    {"ShiftRightArithmetic", 195, 2, INT, INT, 0xfffffff0, 2, 0, 0xfffffffc},
    {"ShiftRightArithmetic by 0", 195, 2, INT, INT, 0x80000000, 0, 0, 0x80000000},
    {"ShiftLeftLogical by 31", 196, 2, UINT, UINT, 3, 31, 0, 0x80000000},
    {"ShiftLeftLogical by 32", 196, 2, UINT, UINT, 3, 32, 0, 0},
    {"BitwiseOr", 197, 2, UINT, UINT, 12, 10, 0, 14},
    {"BitwiseXor", 198, 2, UINT, UINT, 12, 10, 0, 6},
    {"BitwiseAnd", 199, 2, UINT, UINT, 12, 10, 0, 8},
    {"Not", 200, 1, UINT, UINT, 12, 0, 0, 0xfffffff3},
};

static void operations(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *r = &rows[i];
        struct module m = begin(r->of, r->of, r->of);
        struct folded f;
        ADD(&m, I(52, 4 + r->n), r->result, R, r->opcode, A);
        if (r->n > 1)
            ADD(&m, B);
        const uint32_t got = value(result_of(&m, (const uint32_t[]){r->a, r->b, r->c}, R, &f));
        if (got != r->expected)
            fail_msg("%s: 0x%x, expected 0x%x", r->name, got, r->expected);
        free(f.words);
    }
}

static void defaults(void **state)
{
    struct module m = begin(UINT, BOOL, FLOAT);
    struct folded f;
    (void)state;
    assert_int_equal(value(result_of(&m, NULL, A, &f)), 77);
    assert_int_equal(value(defined(&f, B)), 0);
    free(f.words);
    const uint32_t values[] = {5, 1, 0x3f800000};
    assert_int_equal(value(result_of(&m, values, A, &f)), 5);
    assert_int_equal(value(defined(&f, B)), 1);
    assert_int_equal(value(defined(&f, C)), 0x3f800000);
    free(f.words);
}

/* (A < B ? A : B) * A, and a choice between floats. */
static void nested(void **state)
{
    struct module m = begin(UINT, UINT, FLOAT);
    struct folded f;
    (void)state;
    ADD(&m, I(52, 6), BOOL, 20, 176, A, B);
    ADD(&m, I(52, 7), UINT, 21, 169, 20, A, B);
    ADD(&m, I(52, 6), UINT, R, 132, 21, A);
    ADD(&m, I(43, 4), FLOAT, 22, 0x40000000);
    ADD(&m, I(52, 7), FLOAT, 23, 169, 20, 22, C);
    assert_int_equal(value(result_of(&m, (const uint32_t[]){9, 4, 0x3f800000}, R, &f)), 36);
    assert_int_equal(value(defined(&f, 23)), 0x3f800000);
    free(f.words);
    assert_int_equal(value(result_of(&m, (const uint32_t[]){3, 4, 0x3f800000}, R, &f)), 9);
    assert_int_equal(value(defined(&f, 23)), 0x40000000);
    free(f.words);
}

static void check_words(const struct folded *f, uint32_t id, uint32_t n, const uint32_t *expected)
{
    const uint32_t *w = defined(f, id);
    assert_non_null(w);
    assert_int_equal(w[0], I(44, 3 + n));
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t *of = defined(f, w[3 + i]);
        assert_non_null(of);
        assert_true(w[3 + i] < f->words[3]); /* the bound grows with new ids */
        assert_int_equal(value(of), expected[i]);
    }
}

static void composites(void **state)
{
    struct module m = begin(UINT, UINT, UINT);
    struct folded f;
    (void)state;
    ADD(&m, I(71, 4), N, 11, 25); /* BuiltIn WorkgroupSize */
    ADD(&m, I(51, 6), TRIPLE, N, A, B, C);
    ADD(&m, I(51, 5), PAIR, 20, A, B);
    ADD(&m, I(52, 6), UINT, R, 81, N, 2);              /* CompositeExtract */
    ADD(&m, I(52, 7), TRIPLE, 21, 82, A, N, 1);        /* CompositeInsert */
    ADD(&m, I(52, 9), TRIPLE, 22, 79, N, 20, 2, 4, 0); /* VectorShuffle */
    ADD(&m, I(52, 6), PAIR, 23, 128, 20, 20);          /* IAdd of vectors */
    ADD(&m, I(46, 3), PAIR, 24);                       /* OpConstantNull */
    ADD(&m, I(52, 6), PAIR, 25, 130, 24, 20);
    ADD(&m, I(52, 6), BOOLS, 26, 172, 20, 23);
    ADD(&m, I(52, 7), PAIR, 27, 169, 26, 20, 23); /* Select by components */
    assert_int_equal(value(result_of(&m, (const uint32_t[]){2, 0xfffffffe, 4}, R, &f)), 4);
    check_words(&f, N, 3, (const uint32_t[]){2, 0xfffffffe, 4});
    check_words(&f, 21, 3, (const uint32_t[]){2, 2, 4});
    check_words(&f, 22, 3, (const uint32_t[]){4, 0xfffffffe, 2});
    check_words(&f, 23, 2, (const uint32_t[]){4, 0xfffffffc});
    check_words(&f, 25, 2, (const uint32_t[]){0xfffffffe, 2});
    check_words(&f, 26, 2, (const uint32_t[]){0, 1});
    check_words(&f, 27, 2, (const uint32_t[]){4, 0xfffffffe});
    const uint32_t mode[] = {I(16, 6), 60, 17, 2, 0xfffffffe, 4}; /* LocalSize follows */
    assert_memory_equal(f.words + 5, mode, sizeof mode);
    free(f.words);
}

/* An object two levels down; the outer composite is another type's. */
static void inserts_deep(void **state)
{
    struct module m = begin(UINT, UINT, UINT);
    struct folded f;
    (void)state;
    ADD(&m, I(43, 4), UINT, 20, 2, I(28, 4), 21, PAIR, 20);
    ADD(&m, I(51, 5), PAIR, 22, A, B, I(51, 5), 21, 23, 22, 22);
    ADD(&m, I(52, 8), 21, 24, 82, C, 23, 1, 0);
    ADD(&m, I(52, 7), UINT, R, 81, 24, 1, 0, I(52, 7), UINT, 25, 81, 24, 0, 0);
    assert_int_equal(value(result_of(&m, (const uint32_t[]){7, 8, 9}, R, &f)), 9);
    assert_int_equal(value(defined(&f, 25)), 7);
    free(f.words);
}

/* A size that execution modes take from ids. */
static void size_by_id(void **state)
{
    struct module m = begin(UINT, UINT, UINT);
    struct folded f;
    (void)state;
    const uint32_t by_id[] = {I(331, 6), 60, 38, A, B, C}, mode[] = {I(16, 6), 60, 17, 8, 4, 2};
    memcpy(m.words + 5, by_id, sizeof by_id);
    result_of(&m, (const uint32_t[]){8, 4, 2}, A, &f);
    assert_memory_equal(f.words + 5, mode, sizeof mode);
    free(f.words);
}

/* Other widths: 64 bits by their defaults, 16 with a sign. */
static void widths(void **state)
{
    struct module m = begin(UINT, INT, UINT);
    struct folded f;
    (void)state;
    ADD(&m, I(50, 5), ULONG, 20, 0xffffffff, 1);
    ADD(&m, I(52, 6), ULONG, 21, 128, 20, 20);
    ADD(&m, I(52, 5), UINT, 22, 113, 21);
    ADD(&m, I(52, 5), SHORT, 23, 114, B);
    ADD(&m, I(52, 5), INT, 24, 114, 23);
    ADD(&m, I(52, 5), ULONG, 25, 114, B);
    ADD(&m, I(52, 5), ULONG, R, 113, B);
    const uint32_t *w = result_of(&m, (const uint32_t[]){1, 0xffff8001, 1}, R, &f);
    assert_true(w[0] == I(43, 5) && w[3] == 0xffff8001 && w[4] == 0);
    w = defined(&f, 21);
    assert_true(w[0] == I(43, 5) && w[3] == 0xfffffffe && w[4] == 3);
    assert_int_equal(value(defined(&f, 22)), 0xfffffffe);
    assert_int_equal(value(defined(&f, 23)), 0xffff8001); /* a literal is extended by its sign */
    assert_int_equal(value(defined(&f, 24)), 0xffff8001);
    w = defined(&f, 25);
    assert_true(w[3] == 0xffff8001 && w[4] == 0xffffffff);
    free(f.words);
}

static void check_refused(const struct module *m, const char *said)
{
    struct folded f;
    assert_int_equal(fold_module(m->words, m->n, (const uint32_t[]){1, 2, 3}, 3, &f),
                     VKA_UNSUPPORTED);
    assert_null(f.words);
    if (!strstr(f.why, said))
        fail_msg("it %s; expected: %s", f.why, said);
}

static void refusals(void **state)
{
    static const struct {
        uint32_t n, words[9];
        const char *why;
    } wrong[] = {
        {6, {I(52, 6), FLOAT, R, 129, C, C}, "OpFAdd"},
        {5, {I(52, 5), FLOAT, R, 115, C}, "OpFConvert"},
        {6, {I(52, 6), UINT, R, 65, A, A}, "OpAccessChain"},
        {6, {I(52, 6), BOOL, R, 170, C, C}, "no integers"},
        {6, {I(52, 6), UINT, R, 124, A, A}, "OpBitcast"},
        {6, {I(52, 6), UINT, R, 999, A, A}, "no module"},  /* not of constants */
        {5, {I(52, 5), UINT, R, 128, A}, "no module"},     /* an operand is missing */
        {6, {I(52, 6), UINT, R, 128, A, 50}, "no module"}, /* is not defined */
        {6, {I(52, 6), UINT, R, 128, A, 1u << 30}, "no module"},
        {6, {I(52, 6), ULONG, R, 128, A, A}, "no module"},     /* of another width */
        {6, {I(52, 6), UINT, A, 128, A, A}, "no module"},      /* defined twice */
        {6, {I(52, 6), UINT, R, 128, A, UINT}, "no integers"}, /* a type */
        {6, {I(52, 6), UINT, R, 81, A, 0}, "no module"},       /* of a scalar */
        {8, {I(51, 5), PAIR, 20, A, B, I(52, 3), UINT, R}, "no module"},
        {4, {I(71, 4), A, 1, 3}, "no module"}, /* a SpecId after its constant */
        {3, {I(71, 4), 40, 11}, "no module"},  /* the end is missing */
        {1, {0}, "no module"},
        {6, {I(71, 4), 40, 1, 3, I(73, 2), 40}, "group"},
        {4, {I(4462, 4), PAIR, R, A}, "OpSpecConstantCompositeReplicateEXT"},
        {9, {I(71, 4), 40, 1, 2, I(50, 5), ULONG, 40, 1, 0}, "other than 32 bits"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct module m = begin(UINT, UINT, FLOAT);
        add(&m, wrong[i].n, wrong[i].words);
        check_refused(&m, wrong[i].why);
    }
    for (uint32_t n = 0; n < 5; n++) {
        struct module m = begin(UINT, UINT, UINT);
        m.n = n;
        check_refused(&m, "no module");
    }
}

/* Words of kernels changed at random: nothing is read outside, and no constant is left. */
static void changed_words(void **state)
{
    uint64_t seed = 1, folded = 0, draws = 0;
    (void)state;
    for (int k = 0; draws < 100000; k = (k + 1) % KERNEL_COUNT) {
        const size_t n = kernel_spv_table[k]->size / sizeof(uint32_t);
        /* Decorations and constants come first: functions change nothing. */
        const size_t most = n < 4000 ? n : 4000;
        uint32_t *words = malloc(most * sizeof *words);
        assert_non_null(words);
        for (int t = 0; t < 500; t++, draws++) {
            struct folded f;
            memcpy(words, kernel_spv_table[k]->words, most * sizeof *words);
            for (uint64_t i = 0; i <= seed >> 62; i++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                const size_t at = (size_t)((seed >> 33) % most);
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                const uint32_t x = (uint32_t)(seed >> 33);
                words[at] = x % 3 == 0   ? words[at] ^ 1u << (x >> 3 & 31)
                            : x % 3 == 1 ? (x >> 3) % (words[3] % 100000 + 1)
                                         : words[(x >> 3) % most];
            }
            if (fold_module(words, most, (const uint32_t[]){1, 2, 3, 4, 5, 6, 7, 8}, 8, &f) ==
                VKA_OK) {
                assert_true(fold_is_plain(f.words, f.n_word));
                folded++;
            }
            free(f.words);
        }
        free(words);
    }
    assert_in_range(folded, 1000, draws - 1000);
    print_message("%llu of %llu were built in\n", (unsigned long long)folded,
                  (unsigned long long)draws);
}

/* Each kernel with the constants' defaults. */
static void kernels(void **state)
{
    int n_plain = 0;
    (void)state;
    for (int k = 0; k < KERNEL_COUNT; k++) {
        const struct kernel_spv *spv = kernel_spv_table[k];
        const size_t n = spv->size / sizeof(uint32_t);
        struct folded f;
        n_plain += fold_is_plain(spv->words, n);
        if (fold_module(spv->words, n, NULL, 0, &f) != VKA_OK)
            fail_msg("the kernel %s %s", kernel_table[k].name, f.why);
        assert_true(fold_is_plain(f.words, f.n_word));
        free(f.words);
    }
    assert_in_range(n_plain, 0, KERNEL_COUNT / 2); /* most have some */
}

TEST_PROGRAM(fold)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations),   cmocka_unit_test(defaults),
        cmocka_unit_test(nested),       cmocka_unit_test(composites),
        cmocka_unit_test(inserts_deep), cmocka_unit_test(size_by_id),
        cmocka_unit_test(widths),       cmocka_unit_test(refusals),
        cmocka_unit_test(kernels),      cmocka_unit_test(changed_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
