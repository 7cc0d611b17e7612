// What attention_decode does with contexts after the last step of a pass: their state for the next
// pass, or rows or records, and rows that saw no key.

// State of row r: context and row_sum of each lane, 1 where a key was seen, row_max.
const uint STATE_SUMS = THREADS * 4 * V_FOURS;
uint row_state(uint r)
{
    return state_of(ROWS * DECODE_PITCH(V_FOURS)) + r * DECODE_PITCH(V_FOURS);
}

// A row that saw no key so far keeps its initial values: dead_context made its saved context.
void load_state()
{
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint at = row_state(r);
        if (floatBitsToUint(saved(at + STATE_SUMS + THREADS)) == 0u)
            continue;
        float mine = saved(at + STATE_SUMS + lane());
        seen |= mine != HIDDEN ? 1u << r : 0u;
        row_sum[r] = mine != HIDDEN ? mine : 0.0;
        row_max[r] = saved(at + STATE_SUMS + THREADS + 1);
        [[unroll]] for (uint i = 0; i < V_FOURS; i++)
            context[r * V_FOURS + i] = saved4(at + 4 * (lane() * V_FOURS + i));
    }
}

// The four features with feature d of a row that saw no key.
vec4 dead_features(uint r, uint d, uvec2 keys, sequence s)
{
    vec4 earlier = (STATE & STATE_LOAD) != 0 ? saved4(row_state(r) + d / 4 * 4) : vec4(0.0);
    return dead_context(row_of(r), keys, d / 4, earlier, s);
}

void store_dead_state(uint r, uvec2 keys, sequence s)
{
    uint value_dim = p.value_dim;
    for (uint d = lane(); d < THREADS * 4 * V_FOURS; d += THREADS)
        o_words[row_state(r) + d] =
            floatBitsToUint(d < value_dim ? dead_features(r, d, keys, s)[d % 4] : 0.0);
}

// Features that a lane stores at a time: 16-bit ones by pairs, which are words.
const uint STEP = SPLITS != 0 || O_TYPE == TYPE_F32 ? 1 : 2;

// Stores the STEP features of c from feature d on, of a row of `end`.
void store_features(uint base, uint d, uint end, vec2 c)
{
    if (SPLITS != 0)
        o_words[base + d] = floatBitsToUint(c.x);
    else if (STEP == 2 && d + 1 < end)
        STORE_PAIR(o_words, base + d, 1u, O_TYPE, vec2(one_nan(c.x), one_nan(c.y)))
    else
        STORE(o_words, base + d, O_TYPE, one_nan(c.x))
}

void store_dead(uint r, uvec2 keys, sequence s)
{
    uint end = first_row + r < n_row ? p.value_dim : 0, base = output_base(r, s);
    for (uint d = STEP * lane(); d < end; d += STEP * THREADS) {
        vec4 c = dead_features(r, d, keys, s);
        store_features(base, d, end, vec2(c[d % 4], c[d % 4 + STEP - 1]));
    }
}

// Adds row_sum over the lanes, 16 and then these sums, so that the order does not depend on the
// size of a subgroup; returns bit r: row r saw a key.
uint add_lanes()
{
    uint any = 0, r = lane() / (THREADS / 16), first = lane() % (THREADS / 16) * 16;
    barrier(); // all have read the weights
    [[unroll]] for (uint i = 0; i < ROWS; i++)
        weights[lane() * WEIGHTS4 + i / 4][i % 4] = (seen >> i & 1u) != 0u ? row_sum[i] : HIDDEN;
    barrier();
    if (r < ROWS) {
        float sum = HIDDEN;
        for (uint i = first; i < first + 16; i++) {
            float more = weights[i * WEIGHTS4 + r / 4][r % 4];
            sum = more == HIDDEN ? sum : sum == HIDDEN ? more : sum + more;
        }
        subgroups[r * DECODE_SUBGROUPS + first / 16] = sum;
    }
    barrier();
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        row_sum[r] = 0.0;
    for (uint i = 0; i < THREADS / 16; i++)
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            float more = subgroups[r * DECODE_SUBGROUPS + i];
            any |= more != HIDDEN ? 1u << r : 0u;
            row_sum[r] += more != HIDDEN ? more : 0.0;
        }
    return any;
}

// Adds the context of a row over the groups of lanes and stores it; sum: its row_sum.
void store_row(uint r, float sum, sequence s)
{
    uint end = first_row + r < n_row ? p.value_dim : 0, base = output_base(r, s);
    for (uint d = STEP * lane(); d < end; d += STEP * THREADS) {
        vec2 c = vec2(0.0);
        for (uint g = 0; g < GROUPS; g++)
            c += vec2(contexts[g * VALUE + d], contexts[g * VALUE + d + STEP - 1]);
        store_features(base, d, end, SPLITS != 0 ? c : c / sum);
    }
}

// A loop that is not unrolled, as its body is long: constants select what registers hold.
void store_rows(uvec2 keys, sequence s)
{
    uint any = add_lanes();
    [[dont_unroll]] for (uint r = 0; r < ROWS; r++) {
        float sum = 0.0, most = 0.0;
        bool there = (any >> r & 1u) != 0u;
        barrier(); // all have read the contexts
        [[unroll]] for (uint q = 0; q < ROWS; q++)
            if (q == r) {
                sum = row_sum[q];
                most = row_max[q];
                [[unroll]] for (uint i = 0; i < 4 * V_FOURS; i++)
                    contexts[lane() * 4 * V_FOURS + i] = context[q * V_FOURS + i / 4][i % 4];
            }
        barrier();
        if (SPLITS != 0 && lane() == 0 && first_row + r < n_row)
            store_split(output_base(r, s), most, sum, there, WEIGHT_UNIT);
        if (LOG_SUM != 0 && lane() == 0 && first_row + r < n_row)
            store_log_sum(row_of(r), log_sum(there, most, sum, WEIGHT_UNIT, row_of(r)), s);
        if (SPLITS == 0 && mask_has(MASK_SINK))
            sum = fma(WEIGHT_UNIT,
                      sink_weight(sinks[p.sink_offset + p.head_first + head_of(row_of(r))], most), sum);
        if (there)
            store_row(r, sum, s);
        else
            store_dead(r, keys, s);
    }
}

void store_state(uvec2 keys, sequence s)
{
    float own[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        own[r] = (seen >> r & 1u) != 0u ? row_sum[r] : HIDDEN;
    uint any = add_lanes();
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint at = row_state(r);
        o_words[at + STATE_SUMS + lane()] = floatBitsToUint(own[r]);
        if (lane() == 0) {
            o_words[at + STATE_SUMS + THREADS] = any >> r & 1u;
            o_words[at + STATE_SUMS + THREADS + 1] = floatBitsToUint(row_max[r]);
        }
        [[unroll]] for (uint i = 0; i < 4 * V_FOURS; i++)
            if ((any >> r & 1u) != 0u)
                o_words[at + lane() * 4 * V_FOURS + i] =
                    floatBitsToUint(context[r * V_FOURS + i / 4][i % 4]);
    }
    [[dont_unroll]] for (uint r = 0; r < ROWS; r++)
        if ((any >> r & 1u) == 0u)
            store_dead_state(r, keys, s);
}
