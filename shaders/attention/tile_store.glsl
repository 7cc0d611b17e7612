// What attention_tile loads at its beginning and stores at its end: states, records and results.

// First word of the state of row r: context, row_sum or HIDDEN of each lane, row_max.
uint row_state(uint r)
{
    uint pitch = STATE_PITCH(VALUE4, LANES_X);
    return state_of(ROWS * pitch) + tile_row(r) * pitch;
}

// Vec4 `column` of the saved context of row r.
vec4 saved_context(uint r, uint column)
{
    return saved4(row_state(r) + 4 * min(column, VALUE4 - 1));
}

// A row that saw no key so far keeps its initial values: dead_context made its saved context.
void load_state()
{
    [[unroll]] for (uint r = 0; r < TR; r++) {
        uint lanes = row_state(r) + 4 * VALUE4;
        bool any = false;
        for (uint lane = 0; lane < LANES_X; lane++)
            any = any || saved(lanes + lane) != HIDDEN;
        if (!any)
            continue;
        float mine = saved(lanes + gl_LocalInvocationID.x);
        seen |= mine != HIDDEN ? 1u << r : 0u;
        row_sum[r] = mine != HIDDEN ? mine : 0.0;
        row_max[r] = saved(lanes + LANES_X);
        [[unroll]] for (uint j = 0; j < TV; j++)
            context[r * TV + j] = saved_context(r, gl_LocalInvocationID.x + j * LANES_X);
    }
}

// Stores row_sum of each lane and row_max, before add_lanes.
void store_sums()
{
    [[unroll]] for (uint r = 0; r < TR; r++) {
        uint lanes = row_state(r) + 4 * VALUE4;
        float mine = (seen >> r & 1u) != 0u ? row_sum[r] : HIDDEN;
        o_words[lanes + gl_LocalInvocationID.x] = floatBitsToUint(mine);
        if (gl_LocalInvocationID.x == 0)
            o_words[lanes + LANES_X] = floatBitsToUint(row_max[r]);
    }
}

// Row r, which take_row selects by constants: some compilers keep an array that a loop indexes in
// memory, for the whole kernel.
vec4 row_context[TV];
float taken_sum, taken_max;

void take_row(uint r)
{
    [[unroll]] for (uint q = 0; q < TR; q++)
        if (q == r) {
            taken_sum = row_sum[q];
            taken_max = row_max[q];
            [[unroll]] for (uint j = 0; j < TV; j++)
                row_context[j] = context[q * TV + j];
        }
}

// Vec4 `column` of the context of row r, which saw no key.
vec4 dead_column(uint r, uint column, uvec2 keys, sequence s)
{
    vec4 before = (STATE & STATE_LOAD) != 0 ? saved_context(r, column) : vec4(0.0);
    return dead_context(row_of(tile_row(r)), keys, first_value4 + column, before, s);
}

void save_column(uint r, uint column, vec4 c)
{
    [[unroll]] for (uint i = 0; i < 4; i++)
        if (column < VALUE4)
            o_words[row_state(r) + 4 * column + i] = floatBitsToUint(c[i]);
}

// Stores the context of row r, after add_lanes: `seen` is of the whole row.
void store_context(uint r, uvec2 keys, sequence s)
{
    take_row(r);
    if ((seen >> r & 1u) != 0u)
        [[unroll]] for (uint j = 0; j < TV; j++)
            save_column(r, gl_LocalInvocationID.x + j * LANES_X, row_context[j]);
    else
        [[dont_unroll]] for (uint column = gl_LocalInvocationID.x; column < VALUE4;
                             column += LANES_X)
            save_column(r, column, dead_column(r, column, keys, s));
}

// Adds row_sum and `seen` over the lanes of each row.
void add_lanes()
{
    barrier(); // the last step's exchange has been read
    [[unroll]] for (uint r = 0; r < TR; r++)
        give(r, (seen >> r & 1u) != 0u ? row_sum[r] : HIDDEN);
    barrier();
    [[unroll]] for (uint r = 0; r < TR; r++)
        row_sum[r] = 0.0;
    for (uint lane = 0; lane < LANES_X; lane++) // outside: compilers unroll innermost loops only
        [[unroll]] for (uint r = 0; r < TR; r++) {
            float more = exchange[tile_row(r) * (LANES_X / 4) + lane / 4][lane % 4];
            seen |= more != HIDDEN ? 1u << r : 0u;
            row_sum[r] += more != HIDDEN ? more : 0.0;
        }
}

void store_column(uint base, uint column, vec4 c)
{
    uint d = 4 * (first_value4 + column), value_dim = column < VALUE4 ? p.value_dim : 0;
    const uint STEP = SPLITS != 0 || O_TYPE == TYPE_F32 ? 1 : 2;
    [[unroll]] for (uint i = 0; i < 4; i += STEP) {
        if (d + i >= value_dim)
            continue;
        if (SPLITS != 0)
            o_words[base + d + i] = floatBitsToUint(c[i]);
        else if (STEP == 2 && d + i + 1 < value_dim)
            STORE_PAIR(o_words, base + d + i, 1u, O_TYPE, vec2(one_nan(c[i]), one_nan(c[i + 1])))
        else
            STORE(o_words, base + d + i, O_TYPE, one_nan(c[i]))
    }
}

void store_row(uint r, uvec2 keys, sequence s)
{
    uint row = first_row + tile_row(r), base = output_base(tile_row(r), s);
    bool dead = (seen >> r & 1u) == 0u;
    take_row(r);
    if (LOG_SUM != 0 && first_value4 == 0 && gl_LocalInvocationID.x == 0)
        store_log_sum(row, log_sum(!dead, taken_max, taken_sum, WEIGHT_UNIT, row), s);
    if (!dead && SPLITS == 0 && mask_has(MASK_SINK))
        taken_sum = fma(WEIGHT_UNIT,
                        sink_weight(sinks[p.sink_offset + p.head_first + head_of(row)], taken_max),
                        taken_sum);
    if (dead)
        [[dont_unroll]] for (uint column = gl_LocalInvocationID.x; column < VALUE4;
                             column += LANES_X)
            store_column(base, column, dead_column(r, column, keys, s));
    else
        [[unroll]] for (uint j = 0; j < TV; j++)
            store_column(base, gl_LocalInvocationID.x + j * LANES_X,
                         SPLITS == 0 ? row_context[j] / taken_sum : row_context[j]);
    if (SPLITS != 0 && first_value4 == 0 && gl_LocalInvocationID.x == 0)
        store_split(base, taken_max, taken_sum, !dead, WEIGHT_UNIT);
}
