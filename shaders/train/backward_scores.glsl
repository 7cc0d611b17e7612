// Queries of a tile and what they see, and a score of attention's gradients. The includer has the
// buffers, the parameters, STAGE, OWNS_KEYS, QUERIES and THREADS, the shared ranges, infos and bounds, and
// own_first, head and alibi.

// ---- Queries of a tile: what they see, and the sums of their rows -------------------------------

uint row_index(uint query)
{
    return p.rows_offset + gl_WorkGroupID.z * p.rows_batch + head * p.rows_head +
           query * BACKWARD_ROW;
}

uint batch_of() { return p.batch_first + gl_WorkGroupID.z; }
uint head_of() { return p.head_first + head; }

#ifdef KEEPS_MASK
// What mask_range reads, where it is read often: what is not asked for never applies.
struct kept_mask {
    int offset, right, end;
    int first; // of query 0, negative where all keys before a row are visible
    int whole; // rows from this position on see all keys to the end
};
kept_mask kept_fields;
const int NO_WINDOW = 0x7fffffff;

void keep_mask()
{
    kept_fields.offset = mask_query_offset(batch_of());
    kept_fields.end = int(mask_end(batch_of()));
    if (mask_has(MASK_TENSOR))
        kept_fields.end = min(kept_fields.end, int(p.mask.mask_n_kv));
    int left = mask_has(MASK_WINDOW_LEFT) ? p.mask.window_left : NO_WINDOW;
    kept_fields.first = kept_fields.offset > left - NO_WINDOW ? kept_fields.offset - left : -NO_WINDOW;
    kept_fields.right = mask_has(MASK_WINDOW_RIGHT) ? p.mask.window_right : NO_WINDOW;
    if (mask_has(MASK_CAUSAL))
        kept_fields.right = min(kept_fields.right, 0);
    kept_fields.whole =
        kept_fields.right == NO_WINDOW ? -NO_WINDOW : kept_fields.end - kept_fields.right;
}

uvec2 range_of(uint query)
{
    if (!KEEPS_MASK)
        return mask_range(batch_of(), mask_query_offset(batch_of()) + int(query));
    int position = kept_fields.offset + int(query);
    int first = max(kept_fields.first + int(query), 0);
    bool ends = position < kept_fields.whole;
    int end = max(ends ? position + kept_fields.right + 1 : kept_fields.end, 0);
    return uvec2(min(first, end), end);
}
#else
uvec2 range_of(uint query)
{
    return mask_range(batch_of(), mask_query_offset(batch_of()) + int(query));
}
#endif

#ifdef BOUNDS_BY_ENDS
// Ranges rise with the queries: those of the first and the last of a tile are its bounds. Steps with rows
// that see no key and give weights are found before those of a span.
struct tile_ends {
    uint least_first, greatest_end, greatest_first, least_end;
    bool dead;
};
tile_ends ends;
uint dead_of_span, rows_at; // bits of steps; row_index of query 0
const uint DEAD_QUERIES = OTHERS > BACKWARD_SPAN / 32 ? OTHERS : BACKWARD_SPAN / 32; // of a bit

// Sets rows_at, of the head, and dead_of_span for the queries first .. end - 1.
void find_dead(uint first, uint end)
{
    rows_at = row_index(0);
    dead_of_span = 0;
    if (!OWNS_KEYS || mask_field(MASK_ROW_SHIFT, 2) == MASKED_ZERO)
        return;
    if (gl_LocalInvocationIndex == 0)
        dead_steps = 0;
    barrier();
    [[dont_unroll]] for (uint query = first + gl_LocalInvocationIndex; query < end; query += THREADS)
        if (floatBitsToUint(rows[rows_at + query * BACKWARD_ROW + BACKWARD_ROW_LOG_SUM]) == 0xff800000u)
            atomicOr(dead_steps, 1u << (query - first) / DEAD_QUERIES);
    barrier();
    dead_of_span = dead_steps;
}

// Sets the ends of a tile of queries; those of the span begin at span_first.
void find_ends(uint first, uint span_first)
{
    uvec2 least = range_of(first), greatest = range_of(min(first + QUERIES, p.n_q) - 1);
    ends.least_first = least.x;
    ends.greatest_end = greatest.y;
    ends.greatest_first = greatest.x;
    ends.least_end = first + QUERIES > p.n_q ? 0 : least.y;
    ends.dead = (dead_of_span >> (first - span_first) / DEAD_QUERIES & 1) != 0;
    if (ends.dead) {
        ends.least_first = 0;
        ends.greatest_end = max(ends.greatest_end, dead_end);
    }
}

uint row_at(uint query) { return BOUNDS_BY_ENDS ? rows_at + query * BACKWARD_ROW : row_index(query); }
#else
#define row_at row_index
#endif

// Sets the range and info of row t of a tile, and what it adds to bounds. A row that sees no key gives
// weights to all keys before the length, but where masked_row says 0; rows past the end see none and give
// none.
void find_query(uint first, uint t)
{
    uint query = first + t, at = row_at(min(query, p.n_q - 1));
    uvec2 range = uvec2(0);
    vec4 info = vec4(0.0);
    if (query < p.n_q) {
        range = range_of(query);
        float z = STAGE == BACKWARD_SUMS ? 1.0 : rows[at + BACKWARD_ROW_SUM];
        info = vec4(rows[at + BACKWARD_ROW_LOG_SUM], 1.0 / z, z,
                    STAGE == BACKWARD_SUMS ? 0.0 : rows[at + BACKWARD_ROW_SUM + 1]);
    }
    ranges[t] = range;
    infos[t] = info;
#ifdef BOUNDS_BY_ENDS
    if (BOUNDS_BY_ENDS)
        return;
#endif
    bool dead = query < p.n_q && floatBitsToUint(info.x) == 0xff800000u;
    if (OWNS_KEYS && dead && mask_field(MASK_ROW_SHIFT, 2) != MASKED_ZERO) {
        range = uvec2(0, mask_end(batch_of()));
        atomicOr(bounds[4], 1u);
    }
    if (range.x < range.y) {
        atomicMin(bounds[0], range.x);
        atomicMax(bounds[1], range.y);
    }
    atomicMax(bounds[2], range.x);
    atomicMin(bounds[3], range.y);
}

