// Rows of both sides of attention_backward_coop: a vector of 8 elements of a row, whole or gathered, and
// some features of rows, as they are or turned, in `stage`. The includer has the buffers and constants, the
// shared stage and nonfinite, own_first, head, key_head and tested.

#define LOAD8(to, name, base, d, dim, vec)                                                         \
    {                                                                                              \
        if ((VECS & vec) != 0) {                                                                   \
            if ((d) < dim)                                                                         \
                to = name##_vectors[(base) + (d) >> 3];                                            \
        } else {                                                                                   \
            [[dont_unroll]] for (uint i = 0; i < 8; i += 2) {                                      \
                to.x = GATHER_PAIR(name##_words, (base) + (d), dim - min(d, dim), i);              \
                to = to.yzwx;                                                                      \
            }                                                                                      \
        }                                                                                          \
    }

// Vector at feature d of a query or of its output's gradient; 0 past the end of the row.
uvec4 load_query(bool second, uint query, uint d)
{
    uvec4 y = uvec4(0);
    query = min(query, p.n_q - 1);
    if (second)
        LOAD8(y, dy,
              p.dy_offset + gl_WorkGroupID.z * p.dy_batch + head * p.dy_head + query * p.dy_row, d,
              p.value_dim, BACKWARD_DY_VEC)
    else
        LOAD8(y, q, p.q_offset + gl_WorkGroupID.z * p.q_batch + head * p.q_head + query * p.q_row, d,
              p.head_dim, BACKWARD_Q_VEC)
    return y;
}

// Vector at feature d of a key or value.
uvec4 load_key(bool second, uint key, uint d)
{
    uvec4 y = uvec4(0);
    key = min(key, p.mask.n_kv - 1);
    if (second)
        LOAD8(y, v, p.v_offset + gl_WorkGroupID.z * p.v_batch + key_head * p.v_head + key * p.v_row,
              d, p.value_dim, BACKWARD_V_VEC)
    else
        LOAD8(y, k, p.k_offset + gl_WorkGroupID.z * p.k_batch + key_head * p.k_head + key * p.k_row,
              d, p.head_dim, BACKWARD_K_VEC)
    return y;
}

// Where rows of all operands are whole vectors their places stay in registers: of q and k, of v and dy.
// Those of keys' tiles would spill on Intel's GPUs.
const bool TOO_MANY = FEW_REGISTERS && OWNS_KEYS;
const uint EVERY_VEC = BACKWARD_Q_VEC | BACKWARD_K_VEC | BACKWARD_V_VEC | BACKWARD_DY_VEC;
const bool WHOLE_ROWS = VECS == (TOO_MANY ? 16 : EVERY_VEC);
uvec2 own_at, own_row, other_at, other_head, other_row; // vectors of 8
uint n_other;

uvec2 at_query(uint of_head)
{
    return uvec2(p.q_offset + gl_WorkGroupID.z * p.q_batch + of_head * p.q_head,
                 p.dy_offset + gl_WorkGroupID.z * p.dy_batch + of_head * p.dy_head) >> 3;
}

uvec2 at_key(uint of_head)
{
    return uvec2(p.k_offset + gl_WorkGroupID.z * p.k_batch + of_head * p.k_head,
                 p.v_offset + gl_WorkGroupID.z * p.v_batch + of_head * p.v_head) >> 3;
}

uint find_dead_end()
{
    return mask_field(MASK_ROW_SHIFT, 2) == MASKED_ZERO ? 0 : mask_end(batch_of());
}

// After find_place.
void place_own()
{
    scale = p.scale;
    keep_mask();
    uint answer = mask_field(MASK_ROW_SHIFT, 2);
    dead_end = find_dead_end();
    dead_weight = answer == MASKED_NAN ? uintBitsToFloat(0x7fc00000u) : 1.0 / float(dead_end);
    if (!WHOLE_ROWS)
        return;
    uvec2 query_row = uvec2(p.q_row, p.dy_row) >> 3, key_row = uvec2(p.k_row, p.v_row) >> 3;
    if (DIRECT)
        own_first = min(own_first, (OWNS_KEYS ? p.mask.n_kv : p.n_q) - OWN);
    n_other = OWNS_KEYS ? p.n_q : p.mask.n_kv;
    own_row = OWNS_KEYS ? key_row : query_row;
    other_row = OWNS_KEYS ? query_row : key_row;
    own_at = OWNS_KEYS ? at_key(key_head) : at_query(head);
    if (DIRECT)
        own_at += (own_first + first_lane_row()) * own_row;
    other_at = OWNS_KEYS ? at_query(0) : at_key(key_head);
    other_head = OWNS_KEYS ? uvec2(p.q_head, p.dy_head) >> 3 : uvec2(0);
}

uvec4 query_vector(bool second, uint i) { return second ? dy_vectors[i] : q_vectors[i]; }
uvec4 key_vector(bool second, uint i) { return second ? v_vectors[i] : k_vectors[i]; }

uvec4 other_vector(bool second, uint i)
{
    return OWNS_KEYS ? query_vector(second, i) : key_vector(second, i);
}

uvec4 load_own(bool second, uint row, uint d)
{
    uint c = second ? 1 : 0;
    if (WHOLE_ROWS) {
        uint i = own_at[c] + min(row, (OWNS_KEYS ? p.mask.n_kv : p.n_q) - 1) * own_row[c] + d / 8;
        if (d >= (second ? p.value_dim : p.head_dim))
            return uvec4(0);
        return OWNS_KEYS ? key_vector(second, i) : query_vector(second, i);
    }
    return OWNS_KEYS ? load_key(second, row, d) : load_query(second, row, d);
}

uvec4 load_other(bool second, uint row, uint d)
{
    uint c = second ? 1 : 0;
    if (WHOLE_ROWS) {
        uint i = other_at[c] + head * other_head[c] + min(row, n_other - 1) * other_row[c] + d / 8;
        if (d >= (second ? p.value_dim : p.head_dim))
            return uvec4(0);
        return other_vector(second, i);
    }
    return OWNS_KEYS ? load_query(second, row, d) : load_key(second, row, d);
}

// Stores features first .. first + DEPTH - 1 of n rows at vector `to` of the stage. BATCH loads are
// in flight before a store.
#define STAGE_ROWS(n, to, load, second, row, first)                                                \
    [[dont_unroll]] for (uint first_ = gl_LocalInvocationIndex; first_ < (n)*DEPTH8;               \
                         first_ += THREADS * BATCH) {                                              \
        uvec4 loaded_[BATCH];                                                                      \
        [[unroll]] for (uint b_ = 0; b_ < BATCH; b_++) {                                           \
            uint i_ = min(first_ + b_ * THREADS, (n)*DEPTH8 - 1);                                  \
            loaded_[b_] = load(second, row + i_ / DEPTH8, first + i_ % DEPTH8 * 8);                \
        }                                                                                          \
        [[unroll]] for (uint b_ = 0; b_ < BATCH; b_++) {                                           \
            uint i_ = first_ + b_ * THREADS;                                                       \
            if (i_ < (n)*DEPTH8)                                                                   \
                stage[(to) + i_ / DEPTH8 * PITCH + i_ % DEPTH8] = loaded_[b_];                     \
        }                                                                                          \
    }

// Stores words w of two neighbouring rows, features 2 w and 2 w + 1 of a vector.
#define STORE_TURNED(w)                                                                            \
    stage[at + 2 * w * TURNED_PITCH][pair % 4] = low_halves(x[w], y[w]);                           \
    stage[at + (2 * w + 1) * TURNED_PITCH][pair % 4] = high_halves(x[w], y[w]);

// Bits 15 and 31 tell which half of each word is NaN or Inf.
uvec4 nonfinite_sums(uvec4 vector)
{
    const uint BOTH = HALF_INFINITY * 0x10001u, LEAST = (0x8000u - HALF_INFINITY) * 0x10001u;
    return (vector & BOTH) + LEAST;
}

uvec4 find_nonfinite_halves(uvec4 vector) { return nonfinite_sums(vector) & 0x80008000u; }

void note_nonfinite(uint other)
{
    atomicMin(nonfinite[0], other);
    atomicMax(nonfinite[1], other + OTHERS);
}

// Replaces NaN and Inf of two vectors of others by 0 and notes the step: finish_result adds them to those
// that see them.
void clean(inout uvec4 x, inout uvec4 y, uint other)
{
    uvec4 of_x = find_nonfinite_halves(x), of_y = find_nonfinite_halves(y), found = of_x | of_y;
    if ((found.x | found.y | found.z | found.w) == 0)
        return;
    note_nonfinite(other);
    x &= ~((of_x >> 15) * 0xffffu);
    y &= ~((of_y >> 15) * 0xffffu);
}

// Stores `width` features of the others of a step, from `first` on, turned.
void stage_turned(bool second, uint other, uint first, uint width)
{
    const uint PAIRS = OTHERS / 2;
    [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < PAIRS * width / 8; i += THREADS) {
        uint pair = i % PAIRS, d = i / PAIRS * 8;
        uvec4 x = load_other(second, other + 2 * pair, first + d);
        uvec4 y = load_other(second, other + 2 * pair + 1, first + d);
        if (tested)
            clean(x, y, other);
        uint at = d * TURNED_PITCH + pair / 4;
        STORE_TURNED(0)
        STORE_TURNED(1)
        STORE_TURNED(2)
        STORE_TURNED(3)
    }
}
