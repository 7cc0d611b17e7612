// What masks, softcap, ALiBi and dropout add to a step of attention_coop2: too long to be written out
// for every element of a lane, as functions of elements are. The scores or weights of the step pass
// through the stage, in the place of keys and values, where a loop can index them.

uint x_at() { return first_lane_row() * X_PITCH; }
#define ELEMENT(e) stage[x_at() + (e) / KEYS * X_PITCH + (e) % KEYS / 4][(e) % 4]

void put_elements()
{
    [[unroll]] for (uint n = 0; n < KEYS / N; n++)
        coopMatStore(x[n], stage, x_at() + n * (N / 4), X_PITCH,
                     gl_CooperativeMatrixLayoutRowMajor);
    subgroup_barrier_shared();
}

void take_elements()
{
    subgroup_barrier_shared();
    [[unroll]] for (uint n = 0; n < KEYS / N; n++)
        coopMatLoad(x[n], stage, x_at() + n * (N / 4), X_PITCH,
                    gl_CooperativeMatrixLayoutRowMajor);
    subgroup_barrier_shared();
}

// Applies biases to scores, and makes them -Inf where keys are hidden.
void bias_scores(uint key, bool test, sequence s)
{
    put_elements();
    [[dont_unroll]] for (uint e = gl_SubgroupInvocationID; e < M * KEYS; e += LANES) {
        uint t = first_lane_row() + e / KEYS, k = key + e % KEYS;
        float score = abs(p.scale) * uintBitsToFloat(ELEMENT(e));
        bool visible = !test || (k >= ranges[t].x && k < ranges[t].y);
        if (visible)
            visible = bias_score(score, row_of(t), k, test, s);
        seen_bits |= visible ? 1u << e / KEYS : 0u;
        ELEMENT(e) = floatBitsToUint(visible ? score : MINUS_INFINITY);
    }
    take_elements();
}

void drop_weights(uint key, sequence s)
{
    put_elements();
    [[dont_unroll]] for (uint e = gl_SubgroupInvocationID; e < M * KEYS; e += LANES) {
        float weight = uintBitsToFloat(ELEMENT(e));
        uint row = row_of(first_lane_row() + e / KEYS);
        ELEMENT(e) = floatBitsToUint(dropped(weight, row, key + e % KEYS, s));
    }
    take_elements();
}
