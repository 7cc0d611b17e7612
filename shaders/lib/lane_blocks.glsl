// Blocks of quantised B that a lane reads from memory by itself: MATMUL_BLOCK neighbours along k of
// each of its OWN_COLUMNS columns, of a type whose bundles are whole words, see BUNDLE_PAIR_WORDS,
// or of q6_K and q3_K, whose words begin at half words, or q2_K. They stay words in registers;
// integers are unpacked sixteen at a time, exactly, without the bias.
//
// A nibble is put into the mantissa of a float and what this adds is subtracted, which takes no
// conversion. With HALF, of a float16, two values an instruction, and bytes too: for devices whose
// fma() takes a float16 operand.

// A block is read at once, or by two reads, of q6_K by four, where many rows need the registers.
const uint LANE_READS = ROWS <= FEW_WHOLE_ROWS ? 1 : B_TYPE == TYPE_Q6_K ? 4 : 2;
const bool SIXES = HAS_SIXES(B_TYPE);
const uint HEAD_WORDS = B_TYPE == TYPE_Q5_K ? 12 : 4; // of SIXES
const bool TWOS = B_TYPE == TYPE_Q3_K || B_TYPE == TYPE_Q2_K; // the low two bits of a value in a byte
const uint LANE_WORDS = SIXES                         ? HEAD_WORDS + 16 / LANE_READS
                        : B_TYPE == TYPE_IQ4_XS       ? 2 + 16 / LANE_READS
                        : B_TYPE == TYPE_Q6_K         ? (LANE_READS > 1 ? 18 : 27)
                        : TWOS                        ? (B_TYPE == TYPE_Q3_K ? 20 : 11)
                        : B_TYPE == TYPE_I4_G128      ? 1 + 16 / LANE_READS
                        : BUNDLE_PAIR_WORDS(B_TYPE) != 0 ? BUNDLE_PAIR_WORDS(B_TYPE) / LANE_READS
                                                      : 2u;
const uint LANE_STEP = B_VEC != 2 ? 1 : LANE_WORDS % 4 == 0 ? 4 : LANE_WORDS % 2 == 0 ? 2 : 1;
// Whether rows of aligned vectors of 16 bytes end with whole blocks: bundles of q5_1 are 48 bytes, and one
// may be left. No &&: glslang takes it for a branch.
const bool LANE_WHOLE = (LANE_STEP == 1 ? 0 : BUNDLE_PAIR_WORDS(B_TYPE) % 8) != 0;
// SIXES, iq4_xs: the header, of q5_K with fifth bits, then the integers; i4_g128: the integers, then
// scale and zero point; q6_K, TWOS: low bits of half a block, high bits, scales, the scale of scales.
uint lane_words[OWN_COLUMNS * LANE_WORDS];
// Scale and offset of each 32 values, of q2_K 16; PAIR_SCALES: two scales of 16.
const bool PAIR_SCALES = B_TYPE == TYPE_Q6_K || B_TYPE == TYPE_NVFP4 || B_TYPE == TYPE_Q3_K;
const uint LANE_SCALES = B_TYPE == TYPE_Q2_K ? 8 : 4; // of a column
vec2 lane_scales[OWN_COLUMNS * LANE_SCALES];

// Words i .. i + LANE_STEP - 1 of B, i counted in such steps.
uvec4 load_step(uint i)
{
    if (LANE_STEP == 4)
        return b_vectors[i];
    return LANE_STEP == 2 ? uvec4(b_pairs[i], 0, 0) : uvec4(b_words[i], 0, 0, 0);
}

// `count` words from byte `at`, a multiple of 2.
void load_lane_halves(uint first, uint at, uint count)
{
    bool odd = (at & 2u) != 0u;
    uint low = b_words[at >> 2];
    [[unroll]] for (uint i = 0; i < count; i++) {
        uint high = b_words[(at + 2u >> 2) + i];
        lane_words[first + i] = odd ? low >> 16 | high << 16 : high;
        low = high;
    }
}

const uint LOW_WORDS = LANE_READS > 1 ? 8 : 16; // of q6_K

