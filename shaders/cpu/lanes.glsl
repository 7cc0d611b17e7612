// Sums and the greatest over the 8 lanes of a subgroup. The includer has lane().

// Lane j gets the sum over the lanes of v[j].
float transpose_sum(float v[8])
{
    [[unroll]] for (uint j = 0; j < 4; j++) {
        bool high = (lane() & 4) != 0;
        v[j] = mix(v[j], v[j + 4], high) + subgroupShuffleXor(mix(v[j + 4], v[j], high), 4);
    }
    [[unroll]] for (uint j = 0; j < 2; j++) {
        bool high = (lane() & 2) != 0;
        v[j] = mix(v[j], v[j + 2], high) + subgroupShuffleXor(mix(v[j + 2], v[j], high), 2);
    }
    bool high = (lane() & 1) != 0;
    return mix(v[0], v[1], high) + subgroupShuffleXor(mix(v[1], v[0], high), 1);
}

float lanes_max(float v)
{
    v = max(v, subgroupShuffleXor(v, 4));
    v = max(v, subgroupShuffleXor(v, 2));
    return max(v, subgroupShuffleXor(v, 1));
}

float lanes_sum(float v)
{
    v += subgroupShuffleXor(v, 4);
    v += subgroupShuffleXor(v, 2);
    return v + subgroupShuffleXor(v, 1);
}
