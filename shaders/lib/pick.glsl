// The value of this lane: constant selects, which the compiler folds into one vector.
float pick(float x0, float x1, float x2, float x3, float x4, float x5, float x6, float x7)
{
    uint lane = gl_SubgroupInvocationID;
    float x = mix(x0, x1, lane == 1);
    x = mix(x, x2, lane == 2);
    x = mix(x, x3, lane == 3);
    x = mix(x, x4, lane == 4);
    x = mix(x, x5, lane == 5);
    x = mix(x, x6, lane == 6);
    return mix(x, x7, lane == 7);
}
