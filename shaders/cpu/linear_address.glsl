// What the kernels of linear attention for CPU drivers share: where they keep, by address, what they make
// of each chunk, and how they read and write it. See LINEAR_ADDRESS_WEIGHTS.

layout(buffer_reference, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(buffer_reference, buffer_reference_align = 4) buffer Fours { vec4 at[]; };
layout(push_constant) uniform Push { uvec2 addresses[LINEAR_WEIGHTS_SLOT + 1]; };

const uint D = 4 * FOURS, VECTORS = FOURS / 2; // features of a row, and vectors of eight
// Features of an iteration: these drivers blend what a loop carries with the execution mask in each.
const uint STEP = D % 64 == 0 ? 64 : D % 32 == 0 ? 32 : 16;
const uint STATES = LINEAR_ADDRESS_STATES(FOURS);
// First floats of what a chunk has: rows of keys and queries, [token][feature], L and A, [i][j], and lists by
// token.
// Rows are further apart than they are long, as those of 128 features would else share few lines of a cache.
const uint ROW_PITCH = D + 16;
const uint KEYS = 0, QUERIES = C * ROW_PITCH, OF_KEYS = 2 * C * ROW_PITCH, OF_QUERIES = OF_KEYS + C * C;
const uint LISTS = OF_QUERIES + C * C;
// The decay, beta, step, e^D(t), e^D(last, t), and in all places the code of e^D(last).
const uint DECAYS = LISTS, BETAS = LISTS + C, STEPS = LISTS + 2 * C, FACTORS = LISTS + 3 * C;
const uint LASTS = LISTS + 4 * C, CODES = LISTS + 5 * C;

uint lane() { return gl_SubgroupInvocationID; }

// Whether this is a lane. Set in front of all loops: what is first computed in a loop these drivers carry
// in memory from there on, and find no constants in it.
bool is_lane[8];

void find_lane()
{
    [[unroll]] for (uint i = 0; i < 8; i++)
        is_lane[i] = lane() == i;
}

// Element of this lane, by constant selects, which the compiler folds into one vector.
float own_of(vec4 low, vec4 high)
{
    float x = mix(low.x, low.y, is_lane[1]);
    x = mix(x, low.z, is_lane[2]);
    x = mix(x, low.w, is_lane[3]);
    x = mix(x, high.x, is_lane[4]);
    x = mix(x, high.y, is_lane[5]);
    x = mix(x, high.z, is_lane[6]);
    return mix(x, high.w, is_lane[7]);
}

uint64_t at_float(uint64_t base, uint at) { return base + 4ul * at; }

uint64_t address_of(uint slot) { return packUint2x32(addresses[slot]); }

uint64_t own_memory() { return address_of(LINEAR_WEIGHTS_SLOT); }

// Where the weights of a chunk are, behind the states of all sequences.
uint64_t chunk_at(uint row, uint chunk)
{
    uint groups = (p.value_dim + LINEAR_ADDRESS_VALUES - 1) / LINEAR_ADDRESS_VALUES;
    uint states = gl_NumWorkGroups.z * gl_NumWorkGroups.y * groups * STATES;
    return own_memory() + 16ul * (states + weights_at(row, chunk, LINEAR_ADDRESS_WEIGHTS(FOURS)));
}

// A lane's float of the eight from `at` on.
float load_eight(uint64_t base, uint at)
{
    Fours fours = Fours(at_float(base, at));
    return own_of(fours.at[0], fours.at[1]);
}

void store_eight(uint64_t base, uint at, float x) { Floats(at_float(base, at)).at[lane()] = x; }

// A float that all lanes get.
float load_one(uint64_t base, uint at) { return Floats(at_float(base, at)).at[0]; }
