// A step of attention_backward_coop that reads each row of the others once, where all rows are whole
// matrices and vectors, and shared memory has room for all features of the others of a step. Own
// rows come as matrices from memory: the workgroup's first step has put them in a cache. Others are
// stored as rows for the scores, and turned for the sums: with APART both at once, else turned over
// the rows, from registers. The last tile of rows starts where OWN of them are left;
// those of the tile before it are not stored twice.

const uint PAIRS = OTHERS / 2;
const uint HEAD_LOADS = (PAIRS * (HEAD / 8) + THREADS - 1) / THREADS;
const uint VALUE_LOADS = (PAIRS * (VALUE / 8) + THREADS - 1) / THREADS;
uvec4 ahead[2 * (HEAD_LOADS + VALUE_LOADS)];
uint first_ahead(bool second) { return second ? 2 * HEAD_LOADS : 0; }

uint pair_of(uint j) { return (j * THREADS + gl_LocalInvocationIndex) % PAIRS; }
uint vector_of(uint j) { return (j * THREADS + gl_LocalInvocationIndex) / PAIRS; }

uint other_word(bool second, uint row, uint d)
{
    uint c = second ? 1 : 0;
    uint at = 4 * (other_at[c] + head * other_head[c] + row * other_row[c]) + d / 2;
    if (second)
        return OWNS_KEYS ? dy_words[at] : v_words[at];
    return OWNS_KEYS ? q_words[at] : k_words[at];
}

// Loads two neighbouring rows of each vector of a lane; lanes past the end load the last vector.
void load_others(bool second, uint other)
{
    const uint LOADS = second ? VALUE_LOADS : HEAD_LOADS, WIDTH8 = (second ? VALUE : HEAD) / 8;
    uint c = second ? 1 : 0, first = first_ahead(second);
    uint at = other_at[c] + head * other_head[c], row = other_row[c];
    [[unroll]] for (uint j = 0; j < LOADS; j++) {
        uint x = other + 2 * pair_of(j), d = min(vector_of(j), WIDTH8 - 1);
        ahead[first + 2 * j] = other_vector(second, at + min(x, n_other - 1) * row + d);
        ahead[first + 2 * j + 1] = other_vector(second, at + min(x + 1, n_other - 1) * row + d);
    }
}

// Stores them as rows.
void store_rows(bool second)
{
    const uint LOADS = second ? VALUE_LOADS : HEAD_LOADS, WIDTH8 = (second ? VALUE : HEAD) / 8;
    const uint ROW_PITCH = second ? VALUE_PITCH : HEAD_PITCH;
    uint first = first_ahead(second), to = second ? OTHERS * HEAD_PITCH : 0;
    [[unroll]] for (uint j = 0; j < LOADS; j++)
        if (PAIRS * WIDTH8 % THREADS == 0 || vector_of(j) < WIDTH8) {
            uint at = to + 2 * pair_of(j) * ROW_PITCH + vector_of(j);
            stage[at] = ahead[first + 2 * j];
            stage[at + ROW_PITCH] = ahead[first + 2 * j + 1];
        }
}

// `to` is where the others' rows begin.
#define MULTIPLY(x, vectors, c, to, WIDTH, ROW_PITCH)                                              \
    [[unroll]] for (uint i = 0; i < WIDTH / K; i++) {                                              \
        LEFT a;                                                                                    \
        coopMatLoad(a, vectors, own_at[c] + i * (K / 8), own_row[c],                               \
                    gl_CooperativeMatrixLayoutRowMajor);                                           \
        [[unroll]] for (uint n = 0; n < SCORES; n++) {                                             \
            RIGHT b;                                                                               \
            coopMatLoad(b, stage, to + (column() * SCORES + n) * N * ROW_PITCH + i * (K / 8),      \
                        ROW_PITCH, gl_CooperativeMatrixLayoutColumnMajor);                         \
            x[n] = coopMatMulAdd(a, b, x[n]);                                                      \
        }                                                                                          \
    }

