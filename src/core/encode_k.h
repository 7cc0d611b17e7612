/* Types of 256 values a block, quantised by search: subblocks of a block have scales of a few bits. */
#ifndef VKA_CORE_ENCODE_K_H
#define VKA_CORE_ENCODE_K_H

#include <stdint.h>

/* x[256] finite. A scale that float16 has not makes it infinite in the block. */
void encode_q4_K(const float *x, uint8_t *block);
void encode_q5_K(const float *x, uint8_t *block);
void encode_q6_K(const float *x, uint8_t *block);

#endif