// Half a block of q6_K of the row that begins at byte `line`, a multiple of 2, or what one read
// takes.
void load_lane_q6_k(uint column, uint line, uint block, uint read)
{
    uint base = line + block / 2 * BLOCK_BYTES(TYPE_Q6_K), side = block % 2;
    uint first = column * LANE_WORDS, at = base + 192u + 8u * side + 2u * read, d = base + 208u;
    load_lane_halves(first, base + 64u * side + 32u * (read % 2), LOW_WORDS);
    load_lane_halves(first + LOW_WORDS, base + 128u + 32u * side, 8);
    if (LANE_READS > 1)
        lane_words[first + 16] = b_words[at >> 2] >> 8u * (at & 2u);
    else
        load_lane_halves(first + 24, at, 2);
    lane_words[first + LANE_WORDS - 1] = b_words[d >> 2] >> 8u * (d & 2u);
}

// A line of TWOS, all of it; q2_K's line is a multiple of 4.
void load_lane_twos(uint column, uint line, uint block)
{
    uint base = line + block / 2 * BLOCK_BYTES(B_TYPE), side = block % 2;
    uint first = column * LANE_WORDS, d = base + 108u;
    if (B_TYPE == TYPE_Q3_K) {
        load_lane_halves(first, base + 32u + 32u * side, 8);
        load_lane_halves(first + 8, base, 8);
        load_lane_halves(first + 16, base + 96u, 3);
        lane_words[first + LANE_WORDS - 1] = b_words[d >> 2] >> 8u * (d & 2u);
        return;
    }
    [[unroll]] for (uint i = 0; i < 8; i++)
        lane_words[first + i] = b_words[(base >> 2) + 4 + 8 * side + i];
    [[unroll]] for (uint i = 0; i < 2; i++)
        lane_words[first + 8 + i] = b_words[(base >> 2) + 2 * side + i];
    lane_words[first + 10] = b_words[(base >> 2) + 20];
}

// Makes read `read` of block `block` of the row that begins at byte `line`. `count` of its words
// are there.
void load_lane_words(uint column, uint line, uint block, uint read, uint count)
{
    if (B_TYPE == TYPE_Q6_K) {
        load_lane_q6_k(column, line, block, read);
        return;
    }
    if (TWOS) {
        load_lane_twos(column, line, block);
        return;
    }
    uint row = line / (4 * LANE_STEP), at = row, other = row; // of the integers, of the rest
    if (SIXES) {
        other += block / 2 * (BUNDLE_PAIR_WORDS(B_TYPE) * 2 / LANE_STEP);
        at = other + (block % 2 * 16 + read * 8) / LANE_STEP;
    } else if (B_TYPE == TYPE_IQ4_XS) {
        other += block / 2 * (34 / LANE_STEP);
        at = other + (block % 2 * 16 + read * 8) / LANE_STEP;
    } else if (B_TYPE == TYPE_I4_G128) {
        at += block * 17 + read * 8;
        other += block * 17 + 16;
    } else {
        at += (block * BUNDLE_PAIR_WORDS(B_TYPE) + read * LANE_WORDS) / LANE_STEP;
    }
    [[unroll]] for (uint i = 0; i < LANE_WORDS; i += LANE_STEP) {
        uint from = at + i / LANE_STEP;
        if (SIXES && i < HEAD_WORDS || B_TYPE == TYPE_IQ4_XS && i < 2)
            from = other + i / LANE_STEP;
        if (B_TYPE == TYPE_I4_G128 && i == LANE_WORDS - 1)
            from = other;
        uvec4 x = uvec4(0);
        if (LANE_WHOLE || EDGE == 0 || i < count)
            x = load_step(from);
        [[unroll]] for (uint e = 0; e < LANE_STEP; e++)
            lane_words[column * LANE_WORDS + i + e] = x[e];
    }
}

// Half word `i` of a block, and the word there.
uint lane_half(uint column, uint i)
{
    uint x = lane_words[column * LANE_WORDS + i / 2];
    return i % 2 == 0 ? x & 0xffffu : x >> 16;
}

uint lane_word(uint column, uint i)
{
    uint at = column * LANE_WORDS + i / 2;
    return i % 2 == 0 ? lane_words[at] : lane_words[at] >> 16 | lane_words[at + 1] << 16;
}

// Half words of 32 values, and those before their integers, the last two of which are fifth bits.
const uint SUB_HALVES = BUNDLE_PAIR_WORDS(B_TYPE) / 2;
const bool FIFTHS = B_TYPE == TYPE_Q5_0 || B_TYPE == TYPE_Q5_1;
const uint SUB_FIRST = (HAS_OFFSET(B_TYPE) ? 2 : 1) + (FIFTHS ? 2 : 0);
// What is to be subtracted from the integers; of i4_g128 it is the block's.
const int LANE_BIAS = B_TYPE == TYPE_Q4_0 ? 8 : B_TYPE == TYPE_Q5_0 ? 16 : 0;

