/* GGUF files, malformed and well-formed, as words that gguf_build turns into bytes:
 *
 *     'text        the bytes of text
 *     =text        a string: its length in 8 bytes, and its bytes
 *     b1 h1 w1 d1  a number of 1, 2, 4 or 8 bytes
 *     x00ff        bytes in hexadecimal
 *     p32          zeros up to a multiple of 32
 *     z100         100 bytes that count from 0
 */
#ifndef GGUF_CASES_H
#define GGUF_CASES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Up to the counts; one key; one u32; one tensor of one axis. */
#define HEAD(tensors, keys) "'GGUF w3 d" #tensors " d" #keys " "
#define KEY(key, type) "=" key " w" #type " "
#define U32(key, value) KEY(key, 4) "w" #value " "
#define TENSOR(name, axis, type, offset) "=" name " w1 d" #axis " w" #type " d" #offset " "
#define ALIGNMENT "general.alignment"
#define LONG_16 "0123456789abcdef"
#define LONG_64 LONG_16 LONG_16 LONG_16 LONG_16

struct gguf_case {
    const char *words;
    const char *told; /* malformed: some words of the sentence; else what is read */
};

/* Types of tensors that files may have, as the format's documentation numbers them. */
static const struct {
    unsigned number;
    const char *name;
    unsigned values, size; /* of a block: values, and bytes */
} gguf_types[] = {
    {0, "f32", 1, 4},         {1, "f16", 1, 2},         {2, "q4_0", 32, 18},
    {3, "q4_1", 32, 20},      {6, "q5_0", 32, 22},      {7, "q5_1", 32, 24},
    {8, "q8_0", 32, 34},      {10, "q2_K", 256, 84},    {11, "q3_K", 256, 110},
    {12, "q4_K", 256, 144},   {13, "q5_K", 256, 176},   {14, "q6_K", 256, 210},
    {15, "q8_K", 256, 292},   {16, "iq2_xxs", 256, 66}, {17, "iq2_xs", 256, 74},
    {18, "iq3_xxs", 256, 98}, {19, "iq1_s", 256, 50},   {20, "iq4_nl", 32, 18},
    {21, "iq3_s", 256, 110},  {22, "iq2_s", 256, 82},   {23, "iq4_xs", 256, 136},
    {24, "i8", 1, 1},         {25, "i16", 1, 2},        {26, "i32", 1, 4},
    {27, "i64", 1, 8},        {28, "f64", 1, 8},        {29, "iq1_m", 256, 56},
    {30, "bf16", 1, 2},       {34, "tq1_0", 256, 54},   {35, "tq2_0", 256, 66},
    {39, "mxfp4", 32, 17},    {40, "nvfp4", 64, 36},    {41, "q1_0", 128, 18},
};
#define GGUF_TYPE_COUNT (sizeof gguf_types / sizeof gguf_types[0])

