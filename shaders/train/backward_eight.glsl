// Eight scores of a lane of attention_backward_coop and the gradients of their weights, taken to what a
// stage makes of them. The includer has what backward_scores.glsl asks for, lane_row, lane_others, scale,
// tested, dead_weight and dead_end.

void differentiate_one(inout float s, inout float g, uint other, uint i)
{
    uint column = lane_others() + i, t = OWNS_KEYS ? column : lane_row();
    uint query = OWNS_KEYS ? other + column : own_first + lane_row();
    uint key = OWNS_KEYS ? own_first + lane_row() : other + column;
    differentiate(s, g, t, query, key);
    if (floatBitsToUint(s) == HIDDEN_BITS)
        s = 0.0;
    if (floatBitsToUint(g) == HIDDEN_BITS)
        g = 0.0;
}

// What differentiate does where all is visible and GENERAL is not set: the same bits.
void differentiate_seen(inout float s, inout float g, vec4 info)
{
    float n, x = s - info.x, power = exp_and_power(x, n);
    power *= power_of_two(n, 0x3f800000u);
    s = x < -87.3 ? 0.0 : power; // exp_accurate without a branch
    if (STAGE == BACKWARD_SUMS) {
        precise float product = g * s;
        g = product;
        return;
    }
    float weight = s * info.y;
    precise float of_all = g * info.z, gap = of_all - info.w;
    s = weight * (gap * info.y) * scale;
    g = weight;
}

#define SEEN(s, g, c, i)                                                                           \
    differentiate_seen(s.c, g.c, infos[OWNS_KEYS ? lane_others() + i : lane_row()]);

// Whether the lane's score i is visible where GENERAL is not set.
bool sees(uint other, uint i)
{
    uint column = lane_others() + i;
    uint key = OWNS_KEYS ? own_first + lane_row() : other + column;
    uvec2 range = ranges[OWNS_KEYS ? column : lane_row()];
    return key >= range.x && key < range.y;
}

#define HIDE(s, g, c, i)                                                                           \
    {                                                                                              \
        bool seen = sees(other, i);                                                                \
        s.c = seen ? s.c : 0.0;                                                                    \
        g.c = seen ? g.c : 0.0;                                                                    \
    }

// Hides a score of a key and a row that may see none, and gives its weights all the same.
void hide(inout float s, inout float g, uint other, uint i)
{
    if (sees(other, i))
        return;
    bool weighs = own_first + lane_row() < dead_end &&
                  floatBitsToUint(infos[lane_others() + i].x) == 0xff800000u;
    s = 0.0;
    g = weighs ? dead_weight : 0.0;
}

// f(score, gradient of the weight, others of the step, place) of the eight, two at a time. The vectors
// turn, as some compilers keep a vector that a loop indexes in memory.
#define EACH(f)                                                                                    \
    [[dont_unroll]] for (uint i = 0; i < 4; i++)                                                   \
    {                                                                                              \
        f(s0.x, g0.x, other, i);                                                                   \
        f(s1.x, g1.x, other, 4 + i);                                                               \
        s0 = s0.yzwx;                                                                              \
        s1 = s1.yzwx;                                                                              \
        g0 = g0.yzwx;                                                                              \
        g1 = g1.yzwx;                                                                              \
    }

// Takes eight scores and gradients of their weights to what a stage makes of them.
void differentiate_all(inout vec4 s0, inout vec4 s1, inout vec4 g0, inout vec4 g1, uint other)
{
    if (GENERAL || FEW_REGISTERS) {
        EACH(differentiate_one)
        return;
    }
    SEEN(s0, g0, x, 0)
    SEEN(s0, g0, y, 1)
    SEEN(s0, g0, z, 2)
    SEEN(s0, g0, w, 3)
    SEEN(s1, g1, x, 4)
    SEEN(s1, g1, y, 5)
    SEEN(s1, g1, z, 6)
    SEEN(s1, g1, w, 7)
    if (tested && OWNS_KEYS) {
        EACH(hide)
    } else if (tested) {
        HIDE(s0, g0, x, 0)
        HIDE(s0, g0, y, 1)
        HIDE(s0, g0, z, 2)
        HIDE(s0, g0, w, 3)
        HIDE(s1, g1, x, 4)
        HIDE(s1, g1, y, 5)
        HIDE(s1, g1, z, 6)
        HIDE(s1, g1, w, 7)
    }
}
