// Scales of the rows of quantised weights, which multiply columns of their product. The includer has
// lib/sums.glsl.

layout(binding = 5) readonly buffer Scale { float scale[]; };

float column_scale(uint column)
{
    return (SUMS & SUMS_SCALE) != 0 ? scale[p.scale_offset + column] : 1.0;
}
