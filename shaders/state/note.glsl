// What operations with a state in a cache read and write of the cache's words, see cache_params: behind
// q_start u32 [batch + 1] stand the rows that each sequence keeps of the step, [batch]; the ticket of its
// run, [2]; of the first run that left a state of a sequence which is not finite, ticket and layer,
// [batch][3]. The includer has the buffer `starts`, and `p` with n_cached, sequence_first and
// starts_offset.

// Where q_start of the pass's first sequence stands.
uint cached_start() { return p.starts_offset - (p.n_cached + 1); }

// Whether a number is NaN or infinite.
bool is_broken(float x) { return (floatBitsToUint(x) & 0x7f800000u) == 0x7f800000u; }

// Notes that a state of sequence i of the pass is no longer finite, unless one was noted before. All
// invocations of a pass write the same.
void note_broken(uint i)
{
    uint ticket = p.starts_offset - p.sequence_first + p.n_cached;
    uint at = ticket + 2 + 3 * (p.sequence_first + i);
    if (p.n_cached == 0 || starts[ticket] == 0 || starts[at] != 0)
        return;
    starts[at] = starts[ticket];
    starts[at + 1] = starts[ticket + 1];
    starts[at + 2] = p.layer;
}
