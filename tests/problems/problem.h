/* An attention problem, described by plain data: drawn, told on a line and read from it, shrunk,
 * put to the API and to the oracle in one place for all ways to run it. */
#ifndef TESTS_PROBLEM_H
#define TESTS_PROBLEM_H

#include "compare.h"
#include "gpu/kernel_set.h"

/* kv_length and query_offset. */
enum per_batch { PER_BATCH_NONE = 0, PER_BATCH_ONE, PER_BATCH_EACH };

/* How a problem is run. Each way draws the options that problem_options.c lists for it. */
enum problem_way {
    WAY_DENSE = 0, /* one call, perhaps with a past */
    WAY_PACKED,    /* steps of packed sequences with a cache */
    WAY_LAYER,     /* a prompt through a layer with a cache, whole, in steps, in pages, alone */
    WAY_BACKWARD,  /* one call and its gradients */
    WAY_COUNT
};

struct problem {
#define FIELD(kind, type, name, least) type name;
#define MEMBER(type, name) type name;
#define SCALAR(kind, name, least)
#include "problem.def"
#undef FIELD
#undef MEMBER
#undef SCALAR
};

struct problem_result {
    struct kernel_set kernels; /* that the plan used */
    char why[WHY];             /* of a failure */
    bool refused;              /* beyond the lowered limits, as vka_device_info says some are */
};

/* True where the library is right on all that the problem asks for, in the way that it names;
 * *worst, which may be NULL, takes what was measured. */
bool problem_check(struct vka_device *device, const struct problem *p, struct worst *worst,
                   struct problem_result *result);

/* Gradients of those operands that the problem has: without past, present and returned scores, with
 * log_sum_exp. With `budgets` a plan that is cut gives the same bits. */
bool problem_backward_check(struct vka_device *device, const struct problem *p, struct worst *worst,
                            struct problem_result *result);
void problem_backward_draw(struct problem *p, uint64_t seed);

/* Packed steps, against the oracle, and bit for bit against each sequence in a cache of its own,
 * one contiguous where the other is paged. */
bool ragged_check(struct vka_device *device, const struct problem *p, struct worst *worst,
                  struct problem_result *result);
void ragged_draw(struct problem *p, uint64_t seed);

/* Gives the problem one of few sets of types and sizes of head, for drivers that take seconds to
 * compile a kernel. */
void ragged_share(struct problem *p, uint64_t set);

/* Leaves the tile kernel to packed steps where the device has no other for the problem's types. */
void ragged_fit(struct vka_device *device, struct problem *p);

/* A layer with quantised weights and a cache: all ways to run its prompt give the same bits,
 * near those of decoded weights. */
bool problem_quantised_check(struct vka_device *device, const struct problem *p,
                             struct worst *worst, struct problem_result *result);
void problem_quantised_draw(struct problem *p, uint64_t seed);

/* Makes a problem of gradients of any dense one. */
void problem_backward_adapt(struct problem *p, uint64_t seed);

/* Gives operands and gradients one type. Rotation and norm, which make float32 of them, are left
 * out. */
void problem_backward_set_type(struct problem *p, enum vka_dtype type);

/* All of it on one line, which problem_read understands. Returns text. */
#define PROBLEM_TEXT 1200
const char *problem_text(const struct problem *p, char text[PROBLEM_TEXT]);

/* False where the text is none of a problem; wrong: its last word that was read. */
bool problem_read(const char *text, struct problem *p, char wrong[PROBLEM_TEXT]);

/* Makes the problem as small and as plain as it can be so that it fails all the same, with
 * `most` tries at most. Returns how many there were. */
typedef bool problem_fails(const struct problem *p, void *user);
int problem_shrink(struct problem *p, problem_fails *fails, void *user, int most);

/* Whether two sentences on what went wrong agree up to their first number. */
bool problem_same_reason(const char *a, const char *b);

/* Draws the options that the way takes, of a problem whose sizes and types are known. */
void problem_draw_options(struct problem *p, struct rng *rng);

/* Log-uniform up to most, from 1 or, where that is more than 4,096, from 256; one in four beside a
 * power of two or a limit of 16 bits. */
uint32_t problem_draw_size(struct rng *rng, uint32_t most);

/* Keys that a mask or a score may have, and query heads. */
static inline uint32_t problem_n_kv(const struct problem *p)
{
    return p->capacity ? p->capacity : p->n_past + p->n_new;
}

static inline uint32_t problem_n_head(const struct problem *p)
{
    return p->n_kv_head * p->group;
}

/* Any problem that the contract allows, of some ten million multiplications at most as a rule. */
void problem_draw(struct problem *p, uint64_t seed, enum vka_path path);

/* Bounds of problems that are drawn in other sizes. */
struct problem_bounds {
    double work;         /* multiplications, as a rule */
    double scores;       /* elements of the scores */
    uint32_t rows, past; /* the most queries or new keys, and past keys */
};
void problem_draw_within(struct problem *p, uint64_t seed, enum vka_path path,
                         const struct problem_bounds *bounds);

/* Gives a problem one of few sets of types and strides, and if it is fused of head sizes: a CPU
 * driver takes seconds to compile each fused kernel, and tests that draw from these share them. */
#define PROBLEM_SHARED 4 /* sets */
void problem_share(struct problem *p, uint64_t set);

/* Another problem with the options of a dense one, and nearly its sizes, so that both take the same
 * pipelines mostly. */
void problem_vary(struct problem *p, uint64_t seed);

#endif
