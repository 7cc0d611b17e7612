// Keys, values and q of attention_coop on their way to its stage in shared memory.
#include "attention/halves.glsl"

#ifndef Q_ROWS_AT // where stage_q puts the rows of q
#define Q_ROWS_AT Q_STAGE
#endif

// Vectors of keys on their way to shared memory, one a load: constants alone index them.
const uint K_LOADS = (KEYS * HEAD8 + THREADS - 1) / THREADS;
uvec4 k_ahead[K_LOADS];

// Elements at .. at + 7 of a buffer of words, those past `count` as 0. No loop: see k_ahead.
#define GATHER(words, at, count)                                                                   \
    uvec4(GATHER_PAIR(words, at, count, 0), GATHER_PAIR(words, at, count, 2),                      \
          GATHER_PAIR(words, at, count, 4), GATHER_PAIR(words, at, count, 6))

// Stages q, by vectors where all rows begin and end at whole ones, else element by element. Where
// the scale is negative q changes its sign, so that the largest score is that of the largest
// product.
void stage_q(sequence s)
{
    bool vectors = ((p.head_dim | p.q_offset | p.q_batch | p.q_head | p.q_row) & 7u) == 0;
    [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < ROWS * HEAD8; i += THREADS) {
        uint t = i / HEAD8, d = i % HEAD8 * 8, at = q_index(row_of(t), s) + d;
        uint end = min(p.head_dim - min(d, p.head_dim), 8);
        uvec4 x = uvec4(0);
        if (vectors && end != 0)
            x = q_vectors[at >> 3];
        else
            [[dont_unroll]] for (uint e = 0; e < end; e++)
                x[e >> 1] |= half_bits(q_words[at + e >> 1], at + e) << 16 * (e & 1);
        stage[Q_ROWS_AT + t * K_PITCH + d / 8] = x ^ (p.scale < 0.0 ? 0x80008000u : 0u);
    }
    barrier();
    if (Q_MATRICES) {
        [[unroll]] for (uint h = 0; h < HEAD / K; h++)
            coopMatLoad(q_matrices[h], stage, first_lane_row() * K_PITCH + h * (K / 8), K_PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
        barrier(); // the stage is free for keys and values
    }
}

// Vector of 8 elements at d of the row that begins at `at`; 0 past `dim`.
#define LOAD_VECTOR(x, vectors, words, at, d, dim, vec)                                            \
    if (vec == 2) {                                                                                \
        x = vectors[(at) + (d) >> 3];                                                              \
    } else {                                                                                       \
        uint first = (at) + (d), count = dim - min(d, dim);                                        \
        x = uvec4(0);                                                                              \
        if (vec == 0)                                                                              \
            x = GATHER(words, first, count);                                                       \
        else if (count != 0)                                                                       \
            x = vectors[first >> 3];                                                               \
    }

// Whether the lanes load whole rows of `per` vectors, so that a lane's vectors differ by their
// rows.
#define WHOLE_LOADS(per) (THREADS % (per) == 0 && !PAGED)

// Vectors of this lane's next load: of keys, of values; those of the last row; from row to row.
uint k_at, v_at, k_last, v_last, k_step, v_step;

#ifdef VALUES_BY_KEY
#include "attention/coop_value_rows.glsl"
#else
#include "attention/coop_value_columns.glsl"
#endif

void begin_loads(uint key, sequence s)
{
    uint k = k_index(s.kv_first, s) >> 3, v = v_index(s.kv_first, s) >> 3;
    k_step = p.k_row >> 3;
    v_step = p.v_row >> 3;
    k += gl_LocalInvocationIndex % HEAD8;
    v += first_value_vector() + first_value4 / 2;
    k_at = k + (key + gl_LocalInvocationIndex / HEAD8) * k_step;
    v_at = v + (key + first_value_key()) * v_step;
    k_last = k + (s.n_kv - 1) * k_step;
    v_last = v + (s.n_kv - 1) * v_step;
}

// Keys past the last are read as the last.
void load_keys(uint key, sequence s)
{
    uint i = gl_LocalInvocationIndex;
    if (K_VEC == 2 && WHOLE_LOADS(HEAD8)) {
        [[unroll]] for (uint j = 0; j < K_LOADS; j++)
            k_ahead[j] = k_vectors[min(k_at + j * (THREADS / HEAD8) * k_step, k_last)];
        return;
    }
    [[unroll]] for (uint j = 0; j < K_LOADS; j++) {
        uint x = min(j * THREADS + i, KEYS * HEAD8 - 1);
        uint k = min(key + x / HEAD8, s.n_kv - 1), d = x % HEAD8 * 8;
        LOAD_VECTOR(k_ahead[j], k_vectors, k_words, k_index(key_row(k, s), s), d, p.head_dim, K_VEC)
    }
}

// Goes on to the step that begins at `key`.
void begin_next(uint key, sequence s)
{
    k_at += KEYS * k_step;
    v_at += KEYS * v_step;
    if (KEYS_AHEAD)
        load_keys(key, s);
}

void store_keys()
{
    uint mine = gl_LocalInvocationIndex / HEAD8 * K_PITCH + gl_LocalInvocationIndex % HEAD8;
    [[unroll]] for (uint j = 0; j < K_LOADS; j++) {
        uint i = j * THREADS + gl_LocalInvocationIndex;
        if (KEYS * HEAD8 % THREADS == 0 || i < KEYS * HEAD8)
            stage[THREADS % HEAD8 == 0 ? mine + j * (THREADS / HEAD8 * K_PITCH)
                                       : i / HEAD8 * K_PITCH + i % HEAD8] = k_ahead[j];
    }
}