// The values of a type that HAS_TABLE or IS_F8, by their bits: floats, with LANE_BYTES int8. With HALF of
// each byte its two nibbles': float16 in a word, or floats in two, where they are no float16. Arrays in
// registers that lanes index would be moved to memory.
#ifdef HALF
const uint TABLE_WORDS = FEW_TABLE_WORDS(B_TYPE, true);
#else
const uint TABLE_WORDS = FEW_TABLE_WORDS(B_TYPE, false);
#endif
const bool TABLE_BYTES = TABLE_WORDS > 16; // which choose a value or two
shared uint lane_table[TABLE_WORDS > 0 ? TABLE_WORDS : 1];

float table_value(uint i)
{
    if (IS_F8(B_TYPE))
        return four_f8(i, B_TYPE).x;
    if (B_TYPE == TYPE_NF4_G64)
        return from_nf4(i);
    return B_TYPE == TYPE_NVFP4 ? from_e2m1(i) : from_nonlinear(vec4(float(i & 15u) - 8.0)).x;
}

void init_table()
{
    for (uint i = gl_LocalInvocationIndex; i < TABLE_WORDS; i += THREADS) {
#ifdef HALF
        if (B_TYPE == TYPE_NF4_G64)
            lane_table[i] = floatBitsToUint(table_value(i >> 1 >> i % 2 * 4));
        else if (IS_F8(B_TYPE))
            lane_table[i] = floatBitsToUint(table_value(i));
        else
            lane_table[i] = packFloat2x16(f16vec2(table_value(i), table_value(i >> 4)));
#elif defined(LANE_BYTES)
        lane_table[i] = uint(int(table_value(i))) & 0xffu;
#else
        lane_table[i] = floatBitsToUint(table_value(i));
#endif
    }
}

// What the table has for the bytes of x, of whose halves `high` tells.
uvec4 look_up(uint x, bool high)
{
    const uint mask = TABLE_BYTES ? 255u : 15u;
    x >>= high && !TABLE_BYTES ? 4 : 0;
    uvec4 at = uvec4(x, x >> 8, x >> 16, x >> 24) & mask;
    if (TABLE_WORDS == 512)
        at = 2 * at + (high ? 1 : 0);
    return uvec4(lane_table[at.x], lane_table[at.y], lane_table[at.z], lane_table[at.w]);
}

// Two float16, as devices convert them, with subnormals as they are.
vec4 four_halves(uint x, uint y)
{
    vec4 f = vec4(unpackHalf2x16(x), unpackHalf2x16(y));
    uint normal = ((x & 0x7fff7fffu) + 0x7c007c00u) & ((y & 0x7fff7fffu) + 0x7c007c00u);
    if ((normal & 0x80008000u) != 0x80008000u) // from 2^-14 on, bit 15 of a half is set
        f = vec4(with_subnormals(x, f.xy), with_subnormals(y, f.zw));
    return f;
}

uint lane_pair(uint column, uint i, uint j)
{
    return lane_half(column, i) | lane_half(column, j) << 16;
}

// Sets lane_scales of a column, and shifts its fifth bits to the lowest; c is the bundle of 64 in
// the block of 256.
void unpack_lane_sixes(uint column, uint c)
{
    uint at = column * LANE_WORDS, low = lane_words[at + 1], least = lane_words[at + 2];
    uint more = lane_words[at + 3], shift = 16 * (c & 1);
    uint six = c < 2 ? low & 0x3f3f3f3fu : (more & 0x0f0f0f0fu) | (low >> 2 & 0x30303030u);
    uint min6 = c < 2 ? least & 0x3f3f3f3fu : (more >> 4 & 0x0f0f0f0fu) | (least >> 2 & 0x30303030u);
    vec4 d = four_halves(lane_words[at], lane_words[at]);
    vec4 scale = d.x * unsigned_bytes(six >> shift, 0), offset = -d.y * unsigned_bytes(min6 >> shift, 0);
    [[unroll]] for (uint i = 0; i < 4; i++)
        lane_scales[column * 4 + i] = vec2(scale[i], offset[i]);
    [[unroll]] for (uint i = 4; i < HEAD_WORDS; i++)
        lane_words[at + i] >>= 2 * c;
}

