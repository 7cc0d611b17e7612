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
    int offset, left, right, end;
};
kept_mask kept_fields;
const int NO_WINDOW = 0x7fffffff;

void keep_mask()
{
    kept_fields.offset = mask_query_offset(batch_of());
    kept_fields.end = int(mask_end(batch_of()));
    if (mask_has(MASK_TENSOR))
        kept_fields.end = min(kept_fields.end, int(p.mask.mask_n_kv));
    kept_fields.left = mask_has(MASK_WINDOW_LEFT) ? p.mask.window_left : NO_WINDOW;
    kept_fields.right = mask_has(MASK_WINDOW_RIGHT) ? p.mask.window_right : NO_WINDOW;
    if (mask_has(MASK_CAUSAL))
        kept_fields.right = min(kept_fields.right, 0);
}

uvec2 range_of(uint query)
{
    if (!KEEPS_MASK)
        return mask_range(batch_of(), mask_query_offset(batch_of()) + int(query));
    int position = kept_fields.offset + int(query);
    int first = position > kept_fields.left ? position - kept_fields.left : 0;
    bool ends = kept_fields.right != NO_WINDOW && position < kept_fields.end - kept_fields.right;
    int end = max(ends ? position + kept_fields.right + 1 : kept_fields.end, 0);
    return uvec2(min(first, end), end);
}
#else
uvec2 range_of(uint query)
{
    return mask_range(batch_of(), mask_query_offset(batch_of()) + int(query));
}
#endif

// Sets the range and info of row t of a tile, and what it adds to bounds. A row that sees no key gives
// weights to all keys before the length, but where masked_row says 0; rows past the end see none and give
// none.
void find_query(uint first, uint t)
{
    uint query = first + t, at = row_index(min(query, p.n_q - 1));
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

bool some_sees(uint first, uint end) { return first < bounds[1] && end > bounds[0]; }

bool all_see(uint first, uint end)
{
    return first >= bounds[2] && end <= bounds[3] && bounds[4] == 0 && !mask_has(MASK_TENSOR);
}

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