// Replaces NaN and Inf of the others that are stored turned, as clean does.
void clean_ahead(uint other)
{
    const uint CLEANED = 2 * (HEAD_LOADS + (TB > 0 ? VALUE_LOADS : 0));
    uvec4 found = uvec4(0);
    [[unroll]] for (uint i = 0; i < CLEANED; i++)
        found |= nonfinite_sums(ahead[i]);
    if (((found.x | found.y | found.z | found.w) & 0x80008000u) == 0)
        return;
    note_nonfinite(other);
    [[dont_unroll]] for (uint w = 0; w < 4; w++)
        [[unroll]] for (uint i = 0; i < CLEANED; i++) {
            uint word = ahead[i].x;
            word &= ~((nonfinite_sums(uvec4(word)).x >> 15 & 0x10001u) * 0xffffu);
            ahead[i] = uvec4(ahead[i].yzw, word);
        }
}

// Stores the others' features from `least` on, turned, at `to`.
void store_turned(bool second, uint to, uint least, uint width)
{
    const uint LOADS = second ? VALUE_LOADS : HEAD_LOADS, WIDTH8 = (second ? VALUE : HEAD) / 8;
    const bool ALL = PAIRS * WIDTH8 % THREADS == 0 && width >= 8 * WIDTH8; // of each lane's
    uint first = first_ahead(second);
    [[unroll]] for (uint j = 0; j < LOADS; j++) {
        uint pair = pair_of(j), d = vector_of(j) - least / 8;
        if (ALL || vector_of(j) < WIDTH8 && d < width / 8) {
            uvec4 x = ahead[first + 2 * j], y = ahead[first + 2 * j + 1];
            uint at = to + d * 8 * TURNED_PITCH + pair / 4;
            STORE_TURNED(0)
            STORE_TURNED(1)
            STORE_TURNED(2)
            STORE_TURNED(3)
        }
    }
}

// Features past those of the others are left as they are: theirs are columns that nobody stores.
void store_both_turned(uint other)
{
    if (tested)
        clean_ahead(other);
    if (TA > 0)
        store_turned(false, TURNED_AT, a_first, A);
    if (TB > 0)
        store_turned(true, TURNED_AT + A * TURNED_PITCH, b_first, B);
}

// Sets this lane's scores and the gradients of their weights.
void multiply_both(uint other, out vec4 s0, out vec4 s1, out vec4 g0, out vec4 g1)
{
    load_others(false, other);
    load_others(true, other);
    barrier(); // the stage is free
    store_rows(false);
    store_rows(true);
    if (APART)
        store_both_turned(other);
    clear_tops();
    barrier();
    ACCUMULATOR x[SCORES], y[SCORES];
    [[unroll]] for (uint n = 0; n < SCORES; n++) {
        x[n] = ACCUMULATOR(0.0);
        y[n] = ACCUMULATOR(0.0);
    }
    if (OWNS_KEYS)
        MULTIPLY(x, k_vectors, 0, 0, HEAD, HEAD_PITCH)
    else
        MULTIPLY(x, q_vectors, 0, 0, HEAD, HEAD_PITCH)
    if (T > 0) {
        TAKE_SCORES(x, s0, s1)
    }
    if (OWNS_KEYS)
        MULTIPLY(y, v_vectors, 1, OTHERS * HEAD_PITCH, VALUE, VALUE_PITCH)
    else
        MULTIPLY(y, dy_vectors, 1, OTHERS * HEAD_PITCH, VALUE, VALUE_PITCH)
    if (T == 0) {
        barrier(); // all have read the rows
        TAKE_SCORES(x, s0, s1)
    }
    if (OWN_TILES)
        subgroup_barrier_shared(); // the lanes have read their scores
    else
        barrier();
    {
        TAKE_SCORES(y, g0, g1)
    }
}
