/* One valid, answered example of each operation of vkattn_operations.h, as data: the fields of
 * its struct, what each holds, what of it is wrong, and what the outputs hold after a run. Tests
 * that concern all operations iterate these. */
#ifndef TESTS_OPERATIONS_EXAMPLE_H
#define TESTS_OPERATIONS_EXAMPLE_H

#include <vkattn/vkattn_model.h>
#include <vkattn/vkattn_train.h>

#include <stdalign.h>
#include <stddef.h>

/* What a field is, from which follows how it can be wrong. Tensors come first. */
enum fault {
    OPERAND,   /* a tensor of a float type */
    OUTPUT,    /* the same, written: no element twice */
    FREE,      /* the same, whose axis `limit` may have any length */
    BROADCAST, /* the same, whose axes may be 1 */
    OPTIONAL,  /* a tensor of a float type, or NULL */
    GRADIENT,  /* the same, written */
    KEPT,      /* the same, of any shape */
    FLOATS,    /* F32 alone, or NULL */
    MASK,      /* a float type or BOOL, whose axes may be 1, or NULL */
    INDICES,   /* I32 */
    DRAWN,     /* I32, written */
    INTEGERS,  /* I32, one for all or one each, or NULL */
    TENSOR_FAULTS,
    SIZE = TENSOR_FAULTS, /* size_t: of the struct */
    LINK,                 /* a pointer to offset `number` of the example, not NULL */
    LAYER,                /* a layer of the device, not NULL */
    ENUM,                 /* below `limit` */
    FINITE,               /* float or double */
    POSITIVE,             /* float or double, finite and above 0, or 0 */
    RATE,                 /* float or double in [0, 1), or up to 1 where `limit` is 1 */
    GIVEN,                /* uint32_t: bits of `limit` */
    WINDOW,               /* int32_t from -1 */
    EVEN,                 /* uint32_t: even, at most `limit` */
    SHORT,                /* uint32_t: at most 65535 */
    COUNT,                /* uint32_t or size_t: elements of an array, 1 to `limit` */
    ANY,                  /* a switch or a number of which most values are right */
};

struct field {
    const char *name; /* as errors call it */
    enum fault fault;
    size_t offset, size;
    uint32_t limit;
    double number;                      /* of what is no tensor */
    uint32_t rank, shape[VKA_MAX_RANK]; /* of a tensor */
    uint32_t seed;                      /* of its values; 0: NaN, or -1 of I32 */
    const double *values, *answer;      /* in place of those; after a run; NULL: not compared */
};

#define EXAMPLE_FIELDS 48
#define EXAMPLE_BYTES 1024

struct example {
    const char *name; /* of the public function */
    enum vka_status (*add)(struct vka_plan *plan, const void *op);
    size_t size, op_size; /* of the operation's struct and what it points to; of the struct alone */
    const struct field *fields;
    size_t n_field;
};

enum {
    N_EXAMPLE = 0
#define VKA_OPERATION(noun, type) +1
#include <vkattn/vkattn_operations.h>
};
extern const struct example examples[N_EXAMPLE];

/* An example on a device. op holds its struct, and behind that what it points to. */
struct instance {
    const struct example *example;
    struct vka_layer *layer;
    struct vka_tensor *tensors[EXAMPLE_FIELDS]; /* by field; NULL: none */
    alignas(max_align_t) char op[EXAMPLE_BYTES];
};

/* Makes the tensors, those that may have any float type of dtype, and sets op. A half-made instance
 * is to be destroyed too. */
enum vka_status example_create(const struct example *example, struct vka_device *device,
                               enum vka_dtype dtype, struct instance *made);
void example_destroy(struct instance *instance);

/* Fills the tensors, which are of float32 where they are floats. */
enum vka_status example_fill(const struct instance *instance);

/* Copies op of an instance to a place as aligned, with its pointers into itself. */
void example_copy(const struct instance *instance, char op[EXAMPLE_BYTES]);

/* Compares the outputs with their answers; *wrong: the first field that differs, NULL for none. */
enum vka_status example_compare(const struct instance *instance, const struct field **wrong);

/* Plans, runs and compares. info: of the plan, or NULL. *n_pass, which may be NULL: the plan's passes. */
enum vka_status example_run(struct vka_device *device, const struct example *example,
                            const struct vka_plan_info *info, const struct field **wrong,
                            size_t *n_pass);

/* Whether a call without this tensor is refused; whether the tensor is written; its type in
 * the example; whether a call takes it with this type. */
bool field_is_needed(const struct field *field);
bool field_is_written(const struct field *field);
enum vka_dtype field_dtype(const struct field *field);
bool field_takes(const struct field *field, enum vka_dtype dtype);

/* Element `index` of the values of a seed: eighths, from -1 to 7/8. */
double example_value(uint32_t seed, uint32_t index);

/* Sets what is no tensor. */
void field_set(const struct field *field, char *op, double number);

#endif
