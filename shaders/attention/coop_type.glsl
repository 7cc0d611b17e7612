// The 16-bit type of the kernels of attention on matrix units.
#ifdef BFLOAT16
#extension GL_EXT_bfloat16 : require
#define HALF bfloat16_t
#define HALF_TYPE TYPE_BF16
#define HALF_INFINITY 0x7f80u
#define COOP_LOG2 -15.0 // of WEIGHT_UNIT
#define COOP_UNIT WEIGHT_UNIT
#else
#define HALF float16_t
#define HALF_TYPE TYPE_F16
#define HALF_INFINITY 0x7c00u
// Sums of float16 values do not overflow float32: a unit of 1 keeps the smallest weights.
#define COOP_LOG2 0.0
#define COOP_UNIT 1.0
#endif

// The maximum of a row is one of its scores as they are where they have a bias: it is taken from them before
// they are multiplied by log2(e), as a mask of -1e9 would leave the rounding of its product in the weights.
// Other scores are below 2^36, and their maximum is times their factor: one fma a weight. Its rounding is in
// all weights of a row alike, and 16 bits hold them up to scores of about 2^27.
