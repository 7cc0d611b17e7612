// Values of attention_coop on their way to its stage, where a feature has its keys side by side: B of
// a product whose columns are contiguous. See coop_stage.glsl.

// A lane loads one vector of each of VALUE_KEYS values at a time.
const uint VALUE_KEYS = KEYS / 4 * VALUE8 >= THREADS ? 4 : 2;
const uint VALUE_GROUPS = KEYS / VALUE_KEYS;
// Neighbouring lanes that read neighbouring vectors of a value; the next ones read the next keys.
// Four are 64 bytes, the least that memory gives at a time; more would write more often to one bank
// of shared memory.
const uint WANTED = VALUE_BESIDE;
const uint BESIDE = VALUE8 % WANTED + THREADS % (VALUE_GROUPS * WANTED) == 0 ? WANTED : 1;
uint value_vector(uint x) { return x / (VALUE_GROUPS * BESIDE) * BESIDE + x % BESIDE; }
uint value_group(uint x) { return x / BESIDE % VALUE_GROUPS; }
const uint V_LOADS = (VALUE_GROUPS * VALUE8 + THREADS - 1) / THREADS;
uvec4 v_ahead[V_LOADS * VALUE_KEYS];

uint first_value_vector() { return value_vector(gl_LocalInvocationIndex); }
uint first_value_key() { return value_group(gl_LocalInvocationIndex) * VALUE_KEYS; }

void load_values(uint key, sequence s)
{
    uint i = gl_LocalInvocationIndex;
    if (V_VEC == 2 && WHOLE_LOADS(VALUE_GROUPS)) {
        [[unroll]] for (uint j = 0; j < V_LOADS * VALUE_KEYS; j++) {
            uint load = j / VALUE_KEYS * (THREADS / VALUE_GROUPS);
            if (VALUE_GROUPS * VALUE8 % THREADS == 0 || value_vector(i) + load < VALUE8)
                v_ahead[j] = v_vectors[min(v_at + j % VALUE_KEYS * v_step, v_last) + load];
        }
        return;
    }
    [[unroll]] for (uint j = 0; j < V_LOADS * VALUE_KEYS; j++) {
        uint x = j / VALUE_KEYS * THREADS + i;
        uint d = min(value_vector(x), VALUE8 - 1) * 8 + 4 * first_value4;
        uint k = min(key + value_group(x) * VALUE_KEYS + j % VALUE_KEYS, s.n_kv - 1);
        LOAD_VECTOR(v_ahead[j], v_vectors, v_words, v_index(key_row(k, s), s), d, p.value_dim,
                    V_VEC)
    }
}

// Writes word w of a vector, features 2 w and 2 w + 1, of VALUE_KEYS values from v_ahead[j].
#define STORE_FEATURES(w)                                                                          \
    stage[at + 2 * w * V_PITCH][place] = low_halves(v_ahead[j][w], v_ahead[j + 1][w]);             \
    stage[at + (2 * w + 1) * V_PITCH][place] = high_halves(v_ahead[j][w], v_ahead[j + 1][w]);

// Pair of keys of v_ahead[j] and [j + 1], and the vector of the stage that its first features go
// to. A lane's pairs of four keys lie in one vector, of which compilers store both at a time.
uint value_pair(uint j)
{
    return value_group(gl_LocalInvocationIndex) * (VALUE_KEYS / 2) % 4 + j % VALUE_KEYS / 2;
}
uint value_place(uint j)
{
    uint i = j / VALUE_KEYS * THREADS + gl_LocalInvocationIndex;
    return V_STAGE + value_vector(i) * 8 * V_PITCH +
           value_group(gl_LocalInvocationIndex) * (VALUE_KEYS / 2) / 4;
}

void store_values()
{
    [[unroll]] for (uint j = 0; j < V_LOADS * VALUE_KEYS; j += 2) {
        uint at = value_place(j), place = value_pair(j);
        if (VALUE_GROUPS * VALUE8 % THREADS == 0 || at < V_END) {
            STORE_FEATURES(0)
            STORE_FEATURES(1)
            STORE_FEATURES(2)
            STORE_FEATURES(3)
        }
    }
}

// For a step in which some row may not see some key: in what store_values of this lane wrote, NaN
// and Inf become 0, and `store` adds them to the rows that see their keys.
void clean_values(uint key)
{
    [[dont_unroll]] for (uint x = 0; x < V_LOADS * VALUE_KEYS * 4; x++) {
        uint pair = value_pair(x / 8 * 2), at = value_place(x / 8 * 2) + x % 8 * V_PITCH;
        if (at >= V_END)
            break;
        uint word = stage[at][pair], y = finite(word);
        if (word != y) {
            atomicMin(nonfinite[0], key);
            atomicMax(nonfinite[1], key + KEYS);
            stage[at][pair] = y;
        }
    }
}