static const struct gguf_case malformed_gguf[] = {
    /* The first bytes. */
    {"", "not a GGUF file"},
    {"'G", "not a GGUF file"},
    {"'GGU", "not a GGUF file"},
    {"'GGUf w3 d0 d0", "not a GGUF file"},
    {"'FUGG w3 d0 d0", "not a GGUF file"},
    {"'ggml w3 d0 d0", "not a GGUF file"},
    {"w0 w3 d0 d0", "not a GGUF file"},
    {"xefbbbf 'GGUF w3 d0 d0", "not a GGUF file"},
    {"'GGUF", "4 bytes are too few"},
    {"'GGUF w3", "8 bytes are too few"},
    {"'GGUF w3 d0 w0", "20 bytes are too few"},
    {"'GGUF w3 d0 w0 h0 b0", "23 bytes are too few"},
    {"'GGUF w0 d0 d0", "version 0"},
    {"'GGUF w1 w0 w0 d0", "version 1 "},
    {"'GGUF w4 d0 d0", "version 4"},
    {"'GGUF w5 d0 d0", "version 5"},
    {"'GGUF w258 d0 d0", "version 258"},
    {"'GGUF w0xffffffff d0 d0", "version 4294967295"},
    {"'GGUF w0x03000000 d0 d0", "big-endian"},
    {"'GGUF w0x02000000 d0 d0", "big-endian"},
    {"'GGUF w0x01000000 d0 d0", "big-endian"},
    /* Counts that the file has no room for. */
    {HEAD(0, 1), "1 keys do not fit"},
    {HEAD(0, 1) "z13", "1 keys do not fit"},
    {HEAD(0, 2) "z27", "2 keys do not fit"},
    {HEAD(1, 0), "1 tensors do not fit"},
    {HEAD(1, 0) "z24", "1 tensors do not fit"},
    {HEAD(1, 1) "z38", "1 tensors do not fit"},
    {HEAD(3, 0) "z74", "3 tensors do not fit"},
    {HEAD(0, 0x100000000), "4294967296 keys do not fit"},
    {HEAD(0, 0x8000000000000000) "z100", "9223372036854775808 keys do not fit"},
    {HEAD(0, 0xffffffffffffffff) "z100", "18446744073709551615 keys do not fit"},
    {HEAD(0x100000000, 0) "z100", "4294967296 tensors do not fit"},
    {HEAD(0x8000000000000000, 0) "z100", "9223372036854775808 tensors do not fit"},
    {HEAD(0xffffffffffffffff, 0) "z100", "18446744073709551615 tensors do not fit"},
    {HEAD(0xffffffffffffffff, 0xffffffffffffffff) "z100", "keys do not fit"},
    {HEAD(0x0a3d70a3d70a3d71, 0) "z100", "tensors do not fit"}, /* times 25: 2^64 and 9 */
    {HEAD(0, 0x1249249249249250) "z100", "keys do not fit"},    /* times 14: 2^64 and 96 */
    /* Keys. */
    {HEAD(0, 1) "d0 w0 b1 z20", "the name of key 0 has 0 bytes"},
    {HEAD(0, 1) "d65536 z65540 w0 b1", "the name of key 0 has 65536 bytes"},
    {HEAD(0, 1) "d100 z40", "the file ends within the name of key 0"},
    {HEAD(0, 1) "d7 z6", "the file ends within the name of key 0"},
    {HEAD(0, 1) "d0xffffffffffffffff z40", "the name of key 0 has 18446744073709551615 bytes"},
    {HEAD(0, 1) "d0x8000000000000001 z40", "has 9223372036854775809 bytes"},
    {HEAD(0, 2) U32("a", 1) "z14", "the name of key 1 has"},
    {HEAD(0, 2) U32("abcdefgh", 1) "w0 z2", "the file ends before the name of key 1"},
    {HEAD(0, 1) "d1 xff w4 w1", "of key 0 is not UTF-8"},
    {HEAD(0, 1) "d2 xc080 w4 w1", "of key 0 is not UTF-8"},
    {HEAD(0, 1) "d3 xeda080 w4 w1", "of key 0 is not UTF-8"},
    {HEAD(0, 1) "d4 xf4908080 w4 w1", "of key 0 is not UTF-8"},
    {HEAD(0, 1) "d2 xe282 w4 w1", "of key 0 is not UTF-8"},
    {HEAD(0, 1) "d1 xc3 w0xa9 w1", "of key 0 is not UTF-8"},
    {HEAD(0, 1) "d3 'a x00 'b w4 w1", "of key 0 is not UTF-8, or has a 0 byte"},
    {HEAD(0, 1) "d1 x00 w4 w1", "of key 0 is not UTF-8, or has a 0 byte"},
    {HEAD(0, 2) U32("a", 1) U32("a", 1), "the key 'a' occurs twice"},
    {HEAD(0, 2) U32("a", 1) KEY("a", 0) "b1", "the key 'a' occurs twice"},
    {HEAD(0, 3) U32("a", 1) U32("b", 1) U32("a", 1), "the key 'a' occurs twice"},
    /* Their types and values. */
    {HEAD(0, 1) "=abcdef h0", "the file ends within the value of key 'abcdef'"},
    {HEAD(0, 1) KEY("abcdef", 13) "d0", "key 'abcdef' has a value of type 13"},
    {HEAD(0, 1) KEY("a", 255) "d0", "key 'a' has a value of type 255"},
    {HEAD(0, 1) KEY("a", 0x80000000) "d0", "key 'a' has a value of type 2147483648"},
    {HEAD(0, 1) KEY("a", 0xffffffff) "d0", "key 'a' has a value of type 4294967295"},
    {HEAD(0, 1) KEY("ab", 0), "within the value of key 'ab'"},
    {HEAD(0, 1) KEY("ab", 1), "within the value of key 'ab'"},
    {HEAD(0, 1) KEY("ab", 2) "b0", "within the value of key 'ab'"},
    {HEAD(0, 1) KEY("ab", 3) "b0", "within the value of key 'ab'"},
    {HEAD(0, 1) KEY("ab", 4) "b0 h0", "within the value of key 'ab'"},
    {HEAD(0, 1) KEY("ab", 5) "b0 h0", "within the value of key 'ab'"},
    {HEAD(0, 1) KEY("ab", 6) "b0 h0", "within the value of key 'ab'"},
    {HEAD(0, 1) KEY("ab", 7), "within the value of key 'ab'"},
    {HEAD(0, 1) KEY("ab", 10) "z7", "within the value of key 'ab'"},
    {HEAD(0, 1) KEY("ab", 11) "z7", "within the value of key 'ab'"},
    {HEAD(0, 1) KEY("ab", 12) "z7", "within the value of key 'ab'"},
    {HEAD(0, 1) KEY("a", 7) "b2", "key 'a' has a bool of 2"},
    {HEAD(0, 1) KEY("a", 7) "b255", "key 'a' has a bool of 255"},
    {HEAD(0, 1) KEY("a", 8) "w0", "within string 0 of 1 of key 'a'"},
    {HEAD(0, 1) KEY("a", 8) "d1", "within string 0 of 1 of key 'a'"},
    {HEAD(0, 1) KEY("a", 8) "d9 z8", "within string 0 of 1 of key 'a'"},
    {HEAD(0, 1) KEY("a", 8) "d0xffffffffffffffff z8", "within string 0 of 1 of key 'a'"},
    {HEAD(0, 1) KEY("a", 8) "d0xfffffffffffffff8 z8", "within string 0 of 1 of key 'a'"},
    /* Arrays. */
    {HEAD(0, 1) KEY("abc", 9) "h4", "within the value of key 'abc'"},
    {HEAD(0, 1) KEY("abc", 9) "w4 w0", "within the value of key 'abc'"},
    {HEAD(0, 1) KEY("a", 9) "w13 d0", "key 'a' has items of type 13"},
    {HEAD(0, 1) KEY("a", 9) "w0xffffffff d0", "key 'a' has items of type 4294967295"},
    {HEAD(0, 1) KEY("a", 9) "w9 d0", "an array of arrays"},
    {HEAD(0, 1) KEY("a", 9) "w9 d1 w4 d1 w7", "an array of arrays"},
    {HEAD(0, 1) KEY("a", 9) "w9 d1 w9 d1 w9 d1 w9 d0", "an array of arrays"},
    {HEAD(0, 1) KEY("a", 9) "w4 d1 h0 b0", "within the value of key 'a'"},
    {HEAD(0, 1) KEY("a", 9) "w4 d2 w0", "within the value of key 'a'"},
    {HEAD(0, 1) KEY("a", 9) "w0 d5 w0", "within the value of key 'a'"},
    {HEAD(0, 1) KEY("a", 9) "w4 d0x4000000000000000 w0", "within the value of key 'a'"},
    {HEAD(0, 1) KEY("a", 9) "w4 d0x4000000000000001 w0", "within the value of key 'a'"},
    {HEAD(0, 1) KEY("a", 9) "w12 d0x2000000000000001 d0", "within the value of key 'a'"},
    {HEAD(0, 1) KEY("a", 9) "w0 d0xffffffffffffffff d0", "within the value of key 'a'"},
    {HEAD(0, 1) KEY("a", 9) "w7 d3 b0 b1 b2", "key 'a' has a bool of 2"},
    {HEAD(0, 1) KEY("a", 9) "w7 d2 b3 b1", "key 'a' has a bool of 3"},
    {HEAD(0, 1) KEY("a", 9) "w8 d1", "within string 0 of 1 of key 'a'"},
    {HEAD(0, 1) KEY("a", 9) "w8 d2 =b w0", "within string 1 of 2 of key 'a'"},
    {HEAD(0, 1) KEY("a", 9) "w8 d3 =b =cd d5 'efgh", "within string 2 of 3 of key 'a'"},
    {HEAD(0, 1) KEY("a", 9) "w8 d0xffffffffffffffff =b", "within string 1 of 18446744073709551615"},
    {HEAD(0, 1) KEY("a", 9) "w8 d2 =b d0xffffffffffffffff 'c", "within string 1 of 2 of key 'a'"},
    {HEAD(0, 1) KEY("a", 9) "w8 d2 =b d0xfffffffffffffff0 'c", "within string 1 of 2 of key 'a'"},
    /* The alignment. */
    {HEAD(0, 1) KEY(ALIGNMENT, 10) "d32", "general.alignment is of type u64, not u32"},
    {HEAD(0, 1) KEY(ALIGNMENT, 5) "w32", "general.alignment is of type i32, not u32"},
    {HEAD(0, 1) KEY(ALIGNMENT, 8) "=32", "general.alignment is of type string, not u32"},
    {HEAD(0, 1) KEY(ALIGNMENT, 9) "w4 d1 w32", "general.alignment is of type array, not u32"},
    {HEAD(0, 1) U32(ALIGNMENT, 0), "general.alignment is 0, not a power"},
    {HEAD(0, 1) U32(ALIGNMENT, 1), "general.alignment is 1, not a power"},
    {HEAD(0, 1) U32(ALIGNMENT, 2), "general.alignment is 2, not a power"},
    {HEAD(0, 1) U32(ALIGNMENT, 4), "general.alignment is 4, not a power"},
    {HEAD(0, 1) U32(ALIGNMENT, 24), "general.alignment is 24, not a power"},
    {HEAD(0, 1) U32(ALIGNMENT, 33), "general.alignment is 33, not a power"},
    {HEAD(0, 1) U32(ALIGNMENT, 0xffffffff), "general.alignment is 4294967295, not a power"},
    {HEAD(0, 2) U32(ALIGNMENT, 32) U32(ALIGNMENT, 64), "the key 'general.alignment' occurs twice"},
    /* Names of tensors. */
    {HEAD(1, 0) "d0 w1 d1 w0 d0 p32 z4", "the name of tensor 0 has 0 bytes"},
    {HEAD(1, 0) TENSOR(LONG_64 "x", 1, 0, 0) "p32 z4", "the name of tensor 0 has 65 bytes"},
    {HEAD(1, 0) "d60 z50", "the file ends within the name of tensor 0"},
    {HEAD(1, 0) "d0xffffffffffffffff z50", "the name of tensor 0 has 18446744073709551615"},
    {HEAD(2, 0) TENSOR("abcdefghijklmnop", 1, 0, 0) "w0",
     "the file ends before the name of tensor 1"},
    {HEAD(1, 0) "d1 xff w1 d1 w0 d0 p32 z4", "of tensor 0 is not UTF-8"},
    {HEAD(1, 0) "d2 xc328 w1 d1 w0 d0 p32 z4", "of tensor 0 is not UTF-8"},
    {HEAD(1, 0) "d2 'a x00 w1 d1 w0 d0 p32 z4", "of tensor 0 is not UTF-8, or has a 0 byte"},
    {HEAD(2, 0) TENSOR("a", 1, 0, 0) TENSOR("a", 1, 0, 32) "p32 z36", "the name 'a' occurs twice"},
    {HEAD(3, 0) TENSOR("b", 1, 0, 0) TENSOR("a", 1, 0, 32) TENSOR("b", 1, 0, 64) "p32 z68",
     "the name 'b' occurs twice"},
    /* Shapes. */
    {HEAD(1, 0) "=a w5 d1 d1 d1 d1 d1 w0 d0 p32 z4", "tensor 'a' has 5 axes"},
    {HEAD(1, 0) "=a w0xffffffff z40", "tensor 'a' has 4294967295 axes"},
    {HEAD(1, 0) "=abcdefghijklmnop h0", "the description of tensor 'abcdefghijklmnop'"},
    {HEAD(1, 0) "=abcdefgh w2 d1 w1", "the description of tensor 'abcdefgh'"},
    {HEAD(1, 0) "=a w2 d33 d0 w8 d0 p32 z4", "tensor 'a' has rows of 33"},
    {HEAD(1, 0) TENSOR("a", 0, 0, 1) "p32 z4", "tensor 'a' has offset 1"},
    {HEAD(1, 0) "=a w2 d0xffffffffffffffff d0 w0 d0 p32 z4", "'a' has a shape that overflows"},
    {HEAD(1, 0) TENSOR("a", 0x4000000000000000, 0, 0) "p32 z4", "'a' has a shape that overflows"},
    {HEAD(1, 0) TENSOR("a", 0xffffffffffffffff, 24, 0) "p32 z4", "'a' has a shape that overflows"},
    {HEAD(1, 0) TENSOR("a", 0x8000000000000000, 24, 0) "p32 z4", "'a' has a shape that overflows"},
    {HEAD(1, 0) "=a w2 d0x100000000 d0x100000000 w24 d0 p32 z4", "'a' has a shape that overflows"},
    {HEAD(1, 0) "=a w2 d0x100000001 d0x100000000 w24 d0 p32 z4", "'a' has a shape that overflows"},
    {HEAD(1, 0) "=a w3 d0x40000000 d0x40000000 d8 w24 d0 p32 z4", "'a' has a shape that overflows"},
    {HEAD(1, 0) "=a w4 d65536 d65536 d65536 d65536 w24 d0 p32 z4",
     "'a' has a shape that overflows"},
    {HEAD(1, 0) TENSOR("a", 0x7ffffffffffffff0, 8, 0) "p32 z34", "tensor 'a' has rows of"},
    {HEAD(1, 0) TENSOR("a", 0xffffffffffffffe0, 8, 0) "p32 z34", "'a' has a shape that overflows"},
    /* Types. */
    {HEAD(1, 0) TENSOR("a", 32, 4, 0) "p32 z40", "tensor 'a' has the unknown type 4"},
    {HEAD(1, 0) TENSOR("a", 32, 5, 0) "p32 z40", "tensor 'a' has the unknown type 5"},
    {HEAD(1, 0) TENSOR("a", 32, 31, 0) "p32 z40", "tensor 'a' has the unknown type 31"},
    {HEAD(1, 0) TENSOR("a", 32, 32, 0) "p32 z40", "tensor 'a' has the unknown type 32"},
    {HEAD(1, 0) TENSOR("a", 32, 33, 0) "p32 z40", "tensor 'a' has the unknown type 33"},
    {HEAD(1, 0) TENSOR("a", 32, 36, 0) "p32 z40", "tensor 'a' has the unknown type 36"},
    {HEAD(1, 0) TENSOR("a", 32, 37, 0) "p32 z40", "tensor 'a' has the unknown type 37"},
    {HEAD(1, 0) TENSOR("a", 32, 38, 0) "p32 z40", "tensor 'a' has the unknown type 38"},
    {HEAD(1, 0) TENSOR("a", 32, 42, 0) "p32 z40", "tensor 'a' has the unknown type 42"},
    {HEAD(1, 0) TENSOR("a", 32, 0x80000000, 0) "p32 z40", "the unknown type 2147483648"},
    {HEAD(1, 0) TENSOR("a", 32, 0xffffffff, 0) "p32 z40", "the unknown type 4294967295"},
    {HEAD(1, 0) TENSOR("a", 32, 9, 0) "p32 z40", "has type q8_1, which is not supported"},
    {HEAD(1, 0) "=abcdefgh w1 d32 h0", "the description of tensor 'abcdefgh'"},
    {HEAD(1, 0) TENSOR("a", 31, 8, 0) "p32 z34", "rows of 31, but blocks of q8_0 hold 32"},
    {HEAD(1, 0) TENSOR("a", 33, 8, 0) "p32 z68", "rows of 33, but blocks of q8_0 hold 32"},
    {HEAD(1, 0) TENSOR("a", 128, 12, 0) "p32 z144", "rows of 128, but blocks of q4_K hold 256"},
    {HEAD(1, 0) "=a w2 d16 d2 w2 d0 p32 z18", "rows of 16, but blocks of q4_0 hold 32"},
    {HEAD(1, 0) "=abcdefgh w0 w8 d0 p32 z34", "rows of 1, but blocks of q8_0 hold 32"},
    /* Offsets. */
    {HEAD(1, 0) "=abcdefgh w1 d1 w0 w0", "the description of tensor 'abcdefgh'"},
    {HEAD(1, 0) TENSOR("a", 1, 0, 1) "p32 z64", "tensor 'a' has offset 1, not a multiple of 32"},
    {HEAD(1, 0) TENSOR("a", 1, 0, 16) "p32 z64", "offset 16, not a multiple of 32"},
    {HEAD(1, 1) U32(ALIGNMENT, 64) TENSOR("a", 1, 0, 32) "p64 z64",
     "offset 32, not a multiple of 64"},
    {HEAD(1, 0) TENSOR("a", 1, 0, 32) "p32 z32", "has 4 bytes at offset 32, which pass the 32"},
    {HEAD(1, 0) TENSOR("a", 1, 0, 64) "p32 z32", "has 4 bytes at offset 64, which pass the 32"},
    {HEAD(1, 0) TENSOR("a", 1, 0, 0xffffffffffffffe0) "p32 z32", "which pass the 32 bytes of data"},
    {HEAD(1, 0) TENSOR("a", 1, 0, 0x8000000000000000) "p32 z32", "which pass the 32 bytes of data"},
    /* The data. */
    {HEAD(1, 0) TENSOR("a", 1, 0, 0), "the data would begin at byte 64, but the file has 57"},
    {HEAD(1, 0) TENSOR("a", 1, 0, 0) "p32", "the data would begin at byte 64, but the file has 64"},
    {HEAD(1, 0) TENSOR("a", 1, 0, 0) "p32 z3", "has 4 bytes at offset 0, which pass the 3"},
    {HEAD(1, 0) TENSOR("a", 32, 8, 0) "p32 z33", "has 34 bytes at offset 0, which pass the 33"},
    {HEAD(1, 1) U32(ALIGNMENT, 0x80000000) TENSOR("a", 1, 0, 0) "p32 z32", "byte 2147483648"},
    {HEAD(2, 0) TENSOR("a", 1, 0, 0) TENSOR("b", 8, 0, 32) "p32 z63", "tensor 'b' has 32 bytes"},
    {HEAD(2, 0) TENSOR("a", 1, 0, 0) TENSOR("b", 1, 0, 0) "p32 z4", "overlap at byte 96"},
    {HEAD(2, 0) TENSOR("a", 9, 0, 0) TENSOR("b", 1, 0, 32) "p32 z36",
     "tensors 'a' and 'b' overlap at byte 128"},
    {HEAD(2, 0) TENSOR("b", 1, 0, 32) TENSOR("a", 9, 0, 0) "p32 z36",
     "tensors 'a' and 'b' overlap at byte 128"},
    {HEAD(3, 0) TENSOR("a", 64, 24, 0) TENSOR("b", 32, 24, 64) TENSOR("c", 1, 24, 32) "p32 z96",
     "tensors 'a' and 'c' overlap"},
};