// Unpacks the scales of a slice of iq4_xs.
void unpack_lane_iq4_xs(uint column, uint c)
{
    uint head = lane_words[column * LANE_WORDS], high = head >> 16 + 4 * c;
    uint low = spread_nibbles(lane_words[column * LANE_WORDS + 1] >> 8 * c);
    high = (high & 0x3u) | (high & 0xcu) << 6 | (high & 0x30u) << 12 | (high & 0xc0u) << 18;
    vec4 scale = four_halves(head & 0xffffu, 0).x * unsigned_bytes(low | high << 4, 32);
    [[unroll]] for (uint i = 0; i < 4; i++)
        lane_scales[column * 4 + i] = vec2(scale[i], 0.0);
}

// Decodes TWOS, four sixteens at a time, of side `side` of the block; its high bits become the lowest.
void unpack_lane_twos(uint column, uint side, uint read)
{
    uint end = (column + 1) * LANE_WORDS, at = column * LANE_SCALES, x = lane_words[end - 1];
    vec4 d = B_TYPE == TYPE_Q2_K ? four_halves(x, x) : four_halves(x & 0xffffu | x << 16, 0x3c003c00u);
    [[unroll]] for (uint i = 0; i < 2 / LANE_READS; i++) {
        uint four = LANE_READS > 1 ? read : i;
        if (B_TYPE == TYPE_Q2_K) {
            x = four == 0 ? lane_words[end - 3] : lane_words[end - 2];
            vec4 scale = d.x * unsigned_bytes(x & 0x0f0f0f0fu, 0);
            vec4 offset = -d.y * unsigned_bytes(x >> 4 & 0x0f0f0f0fu, 0);
            [[unroll]] for (uint e = 0; e < 4; e++)
                lane_scales[at + 4 * i + e] = vec2(scale[e], offset[e]);
            continue;
        }
        x = four == 0 ? lane_words[end - 4] : lane_words[end - 3];
        uint high = lane_words[end - 2] >> 4 * side + 2 * four & 0x03030303u;
        vec4 scale = d.x * unsigned_bytes(x >> 4 * side & 0x0f0f0f0fu | high << 4, 32);
        lane_scales[at + 2 * i] = scale.xy;
        lane_scales[at + 2 * i + 1] = scale.zw;
    }
    [[unroll]] for (uint i = 0; B_TYPE == TYPE_Q3_K && i < 8; i++)
        lane_words[column * LANE_WORDS + 8 + i] >>= 4 * side;
}

void unpack_lane_scales(uint column, uint block, uint read)
{
    const uint n = SUB_HALVES;
    if (TWOS) {
        unpack_lane_twos(column, block % 2, read);
        return;
    }
    if (SIXES) {
        unpack_lane_sixes(column, block % 2 * 2 + read);
        return;
    }
    if (B_TYPE == TYPE_IQ4_XS) {
        unpack_lane_iq4_xs(column, block % 2 * 2 + read);
        return;
    }
    if (HAS_FLOATS(B_TYPE)) { // a scale for each bundle
        [[unroll]] for (uint i = 0; i < 4 / LANE_READS; i++) {
            uint x = lane_words[column * LANE_WORDS + i / 2 * (BUNDLE_PAIR_WORDS(B_TYPE) / 2)];
            lane_scales[column * 4 + i] = vec2(uintBitsToFloat(x), 0.0);
        }
        return;
    }
    if (B_TYPE == TYPE_NVFP4) {
        [[unroll]] for (uint i = 0; i < 4 / LANE_READS; i++) {
            uint x = lane_words[column * LANE_WORDS + i / 2 * 9] >> i % 2 * 16;
            lane_scales[column * 4 + i] = vec2(half_e4m3(x), half_e4m3(x >> 8));
        }
        return;
    }
    vec4 scale, offset = vec4(0.0);
    if (B_TYPE == TYPE_Q6_K) { // of sixteen: two in one vec2
        uint end = (column + 1) * LANE_WORDS, at = column * LANE_WORDS + LOW_WORDS + 8;
        float d = four_halves(lane_words[end - 1], 0).x;
        vec4 low = d * signed_bytes(lane_words[at]), high = d * signed_bytes(lane_words[end - 2]);
        scale = vec4(low.xz, high.xz);
        offset = vec4(low.yw, high.yw);
    } else if (B_TYPE == TYPE_I4_G128) {
        scale = vec4(float_from_f16(lane_words[column * LANE_WORDS + LANE_WORDS - 1] & 0xffffu));
    } else {
        uint m = LANE_READS > 1 ? 0 : 2 * n; // two scales, or four
        scale = four_halves(lane_pair(column, 0, n), lane_pair(column, m, m + n));
        if (HAS_OFFSET(B_TYPE))
            offset = four_halves(lane_pair(column, 1, n + 1), lane_pair(column, m + 1, m + n + 1));
    }
    [[unroll]] for (uint i = 0; i < 4; i++)
        lane_scales[column * 4 + i] = vec2(scale[i], offset[i]);
}

