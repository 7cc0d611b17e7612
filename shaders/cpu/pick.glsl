// Element of this lane, by constant selects, which the compiler folds into one vector.
float pick(vec4 low, vec4 high)
{
    uint lane = gl_SubgroupInvocationID;
    float x = mix(low.x, low.y, lane == 1);
    x = mix(x, low.z, lane == 2);
    x = mix(x, low.w, lane == 3);
    x = mix(x, high.x, lane == 4);
    x = mix(x, high.y, lane == 5);
    x = mix(x, high.z, lane == 6);
    return mix(x, high.w, lane == 7);
}
