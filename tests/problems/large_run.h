/* What the checks of the operations share: tensors, plans and the verdict on rows. */
#ifndef TESTS_LARGE_RUN_H
#define TESTS_LARGE_RUN_H

#include "large_problem.h"
#include "problem_data.h"

#include <gpu/device.h>

/* A tensor with canaries behind its last element. The host's copy is made when it is first asked
 * for. */
struct large_tensor {
    struct vka_tensor *base, *view;
    enum vka_dtype dtype;
    uint64_t count; /* elements of view */
    void *host;     /* [count], row-major in view's shape */
};

/* How axes lie in memory: as they are named, the middle two swapped, or the first two (rank 4: of
 * no length in memory). */
enum large_layout { LARGE_DENSE = 0, LARGE_SWAPPED, LARGE_SHARED };

enum vka_status large_tensor_create(struct vka_device *device, enum vka_dtype dtype, uint32_t rank,
                                    const uint32_t *size, enum large_layout layout,
                                    struct large_tensor *t);
void large_tensor_destroy(struct large_tensor *t);

/* Those of an attention, and the operation on them. */
enum vka_status large_tensors_create(struct vka_device *device, const struct large_attention *a,
                                     struct large_tensor t[OPERAND_COUNT]);
struct vka_attention_op large_op(const struct large_attention *a,
                                 const struct large_tensor t[OPERAND_COUNT]);

/* The host's copy, uninitialised at first; NULL without memory. */
void *large_host(struct large_tensor *t);

/* Uploads the host's copy and frees it. */
enum vka_status large_upload(struct large_tensor *t);

/* Fills elements and canaries with 0xff: NaN in every float type. */
enum vka_status large_blank(struct large_tensor *t);

/* Reads the elements; INTERNAL where a canary is gone. */
enum vka_status large_download(struct large_tensor *t);

/* The bits of the nearest value of the type; an element from and to the host's copy. */
uint32_t large_encode(enum vka_dtype dtype, double x);
void large_store(struct large_tensor *t, uint64_t i, uint32_t bits);
double large_load(const struct large_tensor *t, uint64_t i);
double large_round(enum vka_dtype dtype, double x);

/* One operation; a plan of it, finished, with the kernels left out that the problem names. */
struct large_add {
    const struct vka_attention_op *attention;
    const struct vka_linear_op *linear;
    const struct vka_layer_op *layer;
};
enum vka_status large_finish(struct vka_device *device, const struct large_problem *p,
                             bool nonfinite, const struct large_add *add, struct vka_plan **plan,
                             struct large_result *result);

/* Runs with a generous timeout. */
enum vka_status large_run(struct vka_plan *plan);

/* Turns a status that is not OK into a refusal or a failure. Returns false. */
bool large_failed(struct vka_device *device, enum vka_status status, struct large_result *result);

/* Judges rows of an output one after the other. */
struct large_verdict {
    const char *name;
    double limit; /* NMSE of a row */
    double worst;
    uint64_t row, column, failed, rows;
    double got, want; /* where it is worst */
};
struct large_verdict large_verdict(const char *name, enum vka_dtype dtype,
                                   struct kernel_set kernels);

/* Compares width elements of t from `at` with want; exact: they are to be equal. */
void large_judge(struct large_verdict *v, const struct large_tensor *t, uint64_t at, uint64_t width,
                 const double *want, bool exact);

/* False, with a reason, where a row failed. */
bool large_judged(const struct large_verdict *v, struct large_result *result);

/* A number from an index and its class, evenly spread. */
uint32_t large_mix(uint32_t index, uint32_t class);

/* The checks by operation. */
bool large_check_attention(struct vka_device *device, const struct large_problem *p,
                           struct large_result *result);
bool large_check_cache(struct vka_device *device, const struct large_problem *p,
                       struct large_result *result);
bool large_check_linear(struct vka_device *device, const struct large_problem *p,
                        struct large_result *result);
bool large_check_layer(struct vka_device *device, const struct large_problem *p,
                       struct large_result *result);

#endif
