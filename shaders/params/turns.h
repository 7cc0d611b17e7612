/* Elements that an invocation takes in one turn of a loop, shared by C and GLSL: some drivers end the
 * loops of an invocation after 65,535 turns in all, see loop_probe. */
#define SAMPLE_RUN 4 /* draws from 460,000 elements */
#define POOL_RUN 8   /* means of 100,000 rows */
