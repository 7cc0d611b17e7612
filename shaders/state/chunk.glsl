// What linear_weights leaves for linear_chunked: of each chunk of a state, in fours of values.

const uint C = LINEAR_CHUNK, QUADS = C / 4; // tokens, fours of them
const uint TILE = 4, PITCH = TILE + 1;      // fours of features that are staged; rows lie in other banks
const uint OF_K = 0, OF_Q = 1;
const uint WEIGHTS_A = 0, WEIGHTS_T = C * QUADS, WEIGHTS_GATES = 2 * C * QUADS;

// First of `each` of them; row is the sequence's first in this pass. Without room of its own for each
// sequence, one begins with the first whole chunk behind those before it.
uint weights_at(uint row, uint chunk, uint each)
{
    uint slot = chunk + (p.chunks > 0 ? batch * p.chunks : row / C + batch);
    return (slot * gl_NumWorkGroups.y + gl_WorkGroupID.y) * each;
}
