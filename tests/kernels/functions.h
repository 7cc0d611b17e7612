/* check_functions: one function of float32 at a time, through the operation that computes it. */
#ifndef TESTS_FUNCTIONS_H
#define TESTS_FUNCTIONS_H

#include <stdint.h>

#include <vkattn/vkattn_model.h>
#include <vkattn/vkattn_train.h>

#include "gpu/kernels.h"

#define FUNCTION_OUTPUTS 2
#define FUNCTION_TENSORS 12
#define LN2 0.69314718055994530942

/* What a result has to be: |result - value| <= limit * scale. Below SMALLEST a result may be 0. A NaN
 * asks for NaN, an infinity for itself. */
struct wanted {
    double value, scale;
};
#define SMALLEST 1e-30

/* Arguments, as the bits of float32. */
struct points {
    uint32_t *bits;
    size_t n, room;
};

struct job;

struct function {
    const char *name;
    /* Makes the tensors of a job and adds the operation to its plan. */
    enum vka_status (*add)(struct job *job);
    struct wanted (*want)(const struct function *f, float x, uint32_t result);
    /* Adds the points that are its own to those of points_common(). NULL: it has none. */
    void (*points)(const struct function *f, struct points *p);
    double limit;
    int kind;            /* of the operation */
    double alpha;        /* its parameter; 0: none */
    enum vka_dtype from; /* of the arguments: F32, or a type whose 65,536 numbers all are tried */
    enum vka_dtype to;   /* of the results */
    bool forced;         /* `kernel` is, by switching its rivals off */
    enum kernel kernel;
    uint32_t n;     /* arguments of a run; 0: 65,536 */
    uint32_t every; /* of the common points, one in so many; 0: all */
    double most;    /* arguments of larger magnitude are not tried; 0: all are */
};

/* A plan that computes a function of n arguments. Argument i is element i * input_width of the input,
 * whose other elements are 0. */
struct job {
    struct vka_device *device;
    const struct function *function;
    uint32_t n, input_width;
    struct vka_plan *plan;
    struct vka_tensor *input, *tensors[FUNCTION_TENSORS];
    size_t n_tensor;
    /* Results: `used` of each `width` neighbours. */
    struct {
        struct vka_tensor *tensor;
        enum vka_dtype dtype;
        uint32_t width, used;
    } output[FUNCTION_OUTPUTS];
    size_t n_output;
};

/* A tensor that lives as long as the job. */
enum vka_status job_tensor(struct job *job, enum vka_dtype dtype, uint32_t rank,
                           const uint32_t *size, struct vka_tensor **tensor);
/* One of float32 that repeats values[period]. */
enum vka_status job_constant(struct job *job, uint32_t rank, const uint32_t *size,
                             const float *values, size_t period, struct vka_tensor **tensor);
/* One of results, of which those of an argument are `width` neighbours, the first `used` of which
 * count. */
enum vka_status job_output(struct job *job, enum vka_dtype dtype, uint32_t rank,
                           const uint32_t *size, uint32_t width, uint32_t used,
                           struct vka_tensor **tensor);

/* Whether its plan uses the kernel that its function forces, if it does. */
bool function_is_used(const struct job *job);

void job_destroy(struct job *job);

/* A number of 16 bits, and the nearest one of a type, as the type holds it. */
double number_of(enum vka_dtype dtype, uint16_t bits);
double number_near(enum vka_dtype dtype, double x);

/* The float32 nearest to x and its 8 neighbours on each side, of both signs. */
void points_near(struct points *p, double x);
/* Points near those where u(a, x), which grows with x > 0, is a multiple of `step` up to `most`. */
void points_inverse(struct points *p, double (*u)(double a, double x), double a, double step,
                    double most);
double points_linear(double a, double x); /* a x */
/* Zeros, powers of two, subnormal and largest numbers, infinities, NaN; one in 65,537. */
void points_common(struct points *p);
void points_push(struct points *p, uint32_t bits);

/* Decoding of blocks by every kernel that reads them, of the types "blocks_<type>" that begin with prefix,
 * which are counted; by the kernel `reader` alone where it is not NULL. all: every scale, else some of each
 * magnitude. */
size_t check_blocks(struct vka_device *device, const char *prefix, const char *reader, bool all,
                    bool list, bool *ok);

/* What caches and quantised activations keep of values. */
bool check_quantisers(struct vka_device *device);

extern const struct function map_functions[], attention_functions[], row_functions[];

#endif
