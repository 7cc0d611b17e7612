// Values of attention_coop2 on their way to its stage, as they lie in memory: B of a product whose
// rows are contiguous. So a vector takes one store, where a transpose takes one for each pair of
// its elements. See coop_stage.glsl.

// A lane loads one vector at a time, as of keys.
const uint V_LOADS = (KEYS * VALUE8 + THREADS - 1) / THREADS;
uvec4 v_ahead[V_LOADS];

uint first_value_vector() { return gl_LocalInvocationIndex % VALUE8; }
uint first_value_key() { return gl_LocalInvocationIndex / VALUE8; }

void load_values(uint key, sequence s)
{
    uint i = gl_LocalInvocationIndex;
    if (V_VEC == 2 && WHOLE_LOADS(VALUE8)) {
        [[unroll]] for (uint j = 0; j < V_LOADS; j++)
            v_ahead[j] = v_vectors[min(v_at + j * (THREADS / VALUE8) * v_step, v_last)];
        return;
    }
    [[unroll]] for (uint j = 0; j < V_LOADS; j++) {
        uint x = min(j * THREADS + i, KEYS * VALUE8 - 1);
        uint k = min(key + x / VALUE8, s.n_kv - 1), d = x % VALUE8 * 8 + 4 * first_value4;
        LOAD_VECTOR(v_ahead[j], v_vectors, v_words, v_index(key_row(k, s), s), d, p.value_dim,
                    V_VEC)
    }
}

// Where the stage has the vector of load j of this lane; past KEYS * VALUE8 there is none.
uint value_load(uint j) { return j * THREADS + gl_LocalInvocationIndex; }
uint value_place(uint j)
{
    return V_STAGE + value_load(j) / VALUE8 * V_PITCH + value_load(j) % VALUE8;
}

void store_values()
{
    [[unroll]] for (uint j = 0; j < V_LOADS; j++)
        if (KEYS * VALUE8 % THREADS == 0 || value_load(j) < KEYS * VALUE8)
            stage[value_place(j)] = v_ahead[j];
}

// For a step in which some row may not see some key: in what store_values of this lane wrote, NaN
// and Inf become 0, and `store` adds them to the rows that see their keys.
void clean_values(uint key)
{
    [[dont_unroll]] for (uint j = 0; j < V_LOADS && value_load(j) < KEYS * VALUE8; j++) {
        uvec4 x = stage[value_place(j)];
        uvec4 y = uvec4(finite(x.x), finite(x.y), finite(x.z), finite(x.w));
        if (x != y) {
            atomicMin(nonfinite[0], key);
            atomicMax(nonfinite[1], key + KEYS);
            stage[value_place(j)] = y;
        }
    }
}
