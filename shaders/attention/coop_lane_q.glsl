// q of attention_coop where it stays in shared memory: each lane keeps the elements that it has of a
// matrix side by side, so that it reads them by vectors. Rows of a matrix would take a load for each
// two elements on Intel. Matrices of one type place their elements alike, whatever that place is, and
// a lane reads what a lane of the same number wrote.

const uint LANE_VECTORS = M * K / LANES / 8; // of one lane in a matrix of q

// bfloat16 has no bit casts without 16-bit integers. Some devices hold an element twice.
bool has_lane_q()
{
#ifdef BFLOAT16
    return false;
#else
    return (AHEAD & AHEAD_LANE_Q) != 0 && LANE_VECTORS != 0 && M * K % (LANES * 8) == 0 &&
           q_matrices[0].length() * LANES == M * K;
#endif
}

// Vector i of this lane in matrix h of the rows of its subgroup, [row matrix][h][i][lane].
uint lane_q_at(uint h, uint i)
{
    uint matrix = gl_SubgroupID / COLUMNS * (HEAD / K) + h;
    return Q_STAGE + (matrix * LANE_VECTORS + i) * LANES + gl_SubgroupInvocationID;
}

#ifndef BFLOAT16
#define PACK_Q(left, e) packFloat2x16(f16vec2(left[e], left[e + 1]))
#define UNPACK_Q(left, e, word)                                                                    \
    left[e] = unpackFloat2x16(word).x;                                                             \
    left[e + 1] = unpackFloat2x16(word).y;
#endif

#define Q_ROWS_AT (has_lane_q() ? 0u : Q_STAGE)

// Moves q from the rows at the beginning of the stage to Q_STAGE. Both may overlap.
void spread_q()
{
#ifndef BFLOAT16
    if (!has_lane_q())
        return;
    LEFT a[HEAD / K];
    [[unroll]] for (uint h = 0; h < HEAD / K; h++)
        coopMatLoad(a[h], stage, first_lane_row() * K_PITCH + h * (K / 8), K_PITCH,
                    gl_CooperativeMatrixLayoutRowMajor);
    barrier(); // the rows have been read
    [[unroll]] for (uint h = 0; h < HEAD / K; h++)
        if (h % COLUMNS == column())
            [[unroll]] for (uint i = 0; i < LANE_VECTORS; i++)
                stage[lane_q_at(h, i)] = uvec4(PACK_Q(a[h], 8 * i), PACK_Q(a[h], 8 * i + 2),
                                               PACK_Q(a[h], 8 * i + 4), PACK_Q(a[h], 8 * i + 6));
    barrier(); // q is there
#endif
}

// Matrix h of q of this subgroup's rows.
LEFT staged_q(uint h)
{
    LEFT a;
#ifndef BFLOAT16
    if (has_lane_q()) {
        [[unroll]] for (uint i = 0; i < LANE_VECTORS; i++) {
            uvec4 x = stage[lane_q_at(h, i)];
            [[unroll]] for (uint w = 0; w < 4; w++) {
                UNPACK_Q(a, 8 * i + 2 * w, x[w])
            }
        }
        return a;
    }
#endif
    coopMatLoad(a, stage, Q_STAGE + first_lane_row() * K_PITCH + h * (K / 8), K_PITCH,
                gl_CooperativeMatrixLayoutRowMajor);
    return a;
}