/* What is read: keys, each with its type, of arrays the type of their items and their number; then
 * tensors, each with its type, its shape, the offset of its data in the file, and its bytes. */
static const struct gguf_case wellformed_gguf[] = {
    {HEAD(0, 0), ""},
    {"'GGUF w2 d0 d0", ""},
    {HEAD(0, 0) "p32", ""},
    {HEAD(0, 0) "z7", ""},
    {HEAD(0, 1) U32("a", 1), "a:u32"},
    {"'GGUF w2 d0 d1 " U32("a", 1), "a:u32"},
    {HEAD(0, 1) KEY("a", 0) "b255", "a:u8"},
    {HEAD(0, 1) KEY("a", 1) "b255", "a:i8"},
    {HEAD(0, 1) KEY("a", 2) "h65535", "a:u16"},
    {HEAD(0, 1) KEY("a", 3) "h65535", "a:i16"},
    {HEAD(0, 1) KEY("a", 5) "w0xffffffff", "a:i32"},
    {HEAD(0, 1) KEY("a", 6) "w0x7fc00000", "a:f32"},
    {HEAD(0, 1) KEY("a", 7) "b0", "a:bool"},
    {HEAD(0, 1) KEY("a", 7) "b1", "a:bool"},
    {HEAD(0, 1) KEY("a", 8) "d0", "a:string"},
    {HEAD(0, 1) KEY("a", 8) "=text", "a:string"},
    {HEAD(0, 1) KEY("a", 8) "d3 x00ff0a", "a:string"},
    {HEAD(0, 1) KEY("a", 10) "d0xffffffffffffffff", "a:u64"},
    {HEAD(0, 1) KEY("a", 11) "d0xffffffffffffffff", "a:i64"},
    {HEAD(0, 1) KEY("a", 12) "d0x7ff0000000000000", "a:f64"},
    {HEAD(0, 1) KEY("a", 9) "w4 d0", "a:array:u32:0"},
    {HEAD(0, 1) KEY("a", 9) "w8 d0", "a:array:string:0"},
    {HEAD(0, 1) KEY("a", 9) "w0 d3 b1 b2 b3", "a:array:u8:3"},
    {HEAD(0, 1) KEY("a", 9) "w3 d2 h1 h2", "a:array:i16:2"},
    {HEAD(0, 1) KEY("a", 9) "w7 d2 b1 b0", "a:array:bool:2"},
    {HEAD(0, 1) KEY("a", 9) "w12 d1 d1", "a:array:f64:1"},
    {HEAD(0, 1) KEY("a", 9) "w8 d3 =b d0 =cde", "a:array:string:3"},
    {HEAD(0, 2) U32("b", 1) KEY("a", 8) "=x", "b:u32 a:string"},
    {HEAD(0, 1) "d5 xc3a9 'e x0a 'f w4 w1", "\xc3\xa9"
                                            "e\nf:u32"},
    {HEAD(0, 1) U32(ALIGNMENT, 8), "general.alignment:u32"},
    {HEAD(0, 1) U32(ALIGNMENT, 0x80000000), "general.alignment:u32"},
    {HEAD(0, 1) U32("general.alignmen", 3), "general.alignmen:u32"},
    {HEAD(1, 0) TENSOR("a", 0, 0, 0) "p32 z4", "a:f32[0]@64+0"},
    {HEAD(1, 0) TENSOR("a", 0, 0, 0), "a:f32[0]@57+0"},
    {HEAD(1, 0) TENSOR("a", 0, 0, 96) "p32 z4", "a:f32[0]@68+0"},
    {HEAD(1, 0) "=a w2 d0 d4 w0 d0 p32 z4", "a:f32[4,0]@96+0"},
    {HEAD(1, 0) "=a w2 d4 d0 w0 d0 p32 z4", "a:f32[0,4]@96+0"},
    {HEAD(1, 0) "=a w4 d4096 d4 d4 d0 w0 d0 p32 z4", "a:f32[0,4,4,4096]@96+0"},
    {HEAD(2, 0) TENSOR("a", 0, 0, 0) TENSOR("b", 8, 0, 0) "p32 z32",
     "a:f32[0]@96+0 b:f32[8]@96+32"},
    {HEAD(3, 0) TENSOR("a", 16, 0, 0) TENSOR("b", 0, 0, 32) TENSOR("c", 0, 0, 64) "p32 z64",
     "a:f32[16]@128+64 b:f32[0]@160+0 c:f32[0]@192+0"},
    {HEAD(1, 0) TENSOR("a", 1, 0, 0) "p32 z4", "a:f32[1]@64+4"},
    {"'GGUF w2 d1 d0 " TENSOR("a", 1, 0, 0) "p32 z4", "a:f32[1]@64+4"},
    {HEAD(1, 0) TENSOR("a", 1, 0, 0) "p32 z4 p32", "a:f32[1]@64+4"},
    {HEAD(1, 0) TENSOR("a", 1, 0, 0) "p32 z50", "a:f32[1]@64+4"},
    {HEAD(1, 0) TENSOR("a", 1, 0, 32) "p32 z36", "a:f32[1]@96+4"},
    {HEAD(1, 0) "=a w0 w0 d0 p32 z4", "a:f32[]@64+4"},
    {HEAD(1, 0) "=a w2 d64 d3 w8 d0 p32 z204", "a:q8_0[3,64]@96+204"},
    {HEAD(1, 0) "=a w4 d2 d3 d5 d7 w1 d0 p32 z420", "a:f16[7,5,3,2]@96+420"},
    {HEAD(1, 0) TENSOR(LONG_64, 1, 0, 0) "p32 z4", LONG_64 ":f32[1]@128+4"},
    {HEAD(1, 1) U32(ALIGNMENT, 8) TENSOR("a", 1, 24, 8) "p8 z9",
     "general.alignment:u32 a:i8[1]@104+1"},
    {HEAD(1, 1) U32(ALIGNMENT, 64) TENSOR("a", 1, 24, 64) "p64 z65",
     "general.alignment:u32 a:i8[1]@192+1"},
    {HEAD(2, 0) TENSOR("a", 8, 0, 0) TENSOR("b", 8, 0, 32) "p32 z64",
     "a:f32[8]@96+32 b:f32[8]@128+32"},
    {HEAD(2, 0) TENSOR("b", 8, 0, 32) TENSOR("a", 8, 0, 0) "p32 z64",
     "b:f32[8]@128+32 a:f32[8]@96+32"},
    {HEAD(2, 0) TENSOR("a", 8, 0, 0) TENSOR("b", 8, 0, 96) "p32 z128",
     "a:f32[8]@96+32 b:f32[8]@192+32"},
    {HEAD(2, 3) U32("general.quantization_version", 2)
         KEY("tokens", 9) "w8 d3 =one =two =three " KEY("eps", 6) "w0x3727c5ac " TENSOR(
             "blk.0.attn_q.weight", 32, 8, 0) TENSOR("output_norm.weight", 4, 0, 64) "p32 z80",
     "general.quantization_version:u32 tokens:array:string:3 eps:f32 "
     "blk.0.attn_q.weight:q8_0[32]@256+34 output_norm.weight:f32[4]@320+16"},
};

