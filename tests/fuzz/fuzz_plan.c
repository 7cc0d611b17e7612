/* Bytes as calls of the library with any arguments, those of operations being the examples of
 * tests/operations with some fields changed: each is refused with nothing changed, or done. What
 * is added is recorded. On the stub (tests/stub), which computes nothing and makes some thousand
 * of these a second, it is run too, and the first byte says on which of its devices: a run there
 * checks ranges. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "example.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

#define TENSORS 8

struct input {
    const unsigned char *data;
    size_t size;
};

static unsigned next(struct input *in)
{
    if (in->size == 0)
        return 0;
    in->size--;
    return *in->data++;
}

/* Mostly small, sometimes huge. */
static uint32_t number(struct input *in)
{
    unsigned n = next(in);
    return n < 240 ? n % 9 : n < 250 ? 1u << n % 32 : UINT32_MAX - n % 3;
}

/* Those at the ends of the range, and those that are no numbers. */
static float real(struct input *in)
{
    static const float some[] = {0,        -0.0f,     1,       -1,       0.125f, 1e-45f, -1e-45f,
                                 INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 1e-6f,  NAN};
    return some[next(in) % (sizeof some / sizeof *some)];
}

#define DEVICES 4

static struct vka_device *devices[DEVICES], *device;
static struct instance valid[DEVICES][N_EXAMPLE];
static size_t n_device, device_index;
static bool on_stub;

static void close_devices(void)
{
    for (size_t i = 0; i < n_device; i++) {
        for (size_t j = 0; j < N_EXAMPLE; j++)
            example_destroy(&valid[i][j]);
        vka_device_destroy(&devices[i]);
    }
}

/* Puts the examples on the newest device. */
static void open_examples(void)
{
    for (size_t i = 0; i < N_EXAMPLE; i++)
        if (example_create(&examples[i], devices[n_device], VKA_F32, &valid[n_device][i]) !=
                VKA_OK ||
            example_fill(&valid[n_device][i]) != VKA_OK)
            abort();
}

static bool open_devices(void)
{
    if (n_device > 0)
        return true;
    struct vka_device_properties properties[DEVICES];
    size_t n = DEVICES;
    if (vka_device_list(NULL, properties, &n) != VKA_OK)
        n = 0;
    on_stub = n > 0 && strncmp(properties[0].name, "stub ", 5) == 0;
    for (size_t i = 0; i < n && i < (on_stub ? DEVICES : 1); i++) {
        const char index[] = {(char)('0' + i), '\0'};
        /* Allocations that a fuzzer's own limit on memory would stop are refused by the device. */
        if (vka_device_create(VKA_INFO(vka_device_info, .device = on_stub ? index : NULL,
                                       .skip_self_test = on_stub, .max_allocation = 256u << 20),
                              &devices[n_device]) != VKA_OK)
            break;
        open_examples();
        n_device++;
    }
    if (n_device == 0 && getenv("VKATTN_STUB"))
        abort(); /* its devices were asked for */
    if (n_device == 0)
        fprintf(stderr, "SKIPPED: no Vulkan device, so no plans are built\n");
    else
        atexit(close_devices); /* before the driver ends, which looks for what is left */
    return n_device > 0;
}

/* A failure leaves nothing in its out-parameter, and a sentence. */
static void check(enum vka_status status, const void *made)
{
    if ((unsigned)status >= VKA_STATUS_COUNT || status == VKA_INTERNAL)
        abort();
    if (status != VKA_OK && (made || !vka_device_error(device)[0]))
        abort();
}

static void make_tensor(struct input *in, struct vka_tensor **slot)
{
    uint32_t shape[VKA_MAX_RANK];
    for (int i = 0; i < VKA_MAX_RANK; i++)
        shape[i] = number(in);
    const enum vka_dtype dtype = (enum vka_dtype)(next(in) % 6);
    const uint32_t rank = next(in) % 6;
    vka_tensor_destroy(slot);
    check(vka_tensor_create(device, dtype, rank, shape, slot), *slot);
}

static void make_view(struct input *in, struct vka_tensor *from, struct vka_tensor **slot)
{
    uint32_t shape[VKA_MAX_RANK];
    uint64_t strides[VKA_MAX_RANK];
    struct vka_tensor *view = NULL;
    unsigned kind = next(in) % 4;
    for (int i = 0; i < VKA_MAX_RANK; i++) {
        shape[i] = number(in);
        strides[i] = number(in);
    }
    if (!from)
        return;
    uint32_t a = number(in), b = number(in), c = number(in);
    check(kind == 0   ? vka_tensor_permute(from, shape, &view)
          : kind == 1 ? vka_tensor_slice(from, a, b, c, &view)
          : kind == 2 ? vka_tensor_reshape(from, a, shape, &view)
                      : vka_tensor_strided(from, c, a, shape, strides, &view),
          view);
    vka_tensor_destroy(slot);
    *slot = view;
}