// Sets ranges, infos and bounds.
void find_queries(uint first)
{
    uint lane = gl_LocalInvocationIndex;
    barrier(); // all have read the last ones
    if (lane < 5)
        bounds[lane] = lane % 3 == 0 && lane < 4 ? 0xffffffffu : 0;
    barrier();
#ifdef LANE_A_QUERY
    if (lane < QUERIES)
        find_query(first, lane);
#else
    for (uint t = lane; t < QUERIES; t += THREADS)
        find_query(first, t);
#endif
    barrier();
}

bool some_sees(uint first, uint end)
{
#ifdef BOUNDS_BY_ENDS
    if (BOUNDS_BY_ENDS)
        return first < ends.greatest_end && end > ends.least_first;
#endif
    return first < bounds[1] && end > bounds[0];
}

bool all_see(uint first, uint end)
{
#ifdef BOUNDS_BY_ENDS
    if (BOUNDS_BY_ENDS)
        return first >= ends.greatest_first && end <= ends.least_end && !ends.dead &&
               !(GENERAL && mask_has(MASK_TENSOR));
#endif
    return first >= bounds[2] && end <= bounds[3] && bounds[4] == 0 && !mask_has(MASK_TENSOR);
}

#ifdef BOUNDS_BY_ENDS
// Before the steps of a span, before a step, and where some of its scores are visible: a step has barriers
// before it writes what lies in shared memory and before it reads it.
void find_span(uint first, uint end)
{
    if (BOUNDS_BY_ENDS)
        find_dead(first, end);
}

void find_bounds(uint first, uint span_first)
{
    if (BOUNDS_BY_ENDS)
        find_ends(first, span_first);
    else
        find_queries(first);
}

void store_queries(uint first)
{
    if (BOUNDS_BY_ENDS && gl_LocalInvocationIndex < QUERIES)
        find_query(first, gl_LocalInvocationIndex);
}
#else
#define find_span(first, end)
#define find_bounds(first, span_first) find_queries(first)
#define store_queries(first)
#endif

// ---- A score ------------------------------------------------------------------------------------

float kept(uint query, uint key)
{
    if (!GENERAL || p.dropout == 0.0)
        return 1.0;
    uvec4 counter = uvec4(key, p.draw_query + query, (p.draw_place & 0xffffu) + head_of(),
                          (p.draw_place >> 16) + batch_of());
    uint word = philox(counter, uvec2(p.seed_low, p.seed_high));
    return float(word >> 8) * 5.9604644775390625e-8 >= p.dropout ? 1.0 / (1.0 - p.dropout) : 0.0;
}

// Takes the score of query t of the tile to e; false where it does not see the key. slope: derivative
// of the softcap.
bool weigh(inout float s, out float slope, uint t, uint query, uint key)
{
    float bias = 0.0;
    slope = 1.0;
    if (GENERAL && p.softcap != 0.0) {
        float y = tanh_accurate(s / p.softcap);
        s = p.softcap * y;
        slope = fma(-y, y, 1.0);
    }
    if (GENERAL && mask_has(MASK_ALIBI)) {
        precise float away =
            alibi * abs(float(mask_query_offset(batch_of()) + int(query) - int(key)));
        s -= away;
    }
    bool visible = key >= ranges[t].x && key < ranges[t].y;
    if (GENERAL && visible)
        visible = mask_tensor(mask_row_index(batch_of(), head_of(), query), key, bias);
    s = exp_accurate(s + bias - infos[t].x);
    return visible;
}

#define HIDDEN uintBitsToFloat(HIDDEN_BITS)

// Weight of a key that query t does not see.
float hidden_weight(uint t, uint query, uint key)
{
    uint answer = mask_field(MASK_ROW_SHIFT, 2);
    if (floatBitsToUint(infos[t].x) != 0xff800000u || answer == MASKED_ZERO)
        return HIDDEN;
    uint n = mask_end(batch_of());
    if (key >= n)
        return HIDDEN;
    float weight = answer == MASKED_NAN ? uintBitsToFloat(0x7fc00000u) : 1.0 / float(n);
    return weight * kept(query, key);
}

// Takes a score and the gradient of its weight to the gradient of the score, times scale, and the
// weight; with BACKWARD_SUMS to e and e m g.
void differentiate(inout float s, inout float g, uint t, uint query, uint key)
{
    float slope;
    if (!weigh(s, slope, t, query, key)) {
        g = STAGE == BACKWARD_SUMS ? 0.0 : hidden_weight(t, query, key);
        s = STAGE == BACKWARD_SUMS ? 0.0 : HIDDEN;
        return;
    }
    float m = kept(query, key);
    vec4 info = infos[t];
    if (STAGE == BACKWARD_SUMS) {
        precise float product = m * g * s;
        g = product;
        return;
    }
    float weight = s * info.y;
    precise float of_all = m * g * info.z, gap = of_all - info.w;
    s = weight * (gap * info.y) * slope * p.scale;
    g = weight * m;
}