static size_t gguf_number(const char *word, size_t size, unsigned char *to)
{
    const unsigned long long number = strtoull(word, NULL, 0);

    for (size_t i = 0; i < size; i++)
        to[i] = (unsigned char)(number >> 8 * i);
    return size;
}

static size_t gguf_hex(const char *word, size_t length, unsigned char *to)
{
    for (size_t i = 0; i < length / 2; i++) {
        const char digits[3] = {word[2 * i], word[2 * i + 1], 0};

        to[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return length / 2;
}

/* Turns words into bytes; returns how many. to[] has room for 128 KiB. */
static size_t gguf_build(const char *words, unsigned char *to)
{
    size_t size = 0;

    for (const char *word = words + strspn(words, " "); *word; word += strspn(word, " ")) {
        const size_t length = strcspn(word, " ") - 1;
        const char kind = *word++;
        const size_t number = strtoull(word, NULL, 0);

        if (kind == '=')
            for (int i = 0; i < 8; i++)
                to[size++] = (unsigned char)((uint64_t)length >> 8 * i);
        if (kind == '=' || kind == '\'') {
            memcpy(to + size, word, length);
            size += length;
        } else if (kind == 'x') {
            size += gguf_hex(word, length, to + size);
        } else if (kind == 'p') {
            while (size % number)
                to[size++] = 0;
        } else if (kind == 'z') {
            for (size_t i = 0; i < number; i++)
                to[size++] = (unsigned char)i;
        } else {
            size += gguf_number(word,
                                kind == 'b'   ? 1
                                : kind == 'h' ? 2
                                : kind == 'w' ? 4
                                              : 8,
                                to + size);
        }
        word += length;
    }
    return size;
}
#define GGUF_ROOM (128 << 10)

#endif
