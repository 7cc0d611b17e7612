/* Elements that an invocation takes in one iteration of a loop, shared by C and GLSL: some drivers
 * end the loops of an invocation after 65,535 iterations in all, see loop_probe. */
#define SAMPLE_EACH 4 /* draws from 460,000 elements */
#define POOL_EACH 8   /* means of 100,000 rows */
