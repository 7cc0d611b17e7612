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