#ifdef HALF
void init_integers() {}

// Bytes of x, of which `mask` is the integer, below `one` in units of its lowest bit.
vec4 half_bytes(uint x, uint mask, uint one, float bias)
{
    f16vec2 even = unpackFloat2x16(x & mask | one) - f16vec2(bias);
    f16vec2 odd = unpackFloat2x16(x >> 8 & mask | one) - f16vec2(bias);
    return vec4(even.x, odd.x, even.y, odd.y);
}

vec4 low_bytes(uint x, float bias)
{
    return half_bytes(x, 0x00ff00ffu, 0x64006400u, 1024.0 + bias);
}

#else
// Floats 2^(23 - 4 i), whose mantissa's bit 4 i counts 1. The compiler must not know them, nor that
// lanes have the same: an instruction of NVIDIA's takes one constant, and x & mask | one has two.
uint placed_ones[5];

void init_integers()
{
    uint zero = p.m + gl_LocalInvocationIndex >> 31;
    [[unroll]] for (uint i = 0; i < 5; i++)
        placed_ones[i] = (150 - 4 * i << 23) + zero;
}

// Bits `first` .. of x, `first` a multiple of 4 up to 16, that `mask` has from bit 0 on, less `bias`.
float placed(uint x, uint mask, uint first, float bias)
{
    float one = uintBitsToFloat(150 - first << 23);
    return uintBitsToFloat(x & mask << first | placed_ones[first / 4]) - (one + bias);
}

// The four bytes of x, each up to 63, less a bias.
vec4 low_bytes(uint x, float bias)
{
    uint y = x >> 16;
    return vec4(placed(x, 63, 0, bias), placed(x, 63, 8, bias), placed(y, 63, 0, bias),
                placed(y, 63, 8, bias));
}
#endif

vec4 nibbles(uint x, bool high, float bias)
{
#ifdef HALF
    if (high)
        return half_bytes(x, 0x00f000f0u, 0x54005400u, 64.0 + bias);
    return half_bytes(x, 0x000f000fu, 0x64006400u, 1024.0 + bias);
#else
    uint y = x >> 16;
    if (high)
        return vec4(placed(x, 15, 4, bias), placed(x, 15, 12, bias), placed(y, 15, 4, bias),
                    placed(y, 15, 12, bias));
    return vec4(placed(x, 15, 0, bias), placed(x, 15, 8, bias), placed(x, 15, 16, bias),
                placed(y, 15, 8, bias));
#endif
}

// The integers of the four bytes of a word, or of one of their nibbles.
vec4 word_integers(uint x, bool high)
{
    if (B_TYPE != TYPE_Q8_0)
        return nibbles(x, high, float(LANE_BIAS));
#ifdef HALF
    return low_bytes(x ^ 0x80808080u, 128.0);
#else
    return signed_bytes(x);
#endif
}

// The word whose bytes have values 16 g + 4 j and on in a half, of a type that HAS_TABLE.
uint table_word(uint column, uint g, uint j)
{
    uint first = g / 2 * SUB_HALVES + SUB_FIRST;
    if (B_TYPE == TYPE_NVFP4 || B_TYPE == TYPE_NF4_G64)
        return lane_words[column * LANE_WORDS + g / 4 * 9 + 1 + g % 4 * 2 + j % 2];
    if (B_TYPE == TYPE_IQ4_XS)
        return lane_words[column * LANE_WORDS + 2 + g / 2 * 4 + j];
    return lane_word(column, first + 2 * j);
}

// What look_up() gives of them.
uvec4 table_entries(uint column, uint g, uint j, out bool high)
{
    high = (B_TYPE == TYPE_NVFP4 || B_TYPE == TYPE_NF4_G64 ? j / 2 : g % 2) != 0;
    return look_up(table_word(column, g, j), high);
}

