/* The words that parameters are written in, for C and for GLSL (which defines VULKAN); end.h takes
 * them away. No guard: each header of parameters includes both. */
#ifdef VULKAN
#define U32 uint
#define I32 int
#define F32 float
#define STRUCT(tag) tag
#else
#include <stdint.h>
#define U32 uint32_t
#define I32 int32_t
#define F32 float
#define STRUCT(tag) struct tag
#endif
