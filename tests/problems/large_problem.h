/* Problems of any size that memory holds, with answers known in closed form. Shared by the
 * large_*.c files: a problem is plain data, drawn from a seed, and checked by the file of its
 * operation. */
#ifndef TESTS_LARGE_PROBLEM_H
#define TESTS_LARGE_PROBLEM_H

#include "problem.h"

#include <stddef.h>

enum large_op {
    LARGE_ATTENTION = 0, /* past and present keys, masks and returned scores included */
    LARGE_CACHE,         /* dense and paged */
    LARGE_RAGGED,
    LARGE_LINEAR, /* with NaN and Inf counted */
    LARGE_ROPE,   /* present keys and values: rotated and copied */
    LARGE_LAYER,
    LARGE_OP_COUNT
};

/* What the scores are: all 0, so that weights are equal; one key far above all others; a known
 * function of the key's index. */
enum large_kind { LARGE_MEAN = 0, LARGE_HOT, LARGE_LEVELS, LARGE_KIND_COUNT };

/* How a known function of an index goes: any order, rising, one step. */
enum large_pattern { LARGE_HASH = 0, LARGE_RISE, LARGE_STEP, LARGE_PATTERN_COUNT };

#define LARGE_HOT_KEYS 4

/* A problem, whose fields are here by their own names too, and what makes its answer known. Lengths and
 * offsets are those of each batch element, past and present have the types of k and v. */
struct large_attention {
    union {
        struct problem p;
        struct {
#define FIELD(kind, type, name, least) type name;
#define MEMBER(type, name) type name;
#define SCALAR(kind, name, least)
#include "problem.def"
#undef FIELD
#undef MEMBER
#undef SCALAR
        };
    };
    enum large_kind kind;
    enum large_pattern pattern;
    bool swapped;   /* [batch][n][head][dim] in memory */
    bool shared_kv; /* all batch elements and heads read one head's keys and values, by stride 0 */
    bool nonfinite;
    bool mask_ranges;            /* it hides ranges of keys; else keys here and there */
    float range;                 /* of the scores, where they are levels, before the softcap */
    uint32_t runs;               /* of a cache: n_new keys a run */
    uint32_t query_dim, key_dim; /* LARGE_LAYER: widths of the inputs */
    int64_t hot[2][LARGE_HOT_KEYS];
};

enum large_product { LARGE_EXACT = 0, LARGE_RAMP, LARGE_ONE_HOT, LARGE_PRODUCT_COUNT };

struct large_linear {
    enum large_product kind;
    enum large_pattern pattern;
    uint32_t rank, m[3], n, k; /* input [m...][k], weight [n][k]; rank - 1 of m count */
    enum vka_dtype input, weight, output, bias;
    bool has_bias, relu, nonfinite, planted; /* planted: NaN and Inf in some rows of the input */
};

/* What becomes of a plan whose numbers nobody reads: it gets the tensors that the plan writes, and
 * is false, with a reason, where the plan is wrong. */
struct vka_plan;
typedef bool large_judge_plan(struct vka_plan *plan, struct vka_tensor *const *outputs, size_t n,
                              char *why, size_t size);

struct large_problem {
    large_judge_plan *judge; /* NULL: the numbers are judged; else no tensor is filled */
    enum large_op op;
    struct large_attention a; /* seed and plan of a product too */
    struct large_linear l;
};

/* What the draw keeps to. */
struct large_bounds {
    double work;  /* multiplications of a problem */
    double bytes; /* of its tensors */
    unsigned ops; /* bit per enum large_op */
    int kernels;  /* the set of enum large_kernels, or -1: any */
    int path;     /* enum vka_path, or -1: any */
};

/* Sets of kernels that a problem may not use, so that others are. */
enum large_kernels {
    LARGE_KERNELS_USUAL = 0,
    LARGE_KERNELS_GPU,   /* none for CPU drivers */
    LARGE_KERNELS_TILE,  /* and none with matrix units */
    LARGE_KERNELS_PLAIN, /* rows and lanes without texels and addresses */
    LARGE_KERNELS_COUNT
};

void large_draw(struct large_problem *p, uint64_t seed, const struct large_bounds *bounds);

/* All of it on one line. Returns text. */
#define LARGE_TEXT (PROBLEM_TEXT + 400)
const char *large_text(const struct large_problem *p, char text[LARGE_TEXT]);

#define LARGE_WHY 512
struct large_result {
    bool refused;              /* the device or memory is too small; why has the sentence */
    char why[LARGE_WHY];       /* of a failure */
    struct kernel_set kernels; /* that a plan used */
};

/* True where the library is right or refuses. */
bool large_check(struct vka_device *device, const struct large_problem *p,
                 struct large_result *result);

#endif