static struct vka_tensor *pick(struct input *in, struct vka_tensor *const *tensors)
{
    unsigned n = next(in) % (TENSORS + 2);
    return n < TENSORS ? tensors[n] : NULL;
}

/* A tensor from those made here, or of the example, in any place; or none. */
static struct vka_tensor *any_tensor(struct input *in, const struct instance *instance,
                                     struct vka_tensor *const *tensors)
{
    const unsigned at = next(in);
    if (at < 128)
        return pick(in, tensors);
    return instance->tensors[at % instance->example->n_field];
}

/* Sets a field to what the bytes say. False: the value has no meaning, and the call is to be
 * refused. */
static bool set_field(struct input *in, const struct instance *instance, const struct field *f,
                      struct vka_tensor *const *tensors, char *op)
{
    double value = 0;
    if (f->fault < TENSOR_FAULTS) {
        struct vka_tensor *tensor = any_tensor(in, instance, tensors);
        memcpy(op + f->offset, &tensor, sizeof tensor);
        return true; /* with other fields changed, any may do */
    }
    if (f->fault == LINK || f->fault == LAYER) {
        memset(op + f->offset, 0, f->size);
        return false;
    }
    if (f->fault == FINITE || f->fault == POSITIVE || f->fault == RATE) {
        value = (double)real(in);
        field_set(f, op, value);
        return f->fault == FINITE ? isfinite(value)
                                  : value >= 0 && (f->fault == RATE ? value <= 1 : isfinite(value));
    }
    const uint32_t word = number(in);
    value = f->fault == COUNT ? word % (f->limit + 1) : word;
    field_set(f, op, value);
    switch ((int)f->fault) {
    case SIZE:
        return value == f->number;
    case COUNT:
        return value > 0;
    case ENUM:
        return word < f->limit;
    case GIVEN:
        return !(word & ~f->limit);
    default:
        return true;
    }
}

/* Adds an example with some of its fields changed. */
static enum vka_status add(struct input *in, struct vka_plan *plan, struct vka_tensor *const *t)
{
    alignas(max_align_t) char op[EXAMPLE_BYTES];
    const size_t at = next(in) % N_EXAMPLE;
    const struct instance *instance = &valid[device_index][at];
    const struct example *example = instance->example;
    const struct field *senseless[EXAMPLE_FIELDS] = {NULL};
    example_copy(instance, op);
    for (unsigned n = next(in) % 8; n > 0; n--) {
        const size_t i = next(in) % example->n_field;
        senseless[i] =
            set_field(in, instance, &example->fields[i], t, op) ? NULL : &example->fields[i];
    }
    const enum vka_status status = example->add(plan, op);
    for (size_t i = 0; i < example->n_field && status == VKA_OK; i++)
        if (senseless[i]) {
            fprintf(stderr, "%s takes a senseless %s\n", example->name, senseless[i]->name);
            abort();
        }
    return status;
}

static void build(struct input *in, struct vka_tensor *const *tensors)
{
    struct vka_plan *plan = NULL;
    check(vka_plan_create(device, VKA_INFO(vka_plan_info, .path = (enum vka_path)(next(in) % 4)),
                          &plan),
          plan);
    for (unsigned n = next(in) % 4; plan && n > 0; n--) {
        size_t before = vka_plan_describe(plan, NULL, 0);
        enum vka_status status = add(in, plan, tensors);
        check(status, NULL);
        if (status != VKA_OK && vka_plan_describe(plan, NULL, 0) != before)
            abort();
    }
    const bool whole = plan && next(in) % 8 == 0;
    const enum vka_status status = whole ? vka_plan_finish(plan) : VKA_INVALID;
    if (whole)
        check(status, NULL);
    if (whole && on_stub && status == VKA_OK)
        check(vka_plan_run(plan, 60 * UINT64_C(1000000000)), NULL);
    vka_plan_destroy(&plan);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct vka_tensor *tensors[TENSORS] = {NULL};
    struct input in = {data, size};
    if (!open_devices())
        return 0;
    device_index = n_device > 1 ? next(&in) % n_device : 0;
    device = devices[device_index];
    while (in.size > 0) {
        unsigned at = next(&in) % TENSORS, kind = next(&in) % 4;
        if (kind < 2)
            make_tensor(&in, &tensors[at]);
        else if (kind == 2)
            make_view(&in, tensors[next(&in) % TENSORS], &tensors[at]);
        else
            build(&in, tensors);
    }
    for (int i = 0; i < TENSORS; i++)
        vka_tensor_destroy(&tensors[i]);
    return 0;
}
