// Rotary embedding of a pair of features. The includer includes lib/math.glsl.

// The two features of pair i, where the first `dim` rotate.
uvec2 pair_features(uint i, uint dim, bool interleaved)
{
    return interleaved ? uvec2(2 * i, 2 * i + 1) : uvec2(i, i + dim / 2);
}

// Angle at a position, in units of 2^-32 turns: integers, exact at every position. frequency: turns a
// position in units of 2^-64, low word first.
uint angle_of(int position, uvec2 frequency)
{
    uint high, low;
    umulExtended(uint(position), frequency.x, high, low);
    high += uint(position) * frequency.y;
    return position < 0 ? high - frequency.x : high;
}

// Rotates a pair, with the same bits in every kernel: none contracts a product and a sum. cs: cosine
// and sine.
vec2 rotated_by(vec2 x, vec2 cs)
{
    precise vec2 y = vec2(x.x * cs.x - x.y * cs.y, x.x * cs.y + x.y * cs.x);
    return y;
}

vec2 rotated_pair(vec2 x, int position, uvec2 frequency, float factor)
{
    return rotated_by(x, factor * cos_sin_of(angle_of(position, frequency)));
}