// Integers 16 g + 4 j and on of read `of` of a block.
vec4 lane_integers(uint column, uint of, uint g, uint j)
{
    uint at = column * LANE_WORDS, sub = g / 2, side = g % 2;
    if (IS_F8(B_TYPE))
        return uintBitsToFloat(look_up(lane_words[at + g / 4 * 17 + 1 + g % 4 * 4 + j], false));
    if (HAS_TABLE(B_TYPE)) {
        bool high;
        uvec4 found = table_entries(column, g, j, high);
#ifdef HALF
        vec4 values;
        if (B_TYPE == TYPE_NF4_G64)
            return uintBitsToFloat(found);
        [[unroll]] for (uint e = 0; e < 4; e++) {
            f16vec2 pair = unpackFloat2x16(found[e]);
            values[e] = float(high ? pair.y : pair.x);
        }
        return values;
#else
        return uintBitsToFloat(found);
#endif
    }
    uint sixes_at = at + HEAD_WORDS + sub / 2 * 8 + side * 4 + j;
    if (B_TYPE == TYPE_Q4_K)
        return word_integers(lane_words[sixes_at], sub % 2 != 0);
    if (B_TYPE == TYPE_Q5_K) {
        uint low = lane_words[sixes_at] >> 4 * (sub % 2) & 0x0f0f0f0fu;
        return low_bytes(low | lane_words[at + 4 + side * 4 + j] << 4 - sub & 0x10101010u, 0.0);
    }
    if (B_TYPE == TYPE_I4_G128) {
        uint q = spread_nibbles(lane_words[at + 2 * g + j / 2] >> 16 * (j % 2));
        return unsigned_bytes(q, int(lane_words[at + LANE_WORDS - 1] >> 16));
    }
    if (B_TYPE == TYPE_Q6_K) {
        uint n = LANE_READS > 1 ? of : sub, word = sub % 2 * 8 + side * 4 + j;
        uint low = lane_words[at + word] >> n / 2 * 4 & 0x0f0f0f0fu;
        uint high = lane_words[at + LOW_WORDS + side * 4 + j] >> 2 * n & 0x03030303u;
        return low_bytes(low | high << 4, 32.0);
    }
    if (TWOS) {
        uint n = LANE_READS > 1 ? 2 * of + sub : sub, word = side * 4 + j;
        uint low = lane_words[at + word] >> 2 * n & 0x03030303u;
        if (B_TYPE == TYPE_Q2_K)
            return low_bytes(low, 0.0);
        return low_bytes(low | (lane_words[at + 8 + word] >> n & 0x01010101u) << 2, 4.0);
    }
    uint first = sub * SUB_HALVES + SUB_FIRST;
    if (FIFTHS) {
        uint fifth = lane_word(column, first - 2) >> 16 * side + 4 * j;
        uint low = lane_word(column, first + 2 * j) >> 4 * side & 0x0f0f0f0fu;
        return low_bytes(low | spread_bits(fifth) << 4, float(LANE_BIAS));
    }
    uint byte = 2 * first + 4 * j + (B_TYPE == TYPE_Q8_0 ? 16 * side : 0);
    vec4 x;
    [[unroll]] for (uint e = 0; e < 4; e++)
        x[e] = word_integers(lane_words[at + (byte + e) / 4], side != 0)[(byte + e) % 4];
    return x;
}

#ifdef LANE_BYTES // for products of integers
uint pack_bytes(vec4 x)
{
    uvec4 b = uvec4(ivec4(x)) & 0xffu;
    return b.x | b.y << 8 | b.z << 16 | b.w << 24;
}

// Integers 32 sub + 4 i and on of the words that a lane holds, without the bias.
uint lane_bytes(uint column, uint sub, uint i)
{
    uint at = column * LANE_WORDS, first = sub * SUB_HALVES + SUB_FIRST;
    if (HAS_TABLE(B_TYPE)) {
        bool high;
        uvec4 b = table_entries(column, 2 * sub + i / 4, i % 4, high);
        return b.x | b.y << 8 | b.z << 16 | b.w << 24;
    }
    if (SIXES) {
        uint low = lane_words[at + HEAD_WORDS + sub / 2 * 8 + i] >> 4 * (sub % 2) & 0x0f0f0f0fu;
        return B_TYPE == TYPE_Q4_K ? low : low | lane_words[at + 4 + i] << 4 - sub & 0x10101010u;
    }
    if (B_TYPE == TYPE_I4_G128)
        return spread_nibbles(lane_words[at + 4 * sub + i / 2] >> 16 * (i % 2));
    if (B_TYPE == TYPE_Q8_0)
        return lane_word(column, first + 2 * i);
    uint word = lane_word(column, first + 2 * (i % 4));
    uint low = word >> i / 4 * 4 & 0x0f0f0f0fu;
    return FIFTHS ? low | spread_bits(lane_word(column, first - 2) >> 4 * i) << 4 : low;
}
#endif
